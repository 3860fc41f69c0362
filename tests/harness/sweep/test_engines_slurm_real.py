"""A real Slurm of one node: jobs that are killed, preempted and out of time end in the serial engine's bits."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chomsky_ladder.harness.cli import main as cli
from chomsky_ladder.harness.config.registry import load_plugin
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.store import checkpoint
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.store.lock import holder
from chomsky_ladder.harness.sweep.scripts import runs_of
from chomsky_ladder.harness.sweep.sweep import sweep
from support.engine_jobs import assert_equal_bits, settings_at
from support.slurm_cluster import Cluster, cluster, missing

pytest.importorskip("submitit")
pytestmark = [pytest.mark.full, pytest.mark.skipif(bool(missing()), reason=missing())]
PATIENCE = 240.0  # seconds

PLUGIN = """
import os, time
from dataclasses import dataclass
from pathlib import Path
from chomsky_ladder.models.base import register
from chomsky_ladder.models.lstm import LSTMBlock, LSTMConfig

class Block(LSTMBlock):
    def forward(self, x_BLD, ctx):
        if self.training and Path(__file__).with_name("slow").exists():
            time.sleep(0.3)
        return super().forward(x_BLD, ctx)

@register
@dataclass(frozen=True, kw_only=True)
class LingeringConfig(LSTMConfig):
    name = "lingering"

    def block(self, layer):
        return Block(self)
"""

SCRIPT = """
from support.engine_jobs import cell

def runs():
    return [cell("lingering", seed=seed, steps=400) for seed in range({slow})] + [
        cell(seed=seed) for seed in range({quick})
    ]
"""


@pytest.fixture(scope="module")
def slurm() -> Iterator[Cluster]:
    with cluster() as found, pytest.MonkeyPatch.context() as patch:
        for name, value in found.environment.items():
            patch.setenv(name, value)
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        yield found


def prepared(folder: Path, *, slow: int, quick: int) -> list[Run]:
    """Write a sweep with slow runs first, and the model that is slow while the file `slow` is there."""
    (folder / "lingering.py").write_text(PLUGIN)
    (folder / "mine.py").write_text(SCRIPT.format(slow=slow, quick=quick))
    (folder / "slow").touch()
    load_plugin(str(folder / "lingering.py"))
    return runs_of(str(folder / "mine.py"))


def started(folder: Path, *options: str) -> "subprocess.Popen[bytes]":
    """Start the sweep as a person would."""
    words = ["sweep", "mine.py", "--plugin", "lingering.py", "--engine", "slurm", "--exec.results", "results"]
    few = ["--exec.log-every", "10", "--exec.checkpoint-every", "10"]
    with (folder / "said").open("ab") as said:
        command = [sys.executable, "-m", "chomsky_ladder", *words, *few, *options]
        return subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said)


def wait(is_so: Callable[[], bool], folder: Path) -> None:
    give_up = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < give_up, (folder / "said").read_text()
        time.sleep(0.2)


def shown(*command: str) -> None:
    """Print what a person sees, for `pytest -s`."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    print(f"\n$ {' '.join(command)}\n{done.stdout}{done.stderr}", end="")


