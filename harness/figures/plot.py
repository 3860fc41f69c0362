"""The interface of a figure: one file of harness/figures/kinds/, or of a plugin, with its numbers and its drawing.

    register(Plot(name="spread", title="Spread over seeds", data=numbers, draw=draw, why_not="no seeds"))

`ladder figures` writes PNG, SVG and the numbers as CSV under its name for every protocol, and the page shows it with
its title. A plugin's package announces its module by an entry point of the group `ladder.figures`; a file of one's own
comes with `--plugin`. The numbers are made without matplotlib's help, and nothing else is drawn than what they say.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from chomsky_ladder.harness.config.presets import remark_of
from chomsky_ladder.harness.config.rooms import open_room, registered
from chomsky_ladder.harness.stats.cells import least_and_most, median_of
from chomsky_ladder.harness.stats.looks import Look
from chomsky_ladder.harness.stats.view import Cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Scene:
    """The input of a figure: the cells of one protocol, or of a family of protocols, and the curves of their runs."""

    cells: Sequence[Cell]
    curves: pd.DataFrame | None
    looked: Mapping[str, Look]
    """How every model looks, the same in all figures."""
    label: str = ""
    """The label of the cells, where that is not their protocol."""
    width: float = 7.2
    """Inches. The default is the text of a page, so sizes in points are as printed."""

    @property
    def protocol(self) -> str:
        return self.label or self.cells[0].stats.protocol

    @property
    def protocol_name(self) -> str:
        """The protocol without the settings that differ from it."""
        return self.cells[0].stats.identity.protocol_name

    @property
    def titles(self) -> dict[str, str]:
        """The names of models in tables, by their labels."""
        return {cell.stats.model: cell.stats.title for cell in self.cells}

    @property
    def remark(self) -> str:
        """The protocol's remark, which stands beside the title."""
        return remark_of(self.protocol_name)


@dataclass(frozen=True, kw_only=True)
class Plot:
    name: str
    title: str
    """The title on the page."""
    data: Callable[[Scene], pd.DataFrame]
    """Return its numbers; empty where there is nothing to show."""
    draw: "Callable[[pd.DataFrame, Scene], Figure]"
    why_not: str | Callable[[Scene], str]
    """The message where there is nothing to show."""
    when: Callable[[Scene], bool] = lambda scene: True
    """Return True if the figure suits the protocol. Where it does not, no message is printed."""
    together: Callable[[Mapping[str, Any]], str] | None = None
    """Return the label that protocols in one picture have in common; None: each protocol has its own picture."""
    fewest: int = 1
    """Cells it needs. With fewer it is drawn only if the figure, or models or tasks, are asked for by name."""
    rank: int = 100
    """The place on the page; equal ranks in the order of registration."""
    module: str = ""
    """The module that registers it; filled in by `register`."""


PLOTS: list[Plot] = []
ROOM = open_room("figure", "chomsky_ladder.harness.figures.kinds", "ladder.figures", PLOTS)


def register(plot: Plot) -> Plot:
    """Make a figure known under its name."""
    return registered(plot, ROOM)


def all_plots() -> list[Plot]:
    """Return the figures whose name nothing else claims, in their order."""
    kept = {plot.name for plot in ROOM.all()}
    return sorted((plot for plot in PLOTS if plot.name in kept), key=lambda plot: plot.rank)


def one_a_task(cells: Sequence[Cell]) -> list[Cell]:
    """Return the first cell of each task that has a finished run."""
    first: dict[str, Cell] = {}
    for cell in cells:
        if cell.runs:
            first.setdefault(cell.stats.task, cell)
    return list(first.values())


def spread(values: Sequence[float | None]) -> dict[str, Any]:
    """Return median, least, most and number of the seeds' values."""
    there = [value for value in values if value is not None and math.isfinite(value)]
    numbers = (median_of(there), *least_and_most(there), len(there))
    return dict(zip(("median", "min", "max", "n"), numbers, strict=True))


def rows_of(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=list(columns))
