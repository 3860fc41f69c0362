"""Trackers: services and programs that show runs. A file of harness/tracking/trackers/, or of a plugin, is one.

    register(Tracker(name="mine", title="Mine", begin=begun, how_to_look=said))

`ladder run .. --exec.tracker mine` copies a run while it trains, `ladder track mine` copies it later. Both copies are
made from config.json, metrics.jsonl and result.json, so they are equal. `begin` opens the run there and says how many
lines of its history it has. Only the others are sent. A plugin's package announces its module by an entry point of the
group `ladder.trackers`.
"""

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from chomsky_ladder.harness.config.rooms import open_room, registered
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.tracking.card import Card, end_of

Mode = Literal["online", "offline"]
SYNCS_WITHIN = 120.0  # seconds that `sync` waits for the end of a run's upload


class Target(Protocol):
    """One run at a tracker."""

    @property
    def there(self) -> int:
        """Return the number of lines of its history that are there."""
        ...

    def log(self, row: dict[str, Any]) -> None:
        """Send a line of metrics.jsonl."""
        ...

    def finish(self, end: dict[str, Any]) -> None:
        """Send how the run ended: its record with a `status`, which is `unfinished` if it has none."""
        ...


def nothing() -> None:
    pass


def nothing_to_say(results: Path, mode: Mode) -> str:
    return ""


def never(folder: RunFolder, mode: Mode) -> bool:
    return False


@dataclass(frozen=True, kw_only=True)
class Tracker:
    name: str
    title: str
    """The name that sentences use."""
    begin: Callable[[Card, RunFolder, Mode, float], Target]
    """Open a run there. The number is the seconds that its end may take. `offline` means without a network."""
    how_to_look: Callable[[Path, Mode], str] = nothing_to_say
    """Return the line that tells where the copies of a results folder are seen, or how they are sent."""
    is_copied: Callable[[RunFolder, Mode], bool] = never
    """Return True if nothing is left to send. Without it, `begin` finds that out."""
    package: str = ""
    """The package that it imports, if that may be missing."""
    close: Callable[[], None] = nothing
    """End what the tracker runs in the background."""
    module: str = ""
    """The module that registers it; filled in by `register`."""


TRACKERS: list[Tracker] = []
ROOM = open_room("tracker", "chomsky_ladder.harness.tracking.trackers", "ladder.trackers", TRACKERS)


def register(tracker: Tracker) -> Tracker:
    """Make a tracker known under its name."""
    return registered(tracker, ROOM)


def find_tracker(name: str) -> Tracker:
    """Return the tracker of a name. Refuse, in one line, one that is not there or lacks its package."""
    tracker = ROOM.at_hand(name)
    if tracker is None:
        from chomsky_ladder.harness.config.registry import discover  # imports torch

        discover()  # plugins that $LADDER_PLUGINS names
        tracker = ROOM.find(name)
    if tracker.package and importlib.util.find_spec(tracker.package) is None:
        raise ValueError(f"tracker {name} needs the package {tracker.package}: pip install {tracker.package}")
    return tracker


class Copy:
    """A run that is copied to a tracker as its folder grows."""

    def __init__(self, tracker: Tracker, card: Card, folder: RunFolder, *, mode: Mode, finish_within: float) -> None:
        self._folder = folder
        self._target = tracker.begin(card, folder, mode, finish_within)
        self._sent = self._target.there

    def look(self, *, last: bool) -> bool:
        """Send what is new. Return True if the run has ended, or this was the last look."""
        end = end_of(self._folder)  # written after the last line
        lines = self._folder.history()
        for row in lines[self._sent :]:
            self._target.log(row)
        self._sent = max(self._sent, len(lines))
        if end is None and not last:
            return False
        self._target.finish(end or {"status": "unfinished"})
        return True


def sync(tracker: Tracker, folders: Sequence[RunFolder], *, mode: Mode = "online", group: str = "") -> Iterator[str]:
    """Copy runs as their folders stand, one after the other, except those already copied. Yield their ids."""
    for folder in folders:
        if not tracker.is_copied(folder, mode):
            card = Card.read(folder, group=group)
            Copy(tracker, card, folder, mode=mode, finish_within=SYNCS_WITHIN).look(last=True)
        yield folder.path.name
