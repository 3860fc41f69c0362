"""The training loop: takes runs from their configs to their results, starting wherever their folders left off.

The state of training is the weights, the optimiser's moments and a few counters, all in the checkpoints. Data are
addressed by the step. So a run that is killed at any moment and started again ends with the weights and metrics of one
that was never killed, bit for bit under an equal numerics fingerprint. Several runs may train as one pack. They share
nothing but their steps.
"""

import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import chain
from typing import Any

import torch

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.protocols import columns_of
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.store import checkpoint
from chomsky_ladder.harness.store.folder import Busy, RunFolder
from chomsky_ladder.harness.tracking.mirror import mirrored
from chomsky_ladder.harness.train.distributed import (
    agreed,
    checkpoints_of_first,
    from_first,
    is_first,
    joined,
    make_pack,
    processes,
)
from chomsky_ladder.harness.train.evaluate_pack import PackEvaluator, Together
from chomsky_ladder.harness.train.machine import let_go, numerics, pinned, provenance
from chomsky_ladder.harness.train.member import Member
from chomsky_ladder.harness.train.outcome import kind_of, last_word
from chomsky_ladder.harness.train.progress import GOES_ON, Progress
from chomsky_ladder.harness.train.replays import Room
from chomsky_ladder.harness.train.signals import Asked, Preempted, listening
from chomsky_ladder.harness.train.steps import stepper
from chomsky_ladder.harness.train.workable import preflight


class RunFailed(Exception):
    """A run failed. Its folder holds the traceback."""


Outcome = dict[str, Any] | Busy | RunFailed
Shown = Callable[[int], Progress]


def execute(
    run: Run, settings: Exec, *, quiet: bool = False, label: str = "", stopping: str = GOES_ON
) -> dict[str, Any]:
    """Train and score a run, or resume it. If it is finished, return its result unchanged."""
    with joined(run, settings) as settings:
        quiet |= not is_first()
        shown = {"quiet": quiet, "label": label or run.run_id, "stopping": stopping}
        (outcome,) = execute_together([run], settings, **shown)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def execute_together(
    runs: Sequence[Run], settings: Exec, *, quiet: bool = False, label: str = "pack", stopping: str = GOES_ON
) -> list[Outcome]:
    """Run `execute` for runs that form a pack (harness/train/pack.py), trained as one. Return the outcome of each.

    A pack that fails is tried again in halves, so that one broken run does not spoil the others.
    """
    device = preflight(runs, settings, stacked=len(runs) > 1)
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
                assert done is None or done["run_id"] == run.run_id, f"{folder.path / 'result.json'} is another run's"
            except Exception as error:  # the folder holds something else than this run
                outcomes[run.run_id] = _failed(run, folder, error)
                continue
            if done is not None:
                outcomes[run.run_id] = done
            else:
                members.append(Member(run, folder))
        outcomes = from_first(outcomes)
        members = [member for member in members if member.run.run_id not in outcomes]
        copied = [(member.run, member.provenance) for member in members if is_first()]
        for tracker, mode in settings.mirrors.items():
            copies = mirrored(copied, settings.results, tracker=tracker, mode=mode, group=settings.wandb_group)
            locks.enter_context(copies)
        with pinned(settings.threads), listening() as asked:
            asked = agreed(asked)
            shown = partial(Progress, label, quiet=quiet, stopping=stopping)
            outcomes |= _trained(members, settings, device, asked, shown=shown, label=label)
    return [outcomes[run.run_id] for run in runs]


def _in_step(members: Sequence[Member], settings: Exec) -> list[list[Member]]:
    """Group the members that can go on together, and choose the checkpoint from which each goes on.

    If all have a checkpoint at the step of the slowest, they form one group. A kill while checkpoints are written
    leaves some members one checkpoint behind, never more. A member that is further ahead for another reason goes on
    alone.
    """
    if not members:
        return []
    newest = checkpoints_of_first([checkpoint.newest(member.folder.path) for member in members])
    steps = [checkpoint.step_of(content) for content in newest]
    least = min(steps)
    back = [
        content if step == least else checkpoint.newest(member.folder.path, up_to=least)
        for member, content, step in zip(members, newest, steps, strict=True)
    ]
    at_one_step = all(checkpoint.step_of(content) == least for content in back)
    if at_one_step and (least > 0 or max(steps) <= settings.checkpoint_every):  # a first checkpoint is soon made again
        return [[member.starting(content) for member, content in zip(members, back, strict=True)]]
    return [
        [member.starting(c) for member, c in zip(members, newest, strict=True) if checkpoint.step_of(c) == step]
        for step in sorted(set(steps))
    ]


