"""Jobs of Slurm that end in any way, and the work of a job, with an executor and states that a test makes up."""

import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.store import lock
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.store.slurm_jobs import log_of, note_job
from chomsky_ladder.harness.sweep.engines import slurm, slurm_job, worker
from chomsky_ladder.harness.sweep.engines.base import Ended, Event, Fate, Job, Said, Started
from chomsky_ladder.harness.sweep.engines.slurm_job import in_job
from chomsky_ladder.harness.sweep.engines.slurm_options import SlurmOptions
from chomsky_ladder.harness.sweep.engines.worker import Command, plain_of
from chomsky_ladder.harness.train.signals import Preempted
from support.engine_jobs import cell, settings_at
from support.records_by_hand import folder_of, result_of

Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch


@pytest.fixture
def as_worker(monkeypatch: Patch) -> None:
    """Let a test do a job's work in its own process."""
    monkeypatch.setattr(worker, "_working", False)
    monkeypatch.setattr(sys, "path", list(sys.path))


class Executor:
    """Submitit's executor as the engine sees it: it numbers arrays from 12."""

    def __init__(self) -> None:
        self.arrays: list[list[list[str]]] = []

    def map_array(self, work: object, packs: Sequence[Any], settings: object, command: object) -> list[Any]:
        self.arrays.append([[tree["seed"] for _, trees in some for tree in trees] for some in packs])
        return [SimpleNamespace(job_id=f"{11 + len(self.arrays)}_{place}") for place in range(len(packs))]


@pytest.fixture
def queue(monkeypatch: Patch) -> dict[str, str]:
    """The states that Slurm gives for jobs, which a test fills."""
    found: dict[str, str] = {}
    monkeypatch.setattr(slurm, "states", lambda: dict(found))
    monkeypatch.setattr(slurm, "ASK_EVERY", 0.0)
    monkeypatch.setattr(slurm, "_LOOK_EVERY", 0.0)
    return found


def watched(results: Path, jobs: Sequence[Job], *, count: int = 0) -> tuple[Executor, Iterator[Event]]:
    (results / "slurm").mkdir(parents=True, exist_ok=True)
    executor = Executor()
    options = SlurmOptions(executor="slurm", jobs=count)
    return executor, slurm.SlurmCrew(executor, settings_at(results), options).events(jobs)


def ended(results: Path, run: Run) -> None:
    """Give a run a result."""
    folder_of(results, run).finish(result_of(run, steps=run.train.steps))


def said_of(events: list[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, Said)]


def test_a_job_that_dies_is_submitted_again_and_given_up(tmp_path: Path, queue: dict[str, str]) -> None:
    """The pack under way is given up after four jobs; those behind it in the job are not blamed."""
    jobs = [Job(1, (cell(),)), Job(2, (cell(seed=1),))]
    queue |= {f"{number}_0": "OUT_OF_MEMORY" for number in (12, 13, 14, 15)} | {"16_0": "RUNNING"}
    executor, events = watched(tmp_path, jobs, count=1)
    seen = []
    for event in events:
        seen.append(event)
        if len(executor.arrays) == 5:
            ended(tmp_path, jobs[1].runs[0])
    assert executor.arrays == [*[[[0, 1]]] * 4, [[1]]]
    lost, done = (event.fates[0] for event in seen if isinstance(event, Ended))
    assert (lost.status, lost.said) == ("failed", "failed: its job 15_0 ended as OUT_OF_MEMORY, 4 times")
    assert RunFolder(tmp_path, lost.run_id).failure()["kind"] == "worker lost"
    assert (done.run_id, done.status) == (jobs[1].runs[0].run_id, "done")
    assert said_of(seen).count(f"{cell().run_id} goes on from its last checkpoint on another worker") == 3


def test_a_preempted_job_is_submitted_again_as_often_as_it_takes(tmp_path: Path, queue: dict[str, str]) -> None:
    queue |= {f"{number}_0": "PREEMPTED" for number in range(12, 20)} | {"20_0": "COMPLETED"}
    executor, events = watched(tmp_path, [Job(1, (cell(),))])
    seen = []
    for event in events:
        seen.append(event)
        if len(executor.arrays) == 9:
            ended(tmp_path, cell())
    assert isinstance(seen[-1], Ended) and seen[-1].fates[0].status == "done"


