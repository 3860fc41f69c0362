"""A progress line: redrawn in place on a terminal, a plain line now and then in a log file, nothing when quiet.

If a run will take long, a line that stays says so after the first steps:

    expected: about 2h10m to the last step; Ctrl-C stops it behind a checkpoint, and the same command goes on from there
"""

import sys
import time
from typing import TextIO

from chomsky_ladder.harness.store.shown import behind, shown

_TERMINAL_EVERY, _LOG_EVERY = 0.2, 30.0
LONG = 600.0  # seconds; a longer run is announced
_TOLD_AFTER, _TOLD_FROM = 10.0, 3  # seconds and steps before an estimate is made
EMULATED = "this CPU has no bf16 instructions and is slower in it; --train.precision fp32 is faster, and another run"
GOES_ON = "Ctrl-C stops it behind a checkpoint, and the same command goes on from there"


class Progress:
    """Shows `label  42%  step 420/1000  loss 0.69  1m02s left`. Its clock never affects a computation."""

    def __init__(
        self, label: str, total: int, *, stream: TextIO | None = None, quiet: bool = False, stopping: str = GOES_ON
    ) -> None:
        self.label, self.total, self.quiet, self.stopping = label, max(1, total), quiet, stopping
        self._stream = stream or sys.stderr
        self._terminal = self._stream.isatty()
        self._start = self._shown = time.monotonic()
        self._first: int | None = None
        self._began: float | None = None  # when the first step was done
        self._told = quiet
        self._note = ""

    def update(self, done: int, note: str | None = None) -> None:
        """Show the progress, with a note that stays until the next one."""
        self._note = self._note if note is None else note
        now = time.monotonic()
        if self._first is None:
            self._first, self._began = done, now  # do not count steps of earlier sessions
        if not self._told and now - self._start >= _TOLD_AFTER and done - self._first >= _TOLD_FROM:
            self._told = True
            self._tell((self.total - done) * (now - (self._began or now)) / (done - self._first))
        if self.quiet or now - self._shown < (_TERMINAL_EVERY if self._terminal else _LOG_EVERY):
            return
        self._shown = now
        rate = (done - self._first) / max(1e-9, now - self._start)
        left = f"{_duration((self.total - done) / rate)} left" if rate > 0 else ""
        self._write(f"{self.label}  {100 * done // self.total:3d}%  {done}/{self.total}  {self._note}  {left}")

    def close(self, note: str) -> None:
        """Replace the line by a last note."""
        if not self.quiet:
            self._write(f"{self.label}  {note}", final=True)

    def _tell(self, seconds: float) -> None:
        """Print the expected time, if it is long."""
        if seconds >= LONG:
            line = "; ".join(filter(None, (f"expected: about {_duration(seconds)} to the last step", self.stopping)))
            self._write(line, final=True)

    def _write(self, line: str, *, final: bool = False) -> None:
        if self._terminal:
            behind(self._stream).write("\r\x1b[K" + shown(line.rstrip()) + ("\n" if final else ""))
        else:
            self._stream.write(line.rstrip() + "\n")
        self._stream.flush()


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m" if hours else f"{minutes}m{seconds:02d}s" if minutes else f"{seconds}s"
