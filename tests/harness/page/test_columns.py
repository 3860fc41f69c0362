"""Columns of the page: nothing is lost but digits that are not shown, and the shorter way is taken."""

import math

import pytest

from chomsky_ladder.harness.page.columns import packed, shortened, written
from support.pages import unpacked


@pytest.mark.parametrize(
    "values",
    [
        ["a", "a", "a", "b"] * 9,
        [1, 2, 3],
        [0.25, None, 0.5],
        [[1, "a"], [1, "a"]] * 5,
        ["one"] * 30,
        ["a"] * 40 + ["b"] * 30 + ["a"] * 20 + [None] * 5,
        [],
        [True, False, 1],
        [[0.1234, 0.0567], [0.5], [], [0.9999, None]] * 2,
        [0.1234, 0.0567, None, 1, -0.0203, 12.346],
        [0.1234, 2.46e-07, 0.0001, 1e-300],
        [0.1234, 0.0567, "a"],
        [0.1234, 0.0567, True],
    ],
)
def test_what_is_unpacked_is_what_was_packed(values: list[object]) -> None:
    found = packed(values)
    assert written(unpacked(found)) == written(values) and len(written(found)) <= len(written(values))


def test_decimals_are_written_as_whole_parts_where_that_is_shorter() -> None:
    parts = [1234, [5432, None], 321, [7654, 9999, 1112], *range(3456, 3470)]
    values = [0.1234, [0.5432, None], 0.0321, [0.7654, 0.9999, 0.1112], *(part / 10_000 for part in range(3456, 3470))]
    assert packed(values) == {"per": 10_000, "in": parts}
    assert packed([0.1234, 1, 1, 2, 3]) == [0.1234, 1, 1, 2, 3]
    assert packed([0.1234] * 5) == {"all": 0.1234, "count": 5}


@pytest.mark.parametrize(
    ("value", "short"),
    [
        (0.123456789, 0.1235),
        (-0.00001, -1e-05),
        (123456.789, 123460),
        (12.34567, 12.346),
        (1.0, 1),
        (81645.2, 81645),
        (10_000_001, 10_000_001),
        (math.nan, None),
        (math.inf, None),
    ],
)
def test_numbers_keep_what_is_shown(value: float, short: float | None) -> None:
    assert shortened(value) == short
