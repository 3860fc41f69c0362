"""Sample efficiency: accuracy against the strings of the training set, a panel a task, a line a model."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from chomsky_ladder.harness.figures.panels import BAND, SCALED, accuracy_axis, lines, panel_key, panels
from chomsky_ladder.harness.figures.plot import Plot, Scene, register, rows_of, spread
from chomsky_ladder.harness.figures.style import FAINT, caption, head, short
from chomsky_ladder.harness.stats.examples import ENDLESS, size_of, whole
from chomsky_ladder.harness.stats.view import Cell

_COLUMNS = ("protocol", "level", "task", "model", "scaled", "examples", "median", "min", "max", "n")


def examples(scene: Scene) -> pd.DataFrame:
    """Test accuracy by the size of the training set, 0 for endless strings, of models that have a finite one."""
    finite = {(cell.stats.task, cell.stats.model) for cell in scene.cells if _size(cell) != ENDLESS and cell.runs}
    rows = []
    for cell in scene.cells:
        if cell.runs and (cell.stats.task, cell.stats.model) in finite:
            found = spread([cell.scaled(run["test"]) for run in cell.runs])
            rows.append({**cell.place, "protocol": scene.protocol, "examples": _size(cell), **found})
    return rows_of(rows, _COLUMNS)


def _size(cell: Cell) -> int:
    return size_of(cell.stats.identity.columns())


def draw(data: pd.DataFrame, scene: Scene) -> Figure:
    finite = data.loc[data["examples"] != ENDLESS, "examples"]
    least, most = int(finite.min()), int(finite.max())
    beyond = 5 * most  # where endless strings stand
    has_endless = len(finite) < len(data)
    powers = [10**power for power in range(12) if least / 1.5 <= 10**power <= most * 1.5] or [least]
    ticks = [*powers, *([beyond] if has_endless else [])]

    def panel(ax: Axes, rows: pd.DataFrame) -> None:
        is_endless = rows["examples"] == ENDLESS
        lines(ax, rows[~is_endless], scene, x="examples")
        if has_endless:
            ax.axvline(beyond / 2.2, color=FAINT, lw=0.6, zorder=1)
        for place, (_, row) in enumerate(rows[is_endless].sort_values("model").iterrows()):
            look, size = scene.looked[row["model"]], 4.8 - 2 * place / is_endless.sum()
            ax.plot([beyond] * 2, [row["min"], row["max"]], color=look.color, lw=2.4, alpha=0.3, zorder=2)
            ax.plot([beyond], [row["median"]], color=look.color, marker=look.marker, ms=size, mew=0, zorder=3)
        accuracy_axis(ax)
        ax.set_xscale("log")
        ax.set_xlim(least / 1.6, (beyond if has_endless else most) * 1.6)
        ax.xaxis.set_major_locator(FixedLocator(ticks))
        ax.xaxis.set_minor_locator(NullLocator())
        ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: "∞" if has_endless and x == beyond else short(x)))

    fig, top = panels(data, panel, scene, x="training strings")
    top += panel_key(fig, top, data, scene, {})
    head(fig, "Accuracy against the training set", scene)
    caption(
        fig,
        top + 0.05,
        f"{BAND} {SCALED} Sets of so many strings are seen in epochs; ∞: no string twice.",
    )
    return fig


register(
    Plot(
        name="examples",
        title="Accuracy against the training set",
        data=examples,
        draw=draw,
        together=whole,
        when=lambda scene: any(_size(cell) != ENDLESS for cell in scene.cells),
        why_not="no run of a finite training set has finished",
        rank=2,
    )
)
