"""A figure: a dot for every seed."""

import pandas as pd
from matplotlib.figure import Figure

from chomsky_ladder.harness.figures.plot import Plot, Scene, register


def seeds(scene: Scene) -> pd.DataFrame:
    rows = [{**cell.place, "score": score} for cell in scene.cells for score in cell.stats.scores]
    return pd.DataFrame(rows)


def draw(data: pd.DataFrame, scene: Scene) -> Figure:
    fig = Figure(figsize=(4, 3))
    ax = fig.add_subplot()
    ax.plot(data["model"], data["score"], ls="", marker="o")
    ax.set_title(f"Seeds, {scene.protocol}")
    return fig


register(Plot(name="seeds", title="A dot for every seed", data=seeds, draw=draw, why_not="no seeds"))
