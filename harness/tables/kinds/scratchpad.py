"""The gain from written steps: the share of strings with the right answer, by what stands before it.

    | task | nothing | fillers | steps |

Of tasks that have the setting `scratchpad`. With steps the answer may be right though a step was not, and is counted;
without them every string's answers are all right or not. A length counts the string alone, so all three have the same.
"""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from chomsky_ladder.harness.config.presets import warning_of
from chomsky_ladder.harness.stats.cell_stats import mean_and_std
from chomsky_ladder.harness.stats.rows import as_rows
from chomsky_ladder.harness.stats.view import Cell, cells_of
from chomsky_ladder.harness.store.labels import Identity
from chomsky_ladder.harness.tables.kind import Kind, Made, Row, register
from chomsky_ladder.harness.tables.kinds.metrics import kept
from chomsky_ladder.harness.tables.sheets import DASH, Column, Line, Sheet, range_entry

KINDS = {"none": "nothing", "padding": "fillers", "steps": "steps"}

_SETTING, _DECODE, _METRIC = "scratchpad", "task.decode", "last_answer"


def kind_of(row: Row) -> str:
    """Return what stands before the answer; "" for a task without the setting."""
    written = Identity.of(row).of_task().get(_SETTING)
    return written or ("steps" if _METRIC in kept(row) else "")


def whole(row: Row) -> str:
    """Return the protocol's label without the way of decoding: without steps there is nothing to read."""
    return Identity.of(row).protocol_parts(_DECODE).whole


def answered(row: Row) -> float:
    """Return the share of strings with the right answer."""
    share = kept(row).get(_METRIC, row["test_exact"])
    assert share is not None, "a finished run counts exact strings"
    return share


def scratchpad(records: pd.DataFrame) -> Made:
    """Make a sheet for each model, tasks x what stands before the answer, and a row for every cell."""
    rows = as_rows(records)
    found = [cell for cell in cells_of(records[[bool(kind_of(row)) for row in rows]]) if cell.runs]
    models = dict.fromkeys(cell.stats.model for cell in found)
    sheets = [_sheet([cell for cell in found if cell.stats.model == model]) for model in models]
    return Made(tuple(sheets), pd.DataFrame([_row(cell) for cell in found]))


def _task(cell: Cell) -> str:
    """Return the task's label without the scratchpad setting."""
    identity = Identity.of(cell.runs[0])
    own = ", ".join(f"{name}={value}" for name, value in identity.of_task().items() if name != _SETTING)
    return f"{identity.task_name} ({own})" if own else identity.task_name


def _sheet(cells: Sequence[Cell]) -> Sheet:
    seen, lines = cells[0], []
    for task in sorted({_task(cell) for cell in cells}):
        by_kind = {kind_of(cell.runs[0]): cell for cell in cells if _task(cell) == task}
        values = [[answered(run) for run in by_kind[kind].runs] if kind in by_kind else [] for kind in KINDS]
        lines.append(Line(task, tuple(range_entry(found) if found else DASH for found in values)))
    lead = (
        "Share of test strings with the right answer, by what stands before it: median over seeds at the rate chosen "
        "on validation, [lowest, highest] where they differ. Steps are the model's own."
    )
    title = f"{whole(seen.runs[0])}: steps before the answer, {seen.stats.title}"
    columns = tuple(map(Column, KINDS.values()))
    return Sheet(title, (lead,), "task", columns, tuple(lines), warning=warning_of(seen.stats.identity.protocol_name))


def _row(cell: Cell) -> dict[str, Any]:
    values = [answered(run) for run in cell.runs]
    mean, std = mean_and_std(values)
    place = {"protocol": whole(cell.runs[0]), "task": _task(cell), "model": cell.stats.model}
    return {**place, "before": kind_of(cell.runs[0]), "mean": mean, "std": std, "n": len(values), "lr": cell.stats.lr}


register(
    Kind(
        name="scratchpad",
        about="the answer by what stands before it: steps, fillers or nothing",
        make=scratchpad,
        together=whole,
        wants=lambda row: bool(kind_of(row)),
        subject="a run of a task with a scratchpad",
        when=lambda records: any(map(kind_of, as_rows(records))),
        why_not="no run is of a task with a scratchpad",
        rank=7,
    )
)
