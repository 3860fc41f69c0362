"""Rows of a frame are those that pandas makes, values and types."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from chomsky_ladder.harness.stats.cells import cells
from chomsky_ladder.harness.stats.rows import as_rows
from chomsky_ladder.harness.store.record import stored

MIXED = pd.DataFrame(
    {"a": [1.5, None], "b": ["x", None], "c": pd.array([1, None], dtype="Int64"), "d": [True, False], "e": [[1], "y"]}
)


def published() -> pd.DataFrame:
    return stored(Path(__file__).resolve().parents[3] / "results" / "records.csv")


def published_cells() -> pd.DataFrame:
    return cells(published())


@pytest.mark.parametrize("made", [lambda: MIXED, lambda: MIXED[:0], pd.DataFrame, published_cells, published])
def test_rows_are_those_of_pandas(made: Callable[[], pd.DataFrame]) -> None:
    frame = made()
    ours, theirs = as_rows(frame), frame.to_dict("records")
    assert repr(ours) == repr(theirs)
    assert [[type(value) for value in row.values()] for row in ours] == [
        [type(value) for value in row.values()] for row in theirs
    ]