def _trained(
    members: Sequence[Member], settings: Exec, device: torch.device, asked: Asked, *, shown: Shown, label: str
) -> dict[str, Outcome]:
    """Train the members of a pack, and return the outcome of each by its run id."""
    outcomes: dict[str, Outcome] = {}
    waiting = _in_step(members, settings)
    while waiting:
        group = waiting.pop(0)
        parts = 1
        try:
            Loop(group, settings, device, asked).go(shown(group[0].run.train.steps))
        except Exception as error:
            if len(group) == 1:
                (member,) = group
                outcomes[member.run.run_id] = member.result or _failed(member.run, member.folder, error)
                traceback.clear_frames(error.__traceback__)  # they hold the pack's memory
                continue
            traceback.clear_frames(error.__traceback__)
            print(f"{label}: {type(error).__name__}: {error}; its runs are tried in smaller packs", file=sys.stderr)
            parts = 2
        finally:
            for member in group:
                member.leave()
            let_go(device)
        outcomes |= {member.run.run_id: member.result for member in group if member.result is not None}
        if number := asked():  # a signal came while it was scored: it is finished, the rest has not begun
            raise Preempted(number)
        left = [Member(member.run, member.folder) for member in group if member.result is None]
        size = -(-len(left) // parts)
        again = [_in_step(left[place : place + size], settings) for place in range(0, len(left), max(1, size))]
        waiting = [*chain(*again), *waiting]
    return outcomes


def _failed(run: Run, folder: RunFolder, error: Exception) -> RunFailed:
    said = f"{type(error).__name__}: {error}".splitlines()[0]
    made = provenance(run.task, run.model)
    trace = "".join(traceback.format_exception(error))
    record = {**columns_of(run), "error": said, "kind": kind_of(error), "traceback": trace, "provenance": made}
    try:
        folder.fail(record)
        where = f"traceback in {folder.path / 'failure.json'}"
    except OSError as unwritten:
        where = f"and its record could not be written: {unwritten.strerror}"
    failed = RunFailed(f"{run.run_id} failed: {said} ({where})")
    failed.__cause__ = error
    return failed


class Loop:
    """Trains and scores the members of one pack."""

    def __init__(
        self, members: Sequence[Member], settings: Exec, device: torch.device, asked: Asked = lambda: None
    ) -> None:
        self.members, self.settings, self.asked = list(members), settings, asked
        self.train, self.validates_every = members[0].run.train, members[0].run.eval.every
        self.pack = make_pack([member.run for member in members], device=device, backend=settings.backend)
        room = Room()
        self.steps = stepper(self.pack, settings, room)
        made = numerics(settings, device, pack=self.pack.count, capture=self.steps.name, processes=processes())
        (self.step,) = {checkpoint.step_of(member.start) for member in members}  # members of a pack are at one step
        for row, member in enumerate(members):
            member.join(self.pack, row, settings, made, room=room)
        self.together = Together(self.pack, settings, room)
        self._since = time.monotonic()

    def go(self, progress: Progress) -> None:
        """Train from the step of the checkpoints until every member has a result.

        Returns early, at a checkpoint, once half of the pack or more has finished. The caller repacks the rest.
        """
        self._since = time.monotonic()
        last = self.train.steps
        self._finish_those_done(last)
        while self._live() and self.step < last:
            before = self.step
            self.step = self.steps.advance(before, self._next_visit(last), progress.update, self.asked)
            if self.step == before:  # a stop was requested before there was anything to save
                self._stop()
            self._visit(last, progress)
            checkpointed = self.step % self.settings.checkpoint_every == 0
            if checkpointed and 0 < 2 * len(self._live()) <= len(self.members):
                return
        progress.close(last_word([member.result for member in self.members], sum(m.seconds for m in self.members)))

    def _live(self) -> list[tuple[int, Member]]:
        """Return rows and members that have no result yet."""
        return [(row, member) for row, member in enumerate(self.members) if member.result is None]

    def _next_visit(self, last: int) -> int:
        """Return the next step after which the host has something to do."""
        every = (self.settings.log_every, self.settings.checkpoint_every, self.validates_every)
        return min(last, *(self.step - self.step % n + n for n in every if n))

    def _visit(self, last: int, progress: Progress) -> None:
        """Log, validate, save and finish whatever is due."""
        step, seen = self.step, self.pack.seen()
        for row, member in self._live():
            if not seen[row].live:
                member.diverge(seen[row].done, loss=seen[row].loss, norm=seen[row].norm)
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
            self._tick()
            given = self.together.of(len(live), PackEvaluator.validation)
            accuracies = [member.validate(given[row] if given else None) for row, member in live]
            notes.append(f"validation {sum(accuracies) / len(live):.3f}")
            self._since = time.monotonic()
        self._tick()
        stopping = bool(self.asked())
        for row, member in live:
            if step % self.settings.checkpoint_every == 0 or step == last or member.stops_here or stopping:
                member.save(self.pack.saved(row))
        if stopping:
            self._stop()
        self._finish_those_done(last)
        progress.update(step, "  ".join(notes))

    def _finish_those_done(self, last: int) -> None:
        """Score members that are at the end or may stop early. The clocks of the others stand still meanwhile."""
        due = [(row, member) for row, member in self._live() if self.step == last or member.stops_here]
        if due and self.asked():  # all members are saved
            self._stop()
        self._tick()
        given = self.together.of(len(due), PackEvaluator.scores_apart)
        self._since = time.monotonic()
        for row, member in due:
            if self.asked():  # a signal came while another was scored; this one is saved
                self._stop()
            member.preparing, member.refused = self.steps.preparing / self.pack.count, self.steps.refused
            self._tick()
            member.finish(given[row] if given else None, stopped_early=member.stops_here)
            self.pack.hold(row)
            self._since = time.monotonic()

    def _stop(self) -> None:
        """Stop after a signal. Members without a result resume from their checkpoint when they are started again."""
        stop = Preempted(self.asked() or signal.SIGTERM)
        for _, member in self._live():
            member.folder.preempt(stop.signal, self.step)
        raise stop

    def _tick(self) -> None:
        """Divide the time since the last call among the members in training."""
        now, live = time.monotonic(), self._live()
        for _, member in live:
            member.seconds += (now - self._since) / len(live)
        self._since = now
