"""The engine of Slurm: what it submits, what becomes of jobs that end in any way, and each refusal.

Programs of Slurm are stand-ins here; a real one is in test_engines_slurm_real.py.
"""

import json
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chomsky_ladder.harness.cli import main as cli
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.store import lock
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.store.slurm_jobs import job_of_run, log_of, note_job
from chomsky_ladder.harness.sweep.engines import slurm, slurm_job, worker
from chomsky_ladder.harness.sweep.engines.base import Ended, Event, Fate, Job, Said, Started, engine_of
from chomsky_ladder.harness.sweep.engines.slurm_job import in_job
from chomsky_ladder.harness.sweep.engines.slurm_options import SlurmOptions, minutes_of, more_options
from chomsky_ladder.harness.sweep.engines.worker import Command, plain_of
from chomsky_ladder.harness.sweep.sweep import carry_out, sweep
from chomsky_ladder.harness.train.signals import Preempted
from support.engine_jobs import assert_equal_bits, cell, settings_at
from support.records_by_hand import folder_of, result_of

Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch

SBATCH = """#!/bin/sh
[ -e {folder}/refuses ] && {{ cat {folder}/refuses >&2; exit 1; }}
cp "$1" {folder}/script
echo Submitted batch job 12
"""
SQUEUE = """#!/bin/sh
cat {folder}/queue
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: Patch) -> Path:
    """A PATH with stand-ins for Slurm's programs alone: sbatch keeps its script, squeue prints the file `queue`."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in {"sbatch": SBATCH, "squeue": SQUEUE, "srun": "#!/bin/sh\n"}.items():
        (folder / name).write_text(text.format(folder=folder))
        (folder / name).chmod(0o755)
    (folder / "queue").touch()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setattr(slurm, "ASK_EVERY", 0.0)
    monkeypatch.setattr(slurm, "_LOOK_EVERY", 0.0)
    return folder


@pytest.mark.parametrize(
    ("limit", "minutes"),
    [("90", 90), ("90:01", 91), ("4:00:00", 240), ("0:00:30", 1), ("1-12", 2160), ("1-12:30", 2190), ("2-0:0:1", 2881)],
)
def test_time_limits_are_read_as_slurm_reads_them(limit: str, minutes: int) -> None:
    assert minutes_of(limit) == minutes


@pytest.mark.parametrize("limit", ["", "0", "1x", "1:2:3:4", "-5", "1-", "1.5", "UNLIMITED", "٣"])
def test_a_malformed_time_limit_is_refused(limit: str) -> None:
    with pytest.raises(ValueError, match=r"^--time is a time limit such as 90 \(minutes\), 4:00:00 or 1-12:00:00, not"):
        SlurmOptions(time=limit)


def test_more_options_of_sbatch() -> None:
    assert more_options('account=me --mem=8G comment="two words" exclusive') == {
        "account": "me",
        "mem": "8G",
        "comment": "two words",
        "exclusive": True,
    }
    for words in ("8G", "mem:8G =", 'a="'):
        with pytest.raises(ValueError, match="--sbatch is a list of options such as"):
            SlurmOptions(sbatch=words)


def refused(folder: Path, capsys: Capture, *words: str) -> str:
    """Return the one line with which a sweep is refused before any work."""
    script = folder / "mine.py"
    script.write_text("from support.engine_jobs import cell\ndef runs():\n    return [cell(), cell(seed=1)]\n")
    command = ["sweep", str(script), "--engine", "slurm", "--exec.results", str(folder / "results"), "--quiet"]
    assert cli.main([*command, *words]) == 2
    said = capsys.readouterr()
    assert not list(folder.rglob("config.json")) and said.out == ""
    return said.err.splitlines()[-1].removeprefix("ladder: ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--time soon", "--time is a time limit such as 90 (minutes), 4:00:00 or 1-12:00:00, not 'soon'"),
        ("--gpus 2", "--gpus is 0 or 1, since a pack trains on one GPU, not 2"),
        ("--jobs -1", "--jobs must not be negative, not -1"),
        ("--gpus 1 --exec.device cpu", "exec.device=cpu with --gpus 1: --gpus 0 trains on the CPU of a job, --gpus 1"),
        ("--gpus 1", "there is no GPU here to find out how many runs fit one: say --exec.pack"),
    ],
)
@pytest.mark.each_time(5)
@pytest.mark.usefixtures("programs")
def test_options_are_refused(tmp_path: Path, capsys: Capture, monkeypatch: Patch, words: str, message: str) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert refused(tmp_path, capsys, *words.split()).startswith(message)


def test_what_is_not_there_is_refused(programs: Path, tmp_path: Path, capsys: Capture, monkeypatch: Patch) -> None:
    monkeypatch.setitem(sys.modules, "submitit", None)
    assert refused(tmp_path, capsys) == "--engine slurm needs the package submitit: pip install 'chomsky-ladder[slurm]'"
    (programs / "squeue").write_text("#!/bin/sh\nexit 1\n")
    assert refused(tmp_path, capsys) == "Slurm does not answer here: `squeue` says why"
    (programs / "sbatch").unlink()
    monkeypatch.setenv("PATH", str(programs))
    message = "there is no sbatch here: start this on a machine of Slurm, or say --executor local"
    assert refused(tmp_path, capsys, "--executor", "slurm") == message


def test_what_sbatch_refuses_is_a_line_and_leaves_nothing(programs: Path, tmp_path: Path, capsys: Capture) -> None:
    pytest.importorskip("submitit")
    (programs / "refuses").write_text("sbatch: error: invalid partition specified: nope\nsbatch: error: It failed\n")
    message = "sbatch refuses the jobs: invalid partition specified: nope"
    assert refused(tmp_path, capsys, "--partition", "nope") == message
    assert list((tmp_path / "results" / "slurm").iterdir()) == []


