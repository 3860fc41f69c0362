"""Checks of a results folder after a soak (soak.py), each against a reference folder that nobody disturbed.

A check yields what it found: the place, and a sentence. Nothing found means that nothing was lost, doubled or left.
"""

import csv
import fcntl
import hashlib
import json
import os
import re
import signal
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

import torch

from chomsky_ladder.harness.store import checkpoint, lock

Found = tuple[str, str]

EXCUSES = re.compile(  # what a command may refuse with exit code 2 beside others that train, remove and merge
    "no finished runs under|no runs under|no such folder of results|has neither runs/ nor records.csv|is no run under"
    "|no run '|no record of a run|has no line of|another process merges|runs now|failed, so there is nothing"
)
NEVER = re.compile("Traceback|damaged|does not fit|is not as |has other numbers|Error:|is left out|Warning")
FULL = re.compile(r"\[Errno (27|28)\]|File too large|No space left")
CLOCKS = ("train_seconds", "score_seconds", "commit", "dirty")
NOT_COMPARED = {"seconds", "provenance", "sha256"}
HOUR = 3600.0


def is_pythons(said: str, signals: Collection[int]) -> bool:
    """Return True for the traceback of a Ctrl-C that came while Python itself was starting."""
    return signal.SIGINT in signals and said.rstrip().endswith("KeyboardInterrupt") and "cli/main.py" not in said


def judge(word: str, code: int, said: str, signals: Collection[int], *, is_short: bool) -> Iterator[str]:
    """Hold a command that ended to its exit code and its messages; `is_short` of disk, it may fail."""
    allowed = {0, *(-each for each in signals), *(128 + each for each in signals)}
    if word in ("sweep", "clean") or re.search("was not taken: .*(without a result|begun here)", said):
        allowed.add(1)
    if EXCUSES.search(said):
        allowed.add(2)
    if is_short:
        allowed |= {1, 2, 74}
    if code not in allowed:
        yield f"exit code {code}: {end_of(said)}"
    lines = [line for line in said.splitlines() if NEVER.search(line) and not FULL.search(line)]
    if lines:
        yield f"it says: {end_of(said) if 'Traceback' in lines[0] else lines[0]}"


def end_of(said: str) -> str:
    return " | ".join(said.strip().splitlines()[-6:])[-700:]


def compare(folder: Path, reference: Path, run_ids: Sequence[str], weights: list[str]) -> Iterator[Found]:
    """Find runs, records and curves that are not those of the reference; add to `weights` whose weights are equal."""
    for run_id in run_ids:
        ours, theirs = (each / "runs" / run_id for each in (folder, reference))
        try:
            yield from _compare_run(ours, theirs, weights)
        except (OSError, ValueError) as error:
            yield f"{folder.name}/{run_id}", f"{type(error).__name__}: {error}"
        if (holder := lock.holder(ours)) is not None:
            yield f"{folder.name}/{run_id}", f"it is held by {holder}, though nobody is there"
    rows, wanted = (_rows(each / "records.csv") for each in (folder, reference))
    if [row["run_id"] for row in rows] != sorted(run_ids):
        yield f"{folder.name}/records.csv", f"{len(rows)} lines of {len(run_ids)} runs are not one each"
    elif rows != wanted:
        apart = {name for row, other in zip(rows, wanted, strict=True) for name in row if row[name] != other.get(name)}
        yield f"{folder.name}/records.csv", f"other values than of runs never killed: {sorted(apart)}"
    curves = folder / "curves.csv"
    if curves.exists() and curves.read_bytes() != (reference / "curves.csv").read_bytes():
        yield f"{folder.name}/curves.csv", "other bytes than of runs never killed"
    for file in folder.glob("*.csv"):
        line = f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}"
        if {*file.with_name(f"{file.name}.sha256").read_text().splitlines()[1:]} != {line}:
            yield f"{folder.name}/{file.name}", "its digest is not right"


def _compare_run(ours: Path, theirs: Path, weights: list[str]) -> Iterator[Found]:
    where = f"{ours.parents[1].name}/{ours.name}"
    if (ours / "metrics.jsonl").read_bytes() != (theirs / "metrics.jsonl").read_bytes():
        yield where, "metrics.jsonl has other bytes than one never killed"
    one, other = (json.loads((each / "result.json").read_text()) for each in (ours, theirs))
    if apart := sorted(key for key in {*one, *other} - NOT_COMPARED if one.get(key) != other.get(key)):
        yield where, f"result.json has other values than one never killed: {apart}"
    mine, yours = checkpoint.newest(ours), checkpoint.newest(theirs)
    if mine is None or yours is None:  # `ladder clean --checkpoints`
        return
    apart = [part for part in ("model", "optimizer", "counters") if not _equal(mine[part], yours[part])]
    if apart:
        yield where, f"the checkpoint has another {' and '.join(apart)} than one never killed"
    else:
        weights.append(where)


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(value, other[key]) for key, value in one.items())
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


def _rows(file: Path) -> list[dict[str, str]]:
    if not file.exists():
        return []
    with file.open(newline="") as lines:
        return [{name: v for name, v in row.items() if name not in CLOCKS} for row in csv.DictReader(lines)]


def left_behind(folder: Path, reference: Path, aged: dict[Path, float]) -> Iterator[Found]:
    """Find files and folders that the reference has not.

    A part beside a table may lie for an hour. It is made two hours old here and kept in `aged` with the time at which
    its file was written: the next write of the file has to remove it. The lock of records.csv or curves.csv may lie
    there until the next write, too, but nobody may hold it.
    """
    names, usual = ({path.relative_to(each) for path in each.rglob("*")} for each in (folder, reference))
    parts = {name for name in names if name.suffix == ".part" and name.parts[0] != "runs"}
    free = {name for name in names if name.suffixes == [".csv", ".lock"] and _is_free(folder / name)}
    if extra := sorted(map(str, names - usual - parts - free)):
        yield f"{folder.name}/", f"left behind: {extra[:5]}"
    for part in (folder / name for name in parts):
        file = part.with_name(part.name.rsplit(".", 2)[0])
        written = file.stat().st_mtime if file.exists() else 0.0
        if part in aged and written > aged[part]:
            yield f"{folder.name}/", f"{part.name} is an hour old and stays when its file is written"
        aged[part] = written
        os.utime(part, (time.time() - 2 * HOUR, time.time() - 2 * HOUR))


def _is_free(path: Path) -> bool:
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def grown(memory: dict[str, list[int]], files: Sequence[int]) -> Iterator[Found]:
    """Compare the memory of commands and the number of files of the last rounds with those of the first."""
    for kind, sizes in memory.items():
        third = len(sizes) // 3
        if third >= 5 and median(sizes[-third:]) > 1.25 * median(sizes[:third]) + 20:
            yield f"ladder {kind}", f"its memory grows from {median(sizes[:third])} to {median(sizes[-third:])} MB"
    if len(files) > 2 and files[-1] > files[0] + 30:
        yield "files", f"their number grows: {files}"


def processes_of(mark: str) -> list[int]:
    """The processes that have a mark in their environment: who was started with it, and whom those started."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it has ended
            if f"{mark}\0".encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def words_of(process: int) -> str:
    """The command line of a process."""
    try:
        return " ".join(Path(f"/proc/{process}/cmdline").read_text().split("\0"))[:300]
    except OSError:
        return "ended since"


def megabytes_of(process: int) -> int:
    """The most memory that a process has held; what its parent held before does not count."""
    try:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    except OSError:
        return 0
    return int(found[1]) // 1024 if found else 0
