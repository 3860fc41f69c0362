"""Copy runs to a tracker while they train, in a separate process that a run never waits for.

    ladder run parity lstm --exec.wandb online
    ladder run parity lstm --exec.tracker trackio

Training itself never calls a tracker. The other process (harness/tracking/follow.py) follows the folders. When the runs
end it has `PATIENCE` seconds to finish, then it is killed. If anything goes wrong in it, one line is printed on stderr,
and nothing more is copied to that tracker from the training process.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chomsky_ladder.harness.config import rooms
from chomsky_ladder.harness.config.origin import is_ours
from chomsky_ladder.harness.tracking.card import Card, line
from chomsky_ladder.harness.tracking.tracker import Mode, Tracker, find_tracker

if TYPE_CHECKING:
    from chomsky_ladder.harness.config.run import Run

PATIENCE = 15.0  # seconds that a training process waits for its copies, once: it makes no more after that
_trouble: dict[str, str] = {}  # the first error of each tracker in this process


@contextmanager
def mirrored(
    runs: Sequence[tuple["Run", dict[str, Any]]],
    results: Path,
    *,
    tracker: str = "wandb",
    mode: Mode = "online",
    group: str = "",
    patience: float = PATIENCE,
) -> Iterator[None]:
    """Copy runs, given with their provenance, while the block trains them. Its end waits `patience` seconds at most."""
    mirror = None
    if runs and tracker not in _trouble:
        found = find_tracker(tracker)
        try:
            plugins = [] if is_ours(found.module) else rooms.NAMED
            order = {"tracker": tracker, "plugins": plugins, "results": str(results), "mode": mode}
            cards = [asdict(Card.of(run, provenance, group=group)) for run, provenance in runs]
            mirror = _Mirror(found, {**order, "cards": cards, "patience": patience})
        except Exception as error:  # in any case, the runs go on
            _say(found, line(error))
    try:
        yield
    finally:
        if mirror is not None:
            mirror.close(patience)


def _say(tracker: Tracker, what: str) -> None:
    """Print the first error of a tracker in this process, in one line."""
    if tracker.name not in _trouble:
        _trouble[tracker.name] = what
        with suppress(OSError, ValueError):  # stderr may be closed
            said = f"{tracker.title} is left alone from here on: {what} (`ladder track {tracker.name}` catches up)"
            print(said, file=sys.stderr)


class _Mirror:
    """Starts the copying process, which reads its order, follows the folders, and ends after its pipe closes."""

    def __init__(self, tracker: Tracker, order: dict[str, Any]) -> None:
        self._tracker = tracker
        root = str(Path(__file__).parents[3])  # from which the package is imported
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        read_end, self._lifeline = os.pipe()
        try:
            with tempfile.TemporaryFile("w+", encoding="utf-8") as file:
                json.dump(order, file)
                file.seek(0)
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "chomsky_ladder.harness.tracking.follow", str(read_end)],
                    stdin=file,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    pass_fds=[read_end],
                    start_new_session=True,  # a Ctrl-C is for the run
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                )
        except BaseException:
            os.close(self._lifeline)
            raise
        finally:
            os.close(read_end)
        self._reader = threading.Thread(target=self._pass_on, daemon=True)
        self._reader.start()

    def _pass_on(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as said:
            for words in said:
                _say(self._tracker, words.decode(errors="replace").strip())

    def close(self, patience: float) -> None:
        os.close(self._lifeline)
        try:
            code = self._process.wait(patience)
            late = ""
        except subprocess.TimeoutExpired:
            code, late = 1, f"it was not done {patience:g} s after the runs"
        finally:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
            self._reader.join(1.0)
        if code:
            _say(self._tracker, late or f"its process ended with {code}")
