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
    ],
)
def test_what_is_unpacked_is_what_was_packed(values: list[object]) -> None:
    found = packed(values)
    assert written(unpacked(found)) == written(values) and len(written(found)) <= len(written(values))


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
