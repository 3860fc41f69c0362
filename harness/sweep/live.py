"""The display of a running sweep: on a terminal a bar and a line for each pack in training, in a log file plain lines.

    [########------------------]  37/108 runs  2 failed  at most 3h12m left
    parity lstm s4            12000/20000  loss 0.0123  val 0.993  12m30s left
    cycle_nav mamba x9          400/20000  loss 1.6021               3h02m left

The progress of a worker is read from the end of its metrics.jsonl. So a worker may be any process on any machine that
writes to the results folder. Clocks here never affect a computation.
"""

import io
import json
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self, TextIO

from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.store.shown import behind, shown
from chomsky_ladder.harness.sweep.engines.base import Fate, Job
from chomsky_ladder.harness.sweep.pace import Pace
from chomsky_ladder.harness.train.progress import LONG

_TERMINAL_EVERY, _LOG_EVERY = 0.5, 30.0
_TOLD_AFTER = 20.0  # seconds after which the measured speed is used
_LOGGED = 8  # packs in training that a log file lists
_TAIL = 8192  # bytes of metrics.jsonl: enough for a validation and its neighbours
_REMEMBERED = 20  # changes of the step over which the speed is measured


class Live:
    """Displays the packs of a sweep in training. It is told of starts and ends, and reads everything else."""

    def __init__(
        self,
        jobs: Sequence[Job],
        results: Path,
        *,
        runs: int,
        expected: Mapping[str, float],
        stream: TextIO | None = None,
        quiet: bool = False,
        stopping: str = "",
    ) -> None:
        self._stream, self._quiet = stream or sys.stderr, quiet
        self._terminal = self._stream.isatty()
        self._results, self._runs, self._count = results, runs, len(jobs)
        self._done, self._failed = runs - sum(len(job.runs) for job in jobs), 0
        self._weights = _weights(jobs, expected)
        self._left, self._passed = sum(self._weights.values()), 0.0  # weights left, and done in this session
        self._rows: dict[int, _Row] = {}
        self._workers = 1  # most packs in training at once
        self._drawn = 0  # lines of the terminal that are ours
        self._lock, self._over = threading.RLock(), threading.Event()
        self._thread = threading.Thread(target=self._keep_showing, daemon=True)
        self._start = time.monotonic()
        is_planned = all(run.run_id in expected for job in jobs for run in job.runs)  # then the plan told it
        self._is_planned, self._stopping, self._told = is_planned, stopping, is_planned or not stopping
        self._pace, self._jobs = Pace(), {job.number: job for job in jobs}  # packs that have not ended

    def __enter__(self) -> Self:
        if not self._quiet:
            self._thread.start()
            if self._terminal and self._stream is sys.stderr:
                sys.stderr = _Above(self)
        return self

    def __exit__(self, *error: object) -> None:
        if isinstance(sys.stderr, _Above):
            sys.stderr.finish()
            sys.stderr = self._stream
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        with self._lock:
            self._draw([])

    def started(self, job: Job) -> None:
        with self._lock:
            self._rows[job.number] = _Row.of(job, self._results)
            self._workers = max(self._workers, len(self._rows))

    def ended(self, job: Job, fates: Sequence[Fate]) -> None:
        """Count the outcomes of a pack's runs. Print failures and diverged runs."""
        with self._lock:
            row = self._rows.pop(job.number)
            self._jobs.pop(job.number, None)
            for run, fate in zip(job.runs, fates, strict=False):
                self._pace.add(run, fate.seconds)
            finished = [fate for fate in fates if fate.status in ("done", "diverged")]
            self._done += len(finished)
            self._failed += sum(fate.status == "failed" for fate in fates)
            self._left -= self._weights[job.number]
            self._passed += self._weights[job.number] * (1 - (row.start or 0) / row.total)
            for fate in fates:
                if fate.status == "failed" or (fate.status == "diverged" and not self._quiet):
                    self.say(f"{fate.run_id} {fate.said}", always=True)
            if not self._terminal and (len(fates) > 1 or fates[0].status in ("done", "held")):
                self.say(f"[{job.number}/{self._count}] {job.name}  {_last_word(fates)}")

    def say(self, text: str, *, always: bool = False) -> None:
        """Print a line that stays, above the display."""
        if self._quiet and not always:
            return
        with self._lock:
            lines = self._erased() + shown(text.rstrip("\n")) + "\n"
            self._drawn = 0
            behind(self._stream).write(lines)
            self._stream.flush()

    def _keep_showing(self) -> None:
        while not self._over.wait(_TERMINAL_EVERY if self._terminal else _LOG_EVERY):
            self.show()

    def show(self) -> None:
        """Read the workers' progress and draw it, or write it to the log."""
        with self._lock:
            now = time.monotonic()
            rows = list(self._rows.values())
            columns, lines = _size(self._stream) if self._terminal else (100, _LOGGED + 2)
            shown = rows[: max(1, lines - 2)]
            for row in shown:
                row.look(now)
            self._tell(now)
            frame = [self._overall(now, columns), *(row.line(now, columns) for row in shown)]
            if len(rows) > len(shown):
                frame.append(f"and {len(rows) - len(shown)} more")
            if self._terminal:
                self._draw(frame)
            else:
                self.say("\n".join(frame))

    def _seconds_left(self, now: float) -> float | None:
        """Return the seconds left for the whole sweep; None while they are a guess."""
        return self._by_plan(now) if self._is_planned else self._by_pace()

    def _by_plan(self, now: float) -> float | None:
        """Return an upper bound on the seconds left, from the plan's measured times.

        The bound falls with time, unless the machine is slower than in the plan. Packs in any order on m workers take
        no longer than (all - longest) / m + longest.
        """
        under_way = [(self._weights[number] / row.total, row) for number, row in self._rows.items()]
        passed = self._passed + sum(weight * (row.step - (row.start or 0)) for weight, row in under_way)
        if passed <= 0:
            return None
        left = self._left - sum(weight * row.step for weight, row in under_way)
        steps = {number: row.step / row.total for number, row in self._rows.items()}
        longest = max((self._weights[number] * (1 - steps.get(number, 0)) for number in self._jobs), default=0.0)
        took = now - self._start
        slow = max(1.0, took * self._workers / passed) if took >= _TOLD_AFTER else 1.0
        return slow * ((left - longest) / self._workers + longest)

    def _by_pace(self) -> float | None:
        """Return the seconds left, from the times of similar finished runs and the number of workers."""
        total = 0.0
        for number, job in self._jobs.items():
            row = self._rows.get(number)
            share = 1.0 if row is None else max(0.0, 1 - row.step / row.total)
            for run in job.runs:
                seconds = self._pace.seconds(run)
                if seconds is None:
                    return None
                total += share * seconds
        return total / max(1, len(self._rows))

    def _tell(self, now: float) -> None:
        """Say once, in a line that stays, how long it may take and how to stop it, if it is long."""
        if self._told or now - self._start < _TOLD_AFTER:
            return
        whole = self._seconds_left(now)
        longest = max((left for row in self._rows.values() if (left := row.left(now)) is not None), default=0.0)
        if whole is not None:
            self._told = True
            if whole >= LONG:
                self.say(f"expected: about {duration(whole)} more; {self._stopping}")
        elif longest >= LONG:
            self._told = True
            self.say(f"expected: about {duration(longest)} for the packs under way alone; {self._stopping}")

    def _overall(self, now: float, columns: int) -> str:
        left = self._seconds_left(now)
        words = [f"{self._done}/{self._runs} runs"]
        words += [f"{self._failed} failed"] if self._failed else []
        words += [f"{len(self._rows)} packs under way"] if not self._terminal else []
        bound = "at most " if self._is_planned else ""
        words += [f"{bound}{duration(left)} left"] if left is not None else []
        text = "  ".join(words)
        if not self._terminal:
            return text
        width = max(10, min(40, columns - 5 - len(text)))
        full = width * self._done // max(1, self._runs)
        return f"[{'#' * full}{'-' * (width - full)}]  {text}"[: columns - 1]

    def _draw(self, frame: Sequence[str]) -> None:
        """Write the frame over the last one in a single write, so that nothing flickers."""
        if not self._terminal or self._quiet:
            return
        up = f"\r\x1b[{self._drawn}A" if self._drawn else "\r"
        behind(self._stream).write(up + "".join(f"{shown(line)}\x1b[K\n" for line in frame) + "\x1b[J")
        self._stream.flush()
        self._drawn = len(frame)

    def _erased(self) -> str:
        return f"\r\x1b[{self._drawn}A\x1b[J" if self._drawn else ""


