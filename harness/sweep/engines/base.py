"""What an engine is: it takes the packs of a sweep and says what becomes of them."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.store.folder import Busy
from chomsky_ladder.harness.train.loop import Outcome, RunFailed, execute_together


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
