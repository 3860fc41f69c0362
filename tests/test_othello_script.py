"""scripts/othello.py: from nothing to the table, twice the same, going on where it was stopped."""

import json
import os
import runpy
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.parts import replaced
from chomsky_ladder.harness.config.sizing import total_parameters
from chomsky_ladder.harness.inside import table as othello_table
from chomsky_ladder.harness.inside.kept import MEASURED, keep
from chomsky_ladder.harness.inside.settings import InterveneSettings, ProbeSettings, WorldModelSettings
from chomsky_ladder.harness.inside.study import BUDGETS, GAMES, is_done, runs_of, work
from chomsky_ladder.harness.store.finished import sealed
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.tasks.chess import Chess
from chomsky_ladder.tasks.othello import Othello

torch.set_num_threads(1)

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
TINY = replace(
    BUDGETS["smoke"],
    probe=ProbeSettings(games_train=20, games_validation=10, games_test=10, epochs=1, hidden=4),
    intervene=InterveneSettings(cases_validation=4, cases_test=6, strengths=(1.0,)),
    worldmodel=WorldModelSettings(pairs=4, walks=1, depth=2),
)


def small_runs(*models: str) -> list[Any]:
    runs = runs_of("smoke", models)
    return [replace(run, train=replaced(run.train, {"steps": 2, "batch": 4}, where="train")) for run in runs]


@pytest.mark.parametrize("budget", GAMES["chess"])
def test_chess_has_four_architectures_of_one_size(budget: str) -> None:
    runs, found = runs_of(budget, game="chess"), GAMES["chess"][budget]
    assert [run.model.name for run in runs] == ["transformer", "slice", "mamba3", "gated_delta_net"] * found.seeds
    assert {run.task for run in runs} == {Chess()} and len({run.train for run in runs}) == 1
    assert runs[1].model.block_size == 8 and runs[3].model.eigenvalues == "signed"
    if found.parameters:
        sizes = {total_parameters(run.model, len(run.task.vocab)) for run in runs}
        assert all(abs(size / found.parameters - 1) < 0.04 for size in sizes), sizes


@pytest.mark.parametrize("budget", BUDGETS)
def test_budgets_are_runs(budget: str) -> None:
    runs = runs_of(budget)
    found = BUDGETS[budget]
    assert [run.model.name for run in runs] == list(found.models) * found.seeds
    assert len(set(runs_of(budget, ["gru", "rwkv6"], seeds=2))) == 4
    if found.parameters:
        sizes = {total_parameters(run.model, len(run.task.vocab)) for run in runs}
        assert all(abs(size / found.parameters - 1) < 0.04 for size in sizes), sizes
        assert len({(run.train.steps, run.train.batch) for run in runs}) == 1
    assert {run.task.size for run in runs} == {8 if budget == "full" else 6}
    if budget == "full":
        assert {(run.train.steps, run.train.batch) for run in runs} == {(50_000, 256)}
        assert {(run.model.d_model, run.model.num_blocks) for run in runs} == {(512, 8)}