@dataclass
class _Row:
    """A pack in training, as the metrics of its first unfinished run show it."""

    name: str
    folders: list[Path]
    total: int
    start: int | None = None  # the step at which this session found it
    step: int = 0
    loss: float | None = None
    validation: float | None = None
    seen: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))

    @classmethod
    def of(cls, job: Job, results: Path) -> "_Row":
        folders = [RunFolder(results, run.run_id).path for run in job.runs]
        return cls(job.title, folders, job.runs[0].train.steps)

    def look(self, now: float) -> None:
        """Read its progress."""
        folder = next((folder for folder in self.folders if not (folder / "result.json").exists()), self.folders[-1])
        for line in _tail(folder / "metrics.jsonl"):
            self.step = int(line.get("step", self.step))
            self.loss = _number(line.get("loss"), self.loss)
            self.validation = _number(line.get("validation"), self.validation)
        if self.start is None or self.step < self.start:  # it went back to its checkpoint
            self.start = self.step
            self.seen.clear()
        if not self.seen or self.step != self.seen[-1][1]:
            self.seen.append((now, self.step))
        if len(self.seen) == 3 and self.seen[0][1] == self.start:
            self.seen.popleft()  # the first steps include setup and compilation

    def left(self, now: float) -> float | None:
        """Return the seconds to the last step, at the speed of the last few changes."""
        if len(self.seen) < 2:
            return None
        (first_time, first), (last_time, last) = self.seen[0], self.seen[-1]
        rate = (last - first) / max(1e-9, last_time - first_time)
        return max(0.0, (self.total - last) / rate - (now - last_time)) if rate > 0 else None

    def line(self, now: float, columns: int) -> str:
        """Return name, step, loss, validation and time left, in fewer than this many columns."""
        left = self.left(now)
        last = "scores" if self.step >= self.total else f"{duration(left)} left" if left is not None else ""
        loss = f"loss {self.loss:.4f}" if self.loss is not None else ""
        validation = f"val {self.validation:.3f}" if self.validation is not None else ""
        text = f"{f'{self.step}/{self.total}':>13}  {loss:11}  {validation:9}  {last:>11}"
        width = max(8, min(40, columns - 3 - len(text)))
        name = self.name if len(self.name) <= width else self.name[: width - 2] + ".."
        return f"{name:{width}}  {text}"[: columns - 1].rstrip()


