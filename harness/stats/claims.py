"""Tests of whether one model may be called better than another in a cell: permutation tests over seeds, and bold type.

    permutation_test([1, 2, 3], [4, 5, 6]).p       .10, the least possible with three seeds each; with five 2 / 252

Fisher 1935 and Pitman 1937; Phipson and Smyth 2010 for the added 1 of the Monte Carlo form; Holm 1979.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, combinations
from typing import Literal

import numpy as np

from chomsky_ladder.harness.stats.cell_stats import CellStats, checked_share, finite

_BLOCK = 1000  # splits at a time


@dataclass(frozen=True)
class PermutationTest:
    difference: float  # mean of the first minus mean of the second
    p: float  # two-sided
    splits: int  # number of splits tried, the observed one included
    exact: bool  # all possible splits were tried


def permutation_test(
    first: Sequence[float],
    second: Sequence[float],
    *,
    exact_up_to: int = 200_000,
    draws: int = 19_999,
    seed: int = 0,
) -> PermutationTest:
    """Return the share of splits of the pooled seeds whose means are at least as far apart as the observed ones.

    Beyond `exact_up_to` splits, random ones and the observed one are used. The order of samples and seeds does not
    change p.
    """
    if not len(first) or not len(second):
        raise ValueError("a permutation test needs at least one seed on either side")
    pooled_N = np.sort(np.concatenate([finite(first), finite(second)]))
    centre = math.fsum(pooled_N) / len(pooled_N)
    smaller = min(first, second, key=len)
    observed = abs(math.fsum(score - centre for score in smaller))  # in proportion to the difference of means
    count, size = math.comb(len(pooled_N), len(smaller)), len(smaller)
    exact = count <= exact_up_to
    split_Sn = _splits(len(pooled_N), size, draws=0 if exact else draws, seed=seed)
    apart = [
        (pooled_N - centre)[block_Sn].sum(axis=1) for block_Sn in np.array_split(split_Sn, len(split_Sn) // _BLOCK + 1)
    ]
    apart_S = np.abs(np.concatenate(apart))
    tolerance = 1e-12 * float(np.abs(pooled_N).max())  # scores are rounded, so equal distances need not be equal floats
    hits = int((apart_S >= observed - tolerance).sum())
    difference = math.fsum(first) / len(first) - math.fsum(second) / len(second)
    if exact:
        return PermutationTest(difference, hits / count, count, exact=True)
    return PermutationTest(difference, (hits + 1) / (draws + 1), draws + 1, exact=False)


@lru_cache(maxsize=4)
def _splits(count: int, size: int, *, draws: int, seed: int) -> np.ndarray:
    """Return splits [S, size] of the pooled seeds: all, or random ones. They are cached for the cells of a table."""
    if not draws:
        flat, rows = chain.from_iterable(combinations(range(count), size)), math.comb(count, size)
        return np.fromiter(flat, dtype=np.intp, count=rows * size).reshape(rows, size)
    stream, split_Sn = np.random.Philox(key=seed), np.empty((draws, size), dtype=np.int32)
    for start in range(0, draws, _BLOCK):
        block_Sn = split_Sn[start : start + _BLOCK]
        keys_SN = stream.random_raw(len(block_Sn) * count).reshape(len(block_Sn), count)
        block_Sn[:] = keys_SN.argsort(axis=1, kind="stable")[:, :size]
    return split_Sn


@dataclass(frozen=True)
class Against:
    """The comparison of a cell's leader with one other model."""

    model: str
    n: int
    difference: float | None  # the leader's mean minus this one's
    p: float | None  # after the correction, if there is one; None: not tested
    reason: str  # why it was not tested


@dataclass(frozen=True)
class Verdict:
    """The claims that one task's cells allow."""

    leader: str
    bold: tuple[str, ...]  # the leader and those it was not shown to beat, if it was shown to beat any
    beaten: tuple[str, ...]
    against: tuple[Against, ...]
    reason: str  # why nothing may be bold; "" if something may


def verdict(
    rivals: Sequence[CellStats],
    *,
    alpha: float = 0.05,
    least: int = 5,
    correction: Literal["none", "holm"] = "none",
) -> Verdict:
    """Return the models of a task that may be called better: permutation tests of the highest mean against every other.

    A claim needs `least` runs on both sides. A diverged run counts, with a score of 0. A failed run is no result: its
    model is called neither better nor worse until it has been run again. Without a correction each test stands for
    itself. `holm` keeps the probability of any false claim in the cell below alpha.
    """
    checked_share(alpha, "alpha")
    samples = {cell.model: cell.scores + (0.0,) * cell.diverged for cell in rivals}
    places = {(cell.protocol, cell.task) for cell in rivals}
    measures = {cell.measure for cell in rivals} - {None}
    if len(samples) != len(rivals) or len(places) != 1 or len(measures) > 1:
        raise ValueError("a verdict is over different models of one protocol and task, with one kind of accuracy")
    failed = {cell.model: cell.failed for cell in rivals}
    leader = max(sorted(name for name in samples if samples[name]), key=lambda name: _mean(samples[name]), default="")
    if not leader:
        return Verdict("", (), (), (), "no run has a result")
    others = [name for name in sorted(samples) if name != leader]
    hurdles = {name: _hurdle(len(samples[name]), failed[name], least=least) for name in sorted(samples)}
    tested = [name for name in others if not hurdles[name] and not hurdles[leader]]
    tests = {name: permutation_test(samples[leader], samples[name]) for name in tested}
    ps = {name: test.p for name, test in tests.items()}
    if correction == "holm":
        ps = holm(ps)
    against = tuple(
        Against(
            name,
            len(samples[name]),
            tests[name].difference if name in tests else None,
            ps.get(name),
            "" if name in tests else hurdles[name] or f"{leader}: {hurdles[leader]}",
        )
        for name in others
    )
    beaten = tuple(name for name in tested if ps[name] <= alpha)
    if beaten:
        return Verdict(leader, (leader, *(name for name in tested if name not in beaten)), beaten, against, "")
    if not others:
        reason = f"{leader} stands alone"
    elif hurdles[leader]:
        reason = f"{leader} leads: {hurdles[leader]}"
    elif not tested:
        reason = f"no rival of {leader} can be tested: {', '.join(f'{name}: {hurdles[name]}' for name in others)}"
    else:
        reason = f"{leader} beats none at p <= {alpha:g}: the least p is {min(ps.values()):.2g}"
    return Verdict(leader, (), (), against, reason)


def holm(ps: dict[str, float]) -> dict[str, float]:
    """Return Holm's (1979) adjusted p: the i-th smallest of m times m - i + 1, monotone and at most 1."""
    adjusted, highest = {}, 0.0
    for place, name in enumerate(sorted(ps, key=lambda name: (ps[name], name))):
        highest = max(highest, min(1.0, (len(ps) - place) * ps[name]))
        adjusted[name] = highest
    return adjusted


def _hurdle(n: int, failed: int, *, least: int) -> str:
    if n < least:
        return f"n = {n}, and a claim needs {least}"
    return f"{failed} failed" if failed else ""


def _mean(scores: Sequence[float]) -> float:
    return math.fsum(scores) / len(scores)
