"""Engines, each a place where the packs of a sweep train.

    register(Engine(name="queue", about="a queue of one's own", options=QueueOptions, open=opened))

All run `train` with the threads and the device that the settings say, so all give the same bytes. An engine's options
are a frozen dataclass of its own: `ladder sweep --engine NAME` has them beside its others, a script hands them over:
`sweep(runs, engine=RayOptions(address="auto"))`. A plugin's package announces its module by an entry point of the group
`ladder.engines`. On a Slurm cluster `--engine slurm` submits the jobs. Ray can work inside one job of several machines:
this starts it on each of them, runs the command on the first and stops Ray (`ray get-auth-token --generate`, once,
makes the token that keeps other users of the machines out):

    #SBATCH --nodes=4 --ntasks-per-node=1 --cpus-per-task=16 --gpus-per-node=8
    head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
    export RAY_AUTH_MODE=token
    srun ray symmetric-run --address "$head:6379" --min-nodes 4 -- \\
        ladder sweep sweep.py --engine ray --address auto --gpus-per-pack 0.5
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.rooms import open_room, registered
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.store.folder import Busy
from chomsky_ladder.harness.train.loop import Outcome, RunFailed, execute_together

PackSize = Callable[[Sequence[Run]], int]  # of runs of one shape


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


class Crew(Protocol):
    """An engine at work."""

    @property
    def workers(self) -> int:
        """Packs that train at once."""
        ...

    def events(self, jobs: Sequence[Job]) -> Generator[Event, None, None]:
        """Train the packs; what happens, as it happens."""
        ...


@dataclass(frozen=True, kw_only=True)
class NoOptions:
    """Of an engine that has none."""


def on_this_machine(options: Any) -> bool:
    return True


def as_planned(settings: Exec, options: Any, planned: PackSize) -> PackSize:
    return planned


@dataclass(frozen=True, kw_only=True)
class Engine:
    name: str
    about: str
    """What it is, in a few words."""
    open: Callable[[Exec, Any], AbstractContextManager[Crew]]
    """A crew for the settings and the options; what it cannot do for want of machines is a ValueError of one line."""
    options: type = NoOptions
    """Its own, each with a docstring of its own; refuses wrong values as it is made."""
    is_here: Callable[[Any], bool] = on_this_machine
    """Whether, with these options, runs train on this machine: what it lacks is then refused before any work."""
    pack_size: Callable[[Exec, Any, PackSize], PackSize] = as_planned
    """How many runs of a shape train as one, from what the planner says of a whole device here."""
    stopping: str = "stops it behind its checkpoints"
    """The words that follow "Ctrl-C" in a sentence: what it does."""
    module: str = ""
    """Where it is registered; filled in by `register`."""


ENGINES: list[Engine] = []
ROOM = open_room("engine", "chomsky_ladder.harness.sweep.engines", "ladder.engines", ENGINES)


def register(engine: Engine) -> Engine:
    """Make an engine known under its name."""
    return registered(engine, ROOM)


def engine_of(chosen: Any) -> tuple[Engine, Any]:
    """The engine of a name, with its options as they are, or the one whose options these are."""
    if isinstance(chosen, str):
        engine = ROOM.find(chosen)
        return engine, engine.options()
    for engine in ROOM.all():
        if type(chosen) is engine.options:
            return engine, chosen
    raise ValueError(f"{chosen!r} is neither an engine's name nor its options; there are {', '.join(ROOM.names())}")


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
