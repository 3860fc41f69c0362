"""Fit how cost grows with length: the exponent of a power law, and whether two measurements agree.

    log cost = a + b log length        b = 1: linear in the length; b = 2: quadratic

Least squares over the medians, with Student's 95 % interval of b. The interval is wide if the points do not lie on a
line, for example where a fixed cost still dominates. `last` is the slope between the two longest lengths alone, where
that cost matters least.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

# .975 quantiles of Student's t with 1, 2, .. degrees of freedom.
_STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)

Row = Mapping[str, Any]


class Power(NamedTuple):
    exponent: float
    low: float
    high: float
    last: float
    points: int


def power_law(lengths: Sequence[float], costs: Sequence[float]) -> Power | None:
    """Return the fit; None for fewer than three lengths or a cost of 0."""
    pairs = sorted(zip(lengths, costs, strict=True))
    if len({length for length, _ in pairs}) < 3 or min(cost for _, cost in pairs) <= 0:
        return None
    x, y = ([math.log(pair[i]) for pair in pairs] for i in (0, 1))
    count, mean_x, mean_y = len(pairs), sum(x) / len(x), sum(y) / len(y)
    spread = sum((each - mean_x) ** 2 for each in x)
    slope = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / spread
    left = sum((b - mean_y - slope * (a - mean_x)) ** 2 for a, b in zip(x, y, strict=True))
    free = count - 2
    wide = _STUDENT[min(free, len(_STUDENT)) - 1] * math.sqrt(left / free / spread)
    last = (y[-1] - y[-2]) / (x[-1] - x[-2])
    return Power(slope, slope - wide, slope + wide, last, count)


class Agreement(NamedTuple):
    points: int  # measured in both
    agree: int  # whose 20th to 80th percentiles overlap
    apart: tuple[str, ...]  # the others: the point and the ratio of its medians, largest first


KEY = ("model", "match", "way", "precision", "what", "length", "batch")


def agreement(one: Sequence[Row], other: Sequence[Row]) -> Agreement:
    """Compare two measurements of the same grid."""
    theirs = {tuple(row[key] for key in KEY): row for row in other if row.get("ms") is not None}
    pairs = [
        (row, theirs[place])
        for row in one
        if row.get("ms") is not None and (place := tuple(row[key] for key in KEY)) in theirs
    ]
    apart = [(a, b) for a, b in pairs if a["ms_p20"] > b["ms_p80"] or b["ms_p20"] > a["ms_p80"]]
    apart.sort(key=lambda pair: -abs(math.log(pair[1]["ms"] / pair[0]["ms"])))
    said = tuple(f"{' '.join(str(a[key]) for key in KEY)}: x{b['ms'] / a['ms']:.2f}" for a, b in apart)
    return Agreement(len(pairs), len(pairs) - len(apart), said)
