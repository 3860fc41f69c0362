"""The engine that trains packs in jobs of Slurm, which submitit submits as one array.

    ladder sweep mine.py --engine slurm --partition cpu --time 4:00:00             a job a pack, on a CPU each
    ladder sweep mine.py --engine slurm --gpus 1 --exec.pack 9 --sbatch "mem=16G"  packs of nine, on a GPU each

A job that is warned of its time limit writes a checkpoint and goes back into the queue, and so does one that Slurm
preempts. A job that died is submitted again by the command that watches it, or by the next one. Jobs outlive the
command: started again, it finds those that are still in the queue and submits the rest. Where there is no Slurm,
submitit's local executor runs the jobs on this machine, and they end with the command.
"""

import io
import os
import re
import shutil
import signal
import time
from collections import Counter, deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, suppress
from dataclasses import replace
from itertools import repeat
from typing import Any

import torch

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.store import lock
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.store.slurm_jobs import OVER, job_of_run, jobs_folder, log_of, note_job, states
from chomsky_ladder.harness.sweep.engines.base import (
    Ended,
    Engine,
    Event,
    Fate,
    Job,
    PackSize,
    Said,
    Started,
    fate_of,
    register,
)
from chomsky_ladder.harness.sweep.engines.slurm_job import Packs, in_job
from chomsky_ladder.harness.sweep.engines.slurm_options import MOST, SlurmOptions, executor_of, minutes_of
from chomsky_ladder.harness.sweep.engines.worker import (
    PATIENCE,
    Command,
    handed_on,
    plain_of,
    refuse_in_a_worker,
)
from chomsky_ladder.harness.train.signals import Preempted, listening, starting_children

ASK_EVERY = 10.0  # seconds between questions to Slurm
_LOOK_EVERY = 0.5  # seconds between looks at the results folder
_USUAL = ("None", "Priority", "Resources", "BeginTime", "JobArrayTaskLimit")  # reasons to wait that pass by themselves


