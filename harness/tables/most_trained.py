"""Choose the cell of ours that stands beside papers: of the protocols of their family, the most training strings."""

from collections.abc import Iterable, Sequence

import pandas as pd

from chomsky_ladder.harness.config.presets import PROTOCOLS
from chomsky_ladder.harness.stats.view import Cell, cells_of
from chomsky_ladder.harness.tables.published import Published, published

ByPlace = dict[tuple[str, str], list[Cell]]


def by_place(records: pd.DataFrame) -> ByPlace:
    """Return the finished cells of all protocols by model and task."""
    found: ByPlace = {}
    for _, own in records.groupby("protocol", sort=True):
        for cell in cells_of(own):
            if cell.runs and cell.stats.measure:
                found.setdefault((cell.stats.model, cell.stats.task), []).append(cell)
    return found


def most_trained(cells: Sequence[Cell], papers: Iterable[str]) -> Cell | None:
    """Return the cell that most strings trained, of those that may stand beside one of the papers; None: none may."""
    family = [published(name) for name in papers]
    return max((cell for cell in cells if _stands(cell, family)), key=_strings, default=None)


def _stands(cell: Cell, family: Sequence[Published]) -> bool:
    return any(not paper.why_not(cell.stats.identity) for paper in family)


def _strings(cell: Cell) -> int:
    protocol = PROTOCOLS[cell.stats.identity.protocol_name]
    return protocol.train["steps"] * protocol.train["batch"]
