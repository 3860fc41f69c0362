"""The output of `ladder status` for each state of a run, in text and JSON."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from chomsky_ladder.harness.cli import main as cli
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.store import lock
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.store.status import RunStatus, by_cell, counts, status_of, survey
from support.records_by_hand import failure_of, filled, folder_of, frame, record, result_of, runs

Capture = pytest.CaptureFixture[str]


def status(capsys: Capture, *words: str) -> str:
    code = cli.main(["status", *words])
    said = capsys.readouterr()
    assert (code, said.err) == (0, "")
    return said.out


def of(results: Path, run: Run) -> RunStatus:
    return status_of(RunFolder(results, run.run_id).path)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A run in every state there is."""
    filled(tmp_path)
    stopped = replace(runs()[0], seed=20)
    folder = folder_of(tmp_path, stopped)
    folder.log(step=700, loss=0.5)
    folder.preempt("SIGTERM", 714)
    return tmp_path


def test_every_state_is_told_from_the_folder(results: Path) -> None:
    done, diverged, failed, under_way = runs()
    stopped = replace(done, seed=20)
    with RunFolder(results, under_way.run_id).locked():
        found = {run.run_id: run for run in survey(results)}
    states = {run_id: run.state for run_id, run in found.items()}
    assert states == {
        done.run_id: "done",
        diverged.run_id: "diverged",
        failed.run_id: "failed",
        under_way.run_id: "running",
        stopped.run_id: "preempted",
    }
    assert of(results, under_way).state == "unfinished"
    whole = found[done.run_id]
    assert (whole.task, whole.model, whole.step, whole.steps) == ("parity", "lstm", 20_000, 20_000)
    assert (whole.seconds, whole.validation, whole.where) == (12.6, 0.8125, "a processor")
    assert (found[diverged.run_id].step, found[diverged.run_id].steps) == (7, 20_000)
    assert "loss nan" in found[diverged.run_id].error
    assert found[failed.run_id].error == 'RuntimeError: a "quote", a comma\nand a line'
    assert (found[stopped.run_id].step, found[stopped.run_id].error) == (714, "SIGTERM")
    assert found[under_way.run_id].where.startswith(f"process {os.getpid()} on ")


def test_a_run_that_goes_on_is_running_whatever_it_was(tmp_path: Path) -> None:
    run = runs()[0]
    folder = folder_of(tmp_path, run)
    folder.fail(failure_of(run))
    assert of(tmp_path, run).state == "failed"
    with folder.locked():
        assert of(tmp_path, run).state == "running"
        assert of(tmp_path, run).error == ""
        folder.finish(result_of(run))
        assert of(tmp_path, run).state == "done"


