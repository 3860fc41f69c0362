"""The sweeps of the literature: what they list at every budget, and one of them carried out twice."""

import html
import json
from collections import Counter
from dataclasses import replace
from functools import cache
from operator import itemgetter
from pathlib import Path

import pandas as pd
import pytest

from chomsky_ladder.harness.cli.main import main as ladder
from chomsky_ladder.harness.cli.study import main
from chomsky_ladder.harness.config.protocols import columns_of
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.figures import write as figures
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.store.record import stored
from chomsky_ladder.harness.sweep.scripts import runs_of
from chomsky_ladder.harness.sweep.studies import find_study, studies
from chomsky_ladder.harness.sweep.study import study_runs
from chomsky_ladder.harness.sweep.study_tables import published_tables
from chomsky_ladder.harness.tables.depth import depths
from chomsky_ladder.harness.tables.published import published
from support.cases import some
from support.records_by_hand import record

ROOT = Path(__file__).parents[1]
STUDIES = (
    *("xlstm_table", "fifteen", "length_generalization", "state_tracking", "depth", "four_bits", "scratchpads"),
    "authors",
    "c_rasp",
    "climb_pilot",
    "feedback",
    "group_blocks",
    "held_pairs",
    "last_answer",
    "short_conv",
    "text",
)
BY_TASK = ("depth", "feedback", "fifteen", "short_conv")  # in whose lists a cell is whole before the next begins


@cache
def listed(name: str, budget: str) -> list[Run]:
    return find_study(name).runs(budget)


@pytest.mark.parametrize("name", some(STUDIES[:-1], always=("scratchpads",)))  # text: tests/test_study_text.py
def test_a_study_lists_a_cell_once_at_every_budget(name: str) -> None:
    counts = []
    for budget in ("smoke", "cpu", "gpu", "full"):
        runs = listed(name, budget)
        cells = Counter(itemgetter("protocol", "task", "model", "lr", "seed")(columns_of(run)) for run in runs)
        assert set(cells.values()) == {1}
        assert all((r.train.steps <= 20) == (budget == "smoke") for r in runs)
        assert [r.seed for r in runs if name not in BY_TASK] == sorted(r.seed for r in runs if name not in BY_TASK)
        counts.append(len(runs))
    assert counts[1] < counts[2]


def test_the_fifteen_are_210_cells_at_three_rates_and_the_telling_tasks_come_first() -> None:
    runs = listed("fifteen", "cpu")
    cells = Counter((columns_of(run)["task"], columns_of(run)["model"]) for run in runs)
    assert len(cells) == 15 * 14 and set(cells.values()) == {3}
    assert list(dict.fromkeys(run.task.name for run in runs))[:2] == ["mod_arithmetic", "stack_manipulation"]
    assert {run.protocol for run in runs} == {"fifteen-v1"} and {run.seed for run in runs} == {0}


@pytest.mark.full
def test_the_table_of_the_paper_is_whole_at_the_full_budget() -> None:
    runs = listed("xlstm_table", "full")
    assert len(runs) == 12 * 15 * 9 and {run.train.steps for run in runs} == {100_000}
    paper = pd.read_csv(ROOT / "harness/tables/papers/xlstm_formal_language_table.csv")
    assert {columns_of(run)["model"] for run in runs} == set(published("xlstm").models)
    assert len(published("xlstm").models) == paper["model"].nunique()


def smallest(budget: str) -> list:
    runs = study_runs(budget, tasks=["parity"], models=["rnn", ("gru", {"d_model": 8})])
    return [replace(run, model=replace(run.model, d_model=8, num_blocks=1)) for run in runs]


