"""results/curves.csv: the learning curve of every run, a row for each validation, made from its history.

    run_id,step,loss,validation

`loss` is the newest logged mean over training steps at the time of the validation. A run that was never validated has
one row with its last loss alone. Rows of runs from other machines stay. curves.csv.sha256 is its digest, as
records.csv.sha256 is that of the records (harness/store/records_file.py). Nothing here needs torch.
"""

import csv
import io
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pandas as pd

from chomsky_ladder.harness.store import records_file
from chomsky_ladder.harness.store.files import READ_ONLY
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.store.harmless import cell_of, csv_of
from chomsky_ladder.harness.store.places import is_read_only
from chomsky_ladder.harness.store.status import run_folders

COLUMNS = ("run_id", "step", "loss", "validation")


def collect(results: Path) -> pd.DataFrame:
    """Update curves.csv with the finished runs beside it, unless it is published. Return it as a sorted frame."""
    found = [tuple(row.values()) for folder in _finished(results) for row in _curve_of(folder)]
    fresh = pd.DataFrame(found, columns=list(COLUMNS))
    own = set(fresh["run_id"])
    return _kept(results / "curves.csv", lambda stored: _sorted(stored[~stored["run_id"].isin(own)], fresh))


def take(folder: Path, results: Path, run_ids: Collection[str]) -> None:
    """Add the rows of another folder's curves.csv for runs that have no rows here."""
    theirs = _stored(folder / "curves.csv")
    wanted = theirs[theirs["run_id"].isin(set(run_ids))]
    if len(wanted):
        _kept(results / "curves.csv", lambda ours: _sorted(ours, wanted[~wanted["run_id"].isin(set(ours["run_id"]))]))


def _sorted(*frames: pd.DataFrame) -> pd.DataFrame:
    some = [frame for frame in frames if len(frame)]
    return pd.concat(some).sort_values(["run_id", "step"], ignore_index=True) if some else frames[-1]


def _kept(file: Path, change: Callable[[pd.DataFrame], pd.DataFrame]) -> pd.DataFrame:
    """Apply a change to curves.csv under its lock, and write it if it changed and may be written."""
    curves = change(_stored(file))
    if not len(curves) or is_read_only(file) or records_file.holds(file, csv_of(curves).encode()):
        return curves
    try:
        with records_file.rewriting(file):
            curves = change(_stored(file))
            records_file.write(file, csv_of(curves).encode(), count=len(curves), what="rows")
    except OSError as error:
        if error.errno not in READ_ONLY:
            raise
    return curves


def validations(results: Path, run_id: str) -> dict[int, float]:
    """Return the exact validation accuracies of a finished run by step, from its folder or else from curves.csv."""
    folder = RunFolder(results, run_id)
    if folder.is_done():  # a run that is trained again does not have all lines yet
        return {line["step"]: line["validation"] for line in folder.history() if "validation" in line}
    lines = (records_file.content_of(results / "curves.csv") or b"").decode(errors="replace").splitlines()
    own = [row for row in csv.DictReader(lines) if cell_of(row["run_id"]) == run_id and row["validation"]]
    return {int(row["step"]): float(row["validation"]) for row in own}


def _curve_of(folder: RunFolder) -> list[dict[str, Any]]:
    """Return the rows of a run; none if its metrics cannot be read, which records report."""
    try:
        return curve(folder.path.name, folder.losses_and_validations())
    except (OSError, ValueError):
        return []


def curve(run_id: str, history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of a run."""
    rows: dict[int, dict[str, Any]] = {}
    loss = None
    for line in history:
        loss = line.get("loss", loss)
        if "validation" in line:
            step = line["step"]
            rows[step] = {"run_id": run_id, "step": step, "loss": loss, "validation": line["validation"]}
    if not rows and loss is not None:
        step = history[-1]["step"]
        rows[step] = {"run_id": run_id, "step": step, "loss": loss, "validation": None}
    return list(rows.values())


def _stored(file: Path) -> pd.DataFrame:
    content = records_file.content_of(file)
    if content is None:
        return pd.DataFrame(columns=list(COLUMNS))
    try:
        stored = pd.read_csv(io.BytesIO(content), encoding="utf-8", keep_default_na=False, na_values=[""])
        if list(stored.columns) != list(COLUMNS):
            raise ValueError(f"its columns are not {', '.join(COLUMNS)}")
        if stored["run_id"].isna().any():
            raise ValueError("a row of it names no run")
        for name in COLUMNS[1:]:
            if not pd.api.types.is_numeric_dtype(stored[name]):
                raise ValueError(f"{name} is no number in a row of it")
        if not stored["validation"].dropna().between(0, 1).all():
            raise ValueError("validation lies outside 0..1 in a row of it")
        run_ids = stored["run_id"].astype(str)
        stored["run_id"] = run_ids.map({run_id: cell_of(run_id) for run_id in run_ids.unique()})
    except ValueError as error:
        raise ValueError(
            f"{file} is damaged: {error}; put it back, or remove it: the runs that are here are in it again then"
        ) from None
    return stored


def _finished(results: Path) -> list[RunFolder]:
    """Return the runs with a valid result. Records report the others."""
    folders = (RunFolder(results, path.name) for path in run_folders(results))
    return [folder for folder in folders if folder.is_done()]
