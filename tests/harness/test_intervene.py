"""Edits of the board in a model's head: right on a slow board, felt by a model that uses its board, and by no other."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from oracles_othello import OTHER, Game
from torch import Tensor, nn

from harness import cli
from harness.config import Eval, Exec, Run, Train
from harness.intervene import InterveneSettings, intervene, intervene_run
from harness.intervene_cases import EDITS, Cases, Edit, cases_of
from harness.intervene_push import Push, Pusher, wrong_moves
from harness.probe import Probes, load_probe, probe_run
from harness.probe_fit import ProbeSettings, Stream, fit
from harness.probe_streams import Trained, load_trained, stream_positions, strings_of
from harness.records import RunFolder
from harness.train import execute
from models.base import Block, Context, ModelConfig
from models.encoder import EncoderConfig
from models.lstm_block import LSTMBlockConfig
from tasks._othello import Position, bit_table, rules_of, squares_of
from tasks.othello import Othello
from tasks.parity import Parity

BOARD = Othello(size=6)
WHOLE = {"lengths": (60, 60)}
EVAL = Eval(test=2, validation=2, bins=(60,), extrapolate=(), **WHOLE)
CPU = torch.device("cpu")
FEW = InterveneSettings(cases_validation=20, cases_test=60, strengths=(0.1, 2.0), examples=2)
PROBED = ProbeSettings(games_train=10, games_validation=5, games_test=5, epochs=1, hidden=4)


@dataclass(frozen=True, kw_only=True)
class PlayerConfig(ModelConfig):
    """Plays the legal moves of the board in its stream; or of the true one, whatever its stream holds."""

    name, family, year, paper = "player", "test", 2026, "none"
    d_model: int = 36 * 3
    num_blocks: int = 2
    heeds: str = "stream"

    def block(self, layer: int) -> Block:
        raise NotImplementedError

    def build(self, vocab_size: int) -> "Player":
        return Player(self)


class Player(nn.Module):
    """Layer 1 has the board of the moves, layer 2 the one that the state carries, which layer 1 corrects if need be."""

    num_layers = 2

    def __init__(self, config: PlayerConfig) -> None:
        super().__init__()
        self.config, self.weight = config, nn.Parameter(torch.ones(()))

    def forward(self, tokens_BL: Tensor, ctx: Context) -> Tensor:
        true_BLS = BOARD.state(tokens_BL)
        told_BLD = nn.functional.one_hot(true_BLS, 3).flatten(2).float()
        ctx.visit(0, torch.zeros_like(told_BLD))
        seen_BLS = ctx.visit(1, told_BLD).unflatten(2, (36, 3)).argmax(3)
        if self.config.heeds == "moves":
            ctx.visit(2, told_BLD)
            return self.weight * legal_moves(true_BLS)
        wrong_BL, black_BL = (seen_BLS != true_BLS).any(2), BOARD.black_moves(tokens_BL)
        position, carried = None, []
        for place, token_B in enumerate(tokens_BL.unbind(1)):
            corrected = position_of(seen_BLS[:, place], black_BL[:, place])
            if position is None:
                position = corrected
            else:
                moved = rules_of(6, CPU).after(position, bit_table(6, CPU).take(token_B) & position.legal)
                both = zip(corrected, moved, strict=True)
                position = Position(*(torch.where(wrong_BL[:, place], a, b) for a, b in both))
            carried.append(board_of(position))
        held_BLD = nn.functional.one_hot(torch.stack(carried, 1), 3).flatten(2).float()
        return self.weight * legal_moves(ctx.visit(2, held_BLD).unflatten(2, (36, 3)).argmax(3))


def legal_moves(board_BLS: Tensor) -> Tensor:
    """1 for each legal move, [B, L, V]."""
    mine_BL, theirs_BL = (bits_of(board_BLS == label) for label in (1, 2))
    legal_BL = rules_of(6, CPU).legal_moves(mine_BL.flatten(), theirs_BL.flatten()).view_as(mine_BL)
    return ((legal_BL[..., None] & bit_table(6, CPU)) != 0).float()


def bits_of(is_BLS: Tensor) -> Tensor:
    return (is_BLS * (1 << torch.tensor(squares_of(6)))).sum(-1)


def board_of(position: Position) -> Tensor:
    mine_BS, theirs_BS = ((bits[:, None] >> torch.tensor(squares_of(6))) & 1 for bits in position[:2])
    return mine_BS + 2 * theirs_BS


def position_of(seen_BS: Tensor, black_B: Tensor) -> Position:
    mine_B, theirs_B = (bits_of(seen_BS == label) for label in (1, 2))
    return Position(mine_B, theirs_B, rules_of(6, CPU).legal_moves(mine_B, theirs_B), black_B)


def player(heeds: str, *, games: int) -> tuple[Trained, Probes]:
    """It and linear probes of its layers."""
    run = Run(task=BOARD, model=PlayerConfig(heeds=heeds), train=Train(**WHOLE), eval=Eval(**WHOLE, bins=(60,)))
    trained, fitted = Trained(run, run.model.build(33).eval(), 1), {}
    strings = strings_of(run, "probe/train", count=games, lengths=(60, 60))
    for layer, x_ND in enumerate(stream_positions(run, trained.model, strings)):
        pair = Stream(x_ND, strings.position_N, width=31), strings.labels["mine_theirs"]
        settings = ProbeSettings(epochs=4, batch=64)
        fitted["mine_theirs", "linear", layer] = fit(
            pair, pair, kind="linear", sizes=BOARD.state_sizes, settings=settings
        ).probe
    probes = Probes(
        run_id=run.run_id,
        step=1,
        cells=BOARD.squares,
        classes={"mine_theirs": ("empty", "mine", "theirs")},
        sizes=BOARD.state_sizes,
        num_layers=2,
        fitted=fitted,
        chosen={("mine_theirs", "linear"): 1},
    )
    return trained, probes


@pytest.fixture(scope="module")
def heeding() -> tuple[Trained, Probes]:
    return player("stream", games=150)


def tiny(results: Path, **parts: Any) -> RunFolder:
    run = Run(task=BOARD, model=LSTMBlockConfig(d_model=16), train=Train(steps=1, batch=2, **WHOLE), eval=EVAL)
    run = replace(run, **parts)
    execute(run, Exec(results=results, device="cpu"), quiet=True)
    return RunFolder(results, run.run_id)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = tiny(tmp_path_factory.mktemp("edited"))
    probe_run(folder, PROBED, device="cpu")
    return folder


def some_cases(edit: Edit, *, count: int = 60, size: int = 6) -> Cases:
    run = Run(task=Othello(size=size), model=LSTMBlockConfig(), train=Train(**WHOLE), eval=Eval(**WHOLE, bins=(60,)))
    return cases_of(run, "intervene/test", edit, count=count, low=5, moves_on=5, device=CPU)


@pytest.mark.parametrize("size", [6, 8])
@pytest.mark.parametrize("edit", EDITS)
def test_edited_boards_are_those_of_a_slow_board(edit: Edit, size: int) -> None:
    task, cases, changed, ended = Othello(size=size), some_cases(edit, size=size), set(), 0
    assert cases.count > 55
    for case in range(cases.count):
        last, games = int(cases.last_B[case]), (Game(size), Game(size))
        tokens = cases.tokens_BL[case].tolist()
        for game, token in ((game, token) for game in games for token in tokens[: last + 1]):
            game.play(task.vocab[token])
        true, edited = games
        cell = int(cases.change.cell_B[case])
        name, before, after = task.squares[cell], *(int(x[case]) for x in cases.change[1:])
        assert true.labels(true.viewer) == cases.board_BS[case].tolist()
        assert true.labels(true.viewer)[cell] == before != 0
        assert after == (3 - before if edit == "flip" else 0)
        if edit == "erase":
            assert name in task.vocab
        sign = {1: edited.viewer, 2: OTHER[edited.viewer], 0: "."}[after]
        edited.board[edited.places[name]] = sign
        edited.moves = edited.moves_of(edited.player)
        assert edited.labels(edited.viewer) == cases.edited_BS[case].tolist()
        wrong = int(cases.wrong.cell_B[case])
        assert wrong != cell and true.labels(true.viewer)[wrong] == int(cases.wrong.before_B[case]) != 0
        assert int(cases.wrong.after_B[case]) == (3 - int(cases.wrong.before_B[case]) if edit == "flip" else 0)
        going = True
        for moves, moment in enumerate(cases.moments):
            if moves:
                token = tokens[last + moves]
                if token == 0:
                    assert not going or not set(true.moves) & set(edited.moves) or true.player != edited.player
                    going = False
                elif going:
                    for game in games:
                        game.play(task.vocab[token])  # which it must allow
            counted = going and true.player == edited.player and true.moves and set(edited.moves) & set(task.vocab)
            assert bool(moment.going_B[case]) == bool(counted), (case, moves)
            if counted:
                for legal_BV, game in ((moment.legal_BV, true), (moment.edited_legal_BV, edited)):
                    found = {task.vocab[token] for token in legal_BV[case].nonzero()[:, 0].tolist()}
                    assert found == set(game.moves) & set(task.vocab)
        ended += not going
        changed.add(name)
        assert set(tokens[last + len(cases.moments) :]) <= {0}
    assert len(changed) > 15


def test_cases_do_not_depend_on_how_many_there_are() -> None:
    few, many = some_cases("flip", count=20), some_cases("flip", count=40)
    assert few.count == 20
    assert torch.equal(few.tokens_BL, many.tokens_BL[:20]) and torch.equal(few.edited_BS, many.edited_BS[:20])


def test_wrong_moves_by_hand() -> None:
    scores_BV = torch.tensor([[9.0, 1, 5, 4, 0, 4], [9, 0, 0, 0, 0, 0]])  # the first token is no move
    legal_BV = torch.tensor([[0, 1, 1, 1, 0, 0], [0, 0, 0, 1, 0, 1]]).bool()
    found = [row.nonzero()[:, 0].tolist() for row in wrong_moves(scores_BV, legal_BV)]
    assert found == [[1, 5], [1, 2, 3, 5]]  # {2, 3, 5} for {1, 2, 3}; of equal ones {1, 2} for {3, 5}


def test_a_player_of_the_board_in_its_stream_follows_every_edit(heeding: tuple[Trained, Probes]) -> None:
    result = intervene(*heeding, FEW)
    for name, edit in result["edits"].items():
        assert edit["own_error"]["mean"] == 0
        assert edit["null"]["mean"] == edit["perfect_null"] > 1, name
        assert edit["best"]["error"]["mean"] < 0.05 < edit["null_changed"]["mean"]
        assert edit["best"]["random"]["mean"] > edit["null"]["mean"] - 0.2  # a random direction moves nothing
        assert edit["best"]["wrong_square"]["mean"] > edit["null"]["mean"]
        assert edit["best"]["changed"]["mean"] <= edit["best"]["error"]["mean"]
        assert edit["best"]["strength"] == 2
        what = {row["what"]: row for row in edit["comparisons"]}
        assert what["null - edited"]["mean"] == pytest.approx(edit["null"]["mean"] - edit["best"]["error"]["mean"])
        assert what["random - edited"]["mean_over_se"] > 5
        carried = edit["carried"]
        assert carried["layer"] <= 1 and [row["moves"] for row in carried["after"]] == [1, 2, 3, 4, 5]
        for row in carried["after"]:
            assert row["edited"]["mean"] < 0.1 < 0.5 < row["null"]["mean"] == row["perfect_null"]
            assert row["random"]["mean"] > row["null"]["mean"] - 0.2 and row["own_error"]["mean"] == 0
    example = result["edits"]["flip"]["examples"][1]
    assert sum(a != b for a, b in zip(example["board"], example["edited_board"], strict=True)) == 1
    assert BOARD.squares[example["cell"]] == example["square"] and {example["from"], example["to"]} == {
        "mine",
        "theirs",
    }
    for legal, probabilities in (("legal", "probabilities"), ("edited_legal", "edited_probabilities")):
        likeliest = sorted(range(33), key=lambda token: -example[probabilities][token])[: len(example[legal])]
        assert sorted(likeliest) == example[legal]


def test_a_player_that_does_not_look_at_its_stream_follows_none() -> None:
    settings = replace(FEW, cases_test=20, strengths=(2.0,))
    for edit in intervene(*player("moves", games=20), settings)["edits"].values():
        for row in edit["layers"]:
            assert row["error"] == row["random"] == row["wrong_square"] == edit["null"]
        assert [row["edited"] for row in edit["carried"]["after"]] == [row["null"] for row in edit["carried"]["after"]]


def test_a_push_brings_the_probe_to_where_it_says(heeding: tuple[Trained, Probes]) -> None:
    trained, probes = heeding
    pusher, cases = Pusher(trained, probes, seed=0, games=20), some_cases("flip")
    rows_N, change = torch.arange(cases.count), cases.change
    for along in ("probe", "random"):
        pushed = pusher.logits(cases, Push(1, 1.0))
        push = Push(1, 1.0, along)
        given_KB = None if along == "probe" else pushed.step_KB
        edit = pusher._edit(1, cases, push, rows_N, given_KB, [])
        ctx = Context(taps=frozenset({1}))
        trained.model(cases.tokens_BL, ctx)
        before_BLD, after_BLD = ctx.tapped[1], edit(ctx.tapped[1])
        moved_BL = (before_BLD != after_BLD).any(2)
        assert moved_BL.nonzero().tolist() == [[case, int(cases.last_B[case])] for case in range(cases.count)]
        length_B = (after_BLD - before_BLD)[rows_N, cases.last_B].norm(dim=1)
        torch.testing.assert_close(length_B, pushed.step_KB[0].abs(), rtol=1e-4, atol=1e-4)
        logits_BC = probes.logits(after_BLD[rows_N, cases.last_B], 1, cases.last_B)[rows_N, change.cell_B]
        odds_B = logits_BC[rows_N, change.after_B] - logits_BC[rows_N, change.before_B]
        wanted_B = pusher.typical[1][change.before_B, change.after_B]
        assert bool((wanted_B > 0).all())
        assert torch.allclose(odds_B, wanted_B, rtol=1e-3) == (along == "probe")


def test_the_edit_is_carried_by_the_state_alone(done: RunFolder) -> None:
    """Stepping on from the edited state gives what the parallel form gives with the edit at that one position."""
    trained, probes = load_trained(done), load_probe(done.path)
    pusher, cases = Pusher(trained, probes, seed=0, games=10), some_cases("flip", count=6)
    pushed, plain = pusher.logits(cases, Push(0, 8.0)), pusher.logits(cases)
    assert float((pushed.logits_BJV - plain.logits_BJV)[:, 5].abs().max()) > 1e-4
    model = trained.model
    for case in range(cases.count):
        one, last = cases.part(torch.tensor([case])), int(cases.last_B[case])
        state = model.init_state(1, max_length=31, device=CPU, dtype=torch.float32)
        for position in range(last + 6):
            ctx = Context()
            if position == last:
                here = one._replace(tokens_BL=one.tokens_BL[:, last : last + 1])

                def edit(x_BD: Tensor, layer: int, here: Cases = here, last: int = last) -> Tensor:
                    along_BD, length_B = pusher._direction(layer, here.change)
                    missing_B = 8 * pusher._typical_of(layer, here.change) - pusher._log_odds(layer, here, x_BD)
                    return x_BD + (missing_B / length_B)[:, None] * along_BD

                ctx.edits = {layer: lambda x, layer=layer: edit(x, layer) for layer in range(3)}
            with torch.no_grad():
                logits_BV, state = model.step(one.tokens_BL[:, position], state, ctx)
            if position >= last and bool(one.moments[position - last].going_B):
                torch.testing.assert_close(
                    logits_BV[0].double(), pushed.logits_BJV[case, position - last], rtol=1e-3, atol=1e-4
                )


def test_twice_the_same(done: RunFolder) -> None:
    found = []
    for _ in range(2):
        result = intervene_run(done, FEW, device="cpu")
        found.append((done.path / "intervene.json").read_bytes())
    assert found[0] == found[1] and json.loads(found[0]) == result
    other = intervene_run(done, replace(FEW, seed=1), device="cpu")["edits"]["flip"]
    assert other["best"]["error"] == result["edits"]["flip"]["best"]["error"]
    assert other["best"]["random"] != result["edits"]["flip"]["best"]["random"]


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def say(*words: str) -> str:
        assert cli.main(words) == 2
        said = capsys.readouterr()
        assert said.out == "" and said.err.count("\n") == 1
        return said.err

    return say


def test_what_cannot_be_edited(refused: Callable[..., str], tmp_path: Path, done: RunFolder) -> None:
    where, short = ("--results", str(tmp_path)), {"lengths": (3, 12)}
    folder = tiny(tmp_path)
    assert f"has not been probed: `ladder probe {folder.path.name}`" in refused("intervene", folder.path.name, *where)
    (folder.path / "probe.ckpt").write_bytes((done.path / "probe.ckpt").read_bytes()[:-1])
    assert "does not match its digest" in refused("intervene", folder.path.name, *where)
    words = ("intervene", folder.path.name, *where)
    assert "intervene.strengths must be positive" in refused(*words, "--intervene.strengths", "0")
    (folder.path / "probe.ckpt").write_bytes((done.path / "probe.ckpt").read_bytes())
    assert "leaves no 5 to play on" in refused(*words, "--intervene.after-moves", "27")
    parity = tiny(
        tmp_path,
        task=Parity(),
        train=Train(steps=1, batch=2, **short),
        eval=Eval(test=2, validation=2, bins=(3, 12), extrapolate=(), **short),
    )
    assert "parity has no board to edit" in refused("intervene", parity.path.name, *where)
    trained = load_trained(folder)
    with pytest.raises(ValueError, match=r"the probes are of .* at step 1: `ladder probe"):
        intervene(trained._replace(step=2), load_probe(folder.path), FEW)


def test_what_carries_nothing_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tiny(tmp_path, model=EncoderConfig(d_model=16, num_heads=2))
    probe_run(folder, PROBED, device="cpu")
    words = ["--intervene.cases-test", "10", "--intervene.cases-validation", "10", "--quiet"]
    assert cli.main(["intervene", folder.path.name, "--results", str(tmp_path), *words]) == 0
    said = capsys.readouterr().out
    assert "not carried: encoder has no step form" in said and "wrong square" in said and "null - edited" in said
    result = json.loads((folder.path / "intervene.json").read_text())
    assert result["edits"]["flip"]["carried"] is None
