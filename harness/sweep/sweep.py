"""Train many runs: finished ones are skipped, unfinished ones resumed, and a failure stops no other run.

Runs that may train as one are put into packs where that pays (harness/sweep/plan.py), and an engine trains the packs
(harness/sweep/engines). Several processes may sweep the same list at once. A run held by another process is left to it
and tried again at the end. So two processes share the work of two cores, and runs that one of them dropped get done.
"""

import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.conform.before import refuse_leaks
from chomsky_ladder.harness.store import checkpoint
from chomsky_ladder.harness.store.folder import RunFolder, expected_seconds
from chomsky_ladder.harness.store.places import refuse_published, refuse_unwritable
from chomsky_ladder.harness.sweep.engines.base import Crew, Ended, Fate, Job, PackSize, Said, Started, engine_of
from chomsky_ladder.harness.sweep.live import Live, duration
from chomsky_ladder.harness.sweep.plan import LARGEST_PACK, pack_size, packs
from chomsky_ladder.harness.train.distributed import launched
from chomsky_ladder.harness.train.machine import emulates, find_device
from chomsky_ladder.harness.train.outcome import last_word
from chomsky_ladder.harness.train.progress import EMULATED, LONG
from chomsky_ladder.harness.train.same_code import refuse_other_code
from chomsky_ladder.harness.train.workable import preflight


@dataclass
class Report:
    """The outcome of a sweep."""

    runs: int
    done: int
    """Runs that have a result, diverged ones among them."""
    fates: dict[str, Fate] = field(default_factory=dict)
    """The outcomes of the runs that had to be done."""
    seconds: float = 0.0

    @property
    def complete(self) -> bool:
        return self.done == self.runs

    def of(self, status: str) -> dict[str, str]:
        """Return the runs that ended with this status in this sweep, each with its message."""
        return {fate.run_id: fate.said for fate in self.fates.values() if fate.status == status}

    def and_then(self, later: "Report") -> "Report":
        """Combine two reports."""
        counts = self.runs + later.runs, self.done + later.done
        return Report(*counts, {**self.fates, **later.fates}, self.seconds + later.seconds)


def sweep(
    runs: Sequence[Run],
    settings: Exec | None = None,
    *,
    engine: Any = "serial",
    quiet: bool = False,
) -> "Results":
    """Return every run's result in the given order; None for one that failed (see its folder) or is held elsewhere.

    `engine` is an engine's name, or its options: `ProcessesOptions(processes=2)`.
    """
    settings = settings or Exec()
    carry_out(runs, settings, engine=engine, quiet=quiet)
    folders = [RunFolder(settings.results, run.run_id) for run in runs]
    return Results(folder.result() if folder.is_done() else None for folder in folders)


class Results(list[dict[str, Any] | None]):
    """Results as a list. A session shows it in one line, not in thousands."""

    def __repr__(self) -> str:
        done = sum(result is not None for result in self)
        return (
            f"<results of {counted(len(self))}, {done} done: one is a dict; records() and table() are frames of them>"
        )


def carry_out(
    runs: Sequence[Run],
    settings: Exec,
    *,
    engine: Any = "serial",
    quiet: bool = False,
    again: str = "start the same sweep again",
) -> Report:
    """Train the unfinished runs. `again` tells the user how to retry failed ones."""
    start = time.monotonic()
    refuse_published(settings.results)
    todo = left_of(runs, settings.results)
    refuse_other_code(runs, settings.results)  # also code that made finished results
    report = Report(len(runs), len(runs) - len(todo))
    if launched() > 1:
        raise ValueError("torchrun is for one run over several processes: start a sweep without it")
    chosen, options = engine_of(engine)
    if todo:
        refuse_unwritable(settings.results)
    if todo and chosen.is_here(options):  # a cluster's machines may differ from this one
        preflight(todo, settings)
        refuse_leaks(todo, settings)
    size = chosen.pack_size(settings, options, lambda group: pack_size(settings)(group))  # a GPU may be elsewhere
    jobs = _jobs(todo, size)
    if not quiet:
        print(_plan_line(len(runs), todo, len(jobs), settings.results), file=sys.stderr)
    if jobs:
        with chosen.open(settings, options) as crew, _telling(todo, settings.results, again, quiet=quiet):
            stopping = f"Ctrl-C {chosen.stopping}; to go on: {again}"
            if not quiet:
                said = [_expectation(todo, settings.results, min(crew.workers, len(jobs)), stopping)]
                said += [EMULATED] if chosen.is_here(options) and _is_slow(todo, settings) else []
                print("\n".join(said), file=sys.stderr)
            _train(jobs, crew, settings.results, report, quiet=quiet, stopping=stopping)
            held = [run for run in todo if run.run_id in report.of("held")]
            if held:  # the holder may be finished by now, or dead
                _train(_jobs(held, size), crew, settings.results, report, quiet=quiet, stopping=stopping)
    report.done = len(runs) - len(_without_result(todo, settings.results))
    report.seconds = time.monotonic() - start
    if jobs and not quiet:
        for line in _summary(report, len(diverged(runs, settings.results)), again):
            print(line, file=sys.stderr)
    return report


