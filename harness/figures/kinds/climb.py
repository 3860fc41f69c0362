"""The picture of a climb: models by how their state moves, rungs from the lowest, a cell for the seeds that hold one.

A cell is filled as far as seeds hold it; the corner is what theory says. Its frame tells where the two do not agree.
"""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Polygon, Rectangle

from chomsky_ladder.harness.config.presets import PROTOCOLS, has_rungs
from chomsky_ladder.harness.config.theory import TRANSITIONS
from chomsky_ladder.harness.figures.plot import Plot, Scene, register, rows_of
from chomsky_ladder.harness.figures.style import FAINT, INK, MUTED, SMALL, at, caption, head, labels, on
from chomsky_ladder.harness.stats.cells import SOLVED
from chomsky_ladder.harness.stats.climb import climbs, longest
from chomsky_ladder.harness.stats.outcomes import LEARNT

HELD, GAP, ODD = "#0072B2", "#E69F00", "#CC79A7"  # learnt; can, and not learnt; cannot, and yet held
CORNERS = {"can": "#009E73", "cannot": "#D55E00"}

_SIDE, _ROW, _TOP = 1.75, 0.25, 0.62  # inches: the models' names, a model, the rungs' names
_COLUMNS = ("protocol", "transition", "model", "place", "rung", "held", "lost", "n", "median", "theory", "meeting")
_NARROW, _SIDE_NARROW = 4.5, 1.15  # inches: below the former, a box has room for a digit alone
_UNKNOWN = "not declared"
_LOST = 0.16  # how strongly a box shows seeds that learn and lose
_KEY = 6.4  # inches that the key needs in one line


def climb(scene: Scene) -> pd.DataFrame:
    """Return a row for every model and rung that was run, in the picture's order."""
    found = climbs(scene.cells)
    if not found:
        return rows_of([], _COLUMNS)
    where = longest(PROTOCOLS[scene.protocol])
    order = [*TRANSITIONS, *sorted({one.transition for one in found} - {*TRANSITIONS, ""}), ""]
    found.sort(key=lambda one: order.index(one.transition))  # stable: the highest climbers of each kind first
    rows: list[dict[str, Any]] = []
    for one in found:
        for place, step in enumerate(one.steps):
            if step.n:
                names = {"transition": one.transition or _UNKNOWN, "model": one.model, "rung": step.rung.name}
                seen = {"held": step.held, "lost": step.outcomes.count("lost"), "n": step.n, "median": step.at(where)}
                verdict = {"theory": step.theory.word, "meeting": step.meeting}
                rows.append({"protocol": scene.protocol, "place": place, **names, **seen, **verdict})
    return rows_of(rows, _COLUMNS)


def draw(data: pd.DataFrame, scene: Scene) -> Figure:
    rungs = [rung.name for rung in PROTOCOLS[scene.protocol].rungs]
    models = list(dict.fromkeys(data["model"]))
    kind_of = dict(zip(data["model"], data["transition"], strict=True))
    kinds = list(dict.fromkeys(data["transition"]))
    tall = len(models) + 0.75 * len(kinds)  # rows, with a line of words over every kind
    is_narrow = scene.width < _NARROW
    side = _SIDE_NARROW if is_narrow else _SIDE
    fig = Figure(figsize=(scene.width, _TOP + tall * _ROW))
    ax = at(fig, side, _TOP, scene.width - side, tall * _ROW)
    ax.set(xlim=(0, len(rungs)), ylim=(tall, 0))
    ax.axis("off")
    for place, rung in enumerate(rungs):
        turned: dict[str, Any] = {"rotation": 90, "ha": "center"} if is_narrow else {"rotation": 38, "ha": "left"}
        ax.text(place + (0.5 if is_narrow else 0.42), -0.25, rung, **turned, va="bottom", size=SMALL, color=INK)
    names, y, last = labels(models, width=17 if is_narrow else 26, titles=scene.titles), 0.0, None
    across = side * len(rungs) / (scene.width - side)  # the width of the names, in rungs
    moves = labels(map(_shown, kinds), width=int(21 * scene.width))
    for model in models:
        if kind_of[model] != last:
            last = kind_of[model]
            look: dict[str, Any] = {"size": SMALL, "color": MUTED, "style": "italic"}
            ax.text(-across, y + 0.5, moves[_shown(last)], ha="left", va="center", **look)
            y += 0.75
        ax.text(-0.12, y + 0.5, names[model], ha="right", va="center", color=INK)
        of_model = data[data["model"] == model].set_index("place")
        for place in range(len(rungs)):
            row = of_model.loc[place] if place in of_model.index else None
            _cell(ax, row, x=place, y=y, has_room=not is_narrow)
        y += 1
    head(fig, "How far up does a model get?", scene)
    seeds = f"{data['n'].min()}" if data["n"].nunique() == 1 else f"{data['n'].min()} to {data['n'].max()}"
    bottom = _TOP + tall * _ROW + 0.08
    lines = 1 if scene.width > _KEY else 3 if is_narrow else 2
    _key(at(fig, 0, bottom, scene.width, 0.24 * lines), lines)
    caption(
        fig,
        bottom + 0.1 + 0.24 * lines,
        f"{'k' if is_narrow else 'k/n'}: of n seeds ({seeds} a cell) so many hold the rung, that is scaled accuracy of "
        f"{SOLVED:g} or more at lengths {longest(PROTOCOLS[scene.protocol])}, at the learning rate chosen on "
        f"validation; a box is filled as far. Pale: seeds that learn it ({LEARNT:g} at the lengths of training) and "
        "lose it. Corner: what is proven of the way the state moves, at any length; it says that weights exist, not "
        "that training finds them. Frame: most seeds do what theory excludes, or do not what it allows. Dotted: not "
        "run.",
    )
    return fig


