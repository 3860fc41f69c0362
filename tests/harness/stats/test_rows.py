"""Rows of a frame are those that pandas makes, values and types."""

from pathlib import Path

import pandas as pd
import pytest

from chomsky_ladder.harness.stats.cells import cells
from chomsky_ladder.harness.stats.rows import as_rows
from chomsky_ladder.harness.store.record import stored

PUBLISHED = stored(Path(__file__).resolve().parents[3] / "results" / "records.csv")
MIXED = pd.DataFrame(
    {"a": [1.5, None], "b": ["x", None], "c": pd.array([1, None], dtype="Int64"), "d": [True, False], "e": [[1], "y"]}
)


@pytest.mark.parametrize("frame", [PUBLISHED, cells(PUBLISHED), MIXED, MIXED[:0], pd.DataFrame()])
def test_rows_are_those_of_pandas(frame: pd.DataFrame) -> None:
    ours, theirs = as_rows(frame), frame.to_dict("records")
    assert repr(ours) == repr(theirs)
    assert [[type(value) for value in row.values()] for row in ours] == [
        [type(value) for value in row.values()] for row in theirs
    ]
