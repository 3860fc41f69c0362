"""A test of whether our measurement agrees with a published value: equivalence, not overlapping spreads.

    seeds .99 1.00 1.00, published 1.00       agrees: the 95 % interval of our mean, .982..1.011, lies within .05 of it
    seeds .00 .00 1.00, published 1.00        undecided: the interval is -1.10..1.77
    seeds .90 .90 .91, published .99          differs: the whole interval lies further away

The interval of a mean is Student's. That of a median is the range of the seeds, which holds the median of all seeds
with probability 1 - 2^(1-n). A best seed is compared as it is. If it is too low, more seeds might have had a better
one. So it only differs if there were as many seeds as in the paper.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist, median
from typing import Literal

from chomsky_ladder.harness.config.protocol import Reports

Agreement = Literal["agrees", "differs", "undecided", "floor"]

WITHIN = 0.05

_T = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281)  # .975, 1 to 10 degrees


def equivalence(
    scores: Sequence[float],
    value: float,
    *,
    reports: Reports = "mean",
    rounding: float = 0.0,
    floor: float = 0.0,
    theirs: int | None = None,
) -> Agreement:
    """Compare finished seeds with a published value in the same measure, for which `theirs` seeds were tried.

    `floor` is the accuracy of a guess from length and position. If neither side is above it, there is nothing to
    compare.
    """
    if not scores:
        return "undecided"
    margin = WITHIN + rounding + 1e-12
    if max(*scores, value) <= floor + margin:
        return "floor"
    low, high = _interval(scores, reports)
    if value - margin <= low and high <= value + margin:
        return "agrees"
    if high < value - margin and not (reports == "best" and len(scores) < (theirs or 1)):
        return "differs"
    return "differs" if low > value + margin else "undecided"


def reported(scores: Sequence[float], reports: Reports) -> float:
    """Return the number that stands for the seeds, as a paper has it."""
    return {
        "mean": lambda: math.fsum(scores) / len(scores),
        "median": lambda: median(scores),
        "best": lambda: max(scores),
    }[reports]()


def _interval(scores: Sequence[float], reports: Reports) -> tuple[float, float]:
    n = len(scores)
    if reports == "best":
        return max(scores), max(scores)
    if n == 1:
        return -math.inf, math.inf
    if reports == "median":
        return min(scores), max(scores)
    mean = math.fsum(scores) / n
    std = math.sqrt(math.fsum((score - mean) ** 2 for score in scores) / (n - 1))
    half = student(n - 1) * std / math.sqrt(n)
    return mean - half, mean + half


def student(degrees: int) -> float:
    """Return the .975 quantile of Student's t. From 11 degrees on, Fisher's expansion is exact to .0002."""
    if degrees <= len(_T):
        return _T[degrees - 1]
    z = NormalDist().inv_cdf(0.975)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / degrees + second / degrees**2 + third / degrees**3
