"""results/curves.csv: the learning curve of every run, a row for each validation, made from its history.

    run_id,step,loss,validation

`loss` is the mean of the steps since the last logged one, the newest at the validation; it stands alone in the last
row of a run that was never validated. What other machines' runs left here stays. Nothing here needs torch.
"""

import csv
from pathlib import Path
from typing import Any

import pandas as pd

from chomsky_ladder.harness.store.files import write_atomically
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.store.places import is_read_only

COLUMNS = ("run_id", "step", "loss", "validation")


def collect(results: Path) -> pd.DataFrame:
    """curves.csv brought up to date with the finished runs beside it unless it is published, sorted, as a frame."""
    file = results / "curves.csv"
    stored = pd.read_csv(file) if file.exists() else pd.DataFrame(columns=list(COLUMNS))
    found = [row for run_id in _finished(results) for row in curve(run_id, RunFolder(results, run_id).history())]
    fresh = pd.DataFrame(found, columns=list(COLUMNS))
    kept = stored[~stored["run_id"].isin(set(fresh["run_id"]))]
    frames = [frame for frame in (kept, fresh) if len(frame)]
    curves = pd.concat(frames).sort_values(["run_id", "step"], ignore_index=True) if frames else fresh
    if len(curves) and not is_read_only(file):
        write_atomically(file, curves.to_csv(index=False, lineterminator="\n").encode())
    return curves


def validations(results: Path, run_id: str) -> dict[int, float]:
    """The validation accuracies of a run by step, to the last bit: of its folder, else of curves.csv."""
    history = RunFolder(results, run_id).history()
    if history:
        return {line["step"]: line["validation"] for line in history if "validation" in line}
    try:
        with (results / "curves.csv").open(newline="") as file:
            own = [row for row in csv.DictReader(file) if row["run_id"] == run_id and row["validation"]]
    except FileNotFoundError:
        return {}
    return {int(row["step"]): float(row["validation"]) for row in own}


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


def _finished(results: Path) -> list[str]:
    return sorted(path.parent.name for path in (results / "runs").glob("*/result.json"))
