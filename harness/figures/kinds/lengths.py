"""Accuracy against length: a panel a task, a line a model."""

import json
import math
from collections.abc import Iterator

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from chomsky_ladder.harness.figures.panels import (
    BAND,
    GREY,
    SCALED,
    above_chance,
    accuracy_axis,
    by_family,
    is_many,
    lines,
    panel_key,
    panels,
)
from chomsky_ladder.harness.figures.plot import Plot, Scene, one_a_task, register, rows_of, spread
from chomsky_ladder.harness.figures.style import (
    MUTED,
    caption,
    head,
)
from chomsky_ladder.harness.stats.view import (
    Cell,
    ends,
    training_lengths,
)


def lengths(scene: Scene) -> pd.DataFrame:
    """Accuracy by length: of the training lengths, of each bin of test lengths, of each further length.

    `kind` is training, test or further; test rows without a model are the length-and-position floor.
    """
    rows = []
    for cell in scene.cells:
        for kind, low, high, values in _lengths(cell):
            rows.append({**cell.place, "kind": kind, "low": low, "high": high, **spread(values)})
    for cell in one_a_task(scene.cells):
        for name, value in json.loads(cell.runs[0]["content_free_bins"]).items():
            low, high = ends(name)
            found = spread([cell.scaled(value)])
            rows.append({**cell.place, "model": "", "kind": "test", "low": low, "high": high, **found, "n": 0})
    columns = ("protocol", "level", "task", "model", "scaled", "kind", "low", "high", "median", "min", "max", "n")
    return rows_of(rows, columns)


def _lengths(cell: Cell) -> Iterator[tuple[str, int, int, list[float | None]]]:
    if not cell.runs:
        return
    trained = training_lengths(cell.stats.identity, json.loads(cell.runs[0]["test_bins"]))
    if trained:
        yield "training", *trained, [cell.scaled(run["in_distribution"]) for run in cell.runs]
    for kind, column in (("test", "test_bins"), ("further", "extrapolation")):
        by_run = [json.loads(run[column]) for run in cell.runs]
        for low, high in sorted({ends(name) for bins in by_run for name in bins}):
            names = (f"{low}..{high}", str(low))
            found = [bins[name] for bins in by_run for name in names if name in bins]
            yield kind, low, high, [cell.scaled(value) for value in found]


def draw_lengths(data: pd.DataFrame, scene: Scene) -> Figure:
    data = above_chance(data).assign(
        x=[math.sqrt(low * high) for low, high in zip(data["low"], data["high"], strict=True)]
    )
    many = is_many(data, scene)
    longest = data["high"].max()
    shortest = data["low"].min()

    def panel(ax: Axes, rows: pd.DataFrame) -> None:
        for _, trained in rows[rows["kind"] == "training"].head(1).iterrows():
            ax.axvspan(trained["low"], trained["high"], color="#e6e6e6", lw=0, zorder=0)
        floor = rows[rows["model"] == ""].sort_values("x")
        ax.plot(floor["x"], floor["median"], color=MUTED, lw=0.9, ls=(0, (1, 1)), zorder=1)
        lines(ax, rows[rows["model"] != ""], scene, x="x", marks=3 if many else 8)
        accuracy_axis(ax)
        ax.set_xscale("log")
        ax.set_xlim(shortest * 0.9, longest * 1.1)
        ticks = [2**power for power in range(0, 40, 2) if shortest * 0.9 <= 2**power <= longest * 1.1]
        ax.xaxis.set_major_locator(FixedLocator(ticks))
        ax.xaxis.set_minor_locator(NullLocator())
        ax.xaxis.set_major_formatter(FuncFormatter(lambda length, _: f"{length:.0f}"))

    fig, top = by_family(data, panel, scene, x="length", column="x") if many else panels(data, panel, scene, x="length")
    keys = {
        "lengths trained on": Line2D([], [], color="#dcdcdc", lw=7, solid_capstyle="butt"),
        "floor: length and position": Line2D([], [], color=MUTED, lw=0.9, ls=(0, (1, 1))),
    }
    top += panel_key(fig, top, data, scene, keys)
    head(fig, "Accuracy against length", scene)
    caption(
        fig,
        top + 0.05,
        f"{BAND} {f'{GREY} ' if many else ''}{SCALED} A point stands at the geometric middle of its bin: the lengths "
        "trained on (other strings than those), bins of the test lengths, single lengths beyond.",
    )
    return fig


register(
    Plot(
        name="lengths",
        title="Accuracy against length",
        data=lengths,
        draw=draw_lengths,
        why_not="no run scored by length",
        rank=2,
    )
)
