"""What the page's script reads: records.csv as it is, and what is decided here rather than there."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from chomsky_ladder.harness.stats.view import CLASSES, LEVELS, Cell, rank, training_lengths
from chomsky_ladder.harness.store.labels import Identity, Label, reproduce

_CURVE_NUMBERS = 100_000  # over all curves of a page


@dataclass(frozen=True)
class Sheet:
    """What the page shows of one protocol."""

    label: str
    cells: list[Cell]
    tasks: list[str]  # by class
    models: list[str]
    levels: dict[str, str]

    @property
    def protocol(self) -> Identity:
        """Of any cell: what they have in common is the protocol."""
        return self.cells[0].stats.identity

    @property
    def named(self) -> dict[tuple[str, str], Label]:
        """The parts of every label: of ("task", ..) and ("model", ..)."""
        found = [cell.stats for cell in self.cells]
        tasks = {("task", seen.task): seen.identity.task_parts() for seen in found}
        return tasks | {("model", seen.model): seen.identity.model_parts() for seen in found}

    @classmethod
    def of(cls, label: str, cells: list[Cell]) -> "Sheet":
        levels = {cell.stats.task: cell.stats.level for cell in reversed(cells)}
        tasks = sorted(levels, key=lambda task: (rank(levels[task]), levels[task], task))
        return cls(label, cells, tasks, sorted({cell.stats.model for cell in cells}), levels)

    @property
    def place(self) -> dict[tuple[str, str], int]:
        return {(cell.stats.model, cell.stats.task): i for i, cell in enumerate(self.cells)}


def script_data(records: pd.DataFrame, sheets: Sequence[Sheet], curves: pd.DataFrame | None) -> dict[str, Any]:
    """All of it; cells and curves name their runs by the lines of the records."""
    rows: dict[tuple[str, str, str], list[int]] = {}
    for i, names in enumerate(zip(records["protocol"], records["task"], records["model"], strict=True)):
        rows.setdefault(names, []).append(i)
    cells, protocols, shown = [], [], []
    for number, sheet in enumerate(sheets):
        place = sheet.place
        grid = [[place.get((model, task)) for task in sheet.tasks] for model in sheet.models]
        protocols.append(
            {
                "label": sheet.label,
                "models": sheet.models,
                "tasks": sheet.tasks,
                "levels": [sheet.levels[task] for task in sheet.tasks],
                "classes": [level_class(sheet.levels[task]) for task in sheet.tasks],
                "names": [class_name(sheet.levels[task]) for task in sheet.tasks],
                "cells": [[None if i is None else len(cells) + i for i in line] for line in grid],
            }
        )
        for cell in sheet.cells:
            seen = cell.stats
            command, notes = reproduce(seen.identity, lr=seen.lr)
            chance = cell.runs[0]["s_rand"] if cell.runs and seen.measure != "test" else 0.0
            bins = json.loads(cell.runs[0]["test_bins"]) if cell.runs else []
            cells.append(
                {
                    "protocol": number,
                    "task": sheet.tasks.index(seen.task),
                    "model": sheet.models.index(seen.model),
                    "lr": seen.lr,
                    "measure": seen.measure,
                    "median": finite(seen.median),
                    "solved": [seen.reached.hits, seen.reached.n],
                    "chance": finite(chance) or 0.0,
                    "trained": training_lengths(seen.identity, bins),
                    "rows": rows[sheet.label, seen.task, seen.model],
                    "command": command,
                    "notes": notes,
                }
            )
            own = records.iloc[rows[sheet.label, seen.task, seen.model]]
            shown += list(own.loc[own["lr"] == seen.lr, "run_id"])
    thinned, points = _curves(curves, shown)
    csv = records.to_csv(index=False, lineterminator="\n")
    return {"csv": csv, "protocols": protocols, "cells": cells, "curves": thinned, "points": points}


def _curves(curves: pd.DataFrame | None, shown: Sequence[str]) -> tuple[dict[str, Any], int]:
    """Of each run shown, steps and values of both curves, thinned evenly to so many points; and how many."""
    found: dict[str, Any] = {}
    if curves is None:
        return found, 0
    kept = curves[curves["run_id"].isin(set(shown))].sort_values(["run_id", "step"])
    points = max(12, min(200, _CURVE_NUMBERS // (4 * max(1, kept["run_id"].nunique()))))
    for run_id, own in kept.groupby("run_id", sort=True):
        for name in ("validation", "loss"):
            values = [
                (int(step), float(f"{value:.4g}"))
                for step, value in zip(own["step"], own[name].astype(float), strict=True)
                if math.isfinite(value)
            ]
            if len(values) > points:
                values = [values[i * (len(values) - 1) // (points - 1)] for i in range(points)]
            if values:
                found.setdefault(str(run_id), {})[name] = list(zip(*values, strict=True))
    return found, points


def finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


def level_class(level: str) -> str:
    """Of style; a plugin's own class looks like none."""
    return level if level in LEVELS else "none"


def class_name(level: str) -> str:
    return {**CLASSES, "none": "outside"}.get(level, level)
