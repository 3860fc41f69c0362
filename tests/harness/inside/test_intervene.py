"""Edits of the board in a model's head: felt by a model that uses its board, by no other, and carried by its state."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from chomsky_ladder.harness.cli import main as cli
from chomsky_ladder.harness.config.run import Eval, Train
from chomsky_ladder.harness.inside.cases import Cases
from chomsky_ladder.harness.inside.intervene import intervene, intervene_run
from chomsky_ladder.harness.inside.probe import Probes, load_probe, probe_run
from chomsky_ladder.harness.inside.push import Push, Pusher
from chomsky_ladder.harness.inside.settings import InterveneSettings, ProbeSettings
from chomsky_ladder.harness.inside.streams import Trained, load_trained
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.models.block import Context
from chomsky_ladder.models.encoder import EncoderConfig
from chomsky_ladder.tasks.parity import Parity
from support.board_player import CPU, player, some_cases
from support.othello_runs import BOARD, tiny
from support.othello_runs import refused as refused

FEW = InterveneSettings(cases_validation=10, cases_test=40, strengths=(0.1, 2.0), examples=2)
FEWER = replace(FEW, cases_validation=4, cases_test=10)
PROBED = ProbeSettings(games_train=10, games_validation=5, games_test=5, epochs=1, hidden=4)


@pytest.fixture(scope="module")
def heeding() -> tuple[Trained, Probes]:
    return player("stream", games=100)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = tiny(tmp_path_factory.mktemp("edited"))
    probe_run(folder, PROBED, device="cpu")
    return folder


@pytest.mark.full
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


@pytest.mark.full
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


@pytest.mark.full
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


@pytest.mark.full
def test_twice_the_same(done: RunFolder) -> None:
    found = []
    for _ in range(2):
        result = intervene_run(done, FEWER, device="cpu")
        found.append((done.path / "intervene.json").read_bytes())
    assert found[0] == found[1] and json.loads(found[0]) == result
    other = intervene_run(done, replace(FEWER, seed=1), device="cpu")["edits"]["flip"]
    assert other["best"]["error"] == result["edits"]["flip"]["best"]["error"]
    assert other["best"]["random"] != result["edits"]["flip"]["best"]["random"]


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


@pytest.mark.full
def test_what_carries_nothing_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tiny(tmp_path, model=EncoderConfig(d_model=16, num_heads=2))
    probe_run(folder, PROBED, device="cpu")
    words = ["--intervene.cases-test", "10", "--intervene.cases-validation", "10", "--quiet"]
    assert cli.main(["intervene", folder.path.name, "--results", str(tmp_path), *words]) == 0
    said = capsys.readouterr().out
    assert "not carried: encoder has no step form" in said and "wrong square" in said and "null - edited" in said
    result = json.loads((folder.path / "intervene.json").read_text())
    assert result["edits"]["flip"]["carried"] is None


def test_a_plugin_with_boards_of_its_own_is_no_board_game(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plugin = tmp_path / "checkers.py"
    plugin.write_text(
        "from dataclasses import dataclass\n"
        "from chomsky_ladder.tasks.base import register\n"
        "from chomsky_ladder.tasks.parity import Parity\n\n\n"
        "@register\n@dataclass(frozen=True, kw_only=True)\nclass Checkers(Parity):\n"
        "    name, version, level = 'checkers', 1, 'regular'\n\n"
        "    def boards(self, tokens_BL, *, sees):\n        return self.state(tokens_BL)\n"
    )
    words = ["checkers", "lstm", "--protocol", "quick", "--train.steps", "2", "--model.d-model", "8", "--quiet"]
    small = ["--eval.test", "8", "--eval.validation", "8", "--exec.results", str(tmp_path), "--plugin", str(plugin)]
    assert cli.main(["run", *words, *small]) == 0
    run_id = next((tmp_path / "runs").iterdir()).name
    capsys.readouterr()
    assert cli.main(["intervene", run_id, "--results", str(tmp_path), "--plugin", str(plugin)]) == 2
    said = capsys.readouterr().err
    assert said == "ladder: checkers has no board to edit: it is no BoardGame (tasks/_board.py)\n"