def test_what_a_killed_process_left_is_unfinished_and_names_it(tmp_path: Path) -> None:
    run = runs()[0]
    folder = folder_of(tmp_path, run)
    code = (
        "import sys, os, signal; from pathlib import Path; from chomsky_ladder.harness.store import lock\n"
        "with lock.held(Path(sys.argv[1])): print(os.getpid(), flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(folder.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        pid = process.stdout.readline().strip()
        found = of(tmp_path, run)
        assert (found.state, found.where.split(" on ")[0]) == ("running", f"process {pid}")
        process.kill()
    found = of(tmp_path, run)
    assert (found.state, found.where.split(" on ")[0]) == ("unfinished", f"process {pid}")


def test_progress_is_read_from_the_end_of_the_metrics(tmp_path: Path) -> None:
    run = runs()[0]
    folder = folder_of(tmp_path, run)
    assert (of(tmp_path, run).step, of(tmp_path, run).validation) == (0, None)
    folder.log(step=1, validation=0.25, exact=0.0)
    for step in range(2, 800):
        folder.log(step=step, loss=0.5, lr=1e-3, grad_norm=1.0)
    assert folder.metrics.stat().st_size > 2 * 16_384
    assert (of(tmp_path, run).step, of(tmp_path, run).validation) == (799, 0.25)
    folder.log(step=799, validation=0.5, exact=0.0)
    with folder.metrics.open("a") as file:
        file.write('{"step":800,"validation":0.9')  # torn by a kill
    assert (of(tmp_path, run).step, of(tmp_path, run).validation) == (799, 0.5)
    (folder.path / "step_00000900.ckpt").touch()
    assert of(tmp_path, run).step == 900


def test_how_long_it_has_taken(tmp_path: Path) -> None:
    run, now = runs()[0], time.time()
    folder = folder_of(tmp_path, run)
    folder.log(step=1, loss=0.5)
    os.utime(folder.path / "config.json", (now - 1000, now - 1000))
    os.utime(folder.metrics, (now - 400, now - 400))
    assert of(tmp_path, run).seconds == pytest.approx(600, abs=0.1)
    with folder.locked():
        assert of(tmp_path, run).seconds == pytest.approx(1000, abs=5)
        os.utime(folder.path / "config.json", (now + 9000, now + 9000))  # of a machine whose clock is wrong
        assert of(tmp_path, run).seconds == 0


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"a": '])
@pytest.mark.parametrize("name", ["config.json", "failure.json", "preempted.json", "result.json"])
def test_damaged_files_do_not_stop_the_list(name: str, content: str, tmp_path: Path) -> None:
    run, other = runs()[:2]
    folder = folder_of(tmp_path, run)
    (folder.path / name).write_text(content)
    folder_of(tmp_path, other).finish(result_of(other))
    found = {status.run_id: status for status in survey(tmp_path)}
    assert found[other.run_id].state == "done"
    expected = {"config.json": "unfinished", "preempted.json": "preempted"}.get(name, "failed")
    assert found[run.run_id].state == expected
    if name == "result.json":
        assert "result.json is " in found[run.run_id].error


def test_what_is_no_run_is_not_listed(tmp_path: Path) -> None:
    run = runs()[0]
    folder_of(tmp_path / "elsewhere", run)
    folder = tmp_path / "here" / "runs"
    (folder / "empty").mkdir(parents=True)
    (folder / "file").touch()
    (folder / run.run_id).symlink_to(tmp_path / "elsewhere" / "runs" / run.run_id)
    (folder / "hollow").mkdir()
    (folder / "hollow" / "config.json").mkdir()
    assert survey(tmp_path / "here") == []


def test_the_text(results: Path, capsys: Capture) -> None:
    done, diverged, failed, under_way = (run.run_id for run in runs())
    said = status(capsys, "--results", str(results))
    first, *lines = said.splitlines()
    assert first == f"{results}: 5 runs: 1 done, 1 preempted, 1 failed, 1 diverged, 1 unfinished"
    assert lines[:2] == ["", "preempted"]
    assert lines[2].split()[1:5] == ["step", "714", "of", "20,000"] and lines[2].endswith("SIGTERM")
    assert done not in said
    assert [line.split()[0] for line in lines if line.startswith("  ")][1:] == [failed, diverged, under_way]
    assert 'RuntimeError: a "quote", a comma' in said and "\nand a line" not in said, "an error is one line"
    everything = status(capsys, "--results", str(results), "--all")
    assert done in everything and "12s  validation 0.812  a processor" in everything


def test_the_json(results: Path, capsys: Capture) -> None:
    done = runs()[0].run_id
    tree = json.loads(status(capsys, "--results", str(results), "--json"))
    assert tree["counts"] == {"done": 1, "preempted": 1, "failed": 1, "diverged": 1, "unfinished": 1}
    assert tree["cells"] == [{"task": "parity", "model": "lstm", "counts": tree["counts"]}]
    assert len(tree["runs"]) == 4 and done not in {run["run_id"] for run in tree["runs"]}
    everything = json.loads(status(capsys, "--results", str(results), "--json", "--all"))
    (whole,) = [run for run in everything["runs"] if run["run_id"] == done]
    assert (whole["state"], whole["step"], whole["validation"]) == ("done", 20_000, 0.8125)


def test_a_large_folder_is_summed_up(tmp_path: Path, capsys: Capture) -> None:
    base = runs()[0]
    for seed in range(30):
        run = replace(base, seed=seed)
        folder = folder_of(tmp_path, run)
        if seed >= 23:
            folder.fail(failure_of(run))
    found = survey(tmp_path)
    assert counts(found) == {"failed": 7, "unfinished": 23}
    assert by_cell(found) == {("parity", "lstm"): {"failed": 7, "unfinished": 23}}
    said = status(capsys, "--results", str(tmp_path))
    assert "by task and model\n  parity  lstm  7 failed, 23 unfinished\n" in said
    assert "  .. and 3 more (--all)" in said and said.count("\n  parity-lstm-s") == 27
    said = status(capsys, "--results", str(tmp_path), "--all")
    assert "more (--all)" not in said and said.count("\n  parity-lstm-s") == 30


def test_lines_of_other_machines_are_counted(results: Path, capsys: Capture) -> None:
    here = runs()[0]
    rows = [record(run_id=here.run_id), record(seed=1), record(seed=2)]
    frame(*rows).to_csv(results / "records.csv", index=False)
    assert "\n2 more runs in records.csv alone\n" in status(capsys, "--results", str(results))
    (results / "alone").mkdir()
    pd.DataFrame(rows).to_csv(results / "alone" / "records.csv", index=False)
    assert status(capsys, "--results", str(results / "alone")).endswith("3 more runs in records.csv alone\n")


def test_a_folder_without_runs_is_a_mistake(tmp_path: Path, capsys: Capture) -> None:
    assert cli.main(["status", "--results", str(tmp_path / "nowhere")]) == 2
    assert capsys.readouterr().err == f"ladder: no runs under {tmp_path / 'nowhere'}\n"


def test_looking_changes_nothing(results: Path, capsys: Capture) -> None:
    def content() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in sorted(results.rglob("*")) if path.is_file()}

    before = content()
    status(capsys, "--results", str(results), "--all")
    assert content() == before


def test_looking_does_not_stop_a_start(tmp_path: Path) -> None:
    """Whoever asks for the holder has the lock for a moment; a run that starts then must get it all the same."""
    folder = folder_of(tmp_path, runs()[0])
    with folder.locked():
        pass
    for _ in range(20):
        assert lock.holder(folder.path) is None
        with folder.locked():
            assert lock.holder(folder.path) is not None