@pytest.fixture
def as_worker(monkeypatch: Patch) -> None:
    """Let a test do a job's work in its own process."""
    monkeypatch.setattr(worker, "_working", False)
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.mark.usefixtures("as_worker")
def test_what_is_submitted_trains_the_serial_bits(programs: Path, tmp_path: Path) -> None:
    submitit_utils = pytest.importorskip("submitit.core.utils")
    results, runs = tmp_path / "results", [cell(seed=seed) for seed in range(3)]
    options = SlurmOptions(partition="low", time="2:00:00", jobs=2, at_once=1, sbatch="mem=2G exclusive")
    jobs = [Job(number, (run,)) for number, run in enumerate(runs, start=1)]
    chosen, own = engine_of(options)
    with chosen.open(settings_at(results), own) as crew:
        assert crew.workers == 1
        events = crew.events(jobs)
        plan = next(events)
        assert not (programs / "script").exists(), "what will be submitted is said first"
        assert plan == Said("2 jobs for 3 runs, up to 2 runs a job, at most 120 min a job on partition low")
        assert next(events) == Said(f"submitted to Slurm as 12; logs: {results / 'slurm'}; states: `ladder status`")
        wanted = {"array=0-1%1", "cpus-per-task=1", "exclusive", "job-name=ladder", "mem=2G", "partition=low"}
        wanted |= {"requeue", "signal=USR1@120", "time=120", f"error={results}/slurm/%A_%a_0_log.err"}
        script = (programs / "script").read_text()
        assert wanted <= {line.removeprefix("#SBATCH --") for line in script.splitlines()} and "gpus" not in script
        assert job_of_run(results) == {runs[0].run_id: "12_0", runs[1].run_id: "12_1", runs[2].run_id: "12_0"}
        (programs / "queue").write_text("12_0|RUNNING|None\n12_1|RUNNING|None\n")
        assert [next(events), next(events)] == [Started(jobs[0]), Started(jobs[1])]
        for name in ("12_0", "12_1"):
            submitit_utils.DelayedSubmission.load(results / "slurm" / f"{name}_submitted.pkl").result()
        worker._working = False
        ended = [event for event in events if isinstance(event, Ended)]
    assert [(event.job.number, event.fates[0].status) for event in ended] == [(1, "done"), (3, "done"), (2, "done")]
    sweep(runs, settings_at(tmp_path / "serial"), quiet=True)
    for run in runs:
        assert_equal_bits(run, results, tmp_path / "serial")


def test_a_gpu_is_asked_for_and_used(programs: Path, tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    """The machine of the command may have none."""
    submitit_utils = pytest.importorskip("submitit.core.utils")
    settings = replace(settings_at(tmp_path, pack=2), device="cuda")
    monkeypatch.setattr(slurm, "states", lambda: {"12": "CANCELLED"})
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    report = carry_out([cell(), cell(seed=1)], settings, engine=SlurmOptions(gpus=1))
    assert "the time it will take is not known" in capsys.readouterr().err, "there is one pack for all workers"
    assert list(report.of("failed").values()) == ["stopped: its job 12 was cancelled"] * 2
    assert "#SBATCH --gpus-per-node=1\n" in (programs / "script").read_text()
    (packs, settings, _) = submitit_utils.DelayedSubmission.load(tmp_path / "slurm" / "12_submitted.pkl").args
    assert settings.device == "cuda:0" and [len(trees) for _, trees in packs] == [2]


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


def test_ctrl_c_leaves_the_jobs(tmp_path: Path, queue: dict[str, str]) -> None:
    queue |= {"12_0": "RUNNING"}
    _, events = watched(tmp_path, [Job(1, (cell(),))])
    told = [next(events) for _ in range(3)]
    signal.raise_signal(signal.SIGINT)
    told.append(next(events))
    assert told[-1] == Said("the jobs go on without this command; to stop them: scancel 12")
    with pytest.raises(Preempted):
        next(events)


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


def test_status_shows_jobs_and_their_states(programs: Path, tmp_path: Path, capsys: Capture) -> None:
    runs, results = [cell(seed=seed) for seed in range(4)], tmp_path / "results"
    ended(results, runs[0])
    (results / "slurm").mkdir()
    note_job(results, "7_0", [runs[0].run_id, runs[1].run_id])
    note_job(results, "7_1", [runs[2].run_id, runs[3].run_id])
    note_job(results, "8", [runs[2].run_id])
    with (results / "slurm" / "jobs.jsonl").open("a") as file:
        file.write('{"job": "9", "runs": 3}\n[]\n{"job": ')
    (programs / "queue").write_text("7_0|RUNNING|None\n8|PENDING|QOSMaxJobsPerUserLimit|more\n")
    assert cli.main(["status", "--results", str(results)]) == 0
    said = capsys.readouterr().out
    rows = [line.split(f"  {results}")[0].strip() for line in said.partition("jobs of Slurm\n")[2].splitlines()]
    assert [" ".join(row.split()) for row in rows] == [
        "7_0 RUNNING 1 of 2 runs done",
        "7_1 GONE 0 of 1 run done",
        "8 PENDING (QOSMaxJobsPerUserLimit|more) 0 of 1 run done",
    ]
    assert f"{results}/slurm/7_0_0_log.err" in said
    assert cli.main(["status", "--results", str(results), "--json"]) == 0
    first = json.loads(capsys.readouterr().out)["jobs"][0]
    assert first == {"job": "7_0", "state": "RUNNING", "runs": 2, "done": 1, "log": str(log_of(results, "7_0"))}
    (programs / "squeue").unlink()
    assert cli.main(["status", "--results", str(results)]) == 0
    assert "unknown: squeue does not answer" in capsys.readouterr().out


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