@contextmanager
def _telling(todo: Sequence[Run], results: Path, again: str, *, quiet: bool) -> Iterator[None]:
    """Print, if a sweep is stopped, how much of it is done and how to resume it."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        left = _without_result(todo, results)
        begun = sum(bool(checkpoint.steps(RunFolder(results, run.run_id).path)) for run in left)
        if not quiet:
            print(
                f"stopped: {len(todo) - len(left)} of {counted(len(todo))} finished, {begun} with a checkpoint, "
                f"{len(left) - begun} to start\nto go on: {again}",
                file=sys.stderr,
            )
        raise


def diverged(runs: Sequence[Run], results: Path) -> dict[str, str]:
    """Return the runs that have a result but are not done, from this sweep or an earlier one, each with its message."""
    found = [RunFolder(results, run.run_id).result() for run in _with_result(runs, results)]
    return {tree["run_id"]: last_word([tree], 0.0) for tree in found if tree and tree["status"] == "diverged"}


def left_of(runs: Sequence[Run], results: Path) -> list[Run]:
    """Return the runs without a result. Refuse a list that names a run twice."""
    ids = [run.run_id for run in runs]
    if len(set(ids)) < len(ids):
        raise ValueError(f"a sweep names a run twice: {next(i for i in ids if ids.count(i) > 1)}")
    return _without_result(runs, results)


def _with_result(runs: Sequence[Run], results: Path) -> list[Run]:
    return [run for run in runs if RunFolder(results, run.run_id).is_done()]


def _without_result(runs: Sequence[Run], results: Path) -> list[Run]:
    return [run for run in runs if not RunFolder(results, run.run_id).is_done()]


def shard(runs: Sequence[Run], which: str, settings: Exec) -> list[Run]:
    """Return part i of n of a list, for `which` = "i/n". Each part has whole packs and a share of each cell.

    The parts depend on the list and the kind of device alone, so that independent jobs agree.
    """
    if not which:
        return list(runs)
    match = re.fullmatch(r"(\d+)/(\d+)", which)
    part, parts = map(int, match.groups()) if match else (0, 0)
    if not 1 <= part <= parts:
        raise ValueError(f"--shard takes i/n with i from 1 to n, such as 1/8, not {which!r}")
    most = settings.pack or (1 if find_device(settings.device).type == "cpu" else LARGEST_PACK)
    groups = packs(runs, size=lambda group: most)
    groups.sort(key=lambda group: (group[0].task.name, group[0].model.name))
    mine = {run.run_id for group in groups[part - 1 :: parts] for run in group}
    return [run for run in runs if run.run_id in mine]


def _jobs(runs: Sequence[Run], size: PackSize) -> list[Job]:
    return [Job(number, tuple(group)) for number, group in enumerate(packs(runs, size=size), start=1)]


def _train(jobs: Sequence[Job], crew: Crew, results: Path, report: Report, *, quiet: bool, stopping: str) -> None:
    """Let the engine train the packs, and display the progress."""
    expected = expected_seconds(results)
    with (
        Live(jobs, results, runs=report.runs, expected=expected, quiet=quiet, stopping=stopping) as live,
        closing(crew.events(jobs)) as events,
    ):
        for event in events:
            match event:
                case Started(job):
                    live.started(job)
                case Said(text):
                    live.say(text, always=True)
                case Ended(job, fates):
                    report.fates |= {fate.run_id: fate for fate in fates}
                    live.ended(job, fates)


def _plan_line(count: int, todo: Sequence[Run], jobs: int, results: Path) -> str:
    together = f", in {jobs} packs" if jobs < len(todo) else ""
    resumed = sum(bool(checkpoint.steps(RunFolder(results, run.run_id).path)) for run in todo)
    kinds = f": {resumed} to resume, {len(todo) - resumed} to start" if todo else ""
    return f"{counted(count)}: {count - len(todo)} finished, {len(todo)} to do{together}{kinds}"


def counted(runs: int) -> str:
    return f"{runs} run{'' if runs == 1 else 's'}"


def _is_slow(todo: Sequence[Run], settings: Exec) -> bool:
    device = find_device(settings.device)
    return any(emulates(run.train.precision, device) for run in todo)


def _expectation(todo: Sequence[Run], results: Path, workers: int, stopping: str) -> str:
    known = expected_seconds(results)
    seconds = [known[run.run_id] for run in todo if run.run_id in known]
    at_once = f" on {workers} workers" if workers > 1 else ""
    if len(seconds) == len(todo):
        told = f"; {stopping}" if sum(seconds) / workers >= LONG else ""
        return f"expected: {up_to(todo)} {duration(sum(seconds) / workers)}{at_once}{told}"
    return f"the time it will take{at_once} is not known until three runs have ended; `ladder plan SCRIPT` measures it"


def up_to(runs: Sequence[Run]) -> str:
    """Return "at most" for a plan whose runs may stop early, since they take no longer and often less."""
    return "at most" if any(run.train.stop_after for run in runs) else "about"


def _summary(report: Report, diverged: int, again: str) -> Iterator[str]:
    """Say how all the runs ended, in the words of `ladder status`, and how to retry those that failed."""
    failed, held = (report.of(status) for status in ("failed", "held"))
    counts = [(diverged, "diverged"), (len(failed), "failed"), (len(held), "held by another process")]
    words = [f"{report.done - diverged} done", *(f"{count} {word}" for count, word in counts if count)]
    yield f"{counted(report.runs)}: {', '.join(words)}; this took {duration(report.seconds)}"
    for run_id, said in {**failed, **held}.items():
        yield f"  {run_id} {said}"
    if failed:
        yield f"to retry what failed: {again}"
