"""Merge runs of other machines' results folders into this one: verified, copied, never overwritten.

A finished run is taken if its config hashes to its id, its result belongs to that run, and every checkpoint matches its
digest. If a folder only has records.csv, its lines are taken. If a run exists in both places with different numbers,
ours stays. It is reported with what made each, since equal settings should give equal numbers. Clocks, versions and
hardware may differ.
"""

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import filter as matching
from pathlib import Path
from typing import Any

from chomsky_ladder.harness.store import curves, lock
from chomsky_ladder.harness.store.files import NoPlainFile, read_json, read_plain
from chomsky_ladder.harness.store.folder import RunFolder, flat
from chomsky_ladder.harness.store.places import refuse_published
from chomsky_ladder.harness.store.record import Record, keep, of_runs, recorded, say_left_out
from chomsky_ladder.harness.store.status import run_folders
from chomsky_ladder.harness.sweep import verified

_COPIED = ("config.json", "metrics.jsonl", "timing.jsonl", "step_*.ckpt", "result.json")
_READ = ("result.json", "metrics.jsonl", "config.json")
_MADE_WITH = ("commit", "dirty", "torch", "device", "fingerprint", "mixed_numerics", "backends")
_NO_NUMBERS = {*_MADE_WITH, "sha256", "train_seconds", "score_seconds", "numerics", "provenance", "seconds"}


@dataclass(frozen=True)
class Conflict:
    """A run with other numbers in the other folder than here."""

    run_id: str
    folder: Path
    fields: dict[str, tuple[Any, Any]]
    """The values that differ, as (here, there)."""
    here: dict[str, Any]
    """The code, packages and machine that made our run."""
    there: dict[str, Any]


@dataclass
class Merged:
    """The outcome of a merge for every run that was found."""

    taken: list[str] = field(default_factory=list)
    """Runs that were copied."""
    lines: list[str] = field(default_factory=list)
    """Runs whose line in records.csv was taken, because they have no folder."""
    same: list[str] = field(default_factory=list)
    """Runs that were already here with the same numbers."""
    unfinished: list[str] = field(default_factory=list)
    """Runs without a result, which were not taken."""
    refused: dict[str, str] = field(default_factory=dict)
    """Runs that were refused, with the reason."""
    conflicts: list[Conflict] = field(default_factory=list)


def merge(folders: Sequence[Path], results: Path, *, dry_run: bool = False) -> Merged:
    """Take the runs of these folders that `results` lacks. A dry run verifies all of them and writes nothing."""
    for folder in folders:
        if not (folder / "runs").is_dir() and not (folder / "records.csv").is_file():
            raise ValueError(f"{folder} has neither runs/ nor records.csv: it is no results folder")
        if folder.resolve() == results.resolve():
            raise ValueError(f"{folder} is the folder that would be merged into")
    if not dry_run:
        refuse_published(results)
    verified.forget()
    found = [(folder, recorded(folder / "records.csv")) for folder in folders]
    if dry_run:
        merging = _Merging(results, staging=None)
        for folder, lines in found:
            merging.take(folder, lines)
        return merging.merged
    staging = results / "runs" / ".merging"  # not mistaken for a run, and a rename from here is atomic
    try:
        staging.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"cannot write results to {results}: {error.strerror}") from None
    try:
        with lock.held(staging):
            merging = _Merging(results, staging=staging)
            for folder, lines in found:
                merging.take(folder, lines)
            if merging.merged.taken or merging.merged.lines:
                keep(results, merging.found)
            for folder, _ in found if merging.merged.lines else ():
                curves.take(folder, results, merging.merged.lines)
            shutil.rmtree(staging)
    except lock.Busy:
        raise ValueError(f"another process merges into {results}") from None
    return merging.merged


