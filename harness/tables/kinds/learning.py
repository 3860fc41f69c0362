"""How soon models get there: steps, tokens and seconds of training to the first validation at 95 and at 99 per cent.

    400 (3/3)     half of the three runs were there by step 400, and all got there
    never (1/3)   half or more did not get there by their last step: more steps might have brought it

Medians over the runs at the chosen rate, where a run that did not get there, diverged or failed stands last. To within
the spacing of the validations, so an upper bound. Tokens are input positions; seconds compare on one machine only.
"""

from typing import Any, Literal

import pandas as pd

from chomsky_ladder.harness.config.presets import warning_of
from chomsky_ladder.harness.stats.cell_stats import TimesToAccuracy, time_to_accuracy, times_to_accuracy
from chomsky_ladder.harness.stats.view import Cell, cells_of
from chomsky_ladder.harness.tables.kind import Kind, Made, register
from chomsky_ladder.harness.tables.sheets import DASH, Column, Entry, Line, Sheet

Threshold = Literal["95", "99"]

_MEASURES = (("steps", "steps"), ("tokens", "thousand tokens"), ("seconds", "seconds of training"))


def learning(records: pd.DataFrame) -> Made:
    """Return a sheet for each accuracy and measure that any run of a protocol reached, and the numbers in them.

    Cells with a record from before such things were recorded are left out.
    """
    cells = [
        cell for cell in cells_of(records) if cell.runs and not any(pd.isna(r["tokens_per_step"]) for r in cell.runs)
    ]
    found = {(cell.place["task"], cell.place["model"], t): _times(cell, t) for cell in cells for t in ("95", "99")}
    sheets = []
    for threshold in ("95", "99"):
        of_cells = [times for (_, _, at), times in found.items() if at == threshold]
        for measure, unit in _MEASURES:
            if of_cells and (measure == "steps" or any(times.steps is not None for times in of_cells)):
                sheets.append(_sheet(cells, found, threshold, measure, unit))
    return Made(tuple(sheets), pd.DataFrame([row for cell in cells for row in _rows(cell, found)]))


def _times(cell: Cell, threshold: Threshold) -> TimesToAccuracy:
    times = [time_to_accuracy(run, threshold=threshold) for run in cell.runs]
    return times_to_accuracy(times, unfinished=cell.stats.diverged + cell.stats.failed)


def _sheet(
    cells: list[Cell],
    found: dict[tuple[str, str, str], TimesToAccuracy],
    threshold: Threshold,
    measure: str,
    unit: str,
) -> Sheet:
    seen, tasks = cells[0].stats, list(dict.fromkeys(cell.stats.task for cell in cells))
    level_of = {cell.stats.task: cell.stats.level for cell in cells}
    titles = {cell.stats.model: cell.stats.title for cell in cells}
    lines = []
    for model in sorted({cell.stats.model for cell in cells}):
        entries = (_entry(found.get((task, model, threshold)), measure) for task in tasks)
        lines.append(Line(titles[model], tuple(entries)))
    lead = (
        f"{unit.capitalize()} to a validation accuracy of {threshold} %: the median over runs at each cell's rate, and "
        "how many of them got there. Never: half or more did not, by their last step."
    )
    columns = tuple(Column(task, level_of[task].replace("_", "-")) for task in tasks)
    title = f"{seen.protocol}: {unit} to {threshold} %"
    return Sheet(title, (lead,), "model", columns, tuple(lines), warning=warning_of(seen.identity.protocol_name))


def _entry(times: TimesToAccuracy | None, measure: str) -> Entry:
    if times is None:
        return DASH
    share = f"({times.reached.hits}/{times.reached.n})"
    if times.steps is None:
        return Entry((f"never {share}",))
    shown = {"steps": "{:,.0f}", "tokens": "{:,.0f}", "seconds": "{:,.1f}"}[measure]
    value = getattr(times, measure) / (1000 if measure == "tokens" else 1)
    return Entry((f"{shown.format(value)} {share}",))


def _rows(cell: Cell, found: dict[tuple[str, str, str], TimesToAccuracy]) -> list[dict[str, Any]]:
    rows = []
    for threshold in ("95", "99"):
        times = found[cell.stats.task, cell.stats.model, threshold]
        row = {name: cell.place[name] for name in ("protocol", "level", "task", "model")}
        row |= {"lr": cell.stats.lr, "accuracy": int(threshold) / 100, "n": times.reached.n, "got": times.reached.hits}
        row |= {"least": times.reached.low, "most": times.reached.high}
        row |= {name: getattr(times, name) for name, _ in _MEASURES}
        rows.append({**row, "not_by_step": times.bound})
    return rows


register(
    Kind(
        name="learning",
        about="steps, tokens and seconds to 95 and 99 per cent",
        make=learning,
        why_not="no finished run tells when it got where",
        rank=4,
    )
)
