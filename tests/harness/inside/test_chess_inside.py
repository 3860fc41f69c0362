"""Probes, edits and world-model metrics serve chess as they serve Othello. Cases are held to python-chess."""

import json
from dataclasses import replace
from pathlib import Path

import chess
import pandas as pd
import pytest
import torch

from chomsky_ladder.harness.cli import main as cli
from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.harness.inside import figures
from chomsky_ladder.harness.inside.cases import EDITS, cases_of
from chomsky_ladder.harness.inside.games import Walks, same_state
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.models.lstm_block import LSTMBlockConfig
from chomsky_ladder.tasks._board import Edit
from chomsky_ladder.tasks.chess import Chess
from support.othello_runs import tiny

TASK, SHORT, SHORTER = Chess(), {"lengths": (20, 20)}, {"lengths": (12, 12)}
EVAL = Eval(test=2, validation=2, bins=(20,), extrapolate=(), **SHORT)


@pytest.mark.parametrize("edit", EDITS)
def test_edited_boards_are_those_of_python_chess(edit: Edit) -> None:
    run = Run(task=TASK, model=LSTMBlockConfig(), train=Train(**SHORT), eval=EVAL)
    cases = cases_of(run, "intervene/test", edit, count=16, low=5, moves_on=3, device=torch.device("cpu"))
    names, played = TASK.state_views["mine_theirs"], 0
    assert cases.count > 12
    for case in range(cases.count):
        last, tokens = int(cases.last_B[case]), cases.tokens_BL[case].tolist()
        true, square = chess.Board(), int(cases.change.cell_B[case])
        for token in tokens[: last + 1]:
            true.push(true.parse_uci(TASK.vocab[token]))
        edited, piece = true.copy(), true.piece_at(square)
        assert piece is not None and piece.piece_type != chess.KING
        edited.remove_piece_at(square)
        side, other = ("my", "their") if piece.color == true.turn else ("their", "my")
        before, after = (names[int(label[case])] for label in cases.change[1:])
        assert before == f"{side} {chess.piece_name(piece.piece_type)}"
        assert after == ("empty" if edit == "erase" else f"{other} {chess.piece_name(piece.piece_type)}")
        if edit == "flip":
            edited.set_piece_at(square, chess.Piece(piece.piece_type, not piece.color))
        differ = (cases.board_BS[case] != cases.edited_BS[case]).nonzero()[:, 0].tolist()
        assert differ == [square] and int(cases.wrong.cell_B[case]) != square
        for moves, moment in enumerate(cases.moments):
            if moves and tokens[last + moves]:
                true.push(true.parse_uci(TASK.vocab[tokens[last + moves]]))
                edited.push(edited.parse_uci(TASK.vocab[tokens[last + moves]]))
                played += 1
            if bool(moment.going_B[case]):
                for legal_BV, board in ((moment.legal_BV, true), (moment.edited_legal_BV, edited)):
                    found = {TASK.vocab[token] for token in legal_BV[case].nonzero()[:, 0].tolist()}
                    assert found == {move.uci() for move in board.legal_moves}
    assert played > 30


def test_pairs_of_one_state_are_those_of_python_chess() -> None:
    """The boards of both games are equal with castling rights and what may be captured in passing."""
    pairs = same_state(TASK, length=12, pairs=8, walks=Walks(count=1, depth=2, seed=0))
    assert not torch.equal(*pairs.tokens_2PL)
    for one, other, length in zip(*pairs.tokens_2PL.tolist(), pairs.length_P.tolist(), strict=True):
        boards = chess.Board(), chess.Board()
        for board, tokens in zip(boards, (one, other), strict=True):
            for token in tokens[:length]:
                board.push(board.parse_uci(TASK.vocab[token]))
        first, second = (board.fen(en_passant="legal").split()[:4] for board in boards)
        assert one != other and first == second


def studied(results: Path) -> RunFolder:
    """A run that was probed and edited by the commands."""
    folder = tiny(results, task=TASK, train=Train(steps=1, batch=2, **SHORTER), eval=replace(EVAL, **SHORTER))
    words = [folder.path.name, "--results", str(results), "--quiet"]
    games = ["--probe.games-train", "4", "--probe.games-validation", "2", "--probe.games-test", "2"]
    assert cli.main(["probe", *words, *games, "--probe.epochs", "1", "--probe.hidden", "4"]) == 0
    edits = ["--intervene.cases-test", "6", "--intervene.cases-validation", "4", "--intervene.strengths", "1"]
    assert cli.main(["intervene", *words, *edits]) == 0
    return folder


def test_the_commands(tmp_path: Path) -> None:
    folder = studied(tmp_path)
    probed, edited = (json.loads((folder.path / f"{name}.json").read_text()) for name in ("probe", "intervene"))
    assert probed["board"] == edited["board"] == 8 and probed["cells"] == edited["cells"] == list(TASK.squares)
    assert probed["views"] == ["mine_theirs", "black_white"] and len(probed["classes"]["mine_theirs"]) == 13
    assert all(row["occupied"] is not None for row in probed["rows"])
    assert edited["edits"]["flip"]["own_error"]["mean"] > 20  # it has learnt nothing: nearly all moves are wrong


@pytest.mark.full
def test_pictures(tmp_path: Path) -> None:
    folder = studied(tmp_path)
    with figures.style():
        pictures = figures._of_one(folder, tmp_path / "pictures", label="LSTM", device="cpu")
    assert [picture.stem.name for picture in pictures] == ["game", "game_every_ply", "flip", "erase"]
    data = pd.read_csv(tmp_path / "pictures" / "game_every_ply.csv")
    assert {"empty", "white queen", "black pawn"} <= set(data["true"]) and (tmp_path / "pictures" / "flip.svg").exists()
    sums = data.groupby("ply")["probability"].sum()
    assert bool((sums <= 1).all()) and bool((sums > 0.99).all())  # a move leads to one square


@pytest.mark.full
def test_world_model(tmp_path: Path) -> None:
    folder = tiny(tmp_path, task=TASK, train=Train(steps=1, batch=2, **SHORT), eval=EVAL)
    words = ["--worldmodel.pairs", "4", "--worldmodel.walks", "1", "--worldmodel.depth", "2"]
    assert cli.main(["worldmodel", folder.path.name, "--results", str(tmp_path), *words]) == 0
    found = json.loads((folder.path / "worldmodel.json").read_text())["model_metrics"]
    assert found["compression_precision"]["pairs"] == 4
