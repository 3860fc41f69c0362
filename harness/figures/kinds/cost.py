"""Accuracy against cost: a panel for state and one for training time, with the names of the Pareto front.

Parameters have a panel, too, unless the protocol brings every model to one number of them.
"""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MultipleLocator

from chomsky_ladder.harness.config.presets import PROTOCOLS
from chomsky_ladder.harness.figures.named import Point, name_points
from chomsky_ladder.harness.figures.plot import Plot, Scene, register, rows_of
from chomsky_ladder.harness.figures.style import FAINT, INK, at, caption, head, labels, legend, log_axis
from chomsky_ladder.harness.stats.aggregates import given_away, mean, suites
from chomsky_ladder.harness.stats.cell_stats import mean_and_std
from chomsky_ladder.harness.stats.looks import Look
from chomsky_ladder.harness.stats.view import Cell, common_tasks

COSTS = ("parameters", "state_bytes", "train_seconds")

_AXES = {
    "parameters": "parameters",
    "state_bytes": "state after 256 tokens, bytes",
    "train_seconds": "training time of a run, s",
}
_FRONTS = [f"front_{name}" for name in COSTS]
_LEFT, _BETWEEN, _TALL = 0.5, 0.3, 2.1  # inches
_LETTERS = 15  # of an axis's name an inch
_FRONT = "#9a9a9a"


def cost(cells: Sequence[Cell]) -> pd.DataFrame:
    """Mean accuracy above the floor over tasks, with its bootstrap interval, against what a model costs.

    The tasks are those that keep most cells when every model shown must have them all (`common_tasks`). `front_*`
    marks the models for which no other is as good at no more of that cost, and better in one of the two. Models
    without some of the tasks have no runs here.
    """
    given = given_away([cell.stats for cell in cells])
    fair = [cell for cell in cells if cell.stats.measure != "test" and cell.stats.level != "none"]
    fair = [cell for cell in fair if cell.stats.task not in given]
    tasks = common_tasks(fair)
    columns = ["protocol", "model", "tasks", "runs", "mean", "low", "high", *COSTS, "device"]
    columns += [f"front_{name}" for name in COSTS]
    if not tasks:
        return rows_of([], columns)
    models = {cell.stats.model for cell in cells}
    of_model: dict[str, list[Cell]] = {}
    for cell in fair:
        if cell.stats.task in tasks:
            of_model.setdefault(cell.stats.model, []).append(cell)
    shown = {model: own for model, own in of_model.items() if len(own) == len(tasks)}
    found = suites([cell.stats for own in shown.values() for cell in own], tasks=tasks)
    left_out = [{"protocol": fair[0].stats.protocol, "model": model, "runs": 0} for model in models - set(shown)]
    rows = []
    for model, own in sorted(shown.items()):
        runs = [run for cell in own for run in cell.runs]
        costs = {name: mean_and_std([float(run[name]) for run in runs if pd.notna(run[name])])[0] for name in COSTS}
        scores = dict(zip(("mean", "low", "high"), mean(found[model].scores), strict=True))
        labels: dict[str, Any] = {"protocol": own[0].stats.protocol, "model": model, "tasks": "; ".join(tasks)}
        devices = "; ".join(sorted({run["device"] or "unknown" for run in runs}))
        rows.append(
            {**labels, "runs": sum(map(len, found[model].scores.values())), **scores, **costs, "device": devices}
        )
    for name in COSTS:
        for row in rows:
            row[f"front_{name}"] = bool(row[name]) and not any(_beats(other, row, name) for other in rows)
    if not any(row[name] for row in rows for name in COSTS):
        return rows_of([], columns)
    return rows_of(sorted([*rows, *left_out], key=lambda row: row["model"]), columns)


def _beats(other: dict[str, Any], row: dict[str, Any], name: str) -> bool:
    if not other[name]:
        return False
    is_as_good = other[name] <= row[name] and other["mean"] >= row["mean"]
    return is_as_good and (other[name] < row[name] or other["mean"] > row["mean"])


