"""Remove runs from a results folder, their checkpoints, or lines of records.csv: exactly what is named.

    targets(results, states=["failed"], run_ids=[], what="runs")  ->  what would be removed, and its size
    remove_lines(results, ["parity-lstm-s0-4c2f81a09b"])          ->  1, and records.csv without it

A run folder is a real folder directly under runs/ that holds a config. A run that is being written is never touched. A
link is removed and never followed. A run whose state has changed since it was listed is kept.
"""

import csv
import io
import os
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from chomsky_ladder.harness.store import lock, records_file
from chomsky_ladder.harness.store.status import RunStatus, State, run_folders, status_of, survey

What = Literal["runs", "checkpoints"]


@dataclass(frozen=True)
class Target:
    """A run, and the part of it that would be removed."""

    folder: Path
    run: RunStatus
    what: What
    bytes: int


def targets(results: Path, *, states: Collection[State], run_ids: Sequence[str], what: What) -> list[Target]:
    """Return the runs with these states and ids; with neither, the checkpoints of finished runs.

    Ids must be complete. An unknown run and a running one are refused.
    """
    folders = {folder.name: folder for folder in run_folders(results)}
    for run_id in run_ids:
        if run_id not in folders:
            near = [name for name in folders if run_id and run_id in name][:3]
            hint = f"; there is {', '.join(near)}" if near else ""
            hint = f"; `ladder clean --records {run_id}` removes its line" if _has_line(results, run_id) else hint
            raise ValueError(f"{run_id!r} is no run under {results / 'runs'}{hint}")
    if what == "checkpoints" and not states and not run_ids:
        states = ("done", "diverged")
    runs = survey(results) if states else [status_of(folders[run_id]) for run_id in dict.fromkeys(run_ids)]
    named = [run for run in runs if run.run_id in run_ids or (run.state in states and run.state != "running")]
    for run in named:
        if run.state == "running":
            raise ValueError(f"{run.run_id} runs now ({run.where})")
    found = [Target(folders[run.run_id], run, what, _size(folders[run.run_id], what)) for run in named]
    return [target for target in found if what == "runs" or _checkpoints(target.folder)]


def remove(target: Target) -> str:
    """Remove it. Return the reason if it was kept."""
    folder = target.folder
    try:
        if (folder / "lock").is_symlink():
            (folder / "lock").unlink()  # taking the lock would write to the file the link points to
        with lock.held(folder, frees_room=True):
            if status_of(folder, holder_of=lambda _: None).state != target.run.state:  # this process holds the lock
                return "it has gone on since it was listed"
            if target.what == "checkpoints":
                for path in _checkpoints(folder):
                    path.unlink()
            else:
                _remove_folder(folder)
    except lock.Busy as busy:
        return str(busy)
    except OSError as error:
        return f"{error.strerror}: {error.filename}"
    return ""


def missing_lines(results: Path, run_ids: Sequence[str]) -> list[str]:
    """Return the ids that have no line in records.csv."""
    known = {row.get("run_id") for row in records_file.rows(results / "records.csv")}
    return [run_id for run_id in run_ids if run_id not in known]


def remove_lines(results: Path, run_ids: Collection[str]) -> int:
    """Remove lines from records.csv, whatever they contain. Return how many there were.

    Other lines keep their bytes.
    """
    file = results / "records.csv"
    with records_file.rewriting(file):
        rows = records_file.rows(file)
        kept = [row for row in rows if row.get("run_id") not in run_ids]
        if len(kept) < len(rows):
            text = io.StringIO(newline="")
            lines = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
            lines.writeheader()
            lines.writerows(kept)
            records_file.write(file, text.getvalue().encode(), count=len(kept))
        return len(rows) - len(kept)


def _remove_folder(folder: Path) -> None:
    """Remove a run's folder, result first and config last. An interrupted removal leaves an unfinished run."""
    (folder / "result.json").unlink(missing_ok=True)
    last = [folder / "config.json", folder / "lock"]
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path not in last:
            path.unlink()
    for path in last:
        path.unlink(missing_ok=True)
    folder.rmdir()


def _checkpoints(folder: Path) -> list[Path]:
    return sorted(folder.glob("step_*.ckpt"))


def _size(folder: Path, what: What) -> int:
    """Return the bytes of a run's files, or of its checkpoints; for a link, those of the link itself."""
    if what == "checkpoints":
        return sum(path.lstat().st_size for path in _checkpoints(folder))
    below = (Path(parent) / name for parent, _, names in os.walk(folder) for name in names)
    return sum(path.lstat().st_size for path in below)


def _has_line(results: Path, run_id: str) -> bool:
    """Return True if records.csv has a line of a run whose folder is gone or was never here."""
    path = results / "records.csv"
    return path.is_file() and f"\n{run_id},".encode() in path.read_bytes()
