"""Tables from records and nothing else: results/records.csv in, CSV and markdown out, the same bytes every time.

A table holds one protocol, its deviations named in the title. The records come from harness/store/record.py, the cells
from harness/stats/cells.py; other kinds of table and other formats are in harness/tables/kinds.py.
"""

from pathlib import Path

import pandas as pd

from chomsky_ladder.harness.stats.cells import cells as cells
from chomsky_ladder.harness.store.files import write_atomically
from chomsky_ladder.harness.store.record import Record as Record
from chomsky_ladder.harness.store.record import collect
from chomsky_ladder.harness.store.record import stored as stored
from chomsky_ladder.harness.tables import formats as table_formats
from chomsky_ladder.harness.tables.sheets import LEVELS as _LEVELS
from chomsky_ladder.harness.tables.sheets import accuracy_sheet

__all__ = ["_LEVELS", "Record", "cells", "collect", "csv", "markdown", "stored", "write"]


def markdown(table: pd.DataFrame) -> str:
    """All cells as one table a protocol."""
    return table_formats.markdown([accuracy_sheet(group) for _, group in table.groupby("protocol", sort=True)])


def csv(table: pd.DataFrame) -> str:
    return table.to_csv(index=False, lineterminator="\n", float_format="%.6g")


def write(results: Path) -> str:
    """Bring records.csv up to date, write results/tables/accuracy.{csv,md}, and return the markdown."""
    table = cells(collect(results))
    folder = results / "tables"
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "accuracy.csv", csv(table).encode())
    text = markdown(table)
    write_atomically(folder / "accuracy.md", text.encode())
    return text
