"""The cost of models: parameters, the state of one sequence, arithmetic, speed, memory and wall time.

A row is a model on a device, over the finished runs at the chosen rates; a range says that tasks differ. Records have
columns for some of these only, and a dash stands for the others.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from chomsky_ladder.harness.config.presets import warning_of
from chomsky_ladder.harness.stats.view import cells_of
from chomsky_ladder.harness.store.labels import Identity
from chomsky_ladder.harness.tables.kind import Kind, Made, register
from chomsky_ladder.harness.tables.sheets import DASH, Column, Entry, Line, Sheet, shown_models


def cost(records: pd.DataFrame) -> Made:
    """Return the sheet of one protocol, if any of its runs finished, and the numbers in it."""
    runs: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for cell in cells_of(records):
        for run in cell.runs:
            runs.setdefault((run["model"], run["device"] or "unknown"), []).append(run | _speed(run))
    if not runs:
        return Made((), pd.DataFrame())
    first = Identity.of(records.iloc[0])
    protocol, titles = str(records["protocol"].iloc[0]), shown_models(records)
    lines, rows = [], []
    for (model, device), own in sorted(runs.items()):
        tasks = {run["task"] for run in own}
        found = {name: [float(run[name]) for run in own if pd.notna(run.get(name))] for name, *_ in _COSTS}
        shown = [_SHOWN[how](found[name]) if found[name] else DASH for name, _, how in _COSTS]
        lines.append(
            Line(titles[model], (Entry((device,)), Entry((str(len(tasks)),)), Entry((str(len(own)),)), *shown))
        )
        row: dict[str, Any] = {"protocol": protocol, "model": model, "device": device}
        row |= {"tasks": len(tasks), "runs": len(own)}
        for name, _, how in _COSTS:
            row |= _numbers(name, found[name], how)
        rows.append(row)
    lead = (
        "Of the finished runs at each task's chosen rate: ranges over tasks, means over runs of seconds and speeds, "
        "the most memory of any. Models with other tasks are not compared like for like."
    )
    columns = (Column("device"), Column("tasks"), Column("runs"), *(Column(title) for _, title, _ in _COSTS))
    sheet = Sheet(protocol, (lead,), "model", columns, tuple(lines), warning=warning_of(first.protocol_name))
    return Made((sheet,), pd.DataFrame(rows))


def _speed(run: dict[str, Any]) -> dict[str, float]:
    """Return the speed of training, where the record knows its tokens."""
    if pd.isna(run["tokens_per_step"]) or not run["train_seconds"]:
        return {}
    return {"tokens_per_second": run["tokens_per_step"] * run["steps"] / run["train_seconds"]}


_COSTS = (  # the column of a record, its title, and what is shown of it
    ("parameters", "parameters", "range"),
    ("state_bytes", "state bytes", "range"),
    ("flops_per_token", "FLOPs a token", "range"),
    ("tokens_per_second", "tokens a second", "mean"),
    ("peak_memory_bytes", "memory bytes", "most"),
    ("train_seconds", "training s", "mean"),
    ("score_seconds", "scoring s", "mean"),
)


def _range(values: Sequence[float]) -> Entry:
    low, high = f"{min(values):,.0f}", f"{max(values):,.0f}"
    return Entry((low if low == high else f"{low}..{high}",))


def _mean(values: Sequence[float]) -> Entry:
    return Entry((f"{sum(values) / len(values):,.1f}",))


def _most(values: Sequence[float]) -> Entry:
    return Entry((f"{max(values):,.0f}",))


_SHOWN: dict[str, Callable[[Sequence[float]], Entry]] = {"range": _range, "mean": _mean, "most": _most}


def _numbers(name: str, values: Sequence[float], how: str) -> dict[str, float | None]:
    if how == "range":
        return {f"{name}_least": _whole(min(values, default=None)), f"{name}_most": _whole(max(values, default=None))}
    if how == "most":
        return {name: _whole(max(values, default=None))}
    return {name: sum(values) / len(values) if values else None}


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


register(Kind(name="cost", about="what models take, by the device they ran on", make=cost, rank=5))
