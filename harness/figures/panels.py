"""Figures of one small panel a task: their places, lines and key.

Many models have a panel for each task and family: the lines of the family over those of all others in grey.
"""

import math
import textwrap
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator

from chomsky_ladder.harness.figures.plot import Scene
from chomsky_ladder.harness.figures.style import (
    FAINT,
    MUTED,
    SMALL,
    at,
    class_look,
    labels,
    legend,
    words,
)
from chomsky_ladder.harness.stats.climb import climbs
from chomsky_ladder.harness.stats.looks import MEMBERS, OTHER, family_of
from chomsky_ladder.harness.stats.view import rank

_LEFT, _BETWEEN, _STRIP, _TALL, _UNDER = 0.5, 0.3, 0.3, 1.25, 0.42  # inches
_LEAST = 1.85  # inches of a panel's width, of which as many stand side by side as there is room for
_MANY = 9  # models from which on each family has panels of its own
_WIDE = 5.0  # inches that these need
_HEAD, _NAME, _LOW_ROW, _APART = 0.34, 0.15, 0.68, 0.07  # inches: families' names, a task's, its row, between panels
_LETTERS = 14.2  # of a panel's title an inch

BAND = "Line: median over seeds, at the learning rate chosen on validation; band: lowest to highest seed."
SCALED = "Accuracy is scaled (0 is chance or less, 1 perfect) unless a task is marked raw."
GREY = "Grey: the models of other families."


def panels(
    data: pd.DataFrame, draw: Callable[[Axes, pd.DataFrame], None], scene: Scene, *, x: str
) -> tuple[Figure, float]:
    """Lay out a panel for every task, by class. Return the figure and where the panels end, in inches."""
    rungs = rung_names(scene)
    tasks = _in_order(tasks_of(data), rungs)
    most = max(1, int((scene.width - _LEFT + _BETWEEN) / (_LEAST + _BETWEEN)))
    wide = (scene.width - _LEFT - (most - 1) * _BETWEEN) / most
    names = labels([task for *_, task in tasks], width=round(_LETTERS * wide), titles=rungs)
    height = _STRIP + _TALL + _UNDER
    top = height * math.ceil(len(tasks) / most)
    fig = Figure(figsize=(scene.width, top))
    for i, (_, level, task) in enumerate(tasks):
        down, across = divmod(i, most)
        left = _LEFT + across * (wide + _BETWEEN)
        rows = data[data["task"] == task]
        colour, tint, name = class_look(level)
        strip = at(fig, left, down * height, wide, _STRIP)
        strip.axis("off")
        strip.add_patch(Rectangle((0, 0), 1, 1, color=tint, lw=0, transform=strip.transAxes))
        strip.add_patch(Rectangle((0, 0), 0.02, 1, color=colour, lw=0, transform=strip.transAxes))
        raw = ", raw" if rows["scaled"].eq(False).any() else ""
        strip.text(0.05, 0.74, names[task], va="center", transform=strip.transAxes)
        strip.text(0.05, 0.28, f"{name}{raw}", va="center", size=SMALL, color=MUTED, transform=strip.transAxes)
        ax = at(fig, left, down * height + _STRIP + 0.05, wide, _TALL)
        ax.grid(axis="y", color=FAINT, lw=0.4)
        ax.set_axisbelow(True)
        draw(ax, rows)
        if across:
            ax.tick_params(labelleft=False)
        if i + most >= len(tasks):
            ax.set_xlabel(x, labelpad=2)
    return fig, top


def is_many(data: pd.DataFrame, scene: Scene) -> bool:
    """Return True if there are so many models that each family needs panels of its own, and the figure has room."""
    return len(set(data["model"]) - {""}) >= _MANY and scene.width >= _WIDE


