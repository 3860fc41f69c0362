"""Successive halving keeps the best of each round, resumes anywhere, and needs fewer steps than a grid."""

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chomsky_ladder import Exec, Run, grid, halving, preset_run, sweep
from chomsky_ladder.harness.cli import main as cli
from chomsky_ladder.harness.cli.arguments import parse_run
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.sweep import halving as halvings
from chomsky_ladder.harness.sweep import plan as planning
from chomsky_ladder.harness.sweep.halving import Halving, carry_out_search, ranked
from chomsky_ladder.harness.sweep.sweep import Report
from chomsky_ladder.harness.train.loop import Loop
from support.records_by_hand import folder_of, result_of

Capture = pytest.CaptureFixture[str]
SETTINGS = """
SMALL = {
    "train.batch": 32, "train.lengths": [3, 10], "train.stop_after": 0, "model.d_model": 16, "model.num_blocks": 1,
    "eval.lengths": [10, 60], "eval.test": 64, "eval.validation": 512, "eval.every": 0, "eval.bins": [10, 60],
    "eval.extrapolate": [], "eval.validate": "training",
}
"""
SCRIPT = f"""
from chomsky_ladder import halving, log_uniform, random_search
{SETTINGS}
def search():
    few = {{**SMALL, "train.batch": 4, "eval.test": 8, "eval.validation": 8, "model.d_model": 8}}
    over = {{"train.lr": log_uniform(1e-4, 1e-1)}}
    found = random_search("even_pairs", "rnn", count=4, over=over, protocol="xlstm_cpu", overrides=few)
    return halving([run.with_seed(3) for run in found], steps=(2, 3, 5), keep=1 / 2)
"""
scope: dict[str, Any] = {}
exec(SETTINGS, scope)
SMALL = scope["SMALL"]


def candidates(*rates: float, protocol: str = "xlstm_cpu") -> list[Run]:
    cells = (
        grid("even_pairs", "lstm", protocol=protocol, overrides={**SMALL, "train.lr": lr}, seeds=1) for lr in rates
    )
    return [run for cell in cells for run in cell]


def finish(results: Path, run: Run, accuracy: float) -> None:
    result = result_of(run, steps=run.train.steps)
    folder_of(results, run).finish(result | {"validation": result["validation"] | {"accuracy": accuracy}})


def script_of(folder: Path) -> list[str]:
    (folder / "mine.py").write_text(SCRIPT)
    return [str(folder / "mine.py"), "--exec.device", "cpu", "--exec.results"]


def rates_of(rounds: list[list[Run]]) -> list[list[float]]:
    return [[run.train.lr for run in runs] for runs in rounds]


def test_the_best_go_on_and_equals_by_their_ids(tmp_path: Path) -> None:
    search = halving(candidates(1e-4, 1e-3, 1e-2, 1e-1, 1.0), steps=(10, 20, 30), keep=0.4)
    assert search.plan == [(5, 10), (2, 20), (1, 30)]
    (first,) = search.rounds(tmp_path)
    equal = sorted(first[:3], key=lambda run: run.run_id)
    for run in first[:4]:
        finish(tmp_path, run, 0.75 if run in equal else 0.8)
    assert len(search.rounds(tmp_path)) == 1, "one run has no result yet"
    assert rates_of([search.foreseen(tmp_path)]) == [[1e-4, 1e-3, 1e-2, 1e-1, 1.0, 1e-4, 1e-3, 1e-4]]
    result = {name: value for name, value in result_of(first[4], steps=10).items() if name != "validation"}
    folder_of(tmp_path, first[4]).finish(result | {"status": "diverged"})
    _, second = search.rounds(tmp_path)
    assert rates_of([second]) == [[1e-1, equal[0].train.lr]] and {run.train.steps for run in second} == {20}


