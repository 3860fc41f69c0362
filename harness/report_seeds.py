"""Fresh seeds for the headline: the rate of a cell is chosen on some trained models and reported on others.

    seeds 0, 1, 2 at three rates  ->  validation chooses 1e-3  ->  seeds 1000, 1001, .. at 1e-3 are what a table shows

A cell whose models are both selected on and reported is optimistic. Seeds from `FRESH` on choose nothing. A table shows
them where every cell of its protocol has some at its chosen rate, and otherwise none of them (`cells.headline`): the
two kinds never stand side by side.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from harness.cells import FRESH, Row, best_rate
from harness.collect import Record
from harness.config import Run
from harness.outcome import labels
from harness.records import RunFolder


def fresh_runs(runs: Sequence[Run], results: Path, count: int) -> tuple[list[Run], list[str]]:
    """For every cell of a sweep that is done `count` runs of fresh seeds at its chosen rate; the cells without one."""
    cells: dict[tuple[str, str, str], list[tuple[Run, Row]]] = {}
    for run in runs:
        named = labels(run)
        record = Record.of(RunFolder(results, run.run_id))
        place = (named["protocol"], named["task"], named["model"])
        cells.setdefault(place, []).append((run, {} if record is None else record.model_dump()))
    made, without = [], []
    for (_, task, model), cell in cells.items():
        if any(run.seed >= FRESH for run, _ in cell):
            raise ValueError(f"{task}, {model}: seeds from {FRESH} on are kept for reporting, and may choose nothing")
        rate = best_rate((row for _, row in cell if row), "validation") if all(row for _, row in cell) else None
        if rate is None:
            without.append(f"{task}, {model}")
            continue
        chosen = next(run for run, _ in cell if run.train.lr == rate)
        made += [replace(chosen, seed=FRESH + place) for place in range(count)]
    return made, without