def by_family(
    data: pd.DataFrame, draw: Callable[[Axes, pd.DataFrame], None], scene: Scene, *, x: str, column: str
) -> tuple[Figure, float]:
    """Lay out a row for every task with a panel for every family. Return what `panels` does."""
    families = families_of(set(data["model"]) - {""})
    names = rung_names(scene)
    tasks = _in_order(tasks_of(data), names)
    wide = (scene.width - _LEFT - (len(families) - 1) * _APART) / len(families)
    shown = labels([task for *_, task in tasks], width=60, titles=names)
    fig = Figure(figsize=(scene.width, _HEAD + len(tasks) * _LOW_ROW + _UNDER))
    for down, (_, level, task) in enumerate(tasks):
        top = _HEAD + down * _LOW_ROW
        rows = data[data["task"] == task]
        raw = ", raw" if rows["scaled"].eq(False).any() else ""
        words(fig, _LEFT, top, f"{shown[task]} ({class_look(level)[2]}{raw})", color=class_look(level)[0])
        drawn = {model: own.sort_values(column)[[column, "median"]].to_numpy() for model, own in rows.groupby("model")}
        for across, (family, models) in enumerate(families.items()):
            left = _LEFT + across * (wide + _APART)
            if not down:
                words(fig, left, 0, textwrap.fill(family, 11, break_long_words=False)).set_fontweight("bold")
            ax = at(fig, left, top + _NAME, wide, _LOW_ROW - _NAME - _APART)
            others = [line for model, line in drawn.items() if model and model not in models]
            ax.add_collection(LineCollection(others, colors=FAINT, linewidths=0.4, rasterized=True, zorder=1))
            draw(ax, rows[rows["model"].isin([*models, ""])])
            ax.tick_params(labelleft=not across, labelbottom=down == len(tasks) - 1)
            if down == len(tasks) - 1:
                ax.set_xlabel(x, labelpad=2)
    return fig, _HEAD + len(tasks) * _LOW_ROW + _UNDER


def families_of(models: Iterable[str]) -> dict[str, list[str]]:
    """Group models by family, in the order of harness/stats/looks.py; those of plugins come last."""
    found: dict[str, list[str]] = {family: [] for family in (*MEMBERS, OTHER)}
    for model in sorted(models):
        found[family_of(model)].append(model)
    return {family: own for family, own in found.items() if own}


def tasks_of(data: pd.DataFrame) -> list[tuple[int, str, str]]:
    """List the tasks with their class and its rank, the lowest class first."""
    return sorted(
        {(rank(level), str(level), str(task)) for level, task in zip(data["level"], data["task"], strict=True)}
    )


def _in_order(tasks: list[tuple[int, str, str]], rungs: Mapping[str, str]) -> list[tuple[int, str, str]]:
    """Put the rungs of a climb in their order, before other tasks."""
    places = {task: place for place, task in enumerate(rungs)}
    return sorted(tasks, key=lambda task: places.get(task[2], len(places)))


def rung_names(scene: Scene) -> dict[str, str]:
    """Return the names of rungs by the labels of their tasks; none without a climb."""
    steps = [step for one in climbs(scene.cells) for step in one.steps]
    return {step.cell.stats.task: step.rung.name for step in steps if step.cell}


def lines(ax: Axes, rows: pd.DataFrame, scene: Scene, *, x: str, marks: int = 8) -> None:
    """Draw a line for each model, ever thinner, so that lines upon each other are all seen."""
    models = sorted(set(rows["model"]))
    for i, model in enumerate(models):
        line, look, left = rows[rows["model"] == model].sort_values(x), scene.looked[model], 1 - i / len(models)
        if (line["n"] > 1).any():
            ax.fill_between(line[x], line["min"], line["max"], color=look.color, alpha=0.14, lw=0, zorder=2)
        spacing, large = max(1, len(line) // marks), min(1, marks / 5)
        look_here: dict[str, Any] = {"lw": large * (0.9 + 0.9 * left), "markersize": large * (2.8 + 2 * left)}
        look_here["markevery"] = (i % spacing, spacing)
        ax.plot(line[x], line["median"], **look._asdict(), **look_here, markeredgewidth=0, zorder=3)


def accuracy_axis(ax: Axes) -> None:
    """Let an axis run from chance to perfect."""
    ax.set_ylim(-0.06, 1.06)
    ax.yaxis.set_major_locator(FixedLocator([0, 0.5, 1]))


def above_chance(data: pd.DataFrame) -> pd.DataFrame:
    """Return the same with accuracy below chance as 0."""
    return data.assign(**{name: data[name].clip(lower=0) for name in ("median", "min", "max")})


def panel_key(fig: Figure, top: float, data: pd.DataFrame, scene: Scene, others: Mapping[str, Line2D]) -> float:
    """Write the key below the panels. Return its height in inches."""
    models = [model for own in families_of(set(data["model"]) - {""}).values() for model in own]
    names = labels(models, width=44, titles=scene.titles)
    marks = [Line2D([], [], **scene.looked[model]._asdict(), markeredgewidth=0) for model in models]
    return legend(fig, top, [*marks, *others.values()], [*(names[model] for model in models), *others])
