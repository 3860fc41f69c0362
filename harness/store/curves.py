"""results/curves.csv: the learning curve of every run, a row for each validation, made from its history.

    run_id,step,loss,validation

`loss` is the mean of the steps since the last logged one, the newest at the validation; it stands alone in the last
row of a run that was never validated. What other machines' runs left here stays. Nothing here needs torch.
"""

import csv
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pandas as pd

from chomsky_ladder.harness.store.files import write_where_allowed
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.store.harmless import cell_of, csv_of
from chomsky_ladder.harness.store.places import is_read_only
from chomsky_ladder.harness.store.status import run_folders

COLUMNS = ("run_id", "step", "loss", "validation")


def collect(results: Path) -> pd.DataFrame:
    """curves.csv brought up to date with the finished runs beside it unless it is published, sorted, as a frame."""
    file = results / "curves.csv"
    stored = _stored(file)
    found = [tuple(row.values()) for folder in _finished(results) for row in _curve_of(folder)]
    fresh = pd.DataFrame(found, columns=list(COLUMNS))
    kept = stored[~stored["run_id"].isin(set(fresh["run_id"]))]
    frames = [frame for frame in (kept, fresh) if len(frame)]
    curves = pd.concat(frames).sort_values(["run_id", "step"], ignore_index=True) if frames else fresh
    if len(curves) and not is_read_only(file):
        write_where_allowed(file, csv_of(curves).encode())
    return curves


def take(folder: Path, results: Path, run_ids: Collection[str]) -> None:
    """Add what another folder's curves.csv has of runs of which nothing is in this one's."""
    theirs, ours = (_stored(where / "curves.csv") for where in (folder, results))
    rows = theirs[theirs["run_id"].isin(set(run_ids) - set(ours["run_id"]))]
    if len(rows):
        curves = pd.concat([frame for frame in (ours, rows) if len(frame)])
        content = csv_of(curves.sort_values(["run_id", "step"], ignore_index=True))
        write_where_allowed(results / "curves.csv", content.encode())


def validations(results: Path, run_id: str) -> dict[int, float]:
    """The validation accuracies of a run by step, to the last bit: of its folder, else of curves.csv."""
    history = RunFolder(results, run_id).history()
    if history:
        return {line["step"]: line["validation"] for line in history if "validation" in line}
    try:
        with (results / "curves.csv").open(newline="", encoding="utf-8") as file:
            own = [row for row in csv.DictReader(file) if cell_of(row["run_id"]) == run_id and row["validation"]]
    except FileNotFoundError:
        return {}
    return {int(row["step"]): float(row["validation"]) for row in own}


def _curve_of(folder: RunFolder) -> list[dict[str, Any]]:
    """None of a run whose metrics cannot be read: records name it."""
    try:
        return curve(folder.path.name, folder.losses_and_validations())
    except (OSError, ValueError):
        return []


def curve(run_id: str, history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of a run."""
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
    if not file.exists():
        return pd.DataFrame(columns=list(COLUMNS))
    try:
        stored = pd.read_csv(file, encoding="utf-8")
        if list(stored.columns) != list(COLUMNS):
            raise ValueError(f"its columns are not {', '.join(COLUMNS)}")
        if stored["run_id"].isna().any():
            raise ValueError("a row of it names no run")
        run_ids = stored["run_id"].astype(str)
        stored["run_id"] = run_ids.map({run_id: cell_of(run_id) for run_id in run_ids.unique()})
    except ValueError as error:
        raise ValueError(
            f"{file} is damaged: {error}; put it back, or remove it: the runs that are here are in it again then"
        ) from None
    return stored


def _finished(results: Path) -> list[RunFolder]:
    """Those whose results can be taken; records name the others."""
    folders = (RunFolder(results, path.name) for path in run_folders(results))
    return [folder for folder in folders if folder.is_done()]
