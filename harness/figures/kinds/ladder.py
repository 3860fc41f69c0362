"""The ladder figure: one ladder a model, one rung a class, a flag on the highest rung it climbs."""

from typing import Any, Literal

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Polygon, Rectangle

from chomsky_ladder.harness.config.presets import has_rungs
from chomsky_ladder.harness.figures.plot import Plot, Scene, register, rows_of
from chomsky_ladder.harness.figures.style import (
    CLASS_COLOURS,
    CLASS_TINTS,
    FAINT,
    INK,
    MUTED,
    SMALL,
    WIDTH,
    at,
    caption,
    head,
    in_rows,
    labels,
    on,
)
from chomsky_ladder.harness.stats.aggregates import given_away
from chomsky_ladder.harness.stats.cells import solved_text
from chomsky_ladder.harness.stats.view import CLASSES, common_tasks, tested_lengths

_ROW = 14  # ladders side by side
_SIDE, _RUNG = 1.15, 0.52  # inches: the classes' names, the height of a class
_TOP = 0.3  # of a class, over the highest, for the flag

Rung = Literal["held", "missed", "unknown"]


def ladder(scene: Scene) -> pd.DataFrame:
    """Return a row for every model and class, none where no model climbs. `climbed` marks where it stands.

    The tasks that count are those that all models shown have run (`common_tasks`), but for those that a guess from
    length and position solves. A task is held where most runs solve it, a class where all of its tasks are held; it is
    unknown where none counts. A model stands on the highest held class with no missed one below it. One without some
    of the tasks has rows without a rung.
    """
    given = given_away([cell.stats for cell in scene.cells])
    cells = [cell for cell in scene.cells if cell.stats.measure != "test" and cell.stats.level in CLASSES]
    cells = [cell for cell in cells if (cell.stats.n or cell.stats.diverged) and cell.stats.task not in given]
    common = set(common_tasks(cells))
    tasks: dict[tuple[str, str], dict[str, bool]] = {}
    for cell in cells:
        seen = cell.stats
        if seen.task in common:
            tasks.setdefault((seen.model, seen.level), {})[seen.task] = 2 * seen.reached.hits > seen.reached.n
    models = {cell.stats.model for cell in cells}
    whole = {model for model in models if sum(len(own) for (of, _), own in tasks.items() if of == model) == len(common)}
    nothing = {
        "level": "",
        "rung": "",
        "held": 0,
        "measured": 0,
        "climbed": False,
        "held_tasks": "",
        "missed_tasks": "",
    }
    rows = [{"model": model, **nothing} for model in sorted(models - whole)]
    for model in sorted(whole):
        stands, is_open = None, True
        for level in CLASSES:
            own = tasks.get((model, level), {})
            rung: Rung = "unknown" if not own else "held" if all(own.values()) else "missed"
            is_open = is_open and rung != "missed"
            stands = level if is_open and rung == "held" else stands
            names = {
                "held_tasks": "; ".join(sorted(task for task, is_held in own.items() if is_held)),
                "missed_tasks": "; ".join(sorted(task for task, is_held in own.items() if not is_held)),
            }
            counts = {"held": sum(own.values()), "measured": len(own)}
            rows.append({"model": model, "level": level, "rung": rung, **counts, **names})
        for row in rows[-len(CLASSES) :]:
            row["climbed"] = row["level"] == stands
    protocol = {"protocol": cells[0].stats.protocol} if cells else {}
    columns = ("protocol", "model", "level", "rung", "held", "measured", "climbed", "held_tasks", "missed_tasks")
    if not any(row["climbed"] for row in rows):
        return rows_of([], columns)
    return rows_of([{**protocol, **row} for row in rows], columns)


def draw(data: pd.DataFrame, scene: Scene) -> Figure:
    left_out = sorted(data.loc[data["rung"] == "", "model"])
    data = data[data["rung"] != ""]
    rows = {str(model): part.set_index("level") for model, part in data.groupby("model", sort=True)}
    order = sorted(rows, key=lambda model: (_height(rows[model]), _share(rows[model]), model))
    parts = in_rows(order, int(_ROW * (scene.width - _SIDE) / (WIDTH - _SIDE)))
    names = labels(order, width=20, titles=scene.titles)
    tall = (len(CLASSES) + _TOP) * _RUNG
    column = (scene.width - _SIDE) / max(map(len, parts))
    longest = max(len(name) for name in names.values())
    turned: dict[str, Any] = (
        {"ha": "right", "rotation": 40, "rotation_mode": "anchor"} if 0.065 * longest > column else {"ha": "center"}
    )
    step = tall + 0.32 + (0.04 * longest if "rotation" in turned else 0)
    fig = Figure(figsize=(scene.width, step * len(parts)))
    for place, models in enumerate(parts):
        ax = at(fig, _SIDE, place * step, column * len(models), tall)
        ax.set(xlim=(0, column * len(models) / _RUNG), ylim=(0, len(CLASSES) + _TOP))  # a unit is one class's height
        ax.axis("off")
        _classes(ax)
        for i, model in enumerate(models):
            middle = (i + 0.5) * column / _RUNG
            _ladder(ax, rows[model], middle=middle, half=min(0.36 * column, 0.36) / _RUNG)
            ax.text(middle + (0.05 if "rotation" in turned else 0), -0.14, names[model], va="top", **turned)
    tested = tested_lengths(scene.cells)
    lengths = f"lengths {tested[0]} to {tested[1]}" if tested else "the test lengths"
    out = (
        f" Without some of the tasks: {', '.join(labels(left_out, width=30, titles=scene.titles).values())}."
        if left_out
        else ""
    )
    head(fig, "How far up the Chomsky hierarchy?", scene)
    caption(
        fig,
        step * len(parts),
        f"A task is held if most runs have {solved_text(scene.protocol_name)} at {lengths}, at the last step. A "
        "class is held (filled rung) if all of its tasks are that every model shown has run; the numbers are tasks "
        "held / run. A flag stands on the highest held class with no missed class (empty rung) below it. A dotted rung "
        "was not measured: unknown, not missed. Tasks that a guess from length and position solves, or that have no "
        f"scaled accuracy, do not count.{out}",
    )
    return fig