@pytest.mark.full
def test_a_study_is_resumed_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--budget", "smoke", "--quiet", "--exec.results", str(tmp_path)]
    table = published_tables("accuracy", against="xlstm")
    assert main("some/study.py", smallest, table, words) == 0
    told = capsys.readouterr().out
    assert "| RNN (d_model=8, num_blocks=1) |" in told and "smoke run, not a result" in told
    assert (tmp_path / "tables" / "accuracy.tex").exists() and any(tmp_path.glob("figures/*/lengths.svg"))
    monkeypatch.setattr(figures, "write", lambda *records, **settings: [])  # once is enough
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*/*")}
    assert main("some/study.py", smallest, table, [*words, "--json", "--report-seeds", "2"]) == 0
    assert json.loads(capsys.readouterr().out)["done"] == 2 + 4
    assert before == {path: path.stat().st_mtime_ns for path in before}  # what was done was left alone
    assert main("some/study.py", lambda budget: smallest(budget)[:1], table, words) == 0
    assert "| gru" not in capsys.readouterr().out  # a study shows its own cells alone
    assert {row["seed"] for row in stored(tmp_path / "records.csv").to_dict("records")} >= {1000, 1001}


@pytest.mark.parametrize("words", [["--budget", "huge"], ["--exec.threads", "0"], ["--what"], ["--report-seeds", "-1"]])
def test_wrong_words_are_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main("scripts/study.py", smallest, published_tables("accuracy"), words) == 2
    said = capsys.readouterr().err
    assert said.startswith("study.py: ") and said.count("\n") == 1


def test_smoke_never_lands_beside_the_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LADDER_RESULTS", str(tmp_path))
    one = smallest("smoke")[:1]
    assert main("study.py", lambda budget: one, lambda runs, results: "", ["--budget", "smoke", "--quiet"]) == 0
    assert RunFolder(tmp_path / "smoke", one[0].run_id).result() and not (tmp_path / "runs").exists()


def test_the_least_depth_by_hand() -> None:
    runs = [run for run in listed("depth", "cpu") if run.model.name in ("lstm", "mamba")]
    scores = {
        ("lstm", 4, 1): 0.95,
        **{("lstm", 8, blocks): score for blocks, score in ((1, 0.5), (2, 0.9), (3, 0.2))},
        **{("lstm", 16, blocks): 0.1 for blocks in (1, 2, 3)},
        **{("mamba", 8, blocks): 0.95 for blocks in (2, 3)},
    }
    rows = []
    for run in runs:
        score = scores.get((run.model.name, run.eval.lengths[1], run.model.num_blocks))
        if score is not None and run.train.lr == 1e-2:
            named = {name: columns_of(run)[name] for name in ("protocol", "task", "level", "model", "seed", "lr")}
            rows.append(record(**named, test_scaled=score))
    text, data = depths(runs, pd.DataFrame(rows))
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if "|" in line]
    lines = [[html.unescape(cell) for cell in line] for line in lines]
    shown = {name: entries for name, *entries in lines}
    assert shown["lstm"] == ["1", "2", ">3"] and shown["mamba"] == ["-", "2?", "-"]
    assert len(data) == 2 * 3 * 3 and data["seeds"].max() == 3
    assert text.startswith("### xlstm_cpu: depth for parity")


def test_a_study_tells_its_options_and_is_short(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main("study.py", smallest, published_tables("accuracy"), ["--help"])
    assert ended.value.code == 0 and "--budget {smoke,cpu,gpu,full}" in capsys.readouterr().out
    for name in STUDIES:
        assert 20 <= (ROOT / "harness" / "sweep" / "studies" / f"{name}.py").read_text().count("\n") <= 90


def test_a_study_needs_no_clone(capsys: pytest.CaptureFixture[str]) -> None:
    assert set(studies()) == set(STUDIES)
    assert ladder(["study"]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in STUDIES)
    assert ladder(["study", "dept"]) == 2 and "unknown study 'dept'; did you mean depth?" in capsys.readouterr().err
    assert ladder(["study", "depth", "--budget", "huge"]) == 2
    assert capsys.readouterr().err.startswith("ladder study depth: ")
    assert [run.run_id for run in runs_of("depth")] == [run.run_id for run in find_study("depth").runs("cpu")]


def test_the_languages_of_c_rasp_are_of_the_classes_that_it_names() -> None:
    facts = {run.task.pattern: run.task.facts for run in listed("c_rasp", "cpu")}  # pyright: ignore[reportAttributeAccessIssue]
    known = [(one["in C-RASP"], one["star-free"]) for one in facts.values()]
    assert sorted(known) == [("no", "no")] * 2 + [("no", "yes")] * 3 + [("yes", "yes")] * 4
