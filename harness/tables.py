"""Tables from records and nothing else: results/records.csv in, CSV and markdown out, the same bytes every time.

A table holds one protocol, its deviations named in the title. The records come from harness/collect.py, the cells from
harness/cells.py; other kinds of table and other formats are in harness/table_kinds.py.
"""

from pathlib import Path

import pandas as pd

from harness import table_formats
from harness.cells import cells as cells
from harness.collect import Record as Record
from harness.collect import collect
from harness.collect import stored as stored
from harness.files import write_atomically
from harness.sheets import LEVELS as _LEVELS
from harness.sheets import accuracy_sheet

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
