"""The state of every run of a results folder, from the folders alone.

    done         it has a result
    diverged     its result says that a loss or a gradient was not finite
    running      a process holds its lock
    preempted    a signal stopped it, and a checkpoint was written
    failed       it broke, and its folder has the error
    unfinished   none of these: it was killed, or its machine went down

Nothing here needs torch, and only the last lines of a run's metrics are read.
"""

import json
import os
import stat
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from chomsky_ladder.harness.store import lock, records_file
from chomsky_ladder.harness.store.files import read_json
from chomsky_ladder.harness.store.finished import failed, finished
from chomsky_ladder.harness.store.labels import Identity

State = Literal["done", "running", "preempted", "failed", "diverged", "unfinished"]
STATES: tuple[State, ...] = ("done", "running", "preempted", "failed", "diverged", "unfinished")
WITH_RESULT: tuple[State, ...] = ("done", "diverged")
_TAIL = 1 << 14  # bytes at the end of metrics.jsonl that mostly hold a validation


@dataclass(frozen=True)
class RunStatus:
    """The state and progress of a run."""

    run_id: str
    state: State
    task: str
    model: str
    step: int
    steps: int | None
    """The number of steps to do; None if the config cannot be read."""
    seconds: float
    """Seconds of training and scoring. For an unfinished run, from its first start to its last file change."""
    validation: float | None
    """The last validation accuracy."""
    where: str
    """The process and host that run it or ran it last, else the processor."""
    error: str
    """The error of a run that broke, or the signal that stopped it."""


