"""The loop: runs from their configs to their results, from wherever their folders say they stopped.

The state of training is the weights, the optimiser's moments and a few counters, all in the checkpoints; data are
addressed by the step. So a run killed at any moment and started again ends with the weights and metrics of one that
was never killed, bit for bit under an equal numerics fingerprint. Several runs may train as one pack; they share
nothing but their steps.
"""

import errno
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from harness import checkpoint
from harness.config import Exec, Run
from harness.machine import avoid_faulty_tiles, find_device, keep_freed_memory, numerics, provenance
from harness.member import Member
from harness.outcome import labels
from harness.pack import Pack
from harness.progress import Progress
from harness.records import Busy, RunFolder
from harness.signals import Asked, Preempted, listening
from harness.steps import capturable, stepper
from models._kernels import demand


class RunFailed(Exception):
    """A run broke; its folder holds the traceback."""


Outcome = dict[str, Any] | Busy | RunFailed


def execute(run: Run, settings: Exec, *, quiet: bool = False, label: str = "") -> dict[str, Any]:
    """Train and score a run, or go on with it; the result of one that is done is returned as it stands."""
    (outcome,) = execute_together([run], settings, quiet=quiet, label=label or run.run_id)
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def execute_together(runs: Sequence[Run], settings: Exec, *, quiet: bool = False, label: str = "pack") -> list[Outcome]:
    """`execute` of runs that make a pack (harness/pack.py), trained as one: what became of each.

    A pack that breaks is tried again in halves, so that what is wrong with one run is that run's alone.
    """
    device = find_device(settings.device)
    capturable(settings, device)
    demand(settings.backend, model=runs[0].model.name, device=device)
    outcomes: dict[str, Outcome] = {}
    with ExitStack() as locks:
        members = []
        for run in runs:
            folder = RunFolder(settings.results, run.run_id)
            try:
                locks.enter_context(folder.locked())
            except Busy as busy:
                outcomes[run.run_id] = busy
                continue
            try:
                folder.open(run)
                done = folder.result()
            except Exception as error:  # what lies there is not this run's
                outcomes[run.run_id] = _failed(run, folder, error)
                continue
            if done is not None:
                outcomes[run.run_id] = done
            else:
                members.append(Member(run, folder))
        with pinned(settings.threads), listening() as asked:
            for group in _in_step(members, settings):
                outcomes |= _trained(group, settings, device, asked, quiet=quiet, label=label)
    return [outcomes[run.run_id] for run in runs]


def _in_step(members: Sequence[Member], settings: Exec) -> list[list[Member]]:
    """The members in groups that can go on together: all of them, if all can go back to one step.

    A kill in the middle of writing checkpoints leaves some a checkpoint behind the others, never further.
    """
    steps = [checkpoint.steps(member.folder.path) for member in members]
    newest = [max(found, default=0) for found in steps]
    least = min(newest, default=0)
    near = [least in found or (least == 0 and max(found) <= settings.checkpoint_every) for found in steps if found]
    if all(near):
        return [list(members)] if members else []
    return [[m for m, last in zip(members, newest, strict=True) if last == step] for step in sorted(set(newest))]


def _trained(
    members: Sequence[Member], settings: Exec, device: torch.device, asked: Asked, *, quiet: bool, label: str
) -> dict[str, Outcome]:
    """What became of each member of a pack, by its id."""
    outcomes: dict[str, Outcome] = {}
    left = list(members)
    try:
        while left:  # again where a pack has become too empty to be worth its work
            Loop(left, settings, device, asked).go(Progress(label, left[0].run.train.steps, quiet=quiet))
            outcomes |= {member.run.run_id: member.result for member in left if member.result is not None}
            left = [Member(member.run, member.folder) for member in left if member.result is None]
    except Exception as error:
        outcomes |= {member.run.run_id: member.result for member in left if member.result is not None}
        broken = [Member(member.run, member.folder) for member in left if member.result is None]
        if len(left) == 1:
            return outcomes | {member.run.run_id: _failed(member.run, member.folder, error) for member in broken}
        traceback.clear_frames(error.__traceback__)  # they hold the pack's memory
        print(f"{label}: {type(error).__name__}: {error}; its runs are tried in smaller packs", file=sys.stderr)
        half = (len(broken) + 1) // 2
        for part in (broken[:half], broken[half:]):
            for group in _in_step(part, settings):
                outcomes |= _trained(group, settings, device, asked, quiet=quiet, label=label)
    return outcomes


def _failed(run: Run, folder: RunFolder, error: Exception) -> RunFailed:
    said = f"{type(error).__name__}: {error}".splitlines()[0]
    made = provenance(run.task, run.model)
    trace = "".join(traceback.format_exception(error))
    record = {**labels(run), "error": said, "kind": _kind(error), "traceback": trace, "provenance": made}
    try:
        folder.fail(record)
        where = f"traceback in {folder.path / 'failure.json'}"
    except OSError as unwritten:
        where = f"and its record could not be written: {unwritten.strerror}"
    failed = RunFailed(f"{run.run_id} failed: {said} ({where})")
    failed.__cause__ = error
    return failed