@pytest.fixture(scope="module")
def studied(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run after the whole of a study."""
    (run,), results = small_runs("lstm"), tmp_path_factory.mktemp("one")
    work([run], TINY, Exec(results=results, device="cpu"), quiet=True)
    return RunFolder(results, run.run_id)


@pytest.mark.full
def test_two_studies_are_equal(studied: RunFolder, tmp_path: Path) -> None:
    """Each part of a study is done twice in tests/harness/inside/; here the tables are compared."""
    (run,) = small_runs("lstm")
    work([run], TINY, Exec(results=tmp_path, device="cpu"), quiet=True)
    folders = (studied, RunFolder(tmp_path, run.run_id))
    rows = [othello_table.row_of(folder) for folder in folders]
    assert rows[0] == rows[1]
    for name, one in zip(("one", "other"), rows, strict=True):
        othello_table.write([one], tmp_path / name / "smoke")
    for kind in ("csv", "md"):
        one, other = ((tmp_path / name / f"smoke.{kind}").read_bytes() for name in ("one", "other"))
        assert one == other


@pytest.mark.full
def test_a_study_goes_on(studied: RunFolder, tmp_path: Path) -> None:
    (run,) = small_runs("lstm")
    shutil.copytree(studied.path, RunFolder(tmp_path, run.run_id).path)
    folder = RunFolder(tmp_path, run.run_id)
    assert is_done(folder, TINY)
    times = {path.name: path.stat().st_mtime_ns for path in folder.path.iterdir()}
    (folder.path / "intervene.json").unlink()
    other_walks = replace(TINY, worldmodel=WorldModelSettings(pairs=4, walks=1, depth=1))
    assert not is_done(folder, TINY) and not is_done(folder, other_walks)
    work([run], other_walks, Exec(results=tmp_path, device="cpu"), quiet=True)
    assert is_done(folder, other_walks)
    changed = {path.name for path in folder.path.iterdir() if times.get(path.name) != path.stat().st_mtime_ns}
    assert changed - {"lock"} == {"intervene.json", "worldmodel.json"}
    assert othello_table.row_of(folder)["steps"] == 2


def test_what_is_kept_is_whole_and_names_no_folder_of_a_machine(studied: RunFolder, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run", studied.path.name)
    shutil.copytree(studied.path, folder.path)
    for name in ("result.json", "probe.json"):
        tree = json.loads((folder.path / name).read_text())
        tree["provenance"]["command"] = ["othello.py", "--results", str(tmp_path / "somewhere"), "results/mine"]
        tree.pop("sha256", None)
        whole = sealed(tree, folder.path / "metrics.jsonl") if name == "result.json" else json.dumps(tree).encode()
        (folder.path / name).write_bytes(whole)
    keep([folder], tmp_path / "runs")
    copies = RunFolder(tmp_path, folder.path.name)
    assert {path.name for path in copies.path.iterdir()} == set(MEASURED)
    result = copies.result()
    assert result and result["provenance"]["command"] == ["othello.py", "--results", "somewhere", "results/mine"]
    assert str(tmp_path) not in "".join(path.read_text() for path in copies.path.iterdir())
    assert othello_table.row_of(copies) == othello_table.row_of(folder)


def row(**changes: Any) -> dict[str, Any]:
    """A line of the table by hand."""
    values = dict.fromkeys(f"{source}_{kind}{end}" for source, kind in othello_table._PROBES for end in ("", "_board"))
    values = dict.fromkeys(values, 0.5)
    names = ("compression_precision", "distinction_precision", "distinction_recall")
    values |= {f"{name}{end}": 0.25 for name in names for end in ("", "_random")}
    for name in ("legal_uniform", "legal_by_ply", "loss_floor", "top1_ceiling", "loss", "top1"):
        values[name] = 0.2
    for name in ("null", "error", "error_se", "random", "wrong_square", "perfect_null"):
        values[f"edit_{name}"] = 2.5
    own = {
        "model": "lstm",
        "settings": "lstm",
        "seed": 0,
        "size": 6,
        "parameters": 1000,
        "steps": 10,
        "is_result": True,
        "legal": 0.9,
        "layer": 2,
    }
    own |= {"commit": "abc", "torch": "2.13", "device": "cpu"}
    over = {"sd_over_random_network": 4.0, "sd_over_majority": 9.0, "sd_over_history": -1.0, "edit_layer": 1}
    return {**values, **own, **over, "model_linear": 0.8, "history_linear": 0.85, **changes}


def test_what_is_claimed_and_what_is_not() -> None:
    assert othello_table.beats(row())
    assert not othello_table.beats(row(sd_over_random_network=2.9))
    assert not othello_table.beats(row(sd_over_majority=None))
    other = row(model="gru", settings="gru", sd_over_majority=1.0, is_result=False, legal=0.4)
    headline, *said = othello_table.verdicts([row(), row(seed=1, model_linear=0.84), other])
    assert headline == "The moves alone tell a linear probe more of the board than any model's stream does."
    assert "lstm: the linear probe beats the random network (+4.0 s.d. over games)" in said[0]
    assert "on 2 of 2 seeds; it reads 0.820 ± 0.028 of the squares, the raw history's 0.850" in said[0]
    assert "an edit (flip) leaves 2.50 errors a board of 2.50 unedited" in said[0]
    assert "on 0 of 1 seed; it reads 0.800 of" in said[1]
    assert "not a result: its moves are legal at a rate of 0.400" in said[1]
    text = othello_table.table([row(), other])
    assert "| 0.900 | 0.400 (not a result) |" in text
    assert len({line.count("|") for line in text.splitlines()}) == 1
    page = othello_table.page_table([row(), row(model="<script>", settings="<script>")])
    assert "<script>" not in page and "<td>&lt;script&gt;</td>" not in page and "&lt;script&gt;</th>" in page
    assert "it reads 0.800" in page and "lstm, seed 0: commit abc, torch 2.13, cpu" in page


def test_a_headline_names_two_models_and_counts_more() -> None:
    above = dict.fromkeys("abcd", True)
    assert othello_table.headline({**above, "a": False}).startswith("Of 3 of 4 models the stream")
    assert othello_table.headline({**above, "a": False, "b": False}).startswith("Of c, d the stream")
    assert othello_table.headline(above).startswith("Every model's stream")


def test_a_column_is_a_model_of_all_its_seeds() -> None:
    rows = [row(layer=2), row(seed=1, layer=3, legal=0.8), row(model="gru", settings="gru")]
    head, _, *lines = othello_table.table(rows).splitlines()
    assert head == "|  | floor | lstm | gru |"
    assert "| seeds |  | 2 | 1 |" in lines
    assert any("0.850 ± 0.071 | 0.900 |" in line for line in lines)
    assert any("(2, 3) |" in line for line in lines)
    wider = row(settings="lstm (d_model=8)", seed=0)
    assert othello_table.table([*rows, wider]).splitlines()[0] == "|  | floor | lstm | gru | lstm (d_model=8) |"


def test_eight_by_eight_is_a_result_from_95_percent_on() -> None:
    assert othello_table.LEGAL == 0.95
    assert othello_table.is_result(Othello(), legal=0.95) and not othello_table.is_result(Othello(), legal=0.949)
    assert othello_table.is_result(Othello(size=6), legal=0.1) and othello_table.is_result(Chess(), legal=0.1)


@pytest.mark.parametrize(
    ("game", "study"), sorted((game, path.name) for game in GAMES for path in RESULTS.glob(f"{game}/measured/*"))
)
def test_the_committed_table_is_what_the_committed_measurements_make(game: str, study: str, tmp_path: Path) -> None:
    committed_at = RESULTS / game
    listed = list(pd.read_csv(committed_at / "tables" / f"{study}.csv")["run_id"])
    for run_id in listed:
        shutil.copytree(committed_at / "measured" / study / run_id, tmp_path / "runs" / run_id)
    othello_table.write([othello_table.row_of(RunFolder(tmp_path, run_id)) for run_id in listed], tmp_path / study)
    for kind in ("csv", "md"):
        made, committed = tmp_path / f"{study}.{kind}", committed_at / "tables" / f"{study}.{kind}"
        assert made.read_bytes() == committed.read_bytes(), kind


def test_a_mistake_is_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = str(ROOT / "scripts" / "othello.py")
    monkeypatch.setattr(sys, "argv", [script, "--models", "lstn", "--results", str(tmp_path / "no")])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(script, run_name="__main__")
    said = capsys.readouterr().err
    assert ended.value.code == 2 and said.startswith("othello.py: ") and said.count("\n") == 1
    assert "did you mean lstm" in said and not (tmp_path / "no").exists()


def test_runs_of_another_process_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = str(ROOT / "scripts" / "othello.py")
    words = ["--budget", "smoke", "--models", "lstm", "--processes", "1", "--device", "cpu", "--results", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", [script, *words])
    (run,) = runs_of("smoke", ["lstm"])
    with RunFolder(tmp_path, run.run_id).locked(), pytest.raises(SystemExit) as ended:
        runpy.run_path(script, run_name="__main__")
    said = capsys.readouterr().err
    assert ended.value.code == 2 and f"another process still works on {run.run_id}" in said


@pytest.mark.slow
def test_the_script(tmp_path: Path) -> None:
    """The whole of it in two processes, and again with nothing to do."""
    command = [sys.executable, str(ROOT / "scripts" / "othello.py"), "--budget", "smoke", "--device", "cpu"]
    command += ["--results", str(tmp_path), "--processes", "2", "--models", "lstm", "transformer"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    said = [subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout for _ in "12"]
    assert said[0].rsplit("\n", 2)[0] == said[1].rsplit("\n", 2)[0]
    table = pd.read_csv(tmp_path / "tables" / "smoke.csv")
    assert list(table["model"]) == ["lstm", "transformer"]
    for run_id in table["run_id"]:
        tree = json.loads((tmp_path / "runs" / run_id / "worldmodel.json").read_text())
        assert tree["run_id"] == run_id
    assert (tmp_path / "figures" / "smoke" / "accuracy_by_layer.svg").exists()