def status(results: Path) -> str:
    command = [sys.executable, "-m", "chomsky_ladder", "status", "--results", str(results)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    print(f"\n$ ladder status --results results\n{done.stdout}", end="")
    return done.stdout


def test_killed_preempted_and_out_of_time_ends_in_the_serial_bits(slurm: Cluster, tmp_path: Path) -> None:
    results = tmp_path / "results"
    runs = prepared(tmp_path, slow=3, quick=21)
    slow = [RunFolder(results, run.run_id) for run in runs[:3]]
    sweeping = started(tmp_path, "--jobs", "4", "--time", "2:00", "--partition", "low")
    try:
        logs = results / "slurm"
        wait(lambda: all(checkpoint.steps(folder.path) for folder in slow), tmp_path)
        shown("sinfo")
        shown("squeue", "--array")
        status(results)
        # Three jobs are left on four CPUs when one asks for two: one of the three has to go.
        wait(lambda: slurm.says("squeue", "-h", "--array", "--format=%i").count("\n") == 2, tmp_path)
        slurm.says("sbatch", "--partition=high", "--cpus-per-task=2", "--output=/dev/null", "--wrap", "sleep 5")
        wait(lambda: any(folder.preempted() for folder in slow), tmp_path)
        shown("squeue", "--array")
        (preempted,) = (folder for folder in slow if folder.preempted())
        assert preempted.preempted()["signal"] == "SIGTERM"
        victim, patient = (folder for folder in slow if folder is not preempted)
        killed = holder(victim.path)
        assert killed
        os.kill(killed.process, signal.SIGKILL)
        wait(
            lambda: "SIGUSR1: a checkpoint is written" in "".join(log.read_text() for log in logs.glob("*.err")),
            tmp_path,
        )
        wait(lambda: patient.preempted() is not None, tmp_path)
        assert patient.preempted()["signal"] == "SIGUSR1" and not victim.preempted()
        shown("squeue", "--array")
        (tmp_path / "slow").unlink()
        assert sweeping.wait(PATIENCE) == 0
    finally:
        sweeping.kill()
        sweeping.wait()
        said = (tmp_path / "said").read_text()
        print(f"\n{said}", end="")
        shown("squeue", "--array", "--states=all")
    assert "4 jobs for 24 runs, 6 runs a job, at most 2 min a job on partition low" in said
    assert f"{victim.path.name} goes on from its last checkpoint on another worker" in said
    assert "24 runs: 24 done" in said
    noted = [run_id for line in (logs / "jobs.jsonl").read_text().splitlines() for run_id in json.loads(line)["runs"]]
    assert len(noted) == 24 + 6 and noted.count(victim.path.name) == 2, "only the killed job is submitted again"
    serial = tmp_path / "serial"
    sweep(runs, settings_at(serial), quiet=True)
    for run in runs:
        assert_equal_bits(run, results, serial)
    print(f"{len(runs)} runs: the bits of the serial engine")


def test_jobs_outlive_the_command_and_are_taken_up_again(slurm: Cluster, tmp_path: Path) -> None:
    results = tmp_path / "results"
    runs = prepared(tmp_path, slow=3, quick=1)
    folders = [RunFolder(results, run.run_id) for run in runs[:3]]
    sweeping = started(tmp_path)
    wait(lambda: all(checkpoint.steps(folder.path) for folder in folders), tmp_path)
    jobs = [json.loads(line) for line in (results / "slurm" / "jobs.jsonl").read_text().splitlines()]
    array = jobs[0]["job"].partition("_")[0]
    slurm.says("scancel", jobs[0]["job"])
    stopped = f"{runs[0].run_id} stopped: its job {array}_0 was cancelled"
    wait(lambda: stopped in (tmp_path / "said").read_text(), tmp_path)
    assert folders[0].preempted() and folders[0].failure() is None
    sweeping.send_signal(signal.SIGINT)
    assert sweeping.wait(PATIENCE) == 130
    said = (tmp_path / "said").read_text()
    assert f"the jobs go on without this command; to stop them: scancel {array}" in said
    assert [holder(folder.path) is not None for folder in folders] == [False, True, True]
    lines = [line.split() for line in status(results).splitlines()]
    assert {(line[0], line[1]) for line in lines if line and line[0].startswith(array)} == {
        (f"{array}_0", "CANCELLED"),
        (f"{array}_1", "RUNNING"),
        (f"{array}_2", "RUNNING"),
    }
    again = started(tmp_path)
    wait(lambda: "2 runs go on in jobs that were submitted before" in (tmp_path / "said").read_text(), tmp_path)
    (tmp_path / "slow").unlink()
    assert again.wait(PATIENCE) == 0
    print(f"\n{said}\n\n{(tmp_path / 'said').read_text().removeprefix(said)}")
    said = (tmp_path / "said").read_text().removeprefix(said)
    assert "1 job for 1 run, 1 run a job" in said and "4 runs: 4 done" in said
    assert len((results / "slurm" / "jobs.jsonl").read_text().splitlines()) == 5
    sweep(runs, settings_at(tmp_path / "serial"), quiet=True)
    for run in runs:
        assert_equal_bits(run, results, tmp_path / "serial")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--partition nope", "invalid partition specified: nope"),
        ("--gpus 1 --exec.pack 2", "Invalid generic resource (gres) specification"),
        ("--sbatch colour=red", "unrecognized option '--colour=red'"),
    ],
)
@pytest.mark.usefixtures("slurm")
def test_what_slurm_refuses_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: str, message: str
) -> None:
    prepared(tmp_path, slow=0, quick=2)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["sweep", "mine.py", "--engine", "slurm", "--exec.results", "results", *options.split()]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"ladder: sbatch refuses the jobs: {message}"
    assert list((tmp_path / "results" / "slurm").iterdir()) == []