def test_the_budget_is_said() -> None:
    search = halving(candidates(*(10**-k for k in range(9))), steps=(250, 1000, 4000))
    assert search.budget == (
        "3 rounds: 9 runs of 250 steps, 3 of 1,000, 1 of 4,000\n"
        "13 runs and 9,250 steps in all; all 9 at 4,000 steps would take 36,000"
    )
    early = [
        replace(run, train=replace(run.train, stop_after=1), eval=replace(run.eval, every=9))
        for run in search.candidates
    ]
    assert "13 runs and at most 9,250 steps" in halving(early, steps=(250, 1000, 4000)).budget


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"candidates": candidates(1e-3)}, "takes several candidates, not 1"),
        ({"candidates": ["parity", "lstm"]}, "takes a list of runs"),
        ({"candidates": candidates(1e-3, 1e-3)}, "two candidates of halving differ in nothing but train.steps"),
        ({"candidates": [*candidates(1e-3), preset_run("parity", "lstm")]}, "need one task and equal settings of eval"),
        ({"candidates": [run.with_seed(1000) for run in candidates(1e-3, 1e-2)]}, "seeds from 1000 on are kept"),
        ({"steps": (10,)}, r"steps of halving are two numbers or more that rise, not \(10,\)"),
        ({"steps": (20, 10)}, "that rise"),
        ({"steps": (0, 10)}, "train.steps must"),
        ({"keep": 1}, "keep is the share of a round that goes on, between 0 and 1, not 1"),
    ],
)
def test_what_is_no_search_is_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        halving(**{"candidates": candidates(1e-3, 1e-2), "steps": (10, 20), **changes})


@pytest.mark.parametrize(
    ("script", "words", "says"),
    [
        ("def search(): return 3", [], "search() of {} must return a halving(..), not int"),
        ("def search(): ...\ndef runs(): ...", [], "{} has both runs() and search(): keep one of them"),
        (SCRIPT, ["--shard", "1/2"], "a search needs all results of a round in one folder: leave out --shard"),
        (SCRIPT, ["--report-seeds", "2"], "a search ends with one winner"),
        (SCRIPT.replace("steps=(2, 3, 5)", "steps=(5, 2)"), [], "steps of halving are two numbers or more that rise"),
    ],
)
def test_the_command_refuses_before_any_work(
    script: str, words: list[str], says: str, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "mine.py").write_text(script)
    assert cli.main(["sweep", str(tmp_path / "mine.py"), "--exec.results", str(tmp_path / "results"), *words]) == 2
    said = capsys.readouterr().err
    assert says.format(tmp_path / "mine.py") in said and said.count("\n") == 1
    assert not (tmp_path / "results").exists()


def test_a_search_ends_with_a_winner_and_goes_on_where_it_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    words = script_of(tmp_path)
    assert cli.main(["sweep", *words, str(tmp_path / "whole")]) == 0
    said = capsys.readouterr()
    budget, rounds = said.err.splitlines()[:2], [line for line in said.err.splitlines() if line.startswith("round")]
    assert budget[0] == "3 rounds: 4 runs of 2 steps, 2 of 3, 1 of 5" and budget[1].startswith("7 runs and 19 steps")
    assert rounds == ["round 1 of 3: 2 steps", "round 2 of 3: 3 steps", "round 3 of 3: 5 steps"]
    assert said.out.count("goes on") == 3 and said.out.count("  train.lr 0.") == 7
    winner, command = said.out.splitlines()[-2:]
    run, settings = parse_run(shlex.split(command)[2:])
    assert winner == f"the winner: {run.run_id}" and settings.results == tmp_path / "whole"

    visit = Loop._visit

    def killed(self: Loop, *args: Any) -> None:
        visit(self, *args)
        if self.members[0].run.train.steps == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(Loop, "_visit", killed)
    assert cli.main(["sweep", *words, str(tmp_path / "stopped"), "--quiet"]) == 130
    monkeypatch.setattr(Loop, "_visit", visit)
    capsys.readouterr()
    assert cli.main(["status", words[0], "--results", str(tmp_path / "stopped")]) == 0
    assert "mine.py: 6 runs, 1 of them not begun" in capsys.readouterr().out
    for _ in range(2):  # the second time nothing is left to do
        assert cli.main(["sweep", *words, str(tmp_path / "stopped"), "--json", "--quiet"]) == 0
        tree = json.loads(capsys.readouterr().out)
        assert (tree["winner"], tree["runs"], tree["done"], tree["complete"]) == (run.run_id, 7, 7, True)
    names = {path.name for path in (tmp_path / "whole" / "runs").iterdir()}
    assert names == {path.name for path in (tmp_path / "stopped" / "runs").iterdir()} and len(names) == 7
    for name in names:
        both = [(tmp_path / folder / "runs" / name / "metrics.jsonl").read_bytes() for folder in ("whole", "stopped")]
        assert both[0] == both[1]


