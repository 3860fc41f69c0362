"""The rank correlation against ranks in plain Python, with ties, and its interval against drawn copies."""

import random
import statistics

import numpy as np
import pytest

from chomsky_ladder.harness.stats.aggregates import Bootstrap, draw_counts
from chomsky_ladder.harness.stats.correlation import spearman

FEW = Bootstrap(resamples=50)


def plain(x: list[float], y: list[float]) -> float:
    """Pearson's correlation of mean ranks."""
    ranks = [[statistics.fmean(i for i, b in enumerate(sorted(of), 1) if b == a) for a in of] for of in (x, y)]
    return 0.0 if 1 in (len(set(x)), len(set(y))) else statistics.correlation(*ranks)


def test_by_hand() -> None:
    assert spearman([1, 2, 3, 4], [10, 30, 20, 40]).value == 0.8
    assert spearman([1, 2, 3], [9, 4, 1], bootstrap=FEW).value == -1
    assert spearman([1, 1, 1, 1], [1, 2, 3, 4], bootstrap=FEW) == (0, 0, 0)
    assert spearman([1, 2], [1, 2]) == (1, None, None)
    with pytest.raises(ValueError, match="needs pairs, not 3 and 2 values"):
        spearman([1, 2, 3], [1, 2])


def test_it_is_pearsons_of_mean_ranks_in_every_resample() -> None:
    draws = random.Random(0)
    x, y = ([draws.randrange(6) / 10 for _ in range(9)] for _ in "xy")
    found = spearman(x, y, bootstrap=FEW)
    (count_Rn,) = draw_counts((9,), 50, 0)
    copies = [[place for place, times in enumerate(row) for _ in range(times)] for row in count_Rn.tolist()]
    drawn = [plain([x[place] for place in one], [y[place] for place in one]) for one in copies]
    assert found.value == pytest.approx(plain(x, y), abs=1e-12)
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(drawn, [0.025, 0.975])), abs=1e-12)
