"""Accuracy before and after pairs that training never had, by the share of the pairs that were held out.

    | model | none: all | 10 %: seen | held out | all | ..

A word problem has the setting `held_pairs`, and its runs count answers apart (harness/train/metrics/held_pairs.py).
Test strings are the same at every share, so a run without held-out pairs is the control.
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

KINDS = {"seen": "seen_pairs", "held out": "first_held_pair", "all": ""}
"""The columns of a share, and the metric of each; accuracy if it has none."""

_SETTING = "held_pairs"


def share_of(row: Row) -> int:
    """Return the percentage of held-out pairs."""
    return Identity.of(row).of_task().get(_SETTING, 0)


def _task(row: Row) -> str:
    """Return the task's label without the share."""
    identity = Identity.of(row)
    own = ", ".join(f"{name}={value}" for name, value in identity.of_task().items() if name != _SETTING)
    return f"{identity.task_name} ({own})" if own else identity.task_name


def held_pairs(records: pd.DataFrame) -> Made:
    """Make a sheet for each task with held-out pairs, models x shares, and a row for every number."""
    found = [cell for cell in cells_of(records) if cell.runs]
    tasks = dict.fromkeys(_task(cell.runs[0]) for cell in found if share_of(cell.runs[0]))
    by_task = {task: [cell for cell in found if _task(cell.runs[0]) == task] for task in tasks}
    sheets = [_sheet(task, cells) for task, cells in by_task.items()]
    return Made(tuple(sheets), pd.DataFrame([row for task, cells in by_task.items() for row in _rows(task, cells)]))


def _kinds(share: int) -> dict[str, str]:
    return KINDS if share else {"all": ""}


def _values(cell: Cell, metric: str) -> list[float]:
    if not metric:
        return [run["test"] for run in cell.runs]
    return [kept(run)[metric] for run in cell.runs if metric in kept(run)]


def _sheet(task: str, cells: Sequence[Cell]) -> Sheet:
    by_place = {(cell.stats.title, share_of(cell.runs[0])): cell for cell in cells}
    shares = sorted({share for _, share in by_place})
    lines = []
    for model in dict.fromkeys(model for model, _ in by_place):
        values = [
            _values(by_place[model, share], metric) if (model, share) in by_place else []
            for share in shares
            for metric in _kinds(share).values()
        ]
        lines.append(Line(model, tuple(range_entry(each) if each else DASH for each in values)))
    lead = (
        "Share of right answers in test strings, by the share of ordered pairs that training never had: median over "
        "seeds at the rate chosen on validation, [lowest, highest] where they differ. seen: answers while training had "
        "all pairs of the string; held out: the answer right after a string's first held-out pair; these stand equally "
        "far on. all: every answer."
    )
    columns = [Column(kind, f"{share} %" if share else "none") for share in shares for kind in _kinds(share)]
    seen = cells[0].stats
    title = f"{seen.protocol}: held-out pairs of {task}"
    return Sheet(title, (lead,), "model", tuple(columns), tuple(lines), warning=warning_of(seen.identity.protocol_name))


def _rows(task: str, cells: Sequence[Cell]) -> list[dict[str, Any]]:
    rows = []
    for cell in cells:
        share = share_of(cell.runs[0])
        place = {"protocol": cell.stats.protocol, "task": task, "model": cell.stats.model, "held_pairs": share}
        for kind, metric in _kinds(share).items():
            mean, std = mean_and_std(_values(cell, metric))
            rows.append({**place, "answers": kind, "mean": mean, "std": std, "n": len(_values(cell, metric))})
    return rows


register(
    Kind(
        name="held_pairs",
        about="accuracy before and after pairs that training never had",
        make=held_pairs,
        when=lambda records: any(map(share_of, as_rows(records))),
        why_not="no run held pairs out (--task.held-pairs of word_problem)",
        rank=7,
    )
)