def draw(data: pd.DataFrame, scene: Scene) -> Figure:
    looked = scene.looked
    everyone, data = sorted(data["model"]), data[data["runs"] > 0].astype(dict.fromkeys(_FRONTS, bool))
    fig = Figure(figsize=(scene.width, _TALL))
    shown_costs = [name for name in COSTS if name != "parameters" or not _is_sized(scene)]
    wide = (scene.width - _LEFT - (len(shown_costs) - 1) * _BETWEEN) / len(shown_costs)
    low = data[["low", "mean"]].min(axis=None)
    models = sorted(data["model"])
    names = labels(models, width=44, titles=scene.titles)
    for i, name in enumerate(shown_costs):
        ax = at(fig, _LEFT + i * (wide + _BETWEEN), 0, wide, _TALL)
        ax.set_ylim(min(-0.03, low - 0.03), 1.04)
        ax.yaxis.set_major_locator(MultipleLocator(0.2))
        ax.grid(axis="y", color=FAINT, lw=0.4)
        ax.set_axisbelow(True)
        ax.set_xlabel(textwrap.fill(_AXES[name], round(_LETTERS * wide)), labelpad=3)
        if i:
            ax.tick_params(labelleft=False)
        else:
            ax.set_ylabel("mean accuracy above the floor", labelpad=3)
        _points(ax, data[data[name] > 0].sort_values([name, "model"]), looked, name, names)
    marks: list[dict[str, Any]] = [looked[model]._asdict() | {"linestyle": ""} for model in models]
    keys = [Line2D([], [], **mark, markersize=5.5) for mark in marks]
    front = Line2D([], [], color=_FRONT, lw=1, marker="o", mfc="none", mec=INK, markersize=9)
    top = _TALL + 0.45
    top += legend(fig, top, [*keys, front], [*(names[model] for model in models), "Pareto front (ringed)"])
    head(fig, "Accuracy against cost", scene)
    tasks = str(data["tasks"].iloc[0]).split("; ")
    names_out = [name for name in everyone if name not in models]
    out = (
        f" Without some of these tasks: {', '.join(labels(names_out, width=30, titles=scene.titles).values())}."
        if names_out
        else ""
    )
    found = sorted({name for row in data["device"] for name in row.split("; ") if name})
    devices = ", ".join(labels(found, width=40).values()) or "unknown"
    lacking = {name: int((~(data[name] > 0)).sum()) for name in shown_costs}
    absent = ", ".join(f"{count} without {_AXES[name].split(',')[0]}" for name, count in lacking.items() if count)
    caption(
        fig,
        top + 0.05,
        f"Mean test accuracy above the floor of length and position over {len(tasks)} task{'s' * (len(tasks) > 1)} "
        f"that every model shown has run ({', '.join(labels(tasks, width=30).values())}); a run that did not finish "
        "counts 0. Bars: 95% interval of a bootstrap over seeds within tasks. Ringed: no other is as good at no more "
        "cost and better in one of the two. "
        f"Times were taken on: {devices}.{out}{f' Not drawn: {absent}.' if absent else ''}",
    )
    return fig


def _is_sized(scene: Scene) -> bool:
    """Return True if the protocol brings every model to one number of parameters."""
    return scene.protocol_name in PROTOCOLS and PROTOCOLS[scene.protocol_name].params > 0


def _points(ax: Axes, data: pd.DataFrame, looked: Mapping[str, Look], name: str, names: Mapping[str, str]) -> None:
    if data.empty:
        ax.set_xticks([])
        ax.text(0.5, 0.5, "not measured", ha="center", va="center", transform=ax.transAxes)
        return
    log_axis(ax, data[name], which="x")
    front = data[data[f"front_{name}"]]
    right = ax.get_xlim()[1]
    ax.plot([*front[name], right], [*front["mean"], front["mean"].iloc[-1]], color=_FRONT, lw=1, drawstyle="steps-post")
    ax.plot(front[name], front["mean"], ls="", marker="o", mfc="none", mec=INK, mew=0.8, markersize=9, zorder=4)
    for row in data.to_dict("records"):
        look = looked[row["model"]]
        if pd.notna(row["low"]):
            ax.plot([row[name]] * 2, [row["low"], row["high"]], color=look.color, lw=0.9, zorder=2)
        ax.plot(
            row[name], row["mean"], color=look.color, marker=look.marker, markersize=5.5, mec="white", mew=0.4, zorder=5
        )
    places = [Point(row["model"], row[name], row["mean"]) for row in front.to_dict("records")]
    name_points(ax, places, names, places)


register(
    Plot(
        name="cost",
        title="Accuracy against what a model costs",
        data=lambda scene: cost(scene.cells),
        draw=draw,
        why_not="no finished run has scaled accuracy",
        rank=3,
    )
)
