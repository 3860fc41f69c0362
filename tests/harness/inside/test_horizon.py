"""Horizons: pieces read like a whole string, bins and first mistakes by hand, what has no horizon is refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from chomsky_ladder.harness.cli.horizon import horizon as horizon_command
from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.parts import replaced
from chomsky_ladder.harness.config.registry import find_model, find_task
from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.harness.inside import horizon as horizons
from chomsky_ladder.harness.inside.horizon import edges, horizon, strings
from chomsky_ladder.harness.inside.settings import HorizonSettings
from chomsky_ladder.harness.inside.streams import Trained
from chomsky_ladder.harness.train.build import build_model
from chomsky_ladder.harness.train.loop import execute

CPU = torch.device("cpu")
SCORE = Eval(lengths=(8, 12), test=8, validation=8, every=0, bins=(8, 12), extrapolate=())


def cell(task: str = "parity", model: str = "lstm", **settings: Any) -> Run:
    train = Train(steps=2, batch=4, lengths=(3, 8), precision="fp64")
    changed = replaced(find_task(task)(), settings, where="task")
    return Run(task=changed, model=find_model(model).tiny(), train=train, eval=SCORE)


def untrained(run: Run) -> Trained:
    return Trained(run, build_model(run, CPU).eval(), 0)


@pytest.mark.parametrize("model", ["lstm", "transformer", "mamba"])
@pytest.mark.parametrize("piece", [1, 7, 256])
def test_pieces_read_like_the_whole_string(model: str, piece: int) -> None:
    run = cell("cycle_nav", model)
    trained, settings = untrained(run), HorizonSettings(length=30, strings=5, piece=piece)
    batch = strings(run, settings, device=CPU)
    said_BL = trained.model(batch.tokens_BL).argmax(-1)
    right_BL = said_BL == batch.targets_BL
    found = horizon(trained, settings)
    assert [(each["from"], each["to"]) for each in found["bins"]] == edges(8, found["length"])
    for each in found["bins"]:
        mean = right_BL[:, each["from"] - 1 : each["to"]].double().mean()
        assert each["accuracy"] == pytest.approx(float(mean), abs=1e-12)
    firsts = [int((~row).nonzero()[0]) + 1 for row in right_BL if not row.all()]
    assert found["first_mistakes"] == sorted(firsts) and found["without_mistake"] == 5 - len(firsts)


def test_drift_is_of_tasks_with_a_state_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = HorizonSettings(length=30, strings=5, piece=7)
    found = horizon(untrained(cell("cycle_nav")), settings)
    assert found["bins"][0]["drift"] > 0
    assert horizon(untrained(cell("cycle_nav")), replace(settings, piece=256))["bins"] == [
        each | {"drift": pytest.approx(each["drift"], rel=1e-9)} for each in found["bins"]
    ]
    monkeypatch.setattr(find_task("parity"), "state_sizes", ())
    assert "drift" not in horizon(untrained(cell()), settings)["bins"][0]


def test_every_prefix_is_asked_what_a_string_of_it_is() -> None:
    run, settings = cell(), HorizonSettings(length=20, strings=3)
    batch = strings(run, settings, device=CPU)
    assert batch.tokens_BL.shape == (3, 19)  # a length counts the answer, too
    letters = [run.task.vocab[token] for token in batch.tokens_BL[0].tolist()]
    answers = [run.task.vocab[token] for token in batch.targets_BL[0].tolist()]
    assert answers == ["ba"[letters[: end + 1].count("b") % 2 == 0] for end in range(19)]
    again = strings(run, replace(settings, strings=2), device=CPU)
    assert torch.equal(again.tokens_BL, batch.tokens_BL[:2])


def test_what_overflows_is_said_and_no_answer() -> None:
    trained, settings = untrained(cell()), HorizonSettings(length=30, strings=4, piece=10)
    extend = trained.model.extend

    def overflowing(tokens_BL: torch.Tensor, state: Any, ctx: Any) -> Any:
        logits_BLV, state = extend(tokens_BL, state, ctx)
        overflowing.read += tokens_BL.shape[1]  # pyright: ignore[reportFunctionMemberAccess]
        return logits_BLV * (float("inf") if overflowing.read > 20 else 1.0), state  # pyright: ignore[reportFunctionMemberAccess]

    overflowing.read = 0  # pyright: ignore[reportFunctionMemberAccess]
    trained.model.extend = overflowing
    found = horizon(trained, settings)
    assert found["length"] == 29 and found["finite_to"] == 20 and found["without_mistake"] == 0
    assert max(found["first_mistakes"]) <= 21
    assert horizon(untrained(cell()), settings)["finite_to"] == 29


def test_bins_double_behind_what_was_trained() -> None:
    assert edges(40, 200) == [(1, 40), (41, 80), (81, 160), (161, 200)]
    assert edges(40, 30) == [(1, 30)] and edges(40, 41) == [(1, 40), (41, 41)]


def test_a_model_holds_up_to_its_first_bin_below() -> None:
    assert horizons._holds_to([{"to": 40, "scaled": 1.0}, {"to": 80, "scaled": 0.9}, {"to": 160, "scaled": 0.89}]) == 80
    assert horizons._holds_to([{"to": 40, "scaled": 0.5}, {"to": 80, "scaled": 1.0}]) == 0


@pytest.mark.parametrize(
    ("run", "length", "said"),
    [
        (cell("reverse_string"), 30, "reverse_string does not answer every prefix"),
        (cell(query="token"), 30, "parity does not answer every prefix at its last symbol"),
        (cell(model="encoder"), 30, "encoder has no step form"),
        (cell("word_problem", tokens_per=4), 3, r"word_problem has no strings of a length in 1\.\.3"),
    ],
)
def test_what_has_no_horizon_is_refused(run: Run, length: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        horizon(untrained(run), HorizonSettings(length=length, strings=2))


def test_the_command_says_and_draws_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [cell(model=model) for model in ("lstm", "gru")]
    for run in runs:
        execute(run, Exec(results=tmp_path, device="cpu"), quiet=True)
    words = [*(run.run_id for run in runs), "--results", str(tmp_path), "--horizon.length", "50", "--device", "cpu"]
    assert horizon_command([*words, "--picture", str(tmp_path / "far.svg")]) == 0
    said = capsys.readouterr().out
    assert "16 strings of 49" in said and "33..49" in said and said.count("without a mistake") == 2
    drawn = pd.read_csv(tmp_path / "far.csv")
    assert (tmp_path / "far.svg").exists() and list(drawn["to"]) == [8, 16, 32, 49] * 2
    kept = json.loads((tmp_path / "runs" / runs[0].run_id / "horizon.json").read_text())
    assert horizon_command([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0] == kept


def test_a_table_keeps_the_runs_that_are_not_read_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [cell(model=model) for model in ("lstm", "gru")]
    for run in runs:
        execute(run, Exec(results=tmp_path, device="cpu"), quiet=True)
    usual = ["--results", str(tmp_path), "--device", "cpu", "--csv", str(tmp_path / "far.csv"), "--horizon.length"]
    assert horizon_command([runs[0].run_id, *usual, "50"]) == horizon_command([runs[1].run_id, *usual, "50"]) == 0
    both = pd.read_csv(tmp_path / "far.csv")
    assert list(both["run_id"]) == [run_id for run_id in sorted(run.run_id for run in runs) for _ in range(4)]
    assert horizon_command([runs[0].run_id, *usual, "30"]) == 0
    again = pd.read_csv(tmp_path / "far.csv")
    of_first, of_second = (again[again["run_id"] == run.run_id] for run in runs)
    assert list(of_first["to"]) == [8, 16, 29] and list(of_second["to"]) == [8, 16, 32, 49]
    stored = json.loads((tmp_path / "runs" / runs[0].run_id / "horizon.json").read_text())
    assert list(of_first["accuracy"]) == pytest.approx([each["accuracy"] for each in stored["bins"]], abs=1e-6)
    again.drop(columns="drift").to_csv(tmp_path / "far.csv", index=False)  # as before drift was measured
    assert horizon_command([runs[0].run_id, *usual, "30"]) == 0
    assert pd.read_csv(tmp_path / "far.csv")["drift"].isna().sum() == 4
    (tmp_path / "far.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="is another kind of table: its columns are a, b"):
        horizon_command([runs[0].run_id, *usual, "30"])


on_linux = pytest.mark.skipif(not Path("/proc").is_dir(), reason="no folder that nobody may write to")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "needs a RUN_ID"),
        (["some", "--picture", "far.gif"], r"--picture far\.gif: name a \.png"),
        (["some", "--csv", "far.txt"], r"--csv far\.txt: name a \.csv"),
        pytest.param(["some", "--picture", "/proc/far.png"], "--picture: cannot write to /proc", marks=on_linux),
        pytest.param(["some", "--csv", "/proc/far.csv"], "--csv: cannot write to /proc", marks=on_linux),
        (["some", "--csv", "far.csv", "--picture", "far.png"], "--picture writes its numbers to far.csv, too"),
        (["some", "--horizon.piece", "0"], r"horizon\.piece must be at least 1"),
        (["some", "--horizon.length", "99999999999"], r"horizon\.length must be at most 4194304, not"),
    ],
)
def test_mistakes_of_the_command(words: list[str], said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=said):
        horizon_command([*words, "--results", str(tmp_path)])