class _Merging:
    """A merge in progress."""

    def __init__(self, results: Path, *, staging: Path | None) -> None:
        self.results, self.staging = results, staging
        lines = recorded(results / "records.csv")
        self.found, left_out = of_runs(results)
        """The records to put into records.csv at the end. Lines added meanwhile stay."""
        say_left_out(left_out, lines)
        self.here, self.merged = lines | self.found, Merged()

    def take(self, folder: Path, lines: dict[str, Record]) -> None:
        """Take everything from a folder and its records.csv that is not here yet."""
        finished = set()
        for path in run_folders(folder):
            if not (path / "result.json").is_file():
                self.merged.unfinished.append(path.name)
                continue
            finished.add(path.name)
            try:
                self._take_run(folder, path)
            except (ValueError, OSError) as error:
                self.merged.refused[path.name] = str(error) if str(path) in str(error) else f"{path}: {error}"
        for record in lines.values():
            if record.run_id in finished or record.status == "failed":
                continue
            try:
                self._take_line(folder, record)
            except ValueError as error:
                self.merged.refused[record.run_id] = f"{folder / 'records.csv'}: {error}"

    def _take_run(self, folder: Path, path: Path) -> None:
        source, place = RunFolder(folder, path.name), self._place(path.name)
        files = _files(path)
        if path.name in self.found and _are_equal(path, place):
            self.merged.same.append(path.name)
            return
        if self._has(path.name):
            theirs = Record.of(source)
            if theirs is None:
                raise ValueError("its result has gone")
            if not self._agrees(folder, theirs):
                return
            if place.exists() or theirs.run_id in self.merged.taken:
                self.merged.same.append(theirs.run_id)
                return
        elif place.exists():
            raise ValueError(_in_the_way(place))
        if self.staging is None:
            theirs = verified.verify(source)
        else:
            copy = RunFolder(self.staging, path.name)
            _copy(files, copy.path)
            try:
                theirs = verified.verify(copy)
            except ValueError:
                shutil.rmtree(copy.path)
                verified.verify(source)  # reports any fault of the existing file
                raise
            try:
                copy.path.rename(place)
            except OSError:
                if place.exists():
                    raise ValueError("it was begun here during the merge: merge again once it has ended") from None
                raise
        self.here[theirs.run_id] = self.found[theirs.run_id] = theirs
        self.merged.taken.append(theirs.run_id)

    def _take_line(self, folder: Path, record: Record) -> None:
        run_id = record.run_id
        names = f"{record.task_name}-{record.model_name}"
        if not re.fullmatch(re.escape(f"{names}-s{record.seed}-") + "[0-9a-f]{10}", run_id) or "/" in run_id:
            raise ValueError(f"{run_id!r} is not the id of {record.task}, {record.model}, seed {record.seed}")
        verified.refuse_unscaled(record)
        if self._has(run_id):
            if self._agrees(folder, record):
                self.merged.same.append(run_id)
        elif self._place(run_id).exists():
            raise ValueError(_in_the_way(self._place(run_id)))
        else:
            self.here[run_id] = self.found[run_id] = record
            self.merged.lines.append(run_id)

    def _place(self, run_id: str) -> Path:
        return self.results / "runs" / run_id

    def _has(self, run_id: str) -> bool:
        """Return True if the run is finished here. A failure is no result."""
        return run_id in self.here and self.here[run_id].status != "failed"

    def _agrees(self, folder: Path, theirs: Record) -> bool:
        """Return True if the run has the same numbers there and here. Report it if not."""
        run_id = theirs.run_id
        ours = self.here[run_id]
        trees = [read_json(where / "runs" / run_id / "result.json") for where in (self.results, folder)]
        one, other = map(flat, trees) if all(trees) else (ours.model_dump(), theirs.model_dump())
        fields = {
            key: (one[key], other[key])
            for key in one
            if key in other and key.split(".")[0] not in _NO_NUMBERS and not _equal(one[key], other[key])
        }
        if fields:
            made = ({name: getattr(record, name) for name in _MADE_WITH} for record in (ours, theirs))
            self.merged.conflicts.append(Conflict(run_id, folder, fields, *made))
        return not fields


def _in_the_way(place: Path) -> str:
    """Return advice for a folder here that has no result. `ladder clean` cannot remove one without a config."""
    cure = f"`ladder clean {place.name}` makes room" if place in run_folders(place.parents[1]) else f"remove {place}"
    return f"it is here without a result; once nothing trains it, {cure}"


def _equal(one: Any, other: Any) -> bool:
    return one == other or (one != one and other != other)


def _files(folder: Path) -> list[Path]:
    """Return the files to take of a finished run, its result last. Refuse links."""
    there = {entry.name: entry for entry in os.scandir(folder)}
    names = [name for pattern in _COPIED for name in sorted(matching(there, pattern))]
    for name in names:
        if not there[name].is_file(follow_symlinks=False):
            raise ValueError(f"{name} is not a plain file")
    return [folder / name for name in names]


def _are_equal(one: Path, other: Path) -> bool:
    """Return True if two folders of a finished run have the same config, metrics and result. One was read before."""
    try:
        return all(read_plain(one / name) == read_plain(other / name) for name in _READ)
    except (OSError, NoPlainFile):
        return False


def _copy(files: Sequence[Path], target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)  # left by a merge that was killed
    target.mkdir(parents=True)
    for path in files:
        copy = target / path.name
        shutil.copy2(path, copy)
        with copy.open("rb") as file:
            os.fsync(file.fileno())
