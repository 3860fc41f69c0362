"""The engine that trains packs as tasks of Ray, on this machine alone or on a cluster.

Ray waits without a word for what no machine has, so what a pack needs is held to the machines before any is
submitted. A worker gets the runs as plain trees, loads what defines them, and writes to the results folder, which
every machine must share; only what became of the runs comes back.
"""

import math
from collections import Counter, deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import torch

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.sweep.engines import ray_cluster
from chomsky_ladder.harness.sweep.engines.base import (
    Ended,
    Engine,
    Event,
    Fate,
    Job,
    PackSize,
    Said,
    Started,
    register,
)
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


@dataclass(frozen=True, kw_only=True)
class RayOptions:
    address: str = ""
    """Of a Ray cluster, or auto for the one this machine is in; without it Ray uses this machine alone."""
    gpus_per_pack: float = 1.0
    """With ray on GPUs, how much of one a pack takes, such as 0.25."""

    def __post_init__(self) -> None:
        share = self.gpus_per_pack
        if not share > 0 or (share > 1 and share % 1):
            raise ValueError(f"GPUs for each pack are a share of one or a whole number, not {share}")


class RayCrew:
    """A task of Ray for each pack, as many at a time as the cluster has room for.

    A worker that is killed costs its pack the steps since the last checkpoint: the pack is submitted again, up to
    three times. (Ray's own `max_retries` would do so without a word, and for ever where memory ran out.) Where Ray
    itself has died, no pack is at fault: that ends the sweep at once, and what is half done goes on when it is started
    again.
    """

    def __init__(self, ray: ModuleType, settings: Exec, *, gpus: float) -> None:
        self._ray, self._settings, self._gpus = ray, settings, gpus
        self._is_gone = False

    @property
    def workers(self) -> int:
        return room(self._machines(), cpus=self._settings.threads, gpus=self._gpus)

    def events(self, jobs: Sequence[Job]) -> Generator[Event, None, None]:
        errors = self._ray.exceptions
        try:
            yield from self._events(jobs)
        except (errors.RayError, ConnectionError) as error:  # not of a pack: Ray does not answer
            raise ConnectionError(
                f"Ray has died or is out of reach ({type(error).__name__}): what is done is kept, and what is half "
                "done goes on when the same sweep is started again"
            ) from None

    def _machines(self) -> list[dict[str, float]]:
        return [node["Resources"] for node in self._ray.nodes() if node["Alive"]]

    def _events(self, jobs: Sequence[Job]) -> Generator[Event, None, None]:
        ray, waiting, running = self._ray, deque(jobs), {}
        tries: Counter[int] = Counter()
        command = Command.of(run for job in jobs for run in job.runs)
        with listening() as asked:
            try:
                while waiting or running:
                    while waiting and len(running) < max(1, self.workers):
                        job = waiting.popleft()
                        running[self._submit(job, command)] = job
                        if not tries[job.number]:
                            yield Started(job)
                    ready, _ = ray.wait(list(running), timeout=0.5)
                    number = asked()
                    if number is not None:
                        raise Preempted(number)
                    for reference in ready:
                        job = running.pop(reference)
                        fates, said = self._outcome(reference, job)
                        yield from map(Said, said)
                        if fates is not None:
                            yield Ended(job, fates)
                            continue
                        yield handed_on(job, self._settings, said[-1], waiting=waiting, tries=tries)
            finally:
                self._stop(running)

    def _submit(self, job: Job, command: Command) -> Any:
        variables = {
            "OMP_NUM_THREADS": str(self._settings.threads),
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # a task without a GPU sees what this process sees
        }
        task = self._ray.remote(work).options(
            num_cpus=self._settings.threads,
            num_gpus=self._gpus,
            max_retries=0,
            name=job.title,
            runtime_env={"env_vars": variables},
        )
        return task.remote(job.number, [plain_of(run) for run in job.runs], self._settings, command)

    def _outcome(self, reference: Any, job: Job) -> tuple[list[Fate] | None, list[str]]:
        """What became of a pack's runs, or None if its worker was taken from it; and what is to be said."""
        ray = self._ray
        try:
            fates, said = ray.get(reference)
        except ray.exceptions.RayTaskError as error:  # such as a plugin that is not on the worker's machine
            said = f"failed: {type(error.cause).__name__}: {error.cause}".splitlines()[0]
            return [Fate(run.run_id, "failed", said) for run in job.runs], []
        except ray.exceptions.OutOfMemoryError:
            return None, [f"{job.name}: its worker was killed: the machine ran out of memory"]
        except ray.exceptions.RayError as error:
            if isinstance(error, ray.exceptions.LocalRayletDiedError) or not self._machines():
                self._is_gone = True
                raise
            return None, [f"{job.name}: its worker died ({type(error).__name__})"]
        if fates is None:
            return None, [*said, f"{job.name}: its worker was told to stop"]
        return fates, said

    def _stop(self, running: dict[Any, Job]) -> None:
        """Have what is under way write its checkpoints."""
        if self._is_gone:
            return
        with suppress(self._ray.exceptions.RayError, ConnectionError):  # it has died: so have they, or will
            for reference in running:
                self._ray.cancel(reference)  # to the worker, a Ctrl-C
            if running:
                self._ray.wait(list(running), num_returns=len(running), timeout=PATIENCE)