def _kind(error: Exception) -> str:
    """What sort of failure it is, where that says what to do about it."""
    allocator = isinstance(error, RuntimeError) and "can't allocate memory" in str(error)  # torch's, on a CPU
    if isinstance(error, torch.OutOfMemoryError | MemoryError) or allocator:
        return "out of memory"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "disk full"
    return "error"


@contextmanager
def pinned(threads: int) -> Iterator[None]:
    """The thread count of a run, put back afterwards; the process keeps the memory it has once taken."""
    keep_freed_memory()
    avoid_faulty_tiles()
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Loop:
    """Members under way as one pack."""

    def __init__(
        self, members: Sequence[Member], settings: Exec, device: torch.device, asked: Asked = lambda: None
    ) -> None:
        self.members, self.settings, self.asked = list(members), settings, asked
        self.train, self.validates_every = members[0].run.train, members[0].run.eval.every
        self.pack = Pack([member.run for member in members], device=device, backend=settings.backend)
        self.steps = stepper(self.pack, settings)
        made = numerics(settings, device, pack=self.pack.count, capture=self.steps.name)
        for row, (member, content) in enumerate(zip(members, self._contents(), strict=True)):
            member.join(self.pack, row, content, settings, made)
        self.step = members[0].counters.step
        assert all(member.counters.step == self.step for member in members), "members of a pack are at one step"
        self._since = time.monotonic()

    def _contents(self) -> list[dict[str, Any] | None]:
        """Each member's checkpoint of the newest step that all of them have; None for the start."""
        found = [checkpoint.newest(member.folder.path) for member in self.members]
        steps = [content["counters"]["step"] if content else 0 for content in found]
        least = min(steps)
        return [
            content if step == least else checkpoint.newest(member.folder.path, up_to=least) if least else None
            for member, content, step in zip(self.members, found, steps, strict=True)
        ]

    def go(self, progress: Progress) -> None:
        """From the step the folders are at to every member's result, or to a checkpoint of a pack half empty."""
        self._since = time.monotonic()
        last = self.train.steps
        self._finish_those_done(last)
        while self._live() and self.step < last:
            self.step = self.steps.advance(self.step, self._next_visit(last), progress.update, self.asked)
            self._visit(last, progress)
            checkpointed = self.step % self.settings.checkpoint_every == 0
            if checkpointed and 0 < 2 * len(self._live()) <= len(self.members):
                return
        progress.close(self._last_word())

    def _live(self) -> list[tuple[int, Member]]:
        """Rows and members that have no result yet."""
        return [(row, member) for row, member in enumerate(self.members) if member.result is None]

    def _next_visit(self, last: int) -> int:
        """The next step after which the host has something to do."""
        every = (self.settings.log_every, self.settings.checkpoint_every, self.validates_every)
        return min(last, *(self.step - self.step % n + n for n in every if n))

    def _visit(self, last: int, progress: Progress) -> None:
        """Log, validate, save and finish whatever is due."""
        step, seen = self.step, self.pack.seen()
        for row, member in self._live():
            if not seen[row].live:
                member.diverge(seen[row])
                continue
            member.counters.step, member.counters.loss_sum = step, seen[row].loss_sum
            member.backends |= self.pack.backends
            if step % self.settings.log_every == 0:
                member.log(seen[row])
        if step % self.settings.log_every == 0:
            self.pack.forget()
        live = self._live()
        notes = [f"loss {sum(seen[row].loss for row, _ in live) / len(live):.4f}"] if live else []
        if self.validates_every and step % self.validates_every == 0 and live:
            notes.append(f"validation {sum(member.validate() for _, member in live) / len(live):.3f}")
        self._tick()
        number = self.asked()
        for row, member in live:
            if step % self.settings.checkpoint_every == 0 or step == last or member.stops_here or number:
                member.save(self.pack.saved(row))
        if number:
            stop = Preempted(number)
            for _, member in live:
                member.folder.preempt(stop.signal, step)
            raise stop
        self._finish_those_done(last)
        progress.update(step, "  ".join(notes))

    def _finish_those_done(self, last: int) -> None:
        """Score who is at the end, or may stop before it; the clock of the others stands still meanwhile."""
        for row, member in self._live():
            if self.step == last or member.stops_here:
                member.preparing = self.steps.preparing
                self._tick()
                member.finish(stopped_early=member.stops_here)
                self.pack.hold(row)
                self._since = time.monotonic()

    def _tick(self) -> None:
        """Add the time since the last tick to what training took."""
        now = time.monotonic()
        for _, member in self._live():
            member.seconds += now - self._since
        self._since = now

    def _last_word(self) -> str:
        """Of a finished pack, for a person."""
        if len(self.members) > 1:
            done = [m.result["test"]["accuracy"] for m in self.members if m.result and m.result["status"] == "done"]
            mean = f", mean test accuracy {sum(done) / len(done):.3f}" if done else ""
            return f"{len(done)} of {len(self.members)} runs done{mean}, {self.members[0].seconds:.1f}s"
        result = self.members[0].result
        assert result is not None
        if result["status"] == "diverged":
            return f"diverged at step {result['steps']}: loss {result['loss']}, gradient norm {result['grad_norm']}"
        spent = result["seconds"]["train"] + result["seconds"]["score"]
        return f"{result['steps']} steps, test accuracy {result['test']['accuracy']:.3f}, {spent:.1f}s"
