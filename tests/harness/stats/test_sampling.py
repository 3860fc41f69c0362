"""Wilson's interval against the accuracies that a test of these strings does not rule out, and values by hand."""

import math

import pytest

from chomsky_ladder.harness.stats.sampling import wilson


@pytest.mark.parametrize("share", [0.0, 0.03, 0.5, 0.95, 1.0])
@pytest.mark.parametrize("strings", [1, 20, 151])
def test_its_ends_lie_1_96_of_their_own_errors_away(share: float, strings: int) -> None:
    for end in wilson(share, strings):
        error = math.sqrt(end * (1 - end) / strings)
        assert abs(abs(share - end) - 1.959964 * error) < 1e-6


def test_values_by_hand_and_no_interval_of_nothing() -> None:
    assert wilson(0.95, 150) == pytest.approx((0.9025, 0.9750), abs=1e-4)
    assert wilson(0.5, 10_000) == pytest.approx((0.4902, 0.5098), abs=1e-4)
    with pytest.raises(ValueError, match="a string or more"):
        wilson(0.5, 0)
