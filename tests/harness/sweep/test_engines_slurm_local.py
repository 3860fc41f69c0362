"""The engine of Slurm where there is none: submitit's local executor."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from chomsky_ladder.harness.store import checkpoint, lock
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.store.slurm_jobs import job_of_run
from chomsky_ladder.harness.sweep.engines.slurm_options import SlurmOptions
from chomsky_ladder.harness.sweep.sweep import carry_out, sweep
from support.engine_jobs import assert_equal_bits, cell, settings_at

Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch


@pytest.mark.full
def test_without_slurm_submitit_runs_the_jobs_here(tmp_path: Path, capsys: Capture) -> None:
    pytest.importorskip("submitit")
    runs = [cell(seed=seed) for seed in range(3)]
    results = tmp_path / "results"
    report = carry_out(runs, settings_at(results), engine=SlurmOptions(executor="local", jobs=2))
    assert report.complete and len(report.fates) == 3
    said = capsys.readouterr().err
    assert "2 jobs for 3 runs, up to 2 runs a job, on this machine without Slurm, 2 at once, no time limit" in said
    assert len(list((results / "slurm").glob("*_0_log.err"))) == 2 and job_of_run(results) == {}
    sweep(runs, settings_at(tmp_path / "serial"), quiet=True)
    for run in runs:
        assert_equal_bits(run, results, tmp_path / "serial")


@pytest.mark.full
def test_ctrl_c_in_a_terminal_ends_the_jobs_here_behind_their_checkpoints(tmp_path: Path) -> None:
    """A terminal sends it to all processes at once, submitit's among them."""
    pytest.importorskip("submitit")
    run = cell(steps=10**6)
    (tmp_path / "mine.py").write_text(
        "from support.engine_jobs import cell\ndef runs():\n    return [cell(steps=10**6)]\n"
    )
    words = ["-m", "chomsky_ladder", "sweep", "mine.py", "--engine", "slurm", "--executor", "local"]
    command = [sys.executable, *words, "--exec.results", "results", "--exec.checkpoint-every", "10"]
    folder = RunFolder(tmp_path / "results", run.run_id)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with (tmp_path / "said").open("wb") as said:
        sweeping = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=said, start_new_session=True)
    while not checkpoint.steps(folder.path):
        assert sweeping.poll() is None
        time.sleep(0.1)
    os.killpg(sweeping.pid, signal.SIGINT)
    assert sweeping.wait(60) == 130
    assert folder.preempted()["step"] in checkpoint.steps(folder.path) and lock.holder(folder.path) is None
    assert "Traceback" not in (tmp_path / "said").read_text()