def test_a_search_is_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    costs = planning._Costs(step=3600.0, scoring=0.0, preparing=0.0)
    monkeypatch.setattr(planning, "_measured", lambda *_: costs)
    assert cli.main(["plan", *script_of(tmp_path), str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("3 rounds: 4 runs of 2 steps, 2 of 3, 1 of 5\n7 runs and 19 steps in all;")
    assert "7 runs of xlstm_cpu: 0 finished, 7 to do in 7 packs" in said and "expected: about 19.0 h" in said


def test_a_round_with_a_failed_run_ends_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def three(runs: list[Run], *_: Any, **how: Any) -> Report:
        for run in runs[:3]:
            finish(tmp_path, run, 0.75)
        return Report(len(runs), 3)

    monkeypatch.setattr(halvings, "carry_out", three)
    assert cli.main(["sweep", *script_of(tmp_path), str(tmp_path), "--json"]) == 1
    said = capsys.readouterr()
    tree = json.loads(said.out)
    assert "the search ends with round 1: it has runs without a result" in said.err
    assert (tree["runs"], tree["done"], tree["complete"], tree["winner"]) == (7, 3, False, None)
    assert len(tree["rounds"]) == 1


def test_luck_is_called_luck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    search = halving(candidates(1e-3, 1e-2), steps=(10, 20))
    scaled = {10: 0.05, 20: 0.9}
    for run in (*(round_of(search, 10)), *(round_of(search, 20))):
        result = result_of(run, steps=run.train.steps)
        validation = result["validation"] | {"scaled": scaled[run.train.steps]}
        folder_of(tmp_path, run).finish(result | {"validation": validation})
    monkeypatch.setattr(halvings, "carry_out", lambda runs, *args, **how: Report(len(runs), len(runs)))
    assert carry_out_search(search, Exec(results=tmp_path), engine="serial", quiet=False, again="").complete
    said = capsys.readouterr().err
    assert "no run of round 1 is above chance, so its order is luck: give it more steps" in said
    assert "no run of round 2" not in said


def round_of(search: Halving, steps: int) -> list[Run]:
    return [replace(run, train=replace(run.train, steps=steps)) for run in search.candidates]


@pytest.mark.full
def test_a_search_finds_the_rate_of_the_grid_in_half_of_its_steps(tmp_path: Path) -> None:
    search = halving(candidates(1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0), steps=(40, 100, 240))
    settings = Exec(results=tmp_path, device="cpu")
    assert carry_out_search(search, settings, engine="serial", quiet=True, again="").complete
    folders = [RunFolder(tmp_path, path.name) for path in (tmp_path / "runs").iterdir()]
    taken = sum(result["steps"] for folder in folders if (result := folder.result()))
    full = round_of(search, 240)
    sweep(full, settings, quiet=True)
    (winner, _), (best, first), (_, second) = (
        ranked(search.rounds(tmp_path)[-1], tmp_path)[0],
        *ranked(full, tmp_path)[:2],
    )
    assert first["accuracy"] > second["accuracy"] + 0.05, "the grid has one best rate"
    assert winner == best and taken == 680 and taken <= 240 * len(full) / 2