def run_folders(results: Path) -> list[Path]:
    """Return the folders of runs, sorted by name: no links, nothing without a config, but also unreadable ones."""
    try:
        entries = sorted(os.scandir(results / "runs"), key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return []
    folders = (entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
    return [Path(folder) for folder in folders if _may_have_config(folder)]


def _may_have_config(folder: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(f"{folder}/config.json").st_mode)  # noqa: PTH116  faster, for ten thousand of them
    except PermissionError:
        return True  # whoever reads it reports the error
    except OSError:
        return False


def survey(results: Path) -> list[RunStatus]:
    """Return the status of every run that has a folder."""
    return [status_of(folder) for folder in run_folders(results)]


def status_of(folder: Path, *, holder_of: Callable[[Path], lock.Holder | None] = lock.holder) -> RunStatus:
    """Return the status of one run. `holder_of` returns the process that holds it."""
    damage = ""
    try:
        result = finished(folder)
        if result is not None:
            return _with_result(folder, result)
    except ValueError as error:
        damage = str(error)
    except (KeyError, TypeError, AttributeError):
        damage = "result.json is not that of a run"
    except OSError as error:
        return _unreadable(folder, f"{error.strerror}: {error.filename}")
    try:
        return _without_result(folder, holder_of(folder), damage)
    except OSError as error:
        return _unreadable(folder, f"{error.strerror}: {error.filename}")


def _unreadable(folder: Path, error: str) -> RunStatus:
    """Return the status of a run whose folder cannot be read, or is removed meanwhile."""
    names = {"task": "unknown", "model": "unknown", "step": 0, "steps": None, "seconds": 0.0, "validation": None}
    return RunStatus(folder.name, "failed", where="", error=error, **names)


def _with_result(folder: Path, result: dict[str, Any]) -> RunStatus:
    done, identity = result["status"] == "done", Identity.of(result)
    spent = result["seconds"]["train"] + result["seconds"]["score"] if done else _lasted(folder, _last_sign(folder))
    said = "" if done else f"loss {result['loss']}, gradient norm {result.get('grad_norm', 'unknown')}"
    return RunStatus(
        run_id=folder.name,
        state="done" if done else "diverged",
        task=identity.task_name,
        model=identity.model_name,
        step=result["steps"],
        steps=result["steps"] if done else _steps(_config(folder)),
        seconds=spent,
        validation=result["validation"]["accuracy"] if done else _progress(folder)[1],
        where=result["numerics"]["device"],
        error=said,
    )


def _without_result(folder: Path, holder: lock.Holder | None, damage: str) -> RunStatus:
    config = _config(folder)
    step, validation = _progress(folder)
    end, error = _last_sign(folder), damage
    where = str(lock.last_holder(folder) or "")  # left by a process that was killed
    state: State = "unfinished"
    if holder is not None:
        state, where, error, end = "running", str(holder), "", time.time()
    elif damage:
        state = "failed"
    elif (stop := _readable(folder / "preempted.json")) is not None:
        stopped_at = stop.get("step")
        state, error = "preempted", str(stop.get("signal", ""))
        step = max(step, stopped_at) if type(stopped_at) is int else step
    elif (failure := _failure(folder)) is not None:
        state, error = "failed", str(failure.get("error", "failure.json is damaged"))
        where = where or _processor(failure)
    return RunStatus(
        run_id=folder.name,
        state=state,
        task=str(config.get("task", {}).get("name", "unknown")),
        model=str(config.get("model", {}).get("name", "unknown")),
        step=step,
        steps=_steps(config),
        seconds=_lasted(folder, end),
        validation=validation,
        where=where,
        error=error,
    )


def counts(runs: Sequence[RunStatus]) -> dict[State, int]:
    """Count the runs in each state."""
    found = Counter(run.state for run in runs)
    return {state: found[state] for state in STATES if found[state]}


def by_cell(runs: Sequence[RunStatus]) -> dict[tuple[str, str], dict[State, int]]:
    """Count the states for each task and model."""
    cells: dict[tuple[str, str], list[RunStatus]] = {}
    for run in runs:
        cells.setdefault((run.task, run.model), []).append(run)
    return {cell: counts(some) for cell, some in sorted(cells.items())}


def only_recorded(results: Path, runs: Sequence[RunStatus]) -> int:
    """Count the lines of records.csv whose runs have no folder here."""
    here = {run.run_id for run in runs}
    return sum(row.get("run_id") not in here for row in records_file.rows(results / "records.csv"))


def plain(run: RunStatus) -> dict[str, Any]:
    return asdict(run)


def _config(folder: Path) -> dict[str, Any]:
    tree = _readable(folder / "config.json") or {}
    return {key: value for key, value in tree.items() if isinstance(value, dict)}


def _steps(config: dict[str, Any]) -> int | None:
    steps = config.get("train", {}).get("steps")
    return steps if type(steps) is int else None


def _readable(path: Path) -> dict[str, Any] | None:
    """Return a small JSON file; {} if it is damaged."""
    try:
        tree = read_json(path)
    except ValueError:
        return {}
    return tree if tree is None or isinstance(tree, dict) else {}


def _failure(folder: Path) -> dict[str, Any] | None:
    """Return why a run broke; {} if that file is damaged."""
    try:
        return failed(folder)
    except ValueError:
        return {}


def _progress(folder: Path) -> tuple[int, float | None]:
    """Return the last step that left a trace, and the last validation."""
    checkpoints = [path.stem.removeprefix("step_") for path in folder.glob("step_*.ckpt")]
    saved = max((int(step) for step in checkpoints if step.isdigit()), default=0)
    path = folder / "metrics.jsonl"
    size = path.stat().st_size if path.is_file() else 0
    lines = _lines(path, max(0, size - _TAIL)) if size else []
    validation = _last(lines, "validation")
    if validation is None and size > _TAIL:
        validation = _last(_lines(path, 0), "validation")
    return max(saved, _last(lines, "step") or 0), validation


def _lines(path: Path, start: int) -> list[str]:
    """Return the lines after a byte offset, without the line that it cuts."""
    with path.open("rb") as file:
        file.seek(start)
        lines = file.read().decode("utf-8", errors="replace").split("\n")
    return lines[1 if start else 0 :]


def _last(lines: Sequence[str], key: str) -> Any | None:
    for line in reversed(lines):
        if f'"{key}"' in line:
            try:
                value = json.loads(line)[key]
            except (ValueError, KeyError, TypeError):
                continue
            if type(value) in (int, float):
                return value
    return None


def _lasted(folder: Path, end: float) -> float:
    """Return the seconds since the run's first start; 0 if a clock went backwards."""
    return max(0.0, end - (folder / "config.json").stat().st_mtime)


def _last_sign(folder: Path) -> float:
    """Return the time of the run's last file change."""
    names = ("config.json", "metrics.jsonl", "result.json", "failure.json", "preempted.json")
    return max((path.stat().st_mtime for name in names if (path := folder / name).exists()), default=0.0)


def _processor(failure: dict[str, Any]) -> str:
    try:
        return str(failure["provenance"]["machine"]["processor"])
    except (KeyError, TypeError):
        return ""
