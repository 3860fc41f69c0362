"""Models x tasks, by class: accuracy at the rate chosen on validation, at the last step."""

from collections.abc import Callable

import pandas as pd

from chomsky_ladder.harness.stats.cell_stats import cell_stats, stats_of
from chomsky_ladder.harness.stats.cells import cells, placed, tabled
from chomsky_ladder.harness.tables.against import against_data, against_sheet
from chomsky_ladder.harness.tables.bold import allowed_bold
from chomsky_ladder.harness.tables.kind import Kind, Made, Row, register
from chomsky_ladder.harness.tables.published import Published
from chomsky_ladder.harness.tables.sheets import accuracy_sheet


def accuracy(records: pd.DataFrame) -> Made:
    places = placed(records)
    frame = tabled(places)
    if frame.empty:
        return Made((), frame)
    bold, why = allowed_bold(stats_of(places))
    return Made((accuracy_sheet(frame, bold=bold, notes=why),), frame)


def beside_a_paper(wants: Callable[[Row], bool] = lambda row: True) -> Callable[[pd.DataFrame, Published], Made]:
    """Make the cells of a kind beside the paper's; `wants` selects the paper's tasks for this kind."""

    def made(records: pd.DataFrame, paper: Published) -> Made:
        frame, stats = cells(records), cell_stats(records)
        if frame.empty:
            return Made((), frame)
        bold, why = allowed_bold(stats)
        sheet = against_sheet(frame, records, stats, paper, wants=wants, bold=bold, notes=why)
        return Made((sheet,), against_data(frame, stats, paper))

    return made


ACCURACY = register(
    Kind(name="accuracy", about="models x tasks, by class", make=accuracy, against=beside_a_paper(), rank=0)
)
