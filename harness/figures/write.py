"""Figures from the records and nothing else: PNG, SVG and, beside them, the numbers each shows as CSV.

    heat_map     models x tasks, by class                lengths      accuracy against length, a panel a task
    ladder       the highest class each model climbs     cost         accuracy against what a model costs
    validation, loss     learning curves, from rows of (run_id, step, loss, validation)

One folder a protocol: figures never mix two. What has nothing to show is not written, and a line says so.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from chomsky_ladder.harness.figures import cost as figure_cost
from chomsky_ladder.harness.figures import data as figure_data
from chomsky_ladder.harness.figures import heat as figure_heat
from chomsky_ladder.harness.figures import ladder as figure_ladder
from chomsky_ladder.harness.figures import panels as figure_panels
from chomsky_ladder.harness.figures.names import folder_name
from chomsky_ladder.harness.figures.style import looks, save, style
from chomsky_ladder.harness.stats import view
from chomsky_ladder.harness.stats.view import Cell


def say(line: str) -> None:
    print(line, file=sys.stderr)


def write(
    records: pd.DataFrame,
    folder: Path,
    *,
    protocol: str | None = None,
    curves: pd.DataFrame | None = None,
    tell: Callable[[str], None] = say,
) -> list[Path]:
    """Write the figures of one protocol, or of every one of the records, to a folder each; the files written."""
    found = sorted(records["protocol"].unique())
    if protocol is not None and protocol not in found:
        raise ValueError(f"no records of the protocol {protocol!r}; there are {', '.join(found) or 'none at all'}")
    if not found:
        tell("no records, so no figures")
    paths = []
    for label in found if protocol is None else [protocol]:
        cells = view.cells_of(records[records["protocol"] == label])
        with style():
            own = folder / folder_name(label)
            paths += _write_one(cells, own, curves=curves, tell=lambda line, label=label: tell(f"{label}: {line}"))
    return paths


def _write_one(
    cells: Sequence[Cell], folder: Path, *, curves: pd.DataFrame | None, tell: Callable[[str], None]
) -> list[Path]:
    looked = looks({cell.stats.model for cell in cells})
    tested = view.tested_lengths(cells)
    paths = []

    def figure(name: str, data: pd.DataFrame, draw: Callable[[pd.DataFrame], Figure], *, why_not: str) -> None:
        if data.empty:
            tell(f"no figure {name}: {why_not}")
        else:
            paths.extend(save(draw(data), data, folder / name))

    figure("heat_map", figure_data.heat_map(cells), figure_heat.draw, why_not="no cells")
    ladder = figure_data.ladder(cells)
    figure("ladder", ladder, lambda data: figure_ladder.draw(data, tested=tested), why_not="no task counts")
    lengths = figure_data.lengths(cells)
    figure("lengths", lengths, lambda data: figure_panels.lengths(data, looked), why_not="no run scored by length")
    cost = figure_data.cost(cells)
    figure("cost", cost, lambda data: figure_cost.draw(data, looked), why_not="no finished run has scaled accuracy")
    why_not = "no curves were given" if curves is None else "the curves given hold none of the runs it would show"
    for name in ("validation", "loss"):
        data = figure_data.learning(cells, curves, of=name)
        figure(name, data, lambda data, of=name: figure_panels.learning(data, looked, of=of), why_not=why_not)
    return paths