def _height(rungs: pd.DataFrame) -> int:
    """Return the number of the highest rung that is climbed; 0 for the ground."""
    return max((i + 1 for i, level in enumerate(CLASSES) if rungs.loc[level, "climbed"]), default=0)


def _share(rungs: pd.DataFrame) -> float:
    return float(rungs["held"].sum() / max(1, rungs["measured"].sum()))


def _classes(ax: Axes) -> None:
    """Draw a band for each class over all ladders, with its name at the left, and the ground below."""
    wide = ax.get_xlim()[1]
    for i, (level, name) in enumerate(CLASSES.items()):
        top = 1 + (_TOP if i + 1 == len(CLASSES) else 0)
        band = Rectangle((-_SIDE / _RUNG, i), wide + _SIDE / _RUNG, top, color=CLASS_TINTS[level], lw=0)
        ax.add_patch(band).set_clip_on(False)
        ax.text(0.12 - _SIDE / _RUNG, i + 0.5, name, va="center", size=8, weight="bold", color=INK)
    ax.plot([-_SIDE / _RUNG, wide], [0, 0], color=INK, lw=1.6, clip_on=False, zorder=8)


def _ladder(ax: Axes, rungs: pd.DataFrame, *, middle: float, half: float) -> None:
    height = _height(rungs)
    for side in (-half, half):
        x = middle + side
        ax.plot([x, x], [0, len(CLASSES) - 0.12], color="white", lw=3.2, solid_capstyle="round")
        ax.plot([x, x], [0, len(CLASSES) - 0.12], color=FAINT, lw=2, solid_capstyle="round")
        if height:
            ax.plot([x, x], [0, height - 0.12], color=INK, lw=2.4, solid_capstyle="round", zorder=3)
    for i, level in enumerate(CLASSES):
        _rung(ax, rungs.loc[level], CLASS_COLOURS[level], middle=middle, half=half, y=i + 0.5)
        if rungs.loc[level, "climbed"]:
            _flag(ax, CLASS_COLOURS[level], x=middle + half, y=i + 0.88)


def _rung(ax: Axes, rung: pd.Series, colour: str, *, middle: float, half: float, y: float) -> None:
    kind = rung["rung"]
    box = FancyBboxPatch(
        (middle - half, y - 0.17),
        2 * half,
        0.34,
        boxstyle="round,pad=0,rounding_size=0.08",
        facecolor=colour if kind == "held" else "white",
        edgecolor=colour if kind == "held" else MUTED,
        linewidth=0.9,
        linestyle=":" if kind == "unknown" else "-",
        zorder=4,
    )
    ax.add_patch(box)
    text = "?" if kind == "unknown" else f"{rung['held']}/{rung['measured']}"
    weight = "bold" if kind == "held" else "normal"
    ink = on(colour) if kind == "held" else MUTED
    ax.text(middle, y - 0.01, text, ha="center", va="center", size=SMALL, color=ink, weight=weight, zorder=5)


def _flag(ax: Axes, colour: str, *, x: float, y: float) -> None:
    """Draw the flag on the right rail of the rung."""
    ax.plot([x, x], [y, y + 0.38], color=INK, lw=1.1, solid_capstyle="round", zorder=6)
    cloth = [(x, y + 0.4), (x - 0.44, y + 0.27), (x, y + 0.14)]
    ax.add_patch(Polygon(cloth, closed=True, facecolor=colour, edgecolor=INK, lw=0.6, zorder=7))


register(
    Plot(
        name="ladder",
        title="The highest class each model climbs",
        data=ladder,
        draw=draw,
        why_not="no model holds a class",
        when=lambda scene: not has_rungs(scene.protocol),  # whose rungs are tasks, not classes
        rank=1,
    )
)