class SlurmCrew:
    """Jobs of Slurm, or of submitit on this machine, each with packs that it trains one after the other."""

    def __init__(self, executor: Any, settings: Exec, options: SlurmOptions) -> None:
        self._executor, self._settings, self._options = executor, settings, options
        self._sent: dict[str, list[Job]] = {}  # the packs of a job that have not ended
        self._local: dict[str, Any] = {}  # submitit's jobs of this machine
        self._states: dict[str, str] = {}
        self._asked = float("-inf")  # when Slurm last gave them
        self._begun: set[int] = set()
        self._told = {"PENDING", *(f"PENDING ({reason})" for reason in _USUAL)}

    @property
    def workers(self) -> int:
        if self._options.is_local:
            return self._options.at_once or max(1, len(os.sched_getaffinity(0)) // self._settings.threads)
        return min(self._options.at_once or MOST, self._options.jobs or MOST)

    def events(self, jobs: Sequence[Job]) -> Generator[Event, None, None]:
        waiting, groups, tries = deque(jobs), deque[list[Job]](), Counter[int]()
        command = Command.of(run for job in jobs for run in job.runs)
        with listening("the command ends") as asked:
            try:
                while waiting or groups or self._sent:
                    yield from self._take_up(waiting)
                    yield from self._group(waiting, groups)
                    yield from self._submit(groups, command)
                    for name in list(self._sent):
                        yield from self._look(name, waiting, tries)
                    if number := asked():
                        if not self._options.is_local:
                            yield Said(f"the jobs go on without this command; to stop them: scancel {self._arrays()}")
                        raise Preempted(number)
                    time.sleep(_LOOK_EVERY)
            finally:
                self._stop()

    def _arrays(self) -> str:
        return " ".join(dict.fromkeys(name.partition("_")[0] for name in self._sent))

    def _take_up(self, waiting: "deque[Job]") -> Iterator[Event]:
        """Leave packs that are in a job already to it."""
        if self._options.is_local or not waiting:
            return
        self._ask()
        known = job_of_run(self._settings.results)
        taken = 0
        for job in list(waiting):
            names = [known[run.run_id] for run in job.runs if run.run_id in known]
            name = next((name for name in names if self._states.get(name, "GONE") not in OVER), None)
            if name is not None:
                waiting.remove(job)
                self._sent.setdefault(name, []).append(job)
                taken += len(job.runs)
        if taken:
            goes = "goes" if taken == 1 else "go"
            yield Said(f"{_counted(taken, 'run')} {goes} on in jobs that were submitted before: {self._arrays()}")

    def _group(self, waiting: "deque[Job]", groups: "deque[list[Job]]") -> Iterator[Event]:
        """Divide packs among jobs, and say so before anything is submitted."""
        if not waiting:
            return
        count = min(len(waiting), self._options.jobs or MOST)
        packs, runs = list(waiting), sum(len(job.runs) for job in waiting)
        groups.extend(packs[start::count] for start in range(count))
        waiting.clear()
        most = max(sum(len(job.runs) for job in group) for group in groups)
        each = f"{'up to ' if most * count > runs else ''}{_counted(most, 'run')} a job"
        if self._options.is_local:
            how = f"on this machine without Slurm, {self.workers} at once, no time limit"
        else:
            where = f" on partition {self._options.partition}" if self._options.partition else ""
            how = f"at most {minutes_of(self._options.time)} min a job{where}"
        yield Said(f"{_counted(count, 'job')} for {_counted(runs, 'run')}, {each}, {how}")

    def _submit(self, groups: "deque[list[Job]]", command: Command) -> Iterator[Event]:
        """Submit all there is as one array; on this machine, as many jobs as there is room for."""
        is_local, results = self._options.is_local, self._settings.results
        room = self.workers - len(self._sent) if is_local else len(groups)
        batch = [groups.popleft() for _ in range(min(room, len(groups)))]
        if not batch:
            return
        packs: list[Packs] = [[(job.number, [plain_of(run) for run in job.runs]) for job in group] for group in batch]
        jobs = self._mapped(packs, command)
        for run in (run for group in batch for job in group for run in job.runs):
            (self._folder(run).path / "failure.json").unlink(missing_ok=True)  # of an earlier try
        for job, group in zip(jobs, batch, strict=True):
            self._sent[job.job_id] = group
            if is_local:
                self._local[job.job_id] = job
                continue
            self._states[job.job_id] = "PENDING"
            note_job(results, job.job_id, [run.run_id for pack in group for run in pack.runs])
        if not is_local:
            names = ", ".join(dict.fromkeys(job.job_id.partition("_")[0] for job in jobs))
            yield Said(f"submitted to Slurm as {names}; logs: {jobs_folder(results)}; states: `ladder status`")

    def _mapped(self, packs: Sequence[Packs], command: Command) -> Sequence[Any]:
        """Return submitit's jobs. What sbatch refuses is a line, and leaves nothing behind."""
        folder = jobs_folder(self._settings.results)
        before = set(folder.glob("*"))
        try:
            with starting_children(), redirect_stderr(io.StringIO()):  # submitit prints there what sbatch wrote
                return self._executor.map_array(in_job, packs, repeat(self._settings), repeat(command))
        except RuntimeError as error:
            for path in set(folder.glob("*")) - before:
                path.unlink()
            said = re.sub(r"^(sbatch: )?(error: )?", "", str(error).strip().partition("\n")[0])
            raise ValueError(f"sbatch refuses the jobs: {said}") from None

    def _ask(self) -> None:
        """Ask Slurm for the states of all jobs; where it does not answer, the last ones stand."""
        if time.monotonic() - self._asked >= ASK_EVERY:
            answer = states()
            self._states = self._states if answer is None else answer
            self._asked = time.monotonic()

    def _state(self, name: str) -> str:
        if name in self._local:
            return "COMPLETED" if self._local[name].done() else "RUNNING"
        self._ask()
        return self._states.get(name, "GONE")

    def _look(self, name: str, waiting: "deque[Job]", tries: Counter[int]) -> Iterator[Event]:
        """Say what became of a job's packs. What a job that died has left goes back into the queue."""
        state, left = self._state(name), self._sent[name]
        if state.startswith("PENDING"):
            if state not in self._told:
                self._told.add(state)
                yield Said(f"job {name} of Slurm waits: {state}")
            return
        for job in list(left):
            if all(self._folder(run).is_done() for run in job.runs):
                left.remove(job)
                yield from self._ended(job, [fate for run in job.runs if (fate := self._fate(run, name, state))])
        if left and state == "RUNNING":
            yield from self._started(left[0])
        if state not in OVER and (left or name in self._local):  # a process of this machine is waited for
            return
        del self._sent[name]
        is_first, known = True, job_of_run(self._settings.results)
        for job in left:
            unfinished = [run.run_id for run in job.runs if not self._folder(run).is_done()]
            if name not in self._local and any(known.get(run_id) != name for run_id in unfinished):
                waiting.append(job)  # it has runs of another job, too
                continue
            fates = [fate for run in job.runs if (fate := self._fate(run, name, state))]
            if len(fates) == len(job.runs):
                yield from self._ended(job, fates)
            elif is_first and state != "PREEMPTED":  # the pack that was under way
                is_first = False
                message = f"{job.name}: its job {name} ended as {state}"
                yield Said(message)
                event = handed_on(job, self._settings, message, waiting=waiting, tries=tries)
                yield from self._ended(job, event.fates) if isinstance(event, Ended) else [event]
            else:
                waiting.append(job)

    def _started(self, job: Job) -> Iterator[Event]:
        if job.number not in self._begun:
            self._begun.add(job.number)
            yield Started(job)

    def _ended(self, job: Job, fates: list[Fate]) -> Iterator[Event]:
        yield from self._started(job)
        self._begun.discard(job.number)  # a run that another process held is tried again
        yield Ended(job, fates)

    def _folder(self, run: Run) -> RunFolder:
        return RunFolder(self._settings.results, run.run_id)

    def _fate(self, run: Run, name: str, state: str) -> Fate | None:
        """Return the fate of a run whose job is over, or None if the job died before it told."""
        folder, log = self._folder(run), log_of(self._settings.results, name)
        try:
            result, failure = folder.result(), folder.failure()
        except ValueError as damage:
            return Fate(run.run_id, "failed", f"failed: {damage}")
        if result is not None:
            return fate_of(run.run_id, result)
        if failure is not None:
            return Fate(run.run_id, "failed", f"failed: {failure.get('error')}")
        if (log.parent / f"{name}_0_result.pkl").exists():  # submitit's mark of a job that came to its end
            holder = lock.holder(folder.path)
            said = f"is being written by {holder}" if holder else f"failed: its job {name} broke, {log} says why"
            return Fate(run.run_id, "held" if holder else "failed", said)
        if state == "CANCELLED":
            return Fate(run.run_id, "failed", f"stopped: its job {name} was cancelled")
        return None

    def _stop(self) -> None:
        """End the jobs of this machine behind their checkpoints. Those of Slurm go on."""
        under_way = [name for name in self._sent if name in self._local]
        for name in under_way:
            with suppress(ProcessLookupError):
                os.kill(int(name), signal.SIGTERM)  # which its controller hands on
        give_up = time.monotonic() + PATIENCE
        while time.monotonic() < give_up and not all(self._local[name].done() for name in under_way):
            time.sleep(0.1)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


@contextmanager
def opened(settings: Exec, options: SlurmOptions) -> Iterator[SlurmCrew]:
    refuse_in_a_worker()
    device = "cuda:0" if options.gpus else "cpu"
    if settings.device not in ("auto", device, device[:4]):
        said = "--gpus 0 trains on the CPU of a job, --gpus 1 on its GPU"
        raise ValueError(f"exec.device={settings.device} with --gpus {options.gpus}: {said}")
    if options.gpus and not settings.pack and not torch.cuda.is_available():
        raise ValueError("there is no GPU here to find out how many runs fit one: say --exec.pack")
    if not options.is_local and shutil.which("sbatch") is None:
        raise ValueError("there is no sbatch here: start this on a machine of Slurm, or say --executor local")
    if not options.is_local and states() is None:
        raise ValueError("Slurm does not answer here: `squeue` says why")
    settings = replace(settings, device=device, results=settings.results.absolute())
    yield SlurmCrew(executor_of(settings, options), settings, options)


def pack_size(settings: Exec, options: SlurmOptions, planned: PackSize) -> PackSize:
    """Return how many runs of a shape fit a GPU, if there is one here to see; one otherwise."""
    return planned if options.gpus and torch.cuda.is_available() else lambda group: settings.pack or 1


register(
    Engine(
        name="slurm",
        about="jobs of Slurm, which outlive the command",
        open=opened,
        options=SlurmOptions,
        is_here=lambda options: not options.gpus,
        pack_size=pack_size,
        stopping="leaves jobs of Slurm to go on",
    )
)
