"""Figures of one small panel a task: accuracy against length, and learning curves."""

import math
from collections.abc import Callable, Mapping
from typing import Literal

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from chomsky_ladder.harness.figures.style import (
    FAINT,
    MUTED,
    SMALL,
    WIDTH,
    Look,
    at,
    caption,
    class_look,
    head,
    labels,
    legend,
    log_axis,
    short,
)
from chomsky_ladder.harness.stats.view import rank

_ACROSS = 3
_LEFT, _BETWEEN, _STRIP, _TALL, _UNDER = 0.5, 0.3, 0.3, 1.25, 0.42  # inches
_WIDE = (WIDTH - _LEFT - (_ACROSS - 1) * _BETWEEN) / _ACROSS
_LEAST_LOSS = 1e-6  # what is drawn of a smaller one, on an axis without a zero

_BAND = "Line: mean over seeds, at the learning rate chosen on validation; band: lowest to highest seed."
_SCALED = "Accuracy is scaled (0 is chance, 1 perfect) unless a task is marked raw."


def lengths(data: pd.DataFrame, looked: Mapping[str, Look]) -> Figure:
    data = data.assign(x=[math.sqrt(low * high) for low, high in zip(data["low"], data["high"], strict=True)])
    longest = data["high"].max()
    shortest = data["low"].min()

    def draw(ax: Axes, rows: pd.DataFrame) -> None:
        for _, trained in rows[rows["kind"] == "training"].head(1).iterrows():
            ax.axvspan(trained["low"], trained["high"], color="#e6e6e6", lw=0, zorder=0)
        floor = rows[rows["model"] == ""].sort_values("x")
        ax.plot(floor["x"], floor["mean"], color=MUTED, lw=0.9, ls=(0, (1, 1)), zorder=1)
        _lines(ax, rows[rows["model"] != ""], looked, x="x")
        _accuracy(ax, data)
        ax.set_xscale("log")
        ax.set_xlim(shortest * 0.9, longest * 1.1)
        ticks = [2**power for power in range(0, 40, 2) if shortest * 0.9 <= 2**power <= longest * 1.1]
        ax.xaxis.set_major_locator(FixedLocator(ticks))
        ax.xaxis.set_minor_locator(NullLocator())
        ax.xaxis.set_major_formatter(FuncFormatter(lambda length, _: f"{length:.0f}"))

    fig, top = _panels(data, draw, x="length")
    keys = {
        "lengths trained on": Line2D([], [], color="#dcdcdc", lw=7, solid_capstyle="butt"),
        "floor: length and position": Line2D([], [], color=MUTED, lw=0.9, ls=(0, (1, 1))),
    }
    top += _key(fig, top, data, looked, keys)
    head(fig, "Accuracy against length", str(data["protocol"].iloc[0]))
    caption(
        fig,
        top + 0.05,
        f"{_BAND} {_SCALED} A point stands at the geometric middle of its bin: the lengths trained on (other strings "
        "than those), bins of the test lengths, single lengths beyond.",
    )
    return fig


def learning(data: pd.DataFrame, looked: Mapping[str, Look], *, of: Literal["validation", "loss"]) -> Figure:
    is_loss = of == "loss"
    if is_loss:
        data = data.assign(**{name: data[name].clip(lower=_LEAST_LOSS) for name in ("mean", "min", "max")})

    def draw(ax: Axes, rows: pd.DataFrame) -> None:
        _lines(ax, rows, looked, x="step")
        ax.set_xlim(0, 1.03 * data["step"].max())
        ax.xaxis.set_major_locator(MaxNLocator(4))
        ax.xaxis.set_major_formatter(FuncFormatter(short))
        if is_loss:
            log_axis(ax, [*data["min"], *data["max"]], which="y")
        else:
            _accuracy(ax, data)

    fig, top = _panels(data, draw, x="step")
    top += _key(fig, top, data, looked, {})
    title = "Training loss" if is_loss else "Validation accuracy at the test lengths"
    head(fig, f"{title} by step", str(data["protocol"].iloc[0]))
    what = "Cross entropy in nats." if is_loss else _SCALED
    held = "A seed that stopped early, its validation being perfect, keeps its last value; runs that did not finish"
    caption(fig, top + 0.05, f"{_BAND} {what} {held} are not shown.")
    return fig


def _panels(data: pd.DataFrame, draw: Callable[[Axes, pd.DataFrame], None], *, x: str) -> tuple[Figure, float]:
    """A panel for every task, by class; the figure and where the panels end, in inches."""
    tasks = sorted(
        {(rank(level), str(level), str(task)) for level, task in zip(data["level"], data["task"], strict=True)}
    )
    names = labels([task for *_, task in tasks], width=29)
    height = _STRIP + _TALL + _UNDER
    top = height * math.ceil(len(tasks) / _ACROSS)
    fig = Figure(figsize=(WIDTH, top))
    for i, (_, level, task) in enumerate(tasks):
        down, across = divmod(i, _ACROSS)
        left = _LEFT + across * (_WIDE + _BETWEEN)
        rows = data[data["task"] == task]
        colour, tint, name = class_look(level)
        strip = at(fig, left, down * height, _WIDE, _STRIP)
        strip.axis("off")
        strip.add_patch(Rectangle((0, 0), 1, 1, color=tint, lw=0, transform=strip.transAxes))
        strip.add_patch(Rectangle((0, 0), 0.02, 1, color=colour, lw=0, transform=strip.transAxes))
        raw = ", raw" if rows["scaled"].eq(False).any() else ""
        strip.text(0.05, 0.74, names[task], va="center", transform=strip.transAxes)
        strip.text(0.05, 0.28, f"{name}{raw}", va="center", size=SMALL, color=MUTED, transform=strip.transAxes)
        ax = at(fig, left, down * height + _STRIP + 0.05, _WIDE, _TALL)
        ax.grid(axis="y", color=FAINT, lw=0.4)
        ax.set_axisbelow(True)
        draw(ax, rows)
        if across:
            ax.tick_params(labelleft=False)
        if i + _ACROSS >= len(tasks):
            ax.set_xlabel(x, labelpad=2)
    return fig, top


def _lines(ax: Axes, rows: pd.DataFrame, looked: Mapping[str, Look], *, x: str) -> None:
    """Ever thinner, so that lines upon each other are all seen."""
    models = sorted(set(rows["model"]))
    for i, model in enumerate(models):
        line, look, left = rows[rows["model"] == model].sort_values(x), looked[model], 1 - i / len(models)
        if (line["n"] > 1).any():
            ax.fill_between(line[x], line["min"], line["max"], color=look.color, alpha=0.14, lw=0, zorder=2)
        spacing = max(1, len(line) // 8)
        size = {"lw": 0.9 + 0.9 * left, "markersize": 2.8 + 2 * left, "markevery": (i % spacing, spacing)}
        ax.plot(line[x], line["mean"], **look._asdict(), **size, markeredgewidth=0, zorder=3)


def _accuracy(ax: Axes, data: pd.DataFrame) -> None:
    ax.set_ylim(min(-0.06, data["min"].min() - 0.03), 1.06)
    ax.yaxis.set_major_locator(FixedLocator([0, 0.5, 1]))


def _key(
    fig: Figure, top: float, data: pd.DataFrame, looked: Mapping[str, Look], others: Mapping[str, Line2D]
) -> float:
    models = sorted(set(data["model"]) - {""})
    names = labels(models, width=44)
    lines = [Line2D([], [], **looked[model]._asdict(), markeredgewidth=0) for model in models]
    return legend(fig, top, [*lines, *others.values()], [*(names[model] for model in models), *others])
