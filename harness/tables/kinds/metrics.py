"""The metrics that runs kept beside accuracy (harness/train/metric.py): models x metrics, a sheet a task."""

import json
from collections.abc import Sequence
from typing import Any

import pandas as pd

from chomsky_ladder.harness.config.presets import warning_of
from chomsky_ladder.harness.stats.cell_stats import mean_and_std
from chomsky_ladder.harness.stats.rows import as_rows
from chomsky_ladder.harness.stats.view import Cell, cells_of
from chomsky_ladder.harness.tables.kind import Kind, Made, Row, register
from chomsky_ladder.harness.tables.sheets import Column, Line, Sheet, range_entry


def metrics(records: pd.DataFrame) -> Made:
    found = [cell for cell in cells_of(records) if cell.runs]
    tasks = dict.fromkeys(cell.stats.task for cell in found)
    sheets = [_sheet([cell for cell in found if cell.stats.task == task]) for task in tasks]
    return Made(tuple(sheet for sheet in sheets if sheet.columns), pd.DataFrame(_rows(found)))


def kept(row: Row) -> dict[str, float]:
    """Return the metrics of a record by name."""
    return json.loads(row["metrics"]) if isinstance(row.get("metrics"), str) else {}


def _values(cell: Cell, name: str) -> list[float]:
    return [kept(run)[name] for run in cell.runs if name in kept(run)]


def _names(cells: Sequence[Cell]) -> list[str]:
    return sorted({name for cell in cells for run in cell.runs for name in kept(run)})


def _sheet(cells: Sequence[Cell]) -> Sheet:
    seen, names = cells[0].stats, _names(cells)
    lines = tuple(Line(cell.stats.title, tuple(range_entry(_values(cell, name)) for name in names)) for cell in cells)
    lead = (
        "Metrics of the test strings at the rate chosen on validation: median over seeds, [lowest, highest] where they "
        "differ."
    )
    warning = warning_of(seen.identity.protocol_name)
    title = f"{seen.protocol}: metrics of {seen.task}"
    return Sheet(title, (lead,), "model", tuple(map(Column, names)), lines, warning=warning)


def _rows(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    rows = []
    for cell in cells:
        for name in _names([cell]):
            mean, std = mean_and_std(_values(cell, name))
            place = {key: cell.place[key] for key in ("protocol", "level", "task", "model")}
            rows.append({**place, "metric": name, "mean": mean, "std": std, "n": len(_values(cell, name))})
    return rows


register(
    Kind(
        name="metrics",
        about="what runs kept beside accuracy, a sheet a task",
        make=metrics,
        wants=lambda row: bool(kept(row)),
        subject="a run that kept metrics",
        when=lambda records: any(map(kept, as_rows(records.filter(["metrics"])))),
        rank=8,
    )
)
