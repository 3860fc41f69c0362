"""trackio: runs on this machine without an account, or in a Space of the Hugging Face hub. Only this file imports it.

    pip install trackio
    ladder run parity lstm --exec.tracker trackio
    trackio show --project chomsky-ladder

Its own variables decide where copies go: $TRACKIO_DIR, $TRACKIO_SPACE_ID, $TRACKIO_SERVER_URL. The project is
$TRACKIO_PROJECT, else "chomsky-ladder". A run has the name that it has here. Its last row says how it ended. What a
Space or a server holds is not read back, so a second copy of a run sends its lines there again.
"""

import contextlib
import io
import os
import shlex
from pathlib import Path
from typing import Any

from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.tracking.card import Card, plain
from chomsky_ladder.harness.tracking.tracker import Mode, Tracker, register

PROJECT = "chomsky-ladder"  # without $TRACKIO_PROJECT
_OF_AN_END = ("status", "steps", "loss", "test", "validation", "seconds", "error")
_STATUS = "final/status"


class _Target:
    """One run at trackio, which ends the run that it thinks current when another begins: so none is."""

    def __init__(self, card: Card, folder: RunFolder, mode: Mode, finish_within: float) -> None:
        import trackio
        from trackio.sqlite_storage import SQLiteStorage

        rows = SQLiteStorage.get_logs(project(), card.run_id)
        with contextlib.redirect_stdout(io.StringIO()):
            self._run = trackio.init(
                project=project(),
                name=card.run_id,
                group=card.group or None,
                config={**card.config, "tags": list(card.tags)},
                resume="allow",
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )
        trackio.context_vars.current_run.set(None)
        self.there = sum(_STATUS not in row for row in rows)
        self._step = rows[-1]["step"] if rows else 0
        self._ends = [row[_STATUS] for row in rows if _STATUS in row]

    def log(self, row: dict[str, Any]) -> None:
        self._step = row["step"]
        self._run.log(_flat({name: value for name, value in row.items() if name != "step"}), step=self._step)

    def finish(self, end: dict[str, Any]) -> None:
        if self._ends[-1:] != [end["status"]]:
            shown = _flat({"final": {name: end[name] for name in _OF_AN_END if name in end}})
            self._run.log(shown, step=end.get("steps", self._step))
        with contextlib.redirect_stdout(io.StringIO()):
            self._run.finish()


def project() -> str:
    return os.environ.get("TRACKIO_PROJECT") or PROJECT


def how_to_look(results: Path, mode: Mode) -> str:
    return f"to see the copies: trackio show --project {shlex.quote(project())}"


def _flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a tree as one level, with / between the names, which trackio takes for groups."""
    found: dict[str, Any] = {}
    for name, value in plain(tree).items():
        found |= _flat(value, f"{prefix}{name}/") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found


register(Tracker(name="trackio", title="trackio", package="trackio", begin=_Target, how_to_look=how_to_look))
