"""The picture of rounding: where the states of a block go on one string, as trained and rounded.

A plane is seen as it is, and a space of three dimensions from its third: dots on the near side are larger. Each element
of the group has a colour. Rounded, every element has one place.
"""

from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from chomsky_ladder.harness.figures.style import FAINT, MUTED, WIDTH, at, caption, save, style, words

SIDE, GAP = 1.62, 0.06  # inches
WAYS = ("trained", "rounded")
COLUMNS = ("run_id", "asks", "position", "element", *(f"{way}_{axis}" for way in WAYS for axis in "xyz"))


def draw(orbits: pd.DataFrame, file: Path) -> None:
    """Draw two discs for each run of a table of orbits, and write the numbers beside the picture as CSV."""
    with style():
        fig = Figure(figsize=(WIDTH, SIDE + 0.5))
        words(fig, 0, 0, "Where the states of one block go", size=11)
        for place, (_, own) in enumerate(orbits.groupby("run_id", sort=False)):
            for side, way in enumerate(WAYS):
                ax = at(fig, (2 * place + side) * (SIDE + GAP), 0.55, SIDE, SIDE)
                _disc(ax, own, way)
                words(fig, (2 * place + side) * (SIDE + GAP) + 0.05, 0.3, f"{own['asks'].iloc[0]}, {way}")
        last = int(orbits["position"].max())
        told = f"Each dot is the state after one of the first {last:,} symbols of a string."
        caption(fig, SIDE + 0.6, f"{told} A colour is an element of the group. Models were trained on shorter strings.")
        save(fig, orbits, file.with_suffix(""), kinds=(file.suffix[1:],))


def _disc(ax: Axes, own: pd.DataFrame, way: str) -> None:
    ax.set(xlim=(-1.08, 1.08), ylim=(-1.08, 1.08), aspect="equal")
    ax.axis("off")
    ax.add_patch(Circle((0, 0), 1, fill=False, color=FAINT, lw=0.8))
    x, y, depth = (own[f"{way}_{axis}"] for axis in "xyz")
    last = max(int(own["element"].max()), 1)
    hue = colormaps["hsv" if last > 9 else "viridis"](own["element"] / (last + (last > 9)))
    near = (depth.fillna(0) + 1) / 2
    look: dict[str, Any] = {"c": hue, "s": 3 + 7 * near, "lw": 0, "alpha": 0.35 + 0.65 * near}
    ax.scatter(x, y, **look)
    ax.plot(0, 0, "+", color=MUTED, ms=4, mew=0.6)
