"""A progress line: redrawn in place on a terminal, a plain line now and then in a log file, nothing when quiet."""

import sys
import time
from typing import TextIO

_TERMINAL_EVERY, _LOG_EVERY = 0.2, 30.0


class Progress:
    """Shows `label  42%  step 420/1000  loss 0.69  1m02s left`; clocks here never reach a computation."""

    def __init__(self, label: str, total: int, *, stream: TextIO | None = None, quiet: bool = False) -> None:
        self.label, self.total, self.quiet = label, max(1, total), quiet
        self._stream = stream or sys.stderr
        self._terminal = self._stream.isatty()
        self._start = self._shown = time.monotonic()
        self._first: int | None = None
        self._note = ""

    def update(self, done: int, note: str | None = None) -> None:
        """Show how far it is, with a note that stays until the next one."""
        self._note = self._note if note is None else note
        now = time.monotonic()
        if self._first is None:
            self._first = done  # a resumed run must not count what it did not do
        if self.quiet or now - self._shown < (_TERMINAL_EVERY if self._terminal else _LOG_EVERY):
            return
        self._shown = now
        rate = (done - self._first) / max(1e-9, now - self._start)
        left = f"{_duration((self.total - done) / rate)} left" if rate > 0 else ""
        self._write(f"{self.label}  {100 * done // self.total:3d}%  {done}/{self.total}  {self._note}  {left}")

    def close(self, note: str) -> None:
        """Replace the line by its last word."""
        if not self.quiet:
            self._write(f"{self.label}  {note}", final=True)

    def _write(self, line: str, *, final: bool = False) -> None:
        if self._terminal:
            self._stream.write("\r\x1b[K" + line.rstrip() + ("\n" if final else ""))
        else:
            self._stream.write(line.rstrip() + "\n")
        self._stream.flush()


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m" if hours else f"{minutes}m{seconds:02d}s" if minutes else f"{seconds}s"
