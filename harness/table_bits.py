"""Accuracy by the bits of the weights: of runs that differ in `train.qat`.

    | model | not rounded | 8 bits | 4 bits | 2 bits |

Every number of bits is at the learning rate that validation chooses for it.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from harness.cells import cells
from harness.config import Run
from harness.outcome import labels
from harness.sheets import DASH, Column, Entry, Line, Sheet, cell_text, warning_of
from harness.table_formats import markdown
from harness.table_kinds import SOLVED

BITS = (0, 8, 4, 2)  # 0: the weights as they are


def by_bits(listed: Sequence[Run], records: pd.DataFrame) -> tuple[str, pd.DataFrame]:
    """A sheet a task as markdown, models x bits, and a row for every cell."""
    found = {(row["protocol"], row["task"], row["model"]): row for _, row in cells(records).iterrows()}
    rows = {}
    for run in listed:
        named = labels(run)
        whole = labels(replace(run, train=replace(run.train, qat=0)))["protocol"]
        cell = found.get((named["protocol"], named["task"], named["model"]))
        rows[whole, named["task"], named["model"], run.train.qat] = _shown(cell)
    places = ("protocol", "task", "model", "bits")
    data = pd.DataFrame([dict(zip(places, place, strict=True)) | row for place, row in rows.items()])
    sheets = [_sheet(group) for _, group in data.groupby(["protocol", "task"], sort=True)]
    return markdown(sheets), data.drop(columns="entry").sort_values(list(places[:3]), kind="stable")


def _shown(cell: pd.Series | None) -> dict[str, Any]:
    if cell is None or not cell["n"]:
        entry = DASH if cell is None else Entry((cell_text(cell),))
        return {"entry": entry, "mean": None, "std": None, "n": 0, "reached": None, "lr": None}
    reached = sum(float(value) >= SOLVED for value in cell["seeds"].split())
    entry = Entry((f"{cell_text(cell)}; {reached}/{cell['n']}",))
    return {"entry": entry, "reached": reached, **{name: cell[name] for name in ("mean", "std", "n", "lr")}}


def _sheet(data: pd.DataFrame) -> Sheet:
    protocol, task = data["protocol"].iloc[0], data["task"].iloc[0]
    lines = []
    for model, of_model in data.groupby("model", sort=True):
        entries = dict(zip(of_model["bits"], of_model["entry"], strict=True))
        lines.append(Line(str(model), tuple(entries.get(bits, DASH) for bits in BITS)))
    lead = (
        "Scaled test accuracy, mean ± standard deviation over (seeds), of models trained and scored with weight "
        f"matrices of so many bits; behind the semicolon, how many seeds reached {SOLVED:g}."
    )
    columns = tuple(Column(f"{bits} bits" if bits else "not rounded") for bits in BITS)
    return Sheet(f"{protocol}: bits for {task}", (lead,), "model", columns, tuple(lines), warning=warning_of(protocol))
