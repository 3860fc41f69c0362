"""Choose the cell of ours that stands beside papers: of the protocols of their family, the most training strings."""

from collections.abc import Iterable

import pandas as pd

from chomsky_ladder.harness.config.presets import PROTOCOLS
from chomsky_ladder.harness.stats.view import Cell, cells_of
from chomsky_ladder.harness.tables.published import Published, published


def most_trained(records: pd.DataFrame, model: str, task: str, papers: Iterable[str]) -> Cell | None:
    """Return the cell of a model and task that most strings trained; None: no run of theirs has finished."""
    best: tuple[int, Cell] | None = None
    own = records[(records["model"] == model) & (records["task"] == task)]
    for label in sorted(own["protocol"].unique()):
        cell = cells_of(own[own["protocol"] == label])[0]
        if cell.runs and cell.stats.measure and any(_stands(published(name), cell) for name in papers):
            strings = _strings(cell)
            best = (strings, cell) if best is None or strings > best[0] else best
    return best and best[1]


def _stands(paper: Published, cell: Cell) -> bool:
    return not paper.why_not(cell.stats.identity)


def _strings(cell: Cell) -> int:
    protocol = PROTOCOLS[cell.stats.identity.protocol_name]
    return protocol.train["steps"] * protocol.train["batch"]
