"""Fresh seeds for reporting: the learning rate of a cell is chosen on some seeds and reported on others.

    seeds 0, 1, 2 at three learning rates  ->  validation chooses 1e-3  ->  the table shows seeds 1000, 1001, .. at 1e-3

A cell is optimistic if the same models are selected on and reported. Seeds from `FRESH` on never choose anything. A
table shows them if every cell of its protocol has some at its chosen learning rate. Otherwise it shows none
(`cells.headline`), so the two kinds never stand side by side.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.protocols import columns_of
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.stats.cells import FRESH, Row, best_rate
from chomsky_ladder.harness.stats.rows import as_rows
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.store.record import Record, collect
from chomsky_ladder.harness.sweep.on_record import by_id, without_recorded
from chomsky_ladder.harness.sweep.sweep import Report, carry_out, counted


def carry_out_and_report(
    runs: Sequence[Run], settings: Exec, *, report_seeds: int, recorded: bool = False, **how: Any
) -> Report:
    """Run a sweep (`carry_out`), and when all of it is done, this many fresh seeds of each cell.

    `recorded`: runs that only have a line in records.csv count as done, too.
    """
    if report_seeds:
        refuse(runs, report_seeds)  # before any work
    known = by_id(as_rows(collect(settings.results))) if recorded else {}
    report = _left(runs, known, settings, **how)
    if not (report_seeds and report.complete):
        return report
    fresh, without = fresh_runs(runs, settings.results, report_seeds, known=known)
    if without:
        print(f"no seed finished, so none is reported: {'; '.join(without)}", file=sys.stderr)
    return report.and_then(_left(fresh, known, settings, **how))


def _left(runs: Sequence[Run], known: Mapping[str, Row], settings: Exec, **how: Any) -> Report:
    """Run a sweep without the runs that are on record. They count as done in its report."""
    left = without_recorded(runs, known, settings.results)
    elsewhere = len(runs) - len(left)
    if elsewhere and not how.get("quiet"):
        print(f"{elsewhere} of {counted(len(runs))} are on record in records.csv", file=sys.stderr)
    return Report(elsewhere, elsewhere).and_then(carry_out(left, settings, **how))


def refuse(runs: Sequence[Run], count: int) -> None:
    """Refuse, in one line, a number of seeds below 1, and runs that already use fresh seeds."""
    if count < 1:
        raise ValueError(f"report-seeds is how many fresh seeds a cell gets, not {count}")
    taken = next((run for run in runs if run.seed >= FRESH), None)
    if taken is not None:
        raise ValueError(f"{taken.run_id}: seeds from {FRESH} on are kept for reporting, and may choose nothing")


def fresh_runs(
    runs: Sequence[Run], results: Path, count: int, *, known: Mapping[str, Row] | None = None
) -> tuple[list[Run], list[str]]:
    """Return `count` runs with fresh seeds at the chosen learning rate of every finished cell, and the unfinished
    cells.

    `known` has the records of runs that are not in the results folder, by their ids.
    """
    refuse(runs, count)
    known = known or {}
    cells: dict[tuple[str, str, str], list[tuple[Run, Row]]] = {}
    for run in runs:
        named = columns_of(run)
        record = Record.of(RunFolder(results, run.run_id))
        place = (named["protocol"], named["task"], named["model"])
        cells.setdefault(place, []).append((run, record.model_dump() if record else known.get(run.run_id, {})))
    made, without = [], []
    for (_, task, model), cell in cells.items():
        rate = best_rate((row for _, row in cell if row), "validation") if all(row for _, row in cell) else None
        if rate is None:
            without.append(f"{task}, {model}")
            continue
        chosen = next(run for run, _ in cell if run.train.lr == rate)
        made += [replace(chosen, seed=FRESH + place) for place in range(count)]
    return made, without
