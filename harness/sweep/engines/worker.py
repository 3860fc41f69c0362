"""The work of a process that an engine started: train one pack.

A worker gets runs as plain trees, loads what defines them, and trains them in the shared results folder. Only what
became of the runs goes back to the engine, with the lines that training wrote to stderr.
"""

import io
import sys
from collections import Counter, deque
from collections.abc import Iterable
from contextlib import redirect_stderr, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.protocols import columns_of
from chomsky_ladder.harness.config.registry import load_plugin
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.store.folder import Busy, RunFolder
from chomsky_ladder.harness.sweep.engines.base import Ended, Event, Fate, Job, Said, fate_of, train
from chomsky_ladder.harness.sweep.sources import sources
from chomsky_ladder.harness.train.machine import provenance
from chomsky_ladder.harness.train.signals import Preempted

RETRIES = 3  # of a pack whose worker was killed
PATIENCE = 120.0  # seconds that workers have for their checkpoints when they are told to stop
UNGUARDED = "a script that defines tasks or models must sweep under `if __name__ == '__main__':`"


class Command(NamedTuple):
    """Facts about the starting process that its workers need."""

    sources: tuple[str, ...]
    """Files and modules of tasks and models that are not this package's."""
    words: tuple[str, ...]
    path: tuple[str, ...]

    @classmethod
    def of(cls, runs: Iterable[Run]) -> "Command":
        return cls(sources(runs), tuple(sys.argv), tuple(sys.path))


def plain_of(run: Run) -> dict[str, Any]:
    """Return a run as a tree that another process can read, wherever it works."""
    tree = run.plain()
    for part in (tree["eval"], tree["task"]):
        if part.get("file"):
            part["file"] = str(Path(part["file"]).absolute())
    return tree


def work(
    number: int, trees: list[dict[str, Any]], settings: Exec, command: Command
) -> tuple[list[Fate] | None, list[str]]:
    """Train a pack in this process. Return its fates, or None if it was told to stop, and the lines of stderr."""
    job = loaded(number, trees, command)
    written = io.StringIO()
    with redirect_stderr(written):
        try:
            fates = train(job, settings)
        except Preempted:
            fates = None
    return fates, written.getvalue().splitlines()


def loaded(number: int, trees: list[dict[str, Any]], command: Command) -> Job:
    """Make this process a worker, and return a pack with all that defines its runs."""
    global _working
    _working = True
    sys.argv = list(command.words)  # provenance names the command that a person gave
    sys.path += [folder for folder in command.path if folder not in sys.path]
    for source in command.sources:
        _load(source)
    return Job(number, tuple(map(Run.from_plain, trees)))


_working = False  # this process is a worker
_load = lru_cache(maxsize=None)(load_plugin)  # once in a worker, which takes many packs


def refuse_in_a_worker() -> None:
    """Stop a worker that would start the sweep again because the user's script has no guard."""
    if _working:
        raise ValueError(UNGUARDED)


def handed_on(job: Job, settings: Exec, message: str, *, waiting: "deque[Job]", tries: Counter[int]) -> Event:
    """Put a pack whose worker died back into the queue, or give it up after `RETRIES` times. Return what to tell."""
    tries[job.number] += 1
    if tries[job.number] > RETRIES:
        return Ended(job, lost(job, settings, message))
    waiting.appendleft(job)
    return Said(f"{job.name} goes on from its last checkpoint on another worker")


def lost(job: Job, settings: Exec, message: str) -> list[Fate]:
    """Record that a pack lost its workers, for those of its runs that have no result."""
    fates = []
    for run in job.runs:
        folder = RunFolder(settings.results, run.run_id)
        done = folder.result()
        if done is not None:
            fates.append(fate_of(run.run_id, done))
            continue
        error = f"{message.removeprefix(f'{job.name}: ')}, {RETRIES + 1} times"
        record = {"error": error, "kind": "worker lost", "traceback": "", "provenance": provenance(run.task, run.model)}
        with suppress(OSError, ValueError, Busy), folder.locked():  # a full disk, or another's run: saying it must do
            folder.open(run)
            folder.fail({**columns_of(run), **record})
        fates.append(Fate(run.run_id, "failed", f"failed: {error}"))
    return fates
