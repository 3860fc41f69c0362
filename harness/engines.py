"""Where the packs of a sweep train: one after the other in this process, or as tasks of Ray on any number of machines.

Both run `execute_together` with the threads and the device that the settings say, so both give the same bytes. On a
SLURM cluster whose machines share the results folder there are two ways, the first without Ray:

    #SBATCH --array=1-8 --cpus-per-task=1 --gpus-per-task=1
    #SBATCH --signal=B:USR1@120
    exec ladder sweep sweep.py --shard $SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT

A job that ends at its limit is submitted again as it is: what is done is skipped, the rest goes on. The second starts
Ray on every machine of one job, runs the command on the first of them and stops Ray (`ray get-auth-token --generate`,
once, makes the token that keeps other users of the machines out):

    #SBATCH --nodes=4 --ntasks-per-node=1 --cpus-per-task=16 --gpus-per-node=8
    head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
    export RAY_AUTH_MODE=token
    srun ray symmetric-run --address "$head:6379" --min-nodes 4 -- \\
        ladder sweep sweep.py --engine ray --address auto --gpus-per-pack 0.5
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from harness.config import Exec, Run
from harness.records import Busy
from harness.train import Outcome, RunFailed, execute_together


class Job(NamedTuple):
    """A pack of a sweep."""

    number: int
    runs: tuple[Run, ...]

    @property
    def name(self) -> str:
        run = self.runs[0]
        return run.run_id if len(self.runs) == 1 else f"{len(self.runs)} of {run.task.name} {run.model.name}"

    @property
    def title(self) -> str:
        """The name on a narrow screen."""
        run = self.runs[0]
        many = f"s{run.seed}" if len(self.runs) == 1 else f"x{len(self.runs)}"
        return f"{run.task.name} {run.model.name} {many}"


@dataclass(frozen=True)
class Fate:
    """What became of a run."""

    run_id: str
    status: Literal["done", "diverged", "failed", "held"]
    said: str
    accuracy: float | None = None
    seconds: float = 0.0


class Started(NamedTuple):
    job: Job


class Said(NamedTuple):
    text: str


class Ended(NamedTuple):
    job: Job
    fates: list[Fate]


Event = Started | Said | Ended


class Engine(Protocol):
    workers: int
    """Packs that train at once."""

    def events(self, jobs: Sequence[Job]) -> Generator[Event, None, None]:
        """Train the packs; what happens, as it happens."""


class SerialEngine:
    workers = 1

    def __init__(self, settings: Exec) -> None:
        self._settings = settings

    def events(self, jobs: Sequence[Job]) -> Generator[Event, None, None]:
        for job in jobs:
            yield Started(job)
            yield Ended(job, train(job, self._settings))


def train(job: Job, settings: Exec) -> list[Fate]:
    """What becomes of a pack's runs in this process; nothing but being stopped keeps it from saying so."""
    try:
        outcomes = execute_together(job.runs, settings, quiet=True, label=job.name)
    except Exception as error:  # such as a results folder that went away
        said = f"failed: {type(error).__name__}: {error}"
        return [Fate(run.run_id, "failed", said) for run in job.runs]
    return [fate_of(run.run_id, outcome) for run, outcome in zip(job.runs, outcomes, strict=True)]


def fate_of(run_id: str, outcome: Outcome) -> Fate:
    if isinstance(outcome, Busy | RunFailed):
        status = "held" if isinstance(outcome, Busy) else "failed"
        return Fate(run_id, status, str(outcome).removeprefix(f"{run_id} "))
    if outcome["status"] == "diverged":
        said = f"diverged at step {outcome['steps']}: loss {outcome['loss']}, gradient norm {outcome['grad_norm']}"
        return Fate(run_id, "diverged", said)
    accuracy, spent = outcome["test"]["accuracy"], outcome["seconds"]
    seconds = spent["train"] + spent["score"]
    said = f"{outcome['steps']} steps, test accuracy {accuracy:.3f}, {seconds:.1f}s"
    return Fate(run_id, "done", said, accuracy, seconds)


@contextmanager
def opened(
    engine: Literal["serial", "ray"], settings: Exec, *, address: str | None = None, gpus_per_pack: float = 1.0
) -> Iterator[Engine]:
    """An engine that can take packs; what it cannot do for want of machines is one ValueError, before any work."""
    if engine == "serial":
        yield SerialEngine(settings)
        return
    from harness import ray_cluster, ray_engine

    with ray_cluster.connected(address) as ray:
        yield ray_engine.fitting(ray, settings, gpus_per_pack=gpus_per_pack)
