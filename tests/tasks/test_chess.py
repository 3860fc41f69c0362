"""The task of the next move of chess: its layout, what it allows, its states, and its floors, held to python-chess."""

import math
from pathlib import Path

import chess
import pytest
import torch

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.harness.train.loop import execute
from chomsky_ladder.models.mamba import MambaConfig
from chomsky_ladder.tasks.base import PAD, Batch
from chomsky_ladder.tasks.chess import Chess
from chomsky_ladder.tasks.draw import Draw

torch.set_num_threads(1)

TASK = Chess()


def sample(lengths: list[int], *, width: int = 0) -> Batch:
    draw = Draw(seed=4, split="train", rows_B=torch.arange(len(lengths)))
    return TASK.sample(draw, torch.tensor(lengths), width or max(map(TASK.positions, lengths)))


def test_lengths() -> None:
    assert TASK.legal_lengths(1, 999) == tuple(range(2, 301)) and TASK.own_lengths == (60, 60)
    assert [TASK.positions(length) for length in (2, 60, 300)] == [1, 59, 299]
    assert len(TASK.vocab) == 1969 and TASK.squares == tuple(chess.SQUARE_NAMES)


def test_inputs_targets_states_and_what_is_allowed_are_those_of_one_game() -> None:
    lengths = [2, 17, 60]
    batch = sample(lengths, width=61)
    allowed_BLV, state_BLS = TASK.allowed(batch.tokens_BL), TASK.state(batch.tokens_BL)
    white_BLS, black_BL = TASK.state_as("black_white", batch.tokens_BL), TASK.black_moves(batch.tokens_BL)
    names = TASK.state_views
    for row, length in enumerate(lengths):
        board, positions = chess.Board(), length - 1
        assert int(batch.length_B[row]) == positions and int(batch.prompt_B[row]) == 1
        assert not batch.tokens_BL[row, positions:].any() and not batch.scored_BL[row, positions:].any()
        for place in range(positions):
            token, target = int(batch.tokens_BL[row, place]), int(batch.targets_BL[row, place])
            if token != PAD:
                board.push(board.parse_uci(TASK.vocab[token]))  # which refuses an illegal move
            allowed = {TASK.vocab[token] for token in allowed_BLV[row, place].nonzero()[:, 0].tolist()}
            assert allowed == {move.uci() for move in board.legal_moves}
            assert bool(batch.scored_BL[row, place]) == (target != PAD) == bool(allowed)
            assert target == PAD or int(batch.tokens_BL[row, place + 1]) in (target, PAD)
            assert bool(black_BL[row, place]) == (board.turn == chess.BLACK)
            for square in chess.SQUARES:
                piece = board.piece_at(square)
                kind = "" if piece is None else f" {chess.piece_name(piece.piece_type)}"
                colour = "" if piece is None else chess.COLOR_NAMES[piece.color]
                side = "" if piece is None else "my" if piece.color == board.turn else "their"
                mine, white = int(state_BLS[row, place, square]), int(white_BLS[row, place, square])
                assert names["mine_theirs"][mine] == (side + kind or "empty")
                assert names["black_white"][white] == (colour + kind or "empty")


@pytest.mark.full
def test_floors_of_the_docstring() -> None:
    """Counted on 100 games, of which the means are some .005 off, and the best moves some .02."""
    floors, facts = TASK.floors([60]), {name: float(value) for name, value in TASK.facts.items()}
    assert floors.s_rand == pytest.approx(0.0157, abs=3e-4)
    assert floors.content_free == pytest.approx(0.41, abs=0.02) and 0.18 < floors.best_constant < floors.content_free
    assert facts["lowest_loss"] == pytest.approx(3.367, abs=0.02)
    assert facts["highest_hit_rate"] == pytest.approx(0.042, abs=0.002)
    assert facts["always_empty"] == pytest.approx(0.543, abs=0.005)
    assert facts["commonest_of_square"] == pytest.approx(0.545, abs=0.005)
    assert facts["commonest_of_square_and_ply"] == pytest.approx(0.643, abs=0.005)


def test_moves_have_marks() -> None:
    marks_VF = TASK.marks(torch.device("cpu"))
    assert not marks_VF[PAD].any() and len(marks_VF[1:].unique(dim=0)) == 1968
    names = [*TASK.squares, *TASK.squares, *"nbrq"]
    for move in ("e2e4", "b7a8n"):
        assert "".join(names[mark] for mark in marks_VF[TASK.vocab.index(move)].nonzero()[:, 0].tolist()) == move
        assert TASK.squares[TASK.lands(TASK.vocab.index(move))] == move[2:4]


def test_a_model_is_trained_and_scored_by_its_legal_moves(tmp_path: Path) -> None:
    run = Run(
        task=TASK,
        model=MambaConfig(d_model=8, num_blocks=1),
        train=Train(steps=2, batch=4, lengths=(20, 20)),
        eval=Eval(lengths=(20, 20), bins=(20,), extrapolate=(), test=8, validation=8, every=0),
    )
    result = execute(run, Exec(device="cpu", results=tmp_path), quiet=True)
    assert result["status"] == "done" and result["test"]["scaled"] is None
    assert result["test"]["hits"] <= result["test"]["accuracy"] < 0.3
    assert math.isclose(result["floors"]["s_rand"], TASK.floors([20]).s_rand)
