"""Figures of many models: a panel for each family, its models in colour over all the others in grey.

A single panel with a line for each of 36 models is unreadable. Nine panels on the same axes show each family against
the rest.
"""

import math
from collections.abc import Callable, Iterable

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from chomsky_ladder.harness.config.registry import all_models
from chomsky_ladder.harness.figures.style import FAINT, SMALL, WIDTH, at, in_rows, key, labels, words
from chomsky_ladder.harness.stats.looks import Look, looks

MANY = 9  # from this number of models on a figure has panels

_ACROSS, _LEFT, _BETWEEN = 3, 0.55, 0.22  # inches, except the first
_WIDE, _TALL = (WIDTH - 0.6 - 2 * _BETWEEN) / 3, 1.5
_NAME, _LINE, _UNDER = 0.2, 0.13, 0.2
_KEY = {"ncols": 2, "borderpad": 0, "handlelength": 1.6, "handletextpad": 0.4, "columnspacing": 0.8}
_KEY |= {"labelspacing": 0.25, "fontsize": SMALL - 1}

Draw = Callable[[Axes, pd.DataFrame, dict[str, Look]], None]


def families(models: Iterable[str]) -> dict[str, list[str]]:
    """Group models by family. Models that are not installed here come last, in an unnamed family."""
    known = all_models()
    of_family: dict[str, list[str]] = {}
    for model in sorted(set(models)):
        classes = known.get(model, [])
        of_family.setdefault(classes[-1].family if classes else "", []).append(model)
    return dict(sorted(of_family.items(), key=lambda item: (not item[0], item[0])))


def panels(
    data: pd.DataFrame, draw: Draw, prepare: Callable[[Axes], None], axes: tuple[str, str]
) -> tuple[Figure, float]:
    """Draw a panel for each family, the other models first in grey. Return the figure and its lower edge in inches.

    `prepare` sets up the axes of every panel alike.
    """
    rows = in_rows(list(families(data["model"]).items()), _ACROSS)
    tall = [max(math.ceil(len(models) / 2) for _, models in row) * _LINE for row in rows]
    heights = [_NAME + names + _TALL + _UNDER for names in tall]
    fig = Figure(figsize=(WIDTH, sum(heights)))
    for down, row in enumerate(rows):
        top = sum(heights[:down])
        for across, (family, models) in enumerate(row):
            left = _LEFT + across * (_WIDE + _BETWEEN)
            looked = looks(models)
            words(fig, left, top, family or "other").set_fontweight("bold")
            lines = [Line2D([], [], **look._asdict(), markersize=3.6, mew=0) for look in looked.values()]
            key(fig, left, top + _NAME - 0.04, lines, list(labels(looked, width=19).values()), **_KEY)
            ax = at(fig, left, top + _NAME + tall[down], _WIDE, _TALL)
            ax.grid(color=FAINT, lw=0.3)
            ax.set_axisbelow(True)
            prepare(ax)
            is_own = data["model"].isin(models)
            draw(ax, data[~is_own], {model: Look(FAINT, "", "-") for model in set(data["model"])})
            draw(ax, data[is_own], looked)
            is_first, is_lowest = across == 0, down == len(rows) - 1
            ax.tick_params(labelleft=is_first, labelbottom=is_lowest)
            ax.set_ylabel(axes[1] if is_first else "", labelpad=3)
            ax.set_xlabel(axes[0] if is_lowest else "", labelpad=3)
    return fig, sum(heights) + 0.2
