"""Requests to stop: after the first SIGTERM, SIGINT, SIGUSR1 or SIGHUP the current step ends and a checkpoint is
written. The second signal stops at once.

A cluster sends SIGTERM (or, if a job asks for a warning, SIGUSR1) before it takes a machine away. A closed terminal
sends SIGHUP, which stays ignored under nohup.
"""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

Asked = Callable[[], int | None]  # returns the signal that came, if one did

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)


class Preempted(SystemExit):
    """Stopped by a signal with everything saved. Unless caught, the process exits with 128 + the signal's number."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.signal = signal.Signals(number).name


@contextmanager
def listening(then: str = "a checkpoint is written, then it ends") -> Iterator[Asked]:
    """Catch the first signal instead of ending. Outside the main thread, no signal is caught.

    `then` tells whoever sent it what will happen.
    """
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    if before[signal.SIGHUP] is signal.SIG_IGN:  # nohup
        del before[signal.SIGHUP]

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)
        for each, handler in before.items():  # the next signal acts at once
            signal.signal(each, handler)
        name = signal.Signals(number).name
        with suppress(OSError):  # the terminal may be closed
            print(f"\n{name}: {then}; once more ends at once", file=sys.stderr)

    for number in before:
        signal.signal(number, note)
    try:
        yield lambda: came[0] if came else None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def starting_children() -> Iterator[None]:
    """Let processes that are started meanwhile, and theirs, ignore a terminal's Ctrl-C: it is for this process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
