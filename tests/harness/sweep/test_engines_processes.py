"""The engine of processes: the serial engine's bytes, workers that die, an end in time, and how a GPU is shared."""

import os
import signal
import stat
import threading
import time
from pathlib import Path

import pytest

from chomsky_ladder.harness.store import checkpoint
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.sweep.engines import gpu_share, worker
from chomsky_ladder.harness.sweep.engines.base import Ended, Job, Said, Started, engine_of
from chomsky_ladder.harness.sweep.engines.processes import ProcessesCrew, ProcessesOptions
from chomsky_ladder.harness.sweep.sweep import carry_out, sweep
from chomsky_ladder.harness.train.signals import Preempted
from support.cases import full
from support.engine_jobs import acting, acting_plugin, assert_equal_bits, cell, settings_at


@pytest.mark.parametrize("processes", [1, full(2)])
def test_processes_train_the_serial_engines_bits(processes: int, tmp_path: Path) -> None:
    runs = [cell(seed=seed) for seed in range(3)]
    sweep(runs, settings_at(tmp_path / "serial"), quiet=True)
    report = carry_out(
        runs, settings_at(tmp_path / "several"), engine=ProcessesOptions(processes=processes), quiet=True
    )
    assert report.complete and len(report.fates) == 3
    for run in runs:
        assert_equal_bits(run, tmp_path / "serial", tmp_path / "several")


@pytest.mark.full
def test_a_worker_that_dies_or_breaks_costs_its_own_pack_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "RETRIES", 1)
    acting_plugin(tmp_path)
    dying, breaking, training = (acting(act) for act in ("die", "break", "train"))
    jobs = [Job(number, (run,)) for number, run in enumerate((dying, breaking, training), start=1)]
    crew = ProcessesCrew(settings_at(tmp_path / "results"), workers=2)
    events = list(crew.events(jobs))
    ended = {event.job.number: event.fates[0] for event in events if isinstance(event, Ended)}
    assert [ended[number].status for number in (1, 2, 3)] == ["failed", "failed", "done"]
    assert ended[1].said == "failed: its worker died (SIGKILL), 2 times"
    assert "broken on purpose" in ended[2].said
    assert sum(isinstance(event, Started) for event in events) == 3
    lines = [event.text for event in events if isinstance(event, Said)]
    assert lines.count(f"{dying.run_id} goes on from its last checkpoint on another worker") == 1
    assert RunFolder(tmp_path / "results", dying.run_id).failure()["kind"] == "worker lost"


@pytest.mark.full
def test_the_sweep_ends_in_time_behind_checkpoints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings, runs = settings_at(tmp_path), [cell(steps=10**6), cell(seed=1, steps=10**6)]
    start = time.monotonic()
    report = carry_out(runs, settings, engine=ProcessesOptions(processes=1, minutes=0.2))
    assert time.monotonic() - start < 60
    assert not report.complete and not report.fates
    assert "the time is over: 2 packs are left, 1 of them begun" in capsys.readouterr().err
    begun, untouched = (RunFolder(tmp_path, run.run_id).path for run in runs)
    assert checkpoint.steps(begun) and not untouched.exists()


def test_a_pack_that_would_not_end_in_time_is_not_begun(tmp_path: Path) -> None:
    crew = ProcessesCrew(settings_at(tmp_path), workers=1, end=time.monotonic() + 3600)
    crew.shortest = 4000.0
    (event,) = crew.events([Job(1, (cell(),))])
    assert event == Said("the time is over: 1 packs are left, 0 of them begun")


@pytest.mark.full
def test_a_signal_stops_all_workers_behind_their_checkpoints(tmp_path: Path) -> None:
    run = cell(steps=10**6)
    folder = RunFolder(tmp_path, run.run_id).path

    def interrupt() -> None:
        while not checkpoint.steps(folder):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(Preempted):
        list(ProcessesCrew(settings_at(tmp_path), workers=1).events([Job(1, (run,))]))
    assert RunFolder(tmp_path, run.run_id).result() is None and checkpoint.steps(folder)


def test_options_that_mean_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="--processes must not be negative, not -1"):
        ProcessesOptions(processes=-1)
    with pytest.raises(ValueError, match="--minutes must not be negative, not nan"):
        ProcessesOptions(minutes=float("nan"))


def test_a_cpu_has_a_worker_a_core(tmp_path: Path) -> None:
    chosen, options = engine_of("processes")
    with chosen.open(settings_at(tmp_path), options) as crew:
        assert crew.workers == os.cpu_count()


def service(folder: Path, *, code: int = 0) -> Path:
    """Write a stand-in for NVIDIA's control program that notes how it is called."""
    path = folder / gpu_share.CONTROL
    path.write_text(f'#!/bin/sh\necho "$@ $(cat)" >> {folder}/calls\n[ "$1" = -d ] && exit {code}\nexit 0\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def lonely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH on which only the test's own programs are looked for."""
    monkeypatch.setattr(gpu_share, "PLACES", (str(tmp_path),))
    monkeypatch.setattr(gpu_share, "_CLIENT", "pass")
    for name in gpu_share.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_the_gpu_is_shared_by_the_service_where_there_is_one(lonely: Path) -> None:
    service(lonely)
    with gpu_share.shared_gpu() as sharing:
        assert sharing == "mps"
        assert Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"]).is_dir()
    assert "CUDA_MPS_PIPE_DIRECTORY" not in os.environ
    assert (lonely / "calls").read_text().split() == ["-d", "quit"]


def test_without_the_service_processes_take_turns(lonely: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with gpu_share.shared_gpu() as sharing:
        assert sharing == "time slices: there is no nvidia-cuda-mps-control"
    service(lonely, code=1)
    with gpu_share.shared_gpu() as sharing:
        assert sharing == "time slices: nvidia-cuda-mps-control ended with 1"
    service(lonely)
    monkeypatch.setattr(gpu_share, "_CLIENT", "import sys; sys.exit('no device')")
    with gpu_share.shared_gpu() as sharing:
        assert sharing == "time slices: no device" and gpu_share.VARIABLES[0] not in os.environ