class _Above(io.TextIOBase):
    """A stderr that prints each line above the display."""

    def __init__(self, live: Live) -> None:
        self._live, self._partial = live, ""

    def write(self, text: str) -> int:
        *lines, self._partial = (self._partial + text).split("\n")
        for line in lines:
            self._live.say(line)
        return len(text)

    def finish(self) -> None:
        if self._partial:
            self._live.say(self._partial)

    def isatty(self) -> bool:
        return True


def duration(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 100:
        return f"{hours // 24}d{hours % 24:02d}h"
    return f"{hours}h{minutes:02d}m" if hours else f"{minutes}m{seconds:02d}s" if minutes else f"{seconds}s"


def _weights(jobs: Sequence[Job], expected: Mapping[str, float]) -> dict[int, float]:
    """Return each pack's weight in the time left: its expected seconds if all packs have them, else its steps."""
    seconds = {job.number: [expected.get(run.run_id) for run in job.runs] for job in jobs}
    if all(None not in each for each in seconds.values()):
        return {number: float(sum(filter(None, each))) for number, each in seconds.items()}
    return {job.number: float(job.runs[0].train.steps * len(job.runs)) for job in jobs}


def _number(value: object, otherwise: float | None) -> float | None:
    """Return a value as a float; `otherwise` if the line it comes from is damaged."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else otherwise


def _last_word(fates: Sequence[Fate]) -> str:
    """Return the last line on a pack that ended."""
    if len(fates) == 1:
        return fates[0].said
    done = [fate.accuracy for fate in fates if fate.accuracy is not None]
    mean = f", mean test accuracy {sum(done) / len(done):.3f}" if done else ""
    return f"{len(done)} of {len(fates)} runs done{mean}, {max(fate.seconds for fate in fates):.1f}s"


def _tail(path: Path) -> list[dict[str, float]]:
    """Return the complete lines at the end of a file that may be growing."""
    try:
        with path.open("rb") as file:
            start = max(0, file.seek(0, os.SEEK_END) - _TAIL)
            file.seek(start)
            lines = file.read().split(b"\n")[:-1]
        trees = [json.loads(line) for line in (lines[1:] if start else lines)]
        return [tree for tree in trees if isinstance(tree, dict) and type(tree.get("step")) is int]
    except (OSError, ValueError):  # not there yet, or damaged: there is nothing to show
        return []


def _size(stream: TextIO) -> tuple[int, int]:
    """Return the columns and lines of a terminal."""
    try:
        size = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return 80, 24
    return (size.columns or 80), (size.lines or 24)
