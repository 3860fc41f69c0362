"""`ladder track`: runs copied to a tracker from their folders."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tyro.conf import Positional

from chomsky_ladder.harness.cli.options import name_first, parse
from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.store import status
from chomsky_ladder.harness.store.folder import RunFolder, find_run
from chomsky_ladder.harness.store.places import default_results
from chomsky_ladder.harness.tracking.card import line
from chomsky_ladder.harness.tracking.tracker import ROOM, Mode, Tracker, find_tracker, sync


@dataclass
class TrackOptions:
    """Copy runs to a tracker. For a run that is there already, only what is new is sent."""

    run_ids: Positional[tuple[str, ...]] = ()
    """Runs, by their ids or unique parts of them. Without any: all that are not being trained."""
    results: Path = field(default_factory=default_results)
    """The folder of runs/."""
    mode: Mode = "online"
    """offline writes files that are sent later, where a tracker has them."""
    group: str = ""
    """Group of the runs there: the name of the sweep."""


def track(words: list[str]) -> int:
    words = list(words)
    there = ", ".join(ROOM.names())
    shown = partial(parse, TrackOptions, words, prog="ladder track TRACKER")
    name = name_first(words, f"ladder track needs a TRACKER: {there}", helped=shown)
    tracker = find_tracker(name)
    return copy_runs(tracker, parse(TrackOptions, words, prog=f"ladder track {name}"))


def copy_runs(tracker: Tracker, options: TrackOptions, *, more: Callable[[], str] | None = None) -> int:
    """Copy the runs that the options name, then what `more` copies and says."""
    folders = folders_of(options.run_ids, options.results)
    if not folders and more is None:
        raise ValueError(f"no finished or stopped runs under {options.results}")
    done = 0
    try:
        for done, run_id in enumerate(sync(tracker, folders, mode=options.mode, group=options.group), 1):
            print(f"[{done}/{len(folders)}] {run_id}")
        if more is not None:
            print(more())
    except Exception as error:  # the tracker's, of any class
        if isinstance(error, ValueError):
            raise
        print(f"ladder: {done} of {len(folders)} runs copied, then {line(error)}", file=sys.stderr)
        return 1
    finally:
        tracker.close()
    _say(tracker.how_to_look(options.results, options.mode))
    return 0


def say_where(settings: Exec) -> None:
    """Print where the copies of runs just trained are seen, or how they are sent."""
    for name, mode in settings.mirrors.items():
        _say(find_tracker(name).how_to_look(settings.results, mode))


def _say(words: str) -> None:
    if words:
        print(words, file=sys.stderr)


def folders_of(run_ids: Sequence[str], results: Path) -> list[RunFolder]:
    """Return the runs of these ids; without any, all that are not being trained."""
    if run_ids:
        return [find_run(results, run_id) for run_id in run_ids]
    states = {run.run_id: run.state for run in status.survey(results)}
    return [RunFolder(results, run_id) for run_id, state in states.items() if state != "running"]