def _shown(transition: str) -> str:
    return f"{transition}: {TRANSITIONS[transition]}" if transition in TRANSITIONS else transition


def _cell(ax: Axes, row: pd.Series | None, *, x: float, y: float, has_room: bool) -> None:
    left, top, wide, high = x + 0.05, y + 0.1, 0.9, 0.8
    if row is None:
        ax.add_patch(Rectangle((left, top), wide, high, fill=False, edgecolor=FAINT, lw=0.6, linestyle=":"))
        return
    share = row["held"] / row["n"]
    frame = {"can, not held": GAP, "cannot, yet held": ODD}.get(row["meeting"], FAINT)
    ax.add_patch(Rectangle((left, top), wide, high, facecolor="white", lw=0))
    ax.add_patch(Rectangle((left, top), wide * share, high, facecolor=HELD, lw=0, alpha=0.35 + 0.65 * share))
    lost = Rectangle((left + wide * share, top), wide * row["lost"] / row["n"], high, facecolor=HELD, lw=0, alpha=_LOST)
    ax.add_patch(lost)
    thick = 0.6 if frame == FAINT else 1.6
    ax.add_patch(Rectangle((left, top), wide, high, fill=False, edgecolor=frame, lw=thick, zorder=3))
    if row["theory"] in CORNERS:
        corner = [(left + wide, top), (left + wide, top + 0.34), (left + wide - 0.2, top)]
        ax.add_patch(Polygon(corner, closed=True, facecolor=CORNERS[row["theory"]], lw=0, zorder=4))
    ink = on(HELD) if share > 0.5 else MUTED
    text = f"{row['held']}/{row['n']}" if has_room else f"{row['held']}"
    ax.text(x + 0.5, y + 0.53, text, ha="center", va="center", size=SMALL, color=ink, zorder=5)


def _key(ax: Axes, lines: int) -> None:
    """Draw the key in one line, or with theory and frames in two, or with a line for each frame."""
    ax.set(xlim=(0, {1: 12, 2: 7.5, 3: 5.4}[lines]), ylim=(lines, 0))
    ax.axis("off")
    for i, (word, colour) in enumerate(CORNERS.items()):
        x = 0.1 + 1.75 * i
        ax.add_patch(Polygon([(x, 0.2), (x + 0.25, 0.2), (x + 0.25, 0.85)], closed=True, facecolor=colour, lw=0))
        ax.text(x + 0.35, 0.52, f"theory: {word}", va="center", size=SMALL, color=INK)
    for i, (text, colour) in enumerate((("can, and most seeds do not", GAP), ("cannot, and yet most seeds do", ODD))):
        x, y = ((4.0 if lines == 1 else 0.1) + 3.2 * i, lines - 1) if lines < 3 else (0.1, 1 + i)
        box = FancyBboxPatch(
            (x, y + 0.2), 0.3, 0.6, boxstyle="square,pad=0", facecolor="white", edgecolor=colour, lw=1.6
        )
        ax.add_patch(box)
        ax.text(x + 0.45, y + 0.52, text, va="center", size=SMALL, color=INK)


register(
    Plot(
        name="climb",
        title="How far up does a model get?",
        data=climb,
        draw=draw,
        why_not="no rung was run",
        when=lambda scene: has_rungs(scene.protocol),
        rank=0,
    )
)
