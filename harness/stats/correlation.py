"""The rank correlation of two scores over models, with a bootstrap interval over the models.

    spearman([1, 2, 3, 4], [10, 30, 20, 40])  ->  0.8

Equal values share their mean rank. The bootstrap draws pairs with replacement and ranks each resample anew. Ranks are
multiples of a half, so that every sum is exact. A side without any difference has a correlation of 0.
"""

from collections.abc import Sequence

import numpy as np

from chomsky_ladder.harness.stats.aggregates import BOOTSTRAP, Bootstrap, Estimate, draw_counts
from chomsky_ladder.harness.stats.cell_stats import finite


def spearman(x: Sequence[float], y: Sequence[float], *, bootstrap: Bootstrap = BOOTSTRAP) -> Estimate:
    """Return the rank correlation of pairs, with its interval; None for the interval of fewer than three pairs."""
    x_n, y_n = finite(x), finite(y)
    if len(x_n) != len(y_n) or not len(x_n):
        raise ValueError(f"a correlation needs pairs, not {len(x_n)} and {len(y_n)} values")
    value = float(_correlations(x_n, y_n, np.ones((1, len(x_n))))[0])
    if len(x_n) < 3:
        return Estimate(value, None, None)
    (count_Rn,) = draw_counts((len(x_n),), bootstrap.resamples, bootstrap.key)
    return Estimate(value, *bootstrap.interval(_correlations(x_n, y_n, count_Rn.astype(float))).tolist())


def _correlations(x_n: np.ndarray, y_n: np.ndarray, count_Rn: np.ndarray) -> np.ndarray:
    """Return the correlation of each resample, given how often it holds each pair."""
    middle = (len(x_n) + 1) / 2
    x_Rn, y_Rn = (_ranks(values_n, count_Rn) - middle for values_n in (x_n, y_n))
    spread_R = np.sqrt((count_Rn * x_Rn**2).sum(1) * (count_Rn * y_Rn**2).sum(1))
    product_R = (count_Rn * x_Rn * y_Rn).sum(1)
    return np.divide(product_R, spread_R, out=np.zeros_like(product_R), where=spread_R > 0)


def _ranks(values_n: np.ndarray, count_Rn: np.ndarray) -> np.ndarray:
    """Return the mean rank of each value among the drawn ones."""
    below_nm, same_nm = (compare.astype(float) for compare in _compared(values_n))
    return count_Rn @ below_nm + (count_Rn @ same_nm + 1) / 2


def _compared(values_n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return values_n[:, None] < values_n[None, :], values_n[:, None] == values_n[None, :]
