"""A kind of table: the lowest and the highest seed of every cell."""

import pandas as pd

from chomsky_ladder.harness.stats.view import cells_of
from chomsky_ladder.harness.tables.kind import Kind, Made, register
from chomsky_ladder.harness.tables.sheets import Column, Entry, Line, Sheet, two_digits


def spread(records: pd.DataFrame) -> Made:
    cells = [cell for cell in cells_of(records) if cell.runs]
    lines = [
        Line(f"{cell.stats.task}, {cell.stats.model}", (Entry((two_digits(low),)), Entry((two_digits(high),))))
        for cell in cells
        for low, high in [(min(cell.stats.scores), max(cell.stats.scores))]
    ]
    rows = [{**cell.place, "low": min(cell.stats.scores), "high": max(cell.stats.scores)} for cell in cells]
    title = str(records["protocol"].iloc[0])
    sheet = Sheet(title, ("Scaled accuracy.",), "cell", (Column("lowest"), Column("highest")), tuple(lines))
    return Made((sheet,) if lines else (), pd.DataFrame(rows))


register(Kind(name="spread", about="the lowest and the highest seed", make=spread))
