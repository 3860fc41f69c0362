"""Published values beside ours: which of a paper's rows and columns ours are, and whether the two agree.

    ours 0.97 ± 0.02, the paper's 0.93 ± 0.07: apart by .04, at most .02 + .07 + .01, so they agree

The values are the files of harness/tables/papers/, with their source, their budget and the names in sources.json. Only
a label that is named there is compared: a changed setting is another model, a later version another task.
"""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import pandas as pd

from chomsky_ladder.harness.tables.sheets import Mark

Paper = Literal["xlstm"]

_ROUNDED = 0.01  # half a hundredth of the published mean, and of the published deviation


@dataclass(frozen=True)
class Value:
    """What a paper has in one cell."""

    model: str  # by the paper's name
    task: str
    mean: float
    std: float | None  # None: not given


@dataclass(frozen=True)
class Budget:
    """What a paper's runs were given; None: not published."""

    steps: int | None
    batch: int | None
    seeds: int | None
    rates: int | None
    width: int | None
    blocks: int | None
    parameters: int | None


@dataclass(frozen=True)
class Published:
    name: str
    source: str
    budget: Budget
    models: dict[str, str]  # ours -> the paper's
    tasks: dict[str, str]
    values: dict[tuple[str, str], Value]  # by the paper's names

    def of(self, task: str, model: str) -> Value | None:
        """The value beside our cell, if the paper has one."""
        return self.values.get((self.tasks.get(task, ""), self.models.get(model, "")))


@cache
def published(paper: Paper) -> Published:
    entry = sources()[paper]
    values = {}
    for name in entry["tables"]:
        for row in read(name).to_dict("records"):
            std = None if pd.isna(row.get("std")) else float(row["std"])
            place = (row["task"], row["model"])
            assert place not in values, f"{name} holds a value for {place} that another table has"
            values[place] = Value(row["model"], row["task"], float(row["mean"]), std)
    return Published(paper, entry["source"], Budget(**entry["budget"]), entry["models"], entry["tasks"], values)


def sources() -> dict[str, dict[str, Any]]:
    """Where every file of published values comes from, and what it holds."""
    return json.loads((files("chomsky_ladder.harness.tables") / "papers" / "sources.json").read_text("utf-8"))


def read(name: str) -> pd.DataFrame:
    """A file of published values."""
    with (files("chomsky_ladder.harness.tables") / "papers" / name).open(encoding="utf-8") as file:
        return pd.read_csv(file)


def agreement(mean: float, std: float | None, value: Value) -> Mark:
    """Whether two means agree within their spread.

    They do where they are no further apart than the two standard deviations together, and the rounding of published
    numbers. Where they are and one of the deviations is not known, the question is open.
    """
    unknown = pd.isna(std) or value.std is None
    spread = (0.0 if std is None or pd.isna(std) else float(std)) + (value.std or 0.0)
    if abs(mean - value.mean) <= spread + _ROUNDED + 1e-9:
        return "agrees"
    return "open" if unknown else "differs"
