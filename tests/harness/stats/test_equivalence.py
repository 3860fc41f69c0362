"""Agreement with a published value: by hand, against Student's t by numerical integration, and under permutation."""

import math

import numpy as np
import pytest

from chomsky_ladder.harness.stats.equivalence import equivalence, reported, student


@pytest.mark.parametrize(
    ("scores", "value", "options", "found"),
    [
        ((0.99, 1.0, 1.0), 1.0, {}, "agrees"),
        ((0.0, 0.0, 1.0), 1.0, {}, "undecided"),  # 0.33 +- 1.43
        ((0.61, 1.0, 0.0), 1.0, {}, "undecided"),
        ((0.90, 0.90, 0.91), 0.99, {}, "differs"),
        ((0.90, 0.90, 0.91), 0.95, {}, "undecided"),
        ((0.95, 0.95, 0.95), 1.0, {}, "agrees"),  # at the edge
        ((0.9449, 0.9449), 1.0, {}, "differs"),
        ((0.9449, 0.9449), 1.0, {"rounding": 0.005}, "differs"),
        ((0.9451, 0.9451), 1.0, {"rounding": 0.005}, "agrees"),
        ((1.0,), 1.0, {}, "undecided"),  # one seed has no interval
        ((), 1.0, {}, "undecided"),
        ((0.02, 0.0, -0.03), 0.04, {}, "floor"),
        ((0.52, 0.55, 0.5), 0.53, {"floor": 0.5}, "floor"),
        ((0.52, 0.55, 0.5), 1.0, {"floor": 0.5}, "differs"),
        ((0.0, 1.0, 1.0), 1.0, {"reports": "median"}, "undecided"),
        ((0.97, 1.0, 1.0), 1.0, {"reports": "median"}, "agrees"),
        ((0.0, 0.1, 0.2), 1.0, {"reports": "median"}, "differs"),
        ((0.0, 0.1, 0.98), 1.0, {"reports": "best"}, "agrees"),
        ((0.0, 0.1, 0.8), 1.0, {"reports": "best", "theirs": 3}, "differs"),
        ((0.0, 0.1, 0.8), 1.0, {"reports": "best", "theirs": 10}, "undecided"),  # more seeds might reach it
        ((0.0, 0.1, 0.8), 0.5, {"reports": "best", "theirs": 10}, "differs"),  # more cannot lower it
    ],
)
def test_by_hand(scores: tuple[float, ...], value: float, options: dict, found: str) -> None:
    assert equivalence(scores, value, **options) == found == equivalence(scores[::-1], value, **options)


def test_what_stands_for_the_seeds() -> None:
    scores = (0.0, 0.25, 1.0)
    assert [reported(scores, name) for name in ("mean", "median", "best")] == [pytest.approx(1.25 / 3), 0.25, 1.0]


@pytest.mark.parametrize("degrees", [1, 2, 3, 5, 10, 11, 12, 19, 40, 199])
def test_the_quantile_holds_95_per_cent_of_students_t(degrees: int) -> None:
    """Integrated in x = tan(u), which maps the whole line onto an interval."""
    edge = math.atan(student(degrees))
    u = np.linspace(-edge, edge, 200_001)
    density = (1 + np.tan(u) ** 2 / degrees) ** (-(degrees + 1) / 2) / np.cos(u) ** 2
    scale = math.exp(math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)) / math.sqrt(degrees * math.pi)
    assert np.trapezoid(density, u) * scale == pytest.approx(0.95, abs=2e-5)
