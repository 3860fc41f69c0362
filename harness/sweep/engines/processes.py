"""The engine that trains several packs at once, each in a process of this machine.

    ladder sweep mine.py --engine processes                         as many packs at once as there are cores
    ladder sweep mine.py --engine processes --processes 14 --minutes 9 --exec.device cuda --exec.pack 3

A worker process takes one pack after the other until none is left, so that it imports torch once. `--minutes` ends the
sweep in time: no pack starts that is not likely to end, and what still trains writes its checkpoint. On a GPU the
processes share it through NVIDIA's Multi-Process Service where the machine has it, else in slices of time.
"""

import multiprocessing
import os
import signal
import sys
import time
from collections import Counter, deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.sweep.engines.base import Ended, Engine, Event, Job, PackSize, Said, Started, register
from chomsky_ladder.harness.sweep.engines.gpu_share import shared_gpu
from chomsky_ladder.harness.sweep.engines.worker import (
    PATIENCE,
    Command,
    handed_on,
    plain_of,
    refuse_in_a_worker,
    work,
)
from chomsky_ladder.harness.train.machine import find_device
from chomsky_ladder.harness.train.signals import Preempted, listening

ON_A_GPU = 8  # processes that share one unless another number is asked for
_LOOK_EVERY = 0.5  # seconds


@dataclass(frozen=True, kw_only=True)
class ProcessesOptions:
    processes: int = 0
    """Packs at once; 0: one a core, or 8 on a GPU."""
    minutes: float = 0.0
    """Minutes after which the sweep ends, whatever is left; 0: when all is done."""

    def __post_init__(self) -> None:
        if self.processes < 0:
            raise ValueError(f"--processes must not be negative, not {self.processes}")
        if not self.minutes >= 0:
            raise ValueError(f"--minutes must not be negative, not {self.minutes:g}")


@dataclass
class _Worker:
    process: BaseProcess
    connection: Connection
    job: Job | None = None
    since: float = 0.0
    """When it got its pack, on the monotonic clock."""

    @classmethod
    def start(cls, settings: Exec, command: Command) -> "_Worker":
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, settings, command))
        process.start()
        theirs.close()
        return cls(process, ours)  # pyright: ignore[reportArgumentType]  a stub has the type of another system

    def take(self, job: Job) -> None:
        self.job, self.since = job, time.monotonic()
        self.connection.send((job.number, [plain_of(run) for run in job.runs]))


def _serve(connection: Connection, settings: Exec, command: Command) -> None:
    """Train the packs that come, until no more can come. A terminal's Ctrl-C is for the process that started this."""
    os.setsid()
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # the other cores have workers of their own
    with connection:
        while True:
            try:
                number, trees = connection.recv()
                connection.send(work(number, trees, settings, command))
            except (EOFError, BrokenPipeError, ConnectionResetError):  # nobody is there any more
                return


@dataclass
class ProcessesCrew:
    """Worker processes of this machine.

    A worker that is killed costs its pack the steps since the last checkpoint: another worker goes on with it, up to
    three times.
    """

    settings: Exec
    workers: int
    end: float = float("inf")
    """When the sweep has to end, on the monotonic clock."""
    shortest: float = 0.0
    """Seconds of the fastest pack so far: what ends later than that is not begun."""
    _crew: list[_Worker] = field(default_factory=list)

    def events(self, jobs: Sequence[Job]) -> Generator[Event, None, None]:
        waiting, tries = deque(jobs), Counter[int]()
        command = Command.of(run for job in jobs for run in job.runs)
        with listening() as asked:
            try:
                while True:
                    for job in self._hand_out(waiting, command):
                        if not tries[job.number]:
                            yield Started(job)
                    busy = {worker.connection: worker for worker in self._crew if worker.job}
                    late = time.monotonic() >= self.end
                    if late or not busy:
                        break
                    for connection in wait(list(busy), timeout=_LOOK_EVERY):
                        yield from self._heard(busy[connection], waiting, tries)  # pyright: ignore[reportArgumentType]
                    if number := asked():
                        raise Preempted(number)
                left = len(waiting) + len(busy)
                if left:
                    yield Said(f"the time is over: {left} packs are left, {len(busy)} of them begun")
            finally:
                self._stop()

    def _hand_out(self, waiting: "deque[Job]", command: Command) -> Iterator[Job]:
        """Give waiting packs to idle workers, as long as another one is likely to end in time."""
        while waiting and time.monotonic() + self.shortest < self.end:
            idle = next((worker for worker in self._crew if not worker.job), None)
            if idle is None:
                if len(self._crew) >= self.workers:
                    return
                idle = _Worker.start(self.settings, command)
                self._crew.append(idle)
            job = waiting.popleft()
            try:
                idle.take(job)
            except (BrokenPipeError, ConnectionResetError):  # it died while it had nothing to do
                self._crew.remove(idle)
                waiting.appendleft(job)
                continue
            yield job

    def _heard(self, worker: _Worker, waiting: "deque[Job]", tries: Counter[int]) -> Iterator[Event]:
        """Say what became of a worker's pack; hand the pack on if the worker died."""
        job = worker.job
        assert job is not None
        try:
            fates, lines = worker.connection.recv()
        except (EOFError, ConnectionResetError):
            worker.process.join()
            self._crew.remove(worker)
            fates, lines = None, [f"{job.name}: its worker died ({_ending(worker.process.exitcode)})"]
        worker.job = None
        yield from map(Said, lines)
        if fates is not None:
            seconds = time.monotonic() - worker.since
            self.shortest = min(self.shortest or seconds, seconds)
            yield Ended(job, fates)
            return
        yield handed_on(job, self.settings, lines[-1], waiting=waiting, tries=tries)

    def _stop(self) -> None:
        """End the workers, each behind the checkpoint of what it trains."""
        for worker in self._crew:
            if worker.job:
                worker.process.terminate()
            worker.connection.close()
        give_up = time.monotonic() + PATIENCE
        for worker in self._crew:
            worker.process.join(max(0.0, give_up - time.monotonic()))
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
        self._crew.clear()


def _ending(code: int | None) -> str:
    return signal.Signals(-code).name if code and code < 0 else f"exit code {code}"


def _count(settings: Exec, options: ProcessesOptions) -> int:
    if options.processes:
        return options.processes
    if find_device(settings.device).type == "cuda":
        return ON_A_GPU
    return max(1, (os.cpu_count() or 1) // settings.threads)


@contextmanager
def opened(settings: Exec, options: ProcessesOptions) -> Iterator[ProcessesCrew]:
    refuse_in_a_worker()
    end = time.monotonic() + 60 * options.minutes if options.minutes else float("inf")
    on_gpu = find_device(settings.device).type == "cuda"
    with shared_gpu() if on_gpu else nullcontext("") as sharing:
        if sharing:
            print(f"{_count(settings, options)} processes share the GPU by {sharing}", file=sys.stderr)
        settings = replace(settings, results=settings.results.absolute())
        yield ProcessesCrew(settings, _count(settings, options), end)


def pack_size(settings: Exec, options: ProcessesOptions, planned: PackSize) -> PackSize:
    """Return how many runs fit a process's share of the GPU."""
    if settings.pack or find_device(settings.device).type == "cpu":
        return planned
    return lambda group: max(1, planned(group) // _count(settings, options))


register(
    Engine(
        name="processes",
        about="several packs at once in processes of this machine",
        open=opened,
        options=ProcessesOptions,
        pack_size=pack_size,
    )
)