def fitting(ray: ModuleType, settings: Exec, *, gpus_per_pack: float) -> RayCrew:
    """The engine of the cluster, if one of its machines has what a pack needs."""
    refuse_in_a_worker()
    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    device = _device(settings.device, machines)
    gpus = gpus_per_pack if device == "cuda:0" else 0.0
    if not room(machines, cpus=settings.threads, gpus=gpus):
        has = "; ".join(sorted({_shown(machine) for machine in machines}))
        wanted = _shown({"CPU": settings.threads, "GPU": gpus})
        raise ValueError(f"a pack needs {wanted}, and no machine of Ray's has so much: there is {has}")
    return RayCrew(ray, replace(settings, device=device, results=settings.results.absolute()), gpus=gpus)


def room(machines: Sequence[dict[str, float]], *, cpus: int, gpus: float) -> int:
    """How many packs fit the machines at once; a share of a GPU is of one GPU, and several are of one machine."""
    total = 0
    for machine in machines:
        fit = int(machine.get("CPU", 0) // cpus)
        if gpus:
            count = int(machine.get("GPU", 0))
            fit = min(fit, count * math.floor(1 / gpus + 1e-9) if gpus <= 1 else int(count // gpus))
        total += fit
    return total


def _shown(machine: dict[str, float]) -> str:
    return f"{machine.get('CPU', 0):g} CPUs and {machine.get('GPU', 0):g} GPUs"


def _device(name: str, machines: Sequence[dict[str, float]]) -> str:
    """cpu or cuda:0: Ray shows each task the GPUs it may use as the first ones."""
    if name == "auto":
        return "cuda:0" if any(machine.get("GPU", 0) for machine in machines) else "cpu"
    if name in ("cuda", "cuda:0"):
        return "cuda:0"
    if name == "cpu":
        return name
    raise ValueError(f"exec.device={name}: with --engine ray, Ray chooses among GPUs; say cuda, cpu or auto")


@contextmanager
def opened(settings: Exec, options: RayOptions) -> Iterator[RayCrew]:
    if options.address and not settings.pack and settings.device != "cpu" and not torch.cuda.is_available():
        raise ValueError("there is no GPU here to find out how many runs fit one: say --exec.pack or --exec.device cpu")
    with ray_cluster.connected(options.address or None) as ray:
        yield fitting(ray, settings, gpus_per_pack=options.gpus_per_pack)


def pack_size(settings: Exec, options: RayOptions, planned: PackSize) -> PackSize:
    """As many as fit the share of a GPU that a pack is given."""
    if not torch.cuda.is_available():
        return lambda group: settings.pack or 1
    if settings.pack or find_device(settings.device).type == "cpu" or options.gpus_per_pack >= 1:
        return planned
    return lambda group: max(1, int(options.gpus_per_pack * planned(group)))


register(
    Engine(
        name="ray",
        about="as many packs at once as this machine or a cluster can take",
        open=opened,
        options=RayOptions,
        is_here=lambda options: not options.address,
        pack_size=pack_size,
    )
)
