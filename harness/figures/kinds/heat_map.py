"""The heat map: models x tasks by class, in each cell the median and how many runs solved it, floors as rows.

A climb has its rungs for columns, by their names and in their order, and the highest climbers first. Many models have
low rows, each cell with its median alone, so that all stand on one page.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from chomsky_ladder.harness.figures.plot import Plot, Scene, one_a_task, register, rows_of, spread
from chomsky_ladder.harness.figures.style import MUTED, SMALL, WIDTH, at, caption, class_look, head, in_rows, labels, on
from chomsky_ladder.harness.stats.cells import solved_text
from chomsky_ladder.harness.stats.climb import climbs
from chomsky_ladder.harness.stats.view import (
    FLOORS,
    rank,
)

_COLUMNS = 12  # tasks side by side
_LEFT, _ROW, _LOW, _GAP = 1.5, 0.31, 0.155, 0.07  # inches: the models' names, a row, one of many, between classes
_MANY = 24  # models from which on rows are low
_FEWEST = 4  # cells
_BAND = 0.3
_WIDEST = 1.4  # inches of a task's column


def heat_map(scene: Scene) -> pd.DataFrame:
    """Return a row for every cell, and for every floor of every task with a finished run."""
    rows = []
    for cell in scene.cells:
        seen = cell.stats
        scores = {"lr": seen.lr, **spread(seen.scores), "solved": seen.reached.hits, "runs": seen.reached.n}
        rows.append({**cell.place, **scores, "unfinished": seen.diverged + seen.failed})
    for cell in one_a_task(scene.cells):
        for floor in FLOORS:
            value = cell.scaled(cell.runs[0][floor])
            rows.append({**cell.place, "model": "", "floor": floor, "median": value, "n": 0, "unfinished": 0})
    columns = ("protocol", "level", "task", "model", "floor", "scaled", "lr", "median", "min", "max", "n", "solved")
    whole = {"solved": "Int64", "runs": "Int64"}
    return rows_of(rows, (*columns, "runs", "unfinished")).astype(whole)


def draw(data: pd.DataFrame, scene: Scene) -> Figure:
    tasks = data.drop_duplicates("task").assign(rank=lambda rows: rows["level"].map(rank)).sort_values(["rank", "task"])
    levels = {str(row["task"]): str(row["level"]) for _, row in tasks.iterrows()}
    found = climbs(scene.cells)
    rungs = {step.cell.stats.task: step.rung.name for one in found for step in one.steps if step.cell}
    order = [*(step.cell.stats.task for step in found[0].steps if step.cell), *levels] if found else [*levels]
    columns = [(levels[task], task) for task in dict.fromkeys(order) if task in levels]
    models = list(dict.fromkeys([*(one.model for one in found), *sorted(set(data["model"]) - {""})]))
    models = [model for model in models if model in set(data["model"])]
    height = _LOW if len(models) >= _MANY else _ROW
    room = scene.width - _LEFT
    parts = in_rows(columns, int(_COLUMNS * room / (WIDTH - _LEFT)))
    raw = set(data.loc[data["scaled"].eq(False), "task"])
    names = labels([task for _, task in columns], width=30, titles=rungs)
    names |= {task: f"{names[task]} (raw)" for task in raw}
    tall = _BAND + height * (len(models) + len(FLOORS)) + 0.12
    gaps = max(len(list(groupby(level for level, _ in part))) - 1 for part in parts)
    width = (room - gaps * _GAP) / max(map(len, parts))
    if width > _WIDEST:  # few tasks: what stands beside them stays free
        width, room = _WIDEST, _WIDEST * max(map(len, parts)) + gaps * _GAP
    longest = max(len(name) for name in names.values())
    is_turned = 0.065 * longest > width
    turned: dict[str, Any] = (
        {"ha": "right", "rotation": 35, "rotation_mode": "anchor"} if is_turned else {"ha": "center"}
    )
    step = tall + 0.25 + (0.036 * longest if is_turned else 0.1)
    fig = Figure(figsize=(scene.width, step * len(parts)))
    places = {(row["model"] or row["floor"], row["task"]): row for row in data.to_dict("records")}
    shown_models = labels(models, width=23, lines=1 if height == _LOW else 2, titles=scene.titles)
    for i, part in enumerate(parts):
        ax = at(fig, _LEFT, i * step, room, tall)
        ax.set(xlim=(0, room), ylim=(tall, 0))  # inches
        ax.axis("off")
        lefts = _bands(ax, part, width)
        for row, model in enumerate([*models, *FLOORS]):
            is_floor = row >= len(models)
            y = _BAND + height * row + (0.1 if is_floor else 0.02)
            name = f"floor: {model.replace('_', ' ')}" if is_floor else shown_models[model]
            look: dict[str, Any] = {"style": "italic", "color": MUTED} if is_floor else {}
            ax.text(-0.08, y + height / 2 - 0.01, name, ha="right", va="center", linespacing=1.0, **look)
            for left, (_, task) in zip(lefts, part, strict=True):
                _cell(ax, places.get((model, task)), left=left, top=y, size=(width, height), is_floor=is_floor)
        for left, (_, task) in zip(lefts, part, strict=True):
            place = (left + width / 2 + (0.04 if is_turned else 0), tall + 0.05)
            ax.text(*place, names[task], va="top", **turned)
    head(fig, "Accuracy by task and model", scene)
    unfinished = " † some of them diverged or failed, and are in no median." if data["unfinished"].any() else ""
    is_raw = " Raw: several answers may be right, so accuracy is not scaled." if raw else ""
    caption(
        fig,
        step * len(parts),
        "Scaled test accuracy (0 is chance, 1 perfect) at the last step: the median over seeds, at the learning rate "
        f"chosen on validation. {_solved(height)} {solved_text(scene.protocol_name)}. A dash: not "
        f"measured.{unfinished}{is_raw} "
        "Floors need no computation: always the commonest answer; the best guess from length and position.",
    )
    return fig


def _bands(ax: Axes, part: Sequence[tuple[str, str]], width: float) -> list[float]:
    """Draw a band over the tasks of each class. Return the left edge of every task."""
    lefts, x = [], 0.0
    for level, group in groupby(part, key=lambda column: column[0]):
        wide = width * len(list(group))
        colour, _, name = class_look(level)
        ax.add_patch(Rectangle((x, 0), wide - 0.02, _BAND - 0.02, color=colour, lw=0))
        if wide < 0.085 * len(name):
            name = name.replace("-", "-\n")
        middle = (x + wide / 2 - 0.01, _BAND / 2 - 0.01)
        size = min(SMALL, 106 * wide / max(map(len, name.split("\n"))))  # points, for bold letters
        ax.text(*middle, name, ha="center", va="center", size=size, weight="bold", color=on(colour), linespacing=0.95)
        lefts += [x + width * i for i in range(round(wide / width))]
        x += wide + _GAP
    return lefts


def _solved(height: float) -> str:
    return "Bold: most runs have" if height == _LOW else "Below it, how many runs have"


def _cell(ax: Axes, row: dict | None, *, left: float, top: float, size: tuple[float, float], is_floor: bool) -> None:
    width, height = size
    middle, y = left + width / 2 - 0.01, top + height / 2 - 0.01
    if row is None or (is_floor and pd.isna(row["median"])):
        ax.text(middle, y, "–", ha="center", va="center", color=MUTED)
        return
    is_scored = pd.notna(row["median"])
    shade = 0.85 * min(1.0, max(0.0, row["median"])) if is_scored else 0.0
    colour = matplotlib.colormaps["Blues"](shade) if is_scored else (0.9, 0.9, 0.9, 1)
    ax.add_patch(Rectangle((left, top), width - 0.02, height - 0.02, facecolor=colour, lw=0))
    number = f"{round(row['median'], 2) + 0.0:.2f}" if is_scored else ""
    if is_floor:
        ax.text(middle, y, number, ha="center", va="center", color=on(colour[:3]), style="italic")
        return
    lost = "†" if row["unfinished"] else ""
    if height == _LOW:
        weight = "bold" if 2 * row["solved"] > row["runs"] else "normal"
        ax.text(middle, y, number + lost, ha="center", va="center", color=on(colour[:3]), size=SMALL, weight=weight)
        return
    seeds = f"{row['solved']}/{row['runs']}{lost}"
    text = f"{number}\n{seeds}" if is_scored else seeds
    ax.text(middle, y, text, ha="center", va="center", color=on(colour[:3]), size=SMALL, linespacing=1.0)


register(
    Plot(
        name="heat_map",
        title="Accuracy of every model on every task, by class",
        data=heat_map,
        draw=draw,
        why_not="no cells",
        fewest=_FEWEST,
        rank=0,
    )
)
