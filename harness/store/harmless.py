"""CSV files without formulas: a cell that a spreadsheet would compute begins with an apostrophe.

    =cmd|' /C calc'!A1   ->   '=cmd|' /C calc'!A1

`cell_of` removes the apostrophe. Numbers and harmless text are not changed.
"""

import csv
import re
from typing import Any

import pandas as pd

_NUMBER = r"[+-]?\d[\d.]*(?:e[+-]?\d+)?"
_COMPUTED = re.compile(rf"'*(?!{_NUMBER}(?: {_NUMBER})*\Z)[=+\-@\t\r]")  # the start of a formula, not of number lists


def csv_of(frame: pd.DataFrame, *, float_format: str | None = None) -> str:
    """Return a frame as CSV in which no text is a formula."""
    texts = {name: frame[name].map(_guarded) for name in frame.columns if _may_be_computed(frame[name])}
    guarded = frame.assign(**texts)
    # Readers end a line at a lone carriage return, but the writer only quotes it if it quotes all texts.
    returns = any(_has_return(guarded.iloc[:, place]) for place in range(guarded.shape[1]))
    quoting = csv.QUOTE_NONNUMERIC if returns else csv.QUOTE_MINIMAL
    return guarded.to_csv(index=False, lineterminator="\n", float_format=float_format, quoting=quoting)


def cell_of(text: str) -> str:
    """Return the text of a cell without the protecting apostrophe."""
    return text[1:] if text.startswith("'") and _COMPUTED.match(text) else text


def _may_be_computed(column: pd.Series) -> bool:
    if pd.api.types.is_numeric_dtype(column.dtype):
        return False
    return any(map(_COMPUTED.match, _texts(column)))


def _has_return(column: pd.Series) -> bool:
    if pd.api.types.is_numeric_dtype(column.dtype):
        return False
    return any("\r" in text for text in _texts(column))


def _texts(column: pd.Series) -> set[str]:
    """Return each text once. A run's id stands beside every step of its curve."""
    return {value for value in column.tolist() if isinstance(value, str)}


def _guarded(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and _COMPUTED.match(value) else value