def test_a_job_that_cannot_start_is_said_once(tmp_path: Path, queue: dict[str, str]) -> None:
    queue |= dict.fromkeys(("12_0", "12_1"), "PENDING (PartitionTimeLimit)")
    _, events = watched(tmp_path, [Job(1, (cell(),)), Job(2, (cell(seed=1),))])
    assert said_of([next(events) for _ in range(3)])[2:] == ["job 12_0 of Slurm waits: PENDING (PartitionTimeLimit)"]
    queue["12_0"] = "RUNNING"
    assert isinstance(next(events), Started)


def test_a_cancelled_job_is_not_submitted_again(tmp_path: Path, queue: dict[str, str]) -> None:
    queue |= {"12_0": "CANCELLED"}
    folder_of(tmp_path, cell()).fail({"run_id": cell().run_id, "error": "of an earlier try"})
    executor, events = watched(tmp_path, [Job(1, (cell(),))])
    assert list(events)[-1] == Ended(
        Job(1, (cell(),)), [Fate(cell().run_id, "failed", "stopped: its job 12_0 was cancelled")]
    )
    assert len(executor.arrays) == 1 and RunFolder(tmp_path, cell().run_id).failure() is None


def test_a_job_that_broke_and_one_that_found_its_run_held(tmp_path: Path, queue: dict[str, str]) -> None:
    runs = [cell(seed=seed) for seed in range(3)]
    queue |= {"12_0": "FAILED", "12_1": "COMPLETED", "12_2": "COMPLETED"}
    _, events = watched(tmp_path, [Job(number, (run,)) for number, run in enumerate(runs)])
    for name in queue:
        (tmp_path / "slurm" / f"{name}_0_result.pkl").touch()
    with RunFolder(tmp_path, runs[1].run_id).locked():
        told = [next(events), next(events)]
        folder = RunFolder(tmp_path, runs[2].run_id)
        folder.open(runs[2])
        folder.fail({"run_id": runs[2].run_id, "error": "RuntimeError: broken on purpose"})
        told += list(events)
    fates = [event.fates[0] for event in told if isinstance(event, Ended)]
    assert [fate.status for fate in fates] == ["failed", "held", "failed"]
    assert fates[0].said == f"failed: its job 12_0 broke, {log_of(tmp_path, '12_0')} says why"
    assert fates[1].said.startswith("is being written by process")
    assert fates[2].said == "failed: RuntimeError: broken on purpose"


def test_a_slurm_that_does_not_answer_loses_no_job(tmp_path: Path, queue: dict[str, str], monkeypatch: Patch) -> None:
    answers: list[dict[str, str] | None] = [{}, None, {"12_0": "RUNNING"}, None, None]
    monkeypatch.setattr(slurm, "states", lambda: answers.pop(0))
    executor, events = watched(tmp_path, [Job(1, (cell(),))])
    assert [type(next(events)) for _ in range(3)] == [Said, Said, Started]
    ended(tmp_path, cell())
    assert isinstance(next(events), Ended) and len(executor.arrays) == 1 and answers == [None]


def test_jobs_in_the_queue_are_taken_up(tmp_path: Path, queue: dict[str, str]) -> None:
    runs = [cell(seed=seed) for seed in range(4)]
    executor, events = watched(tmp_path, [Job(number, (run,)) for number, run in enumerate(runs)])
    note_job(tmp_path, "7_0", [runs[0].run_id, runs[1].run_id])
    note_job(tmp_path, "7_1", [runs[2].run_id])
    queue |= {"7_0": "PENDING (Priority)", "7_1": "TIMEOUT", "12_0": "RUNNING", "12_1": "RUNNING"}
    assert next(events) == Said("2 runs go on in jobs that were submitted before: 7")
    assert next(events) == Said("2 jobs for 2 runs, 1 run a job, at most 60 min a job")
    for run in runs:
        ended(tmp_path, run)
    queue["7_0"] = "COMPLETED"
    assert sum(isinstance(event, Ended) for event in events) == 4
    assert executor.arrays == [[[2], [3]]]


