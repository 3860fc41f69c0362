"""The kernels of a GPU's steps: the launches and time of each, by what the driver says of a replay of ten steps.

A table of them stands beside that of the steps (gpu_steps.py), the longest of each step first; `rest` is what
those not named take together. Times are a kernel's own, so that what lies between two is in none.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from captured_steps import Row, markdown, rows_of_before
from torch.profiler import ProfilerActivity, profile

from chomsky_ladder.harness.store.files import write_atomically
from chomsky_ladder.harness.store.harmless import csv_of
from chomsky_ladder.harness.store.places import publishing

COLUMNS = ["model", "replicas", "place", "kernel", "calls", "us", "share_%", "device", "commit"]
NAMED = 12  # kernels of a step
LONGEST = 60  # characters of a name

Kernels = list[tuple[str, float, float]]


def kernels_of(steps: int, advance: Callable[[], object]) -> Kernels:
    """Name, launches and microseconds of a step, the longest first, of what `advance` has the GPU do."""
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        advance()
        torch.cuda.synchronize()
    calls, us = defaultdict[str, float](float), defaultdict[str, float](float)
    for event in seen.events() or []:
        calls[event.name[:LONGEST]] += 1 / steps
        us[event.name[:LONGEST]] += event.device_time_total / steps
    names = sorted((name for name in us if us[name]), key=lambda name: -us[name])
    return [(name, round(calls[name], 1), round(us[name], 1)) for name in names]


def rows_of(step: Row, kernels: Kernels, by: Row) -> list[Row]:
    """Return the rows of a step's table: the kernels that take longest, and all others together."""
    total = sum(us for *_, us in kernels) or 1.0
    named, others = kernels[:NAMED], kernels[NAMED:]
    if others:
        calls, us = sum(other[1] for other in others), sum(other[2] for other in others)
        named = [*named, ("rest", round(calls, 1), round(us, 1))]
    of = {"model": step["model"], "replicas": step["replicas"], **{name: by[name] for name in ("device", "commit")}}
    return [
        of | {"place": place, "kernel": name, "calls": calls, "us": us, "share_%": round(100 * us / total, 1)}
        for place, (name, calls, us) in enumerate(named, 1)
    ]


def write(rows: Sequence[Row], folder: Path) -> None:
    """Both forms of the table, a step's rows in the places of those it had before."""
    new = {(row["model"], row["replicas"]) for row in rows}
    before = [row for row in rows_of_before(folder / "gpu_kernels.csv") if (row["model"], row["replicas"]) not in new]
    merged = sorted([*before, *rows], key=_order)
    head = ["# Kernels of steps on a GPU", "", "Made by tests/instruments/gpu_steps.py.", ""]
    text = "\n".join([*head, *markdown(COLUMNS, merged)]) + "\n"
    with publishing():
        table = pd.DataFrame(merged, columns=COLUMNS).convert_dtypes()
        write_atomically(folder / "gpu_kernels.csv", csv_of(table).encode())
        write_atomically(folder / "gpu_kernels.md", text.encode())


def _order(row: Row) -> tuple[Any, ...]:
    return row["model"], row["replicas"], row["place"]
