"""The command that fills cells on a GPU: what it lists, and that a failed self-test stops it before any training."""

import importlib.util
from collections import Counter
from pathlib import Path

import pytest

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.protocols import columns_of
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.store.record import Record
from chomsky_ladder.harness.sweep.plan import packs
from support.records_by_hand import record

ROOT = Path(__file__).parents[1]
_spec = importlib.util.spec_from_file_location("gpu_cells", ROOT / "scripts" / "gpu_cells.py")
gpu_cells = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(gpu_cells)


@pytest.mark.parametrize(("cells", "size", "models"), [("xlstm_20k", 2, 12), ("fifteen-v1", 12, 14)])
def test_a_pack_is_one_cell_and_the_telling_tasks_come_first(
    cells: str, size: int, models: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_cells, "TASKS", gpu_cells.TASKS[:2])
    monkeypatch.setattr(gpu_cells, "_recorded", lambda file: {})
    listed = gpu_cells.runs(cells)
    groups = packs(listed, size=lambda group: size)
    assert {len(group) for group in groups} == {size} and len(groups) == 2 * models
    assert all(len({(run.task, run.model) for run in group}) == 1 for group in groups)
    assert list(dict.fromkeys(run.task.name for run in listed)) == ["mod_arithmetic", "stack_manipulation"]
    assert {run.protocol for run in listed} == {cells}


@pytest.mark.full
def test_a_pack_of_the_pilot_is_one_cell_at_all_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_cells, "_recorded", lambda file: {})
    groups = packs(gpu_cells.runs("climb_pilot", "fifteen-v1"), size=lambda group: 12)
    pilot = [group for group in groups if group[0].protocol == "climb-v1"]
    assert groups[: len(pilot)] == pilot and len(pilot) == 30 + 15, "15 with the last answer alone"
    assert all(len({run.train.lr for run in group}) == len(group) == 5 for group in pilot)
    assert all(len({(run.task, run.model) for run in group}) == 1 for group in groups)


def test_cells_that_compile_go_by_themselves(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        gpu_cells.main(["--cells", "xlstm_20k", "climb_pilot", "--plan"])
    assert stop.value.code == 2 and "it goes by itself" in capsys.readouterr().err


def test_a_task_that_the_cells_do_not_have_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        gpu_cells.main(["--cells", "climb_pilot", "--tasks", "set", "--plan"])
    assert stop.value.code == 2 and "climb_pilot has no task set" in capsys.readouterr().err


def test_runs_on_record_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_cells, "TASKS", gpu_cells.TASKS[:1])
    monkeypatch.setattr(gpu_cells, "_recorded", lambda file: {})
    first, *others = gpu_cells.runs("fifteen-v1")
    monkeypatch.setattr(gpu_cells, "_recorded", lambda file: {first.run_id: None} if "underway" in file.parts else {})
    assert gpu_cells.runs("fifteen-v1") == others


def test_the_suite_has_each_seed_at_each_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_cells, "TASKS", gpu_cells.TASKS[:1])
    monkeypatch.setattr(gpu_cells, "_recorded", lambda file: {})
    lstm = [run for run in gpu_cells.runs("fifteen-v1") if run.model.name == "lstm"]
    assert Counter(run.seed for run in lstm) == dict.fromkeys((0, 1000, 1001, 1002), 3)
    assert {run.train.lr for run in lstm} == {1e-2, 3e-3, 1e-3}


def test_a_failed_self_test_stops_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu_cells, "TASKS", ("parity",))
    monkeypatch.setattr(gpu_cells, "_recorded", lambda file: {})
    asked: list[str] = []
    monkeypatch.setattr(gpu_cells, "self_test", lambda models: asked.extend(models) or "other strings: parity")
    monkeypatch.setattr(gpu_cells, "carry_out", lambda *runs, **how: pytest.fail("it trains"))
    assert gpu_cells.main(["--out", str(tmp_path / "out"), "--cells", "xlstm_20k", "--tasks", "parity"]) == 1
    assert "nothing was trained: other strings: parity" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert "lstm" in asked and "pd_ssm" not in asked, "the models of these cells alone"


def test_a_cell_is_reported_at_the_rate_its_tuning_chose_and_only_when_that_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_cells, "_recorded", lambda file: {})
    for name, few in {
        "DECISIVE": gpu_cells.DECISIVE[:3],
        "DECISIVE_RUNGS": gpu_cells.DECISIVE_RUNGS[:1],
        "SECOND": (),
    }.items():
        monkeypatch.setattr(gpu_cells, name, few)
    listed = gpu_cells.runs("climb-v2")
    cells = gpu_cells.CELLS["climb-v2"]
    first, second, third = (listed[start : start + 5] for start in (0, 5, 10))
    assert [{run.model.name for run in cell} for cell in (first, second, third)] == [{"xlstm"}, {"lstm"}, {"pd_ssm"}]

    def of(run: Run, validation: float) -> Record:
        return Record(**record(**columns_of(run), validation=validation, steps_to_99=500))

    known = {run.run_id: of(run, 0.9 + (run.train.lr == 3e-3) / 20) for run in first}
    known |= {run.run_id: of(run, 0.9) for run in second[1:]}
    trained: list[Run] = []

    class Crew(gpu_cells.Crew):
        def train(self, listed: list[Run]) -> int:
            trained.extend(listed)
            return len(listed)

    crew = Crew(Exec(results=tmp_path), processes=1, end=0.0)
    assert gpu_cells._tuned_and_reported(listed, known, cells, crew) == len(trained) == 5 + 1 + 5
    tuned, fresh = [run for run in trained if run.seed == 0], [run for run in trained if run.seed]
    assert tuned == [second[0], *third], "what is on record is not trained again"
    assert {run.train.lr for run in fresh} == {3e-3} and {run.model.name for run in fresh} == {"xlstm"}
    assert [run.seed for run in fresh] == [1000, 1001, 1002, 1003, 1004]

    broken = RunFolder(tmp_path, third[0].run_id)
    broken.path.mkdir(parents=True)
    (broken.path / "result.json").write_text('{"status": "done"}')
    trained.clear()
    assert gpu_cells._tuned_and_reported(listed, known, cells, crew) == len(trained) == 5 + 1 + 5, "it costs its cell"