def test_a_pack_whose_runs_are_in_two_jobs_waits_for_both(tmp_path: Path, queue: dict[str, str]) -> None:
    """Packs are made of what is left, so that a pack of now may have runs of several packs of before."""
    pack = Job(1, (cell(), cell(seed=1)))
    new = Job(2, (cell(seed=2), cell(seed=3)))
    executor, events = watched(tmp_path, [pack, new])
    for name, run in zip(("7_0", "7_1"), pack.runs, strict=True):
        note_job(tmp_path, name, [run.run_id])
        queue[name] = "RUNNING"
    note_job(tmp_path, "7_2", [new.runs[0].run_id])
    queue |= {"7_2": "PENDING (Priority)", "12_0": "COMPLETED"}
    told = [next(events), next(events)]
    ended(tmp_path, pack.runs[0])
    queue |= {"7_0": "COMPLETED", "7_1": "PENDING (Priority)"}
    (tmp_path / "slurm" / "7_0_0_result.pkl").touch()
    told.append(next(events))
    ended(tmp_path, pack.runs[1])
    queue["7_1"] = "COMPLETED"
    told.append(next(events))
    assert told[:3] == [
        Said("4 runs go on in jobs that were submitted before: 7"),
        Started(pack),
        Said("2 runs go on in jobs that were submitted before: 7"),
    ]
    assert isinstance(told[3], Ended) and [fate.status for fate in told[3].fates] == ["done", "done"]
    assert executor.arrays == []
    ended(tmp_path, new.runs[0])
    queue["7_2"] = "COMPLETED"
    assert said_of([next(events)]) == ["1 job for 2 runs, 2 runs a job, at most 60 min a job"], "one is in no job yet"


def test_ctrl_c_leaves_the_jobs(tmp_path: Path, queue: dict[str, str], capsys: Capture) -> None:
    queue |= {"12_0": "RUNNING"}
    _, events = watched(tmp_path, [Job(1, (cell(),))])
    told = [next(events) for _ in range(3)]
    signal.raise_signal(signal.SIGINT)
    told.append(next(events))
    assert told[-1] == Said("the jobs go on without this command; to stop them: scancel 12")
    with pytest.raises(Preempted):
        next(events)
    assert capsys.readouterr().err == "\nSIGINT: the command ends; once more ends at once\n"


@pytest.mark.parametrize(
    ("number", "requeued"), [(signal.SIGUSR1, ["scontrol", "requeue", "34"]), (signal.SIGTERM, [])]
)
@pytest.mark.usefixtures("as_worker")
def test_a_warned_job_requeues_itself(
    tmp_path: Path, monkeypatch: Patch, number: signal.Signals, requeued: list[str]
) -> None:
    """Slurm itself requeues a job that it preempts, and a cancelled one is not to come back."""
    called, begun = list[str](), list[int]()
    monkeypatch.setenv("SUBMITIT_EXECUTOR", "slurm")
    monkeypatch.setenv("SLURM_JOB_ID", "34")
    monkeypatch.setattr(slurm_job.subprocess, "run", lambda command, check: called.extend(command))

    def stopped(job: Job, settings: object) -> list[Fate]:
        begun.append(job.number)
        raise Preempted(number)

    monkeypatch.setattr(slurm_job, "train", stopped)
    with pytest.raises(Preempted):
        in_job([(7, [plain_of(cell())]), (8, [plain_of(cell(seed=1))])], settings_at(tmp_path), Command.of([cell()]))
    assert called == requeued and begun == [7], "no other pack is begun"


@pytest.mark.usefixtures("as_worker")
def test_a_signal_while_a_pack_is_scored_begins_no_other(tmp_path: Path, monkeypatch: Patch) -> None:
    begun: list[int] = []

    def signalled(job: Job, settings: object) -> list[Fate]:
        begun.append(job.number)
        signal.raise_signal(signal.SIGTERM)
        return [Fate("a", "done", "")]

    monkeypatch.setattr(slurm_job, "train", signalled)
    with pytest.raises(Preempted):
        in_job([(7, [plain_of(cell())]), (8, [plain_of(cell(seed=1))])], settings_at(tmp_path), Command.of([cell()]))
    assert begun == [7]


def test_a_lock_of_a_killed_job_is_waited_for(tmp_path: Path, monkeypatch: Patch) -> None:
    """The heartbeat of such a lock is fresh for a while, and its machine may be gone."""
    fates = [[Fate("a", "held", "")], [Fate("a", "held", "")], [Fate("a", "done", "")]]
    waited: list[float] = []
    monkeypatch.setattr(slurm_job, "train", lambda job, settings: fates.pop(0))
    monkeypatch.setattr(slurm_job.time, "sleep", waited.append)
    assert slurm_job._trained(Job(1, (cell(),)), settings_at(tmp_path)) == [Fate("a", "done", "")]
    assert waited == [lock.BEAT, lock.BEAT]
    fates += [[Fate("a", "held", "")]] * 99
    monkeypatch.setattr(slurm_job.time, "monotonic", lambda: sum(waited))
    assert slurm_job._trained(Job(1, (cell(),)), settings_at(tmp_path))[0].status == "held"
    assert lock.STALE < sum(waited) - 2 * lock.BEAT < 2 * lock.STALE, "somebody else is at work there"
