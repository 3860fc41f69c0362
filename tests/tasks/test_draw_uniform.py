"""The random stream is uniform and uncorrelated along every part of its address, addressable, and fixed for ever.

Statistics are z-scores (chi-squares through Wilson and Hilferty's cube root), held to five standard deviations over
fixed seeds; broken streams under the same checks are caught by them.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import permutations
from typing import Protocol

import numpy as np
import pytest
import torch

from chomsky_ladder.tasks.draw import Draw, NumpyDraw

torch.set_num_threads(1)

LIMIT = 5.0
BITS = 30
SPLITS = ("train", "train0", "train1", "validation", "test", "probe/train", "probe/test", "floors", "lengths", "")


class Stream(Protocol):
    def integers(self, high: int, shape: Sequence[int] = ()) -> np.ndarray: ...


MakeStream = Callable[[int, str, np.ndarray], Stream]


def numpy_draw(seed: int, split: str, rows_B: np.ndarray) -> NumpyDraw:
    return NumpyDraw(seed=seed, split=split, rows_B=rows_B)


def rows_of(count: int, start: int = 0) -> np.ndarray:
    return np.arange(start, start + count)


def chi_square_z(counts: np.ndarray, shares: np.ndarray | None = None) -> float:
    """Return how far counts are from their shares (by default equal ones); negative if they are too even."""
    expected = counts.sum() * (np.full(counts.size, 1 / counts.size) if shares is None else shares)
    freedom = counts.size - 1
    ratio = float(((counts - expected) ** 2 / expected).sum()) / freedom
    spread = 2 / (9 * freedom)
    return (ratio ** (1 / 3) - (1 - spread)) / math.sqrt(spread)


def correlation_z(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.corrcoef(a.ravel(), b.ravel())[0, 1]) * math.sqrt(a.size)


def bits_z(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The correlation of every bit of `a` with every bit of `b`, [BITS, BITS]."""
    signs_a, signs_b = (
        2.0 * ((torch.from_numpy(x.reshape(-1, 1)) >> torch.arange(BITS)) & 1).float() - 1 for x in (a, b)
    )
    return (signs_a.T @ signs_b / math.sqrt(a.size)).numpy()


def runs_z(values: np.ndarray) -> float:
    """Wald and Wolfowitz: the number of runs above and below the middle, given how many lie on each side."""
    above = values.ravel() >= 1 << (BITS - 1)
    n, k = above.size, int(above.sum())
    mean = 1 + 2 * k * (n - k) / n
    return float((1 + np.count_nonzero(above[1:] != above[:-1]) - mean) / math.sqrt((mean - 1) * (mean - 2) / (n - 1)))


def kolmogorov(values: np.ndarray) -> float:
    """sqrt(n) times the largest distance from the uniform law on [0, 1); above 2.6 once in 370,000 samples."""
    ordered, n = np.sort(values.ravel().astype(np.float64)), values.size
    above, below = np.arange(1, n + 1) / n - ordered, ordered - np.arange(n) / n
    return math.sqrt(n) * float(max(above.max(), below.max()))


def neighbours(make: MakeStream) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Named pairs of equally shaped blocks of the stream that differ in one part of the address, or exchange two."""
    rows, columns, high = 512, 48, 1 << BITS
    stream = make(3, "train", rows_of(rows))
    block, second = (stream.integers(high, (columns,)) for _ in range(2))
    for lag in (1, 2, 16, 256):
        yield f"rows {lag} apart", block[:-lag], block[lag:]
    for lag in (1, 2, 16, 32):
        yield f"columns {lag} apart", block[:, :-lag], block[:, lag:]
    yield "diagonal", block[:-1, :-1], block[1:, 1:]
    yield "other diagonal", block[1:, :-1], block[:-1, 1:]
    yield "calls", block, second
    yield "next call, previous column", block[:, 1:], second[:, :-1]
    yield "rows exchanged with columns", *_off_diagonal(block[:columns], block[:columns].T)
    for seed in (2, 4, 3 + (1 << 16), 3 + (1 << 32)):
        yield f"seeds 3 and {seed}", block, make(seed, "train", rows_of(rows)).integers(high, (columns,))
    for split in SPLITS[1:]:
        yield f"splits train and {split}", block, make(3, split, rows_of(rows)).integers(high, (columns,))
    by_seed = np.stack([make(seed, "train", rows_of(columns)).integers(high, (4,)) for seed in range(columns)])
    yield "seeds exchanged with rows", *_off_diagonal(by_seed, by_seed.swapaxes(0, 1))
    stream = make(3, "train", rows_of(16))
    by_call = np.stack([stream.integers(high, (columns,)).T for _ in range(columns)])
    yield "calls exchanged with columns", *_off_diagonal(by_call, by_call.swapaxes(0, 1))


def _off_diagonal(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both without the places they share, where an exchange changes nothing, and each pair once."""
    upper = np.triu_indices(a.shape[0], 1)
    return a[upper], b[upper]


def scores(make: MakeStream) -> Iterator[tuple[str, float]]:
    """Every check by name, with how many standard deviations the stream is off."""
    for high in (2, 3, 5, 8, 10, 126, 1000, 1024):
        values = make(1, "test", rows_of(4096)).integers(high, (40,))
        yield f"chi-square of integers({high})", chi_square_z(np.bincount(values.ravel(), minlength=high))
        if high**2 <= 1000:
            pairs = values[:, :-1:2] * high + values[:, 1::2]
            yield (
                f"chi-square of pairs of integers({high})",
                chi_square_z(np.bincount(pairs.ravel(), minlength=high**2)),
            )
    block = make(1, "train", rows_of(1024)).integers(1 << BITS, (64,))
    yield "runs along columns", runs_z(block)
    yield "runs along rows", runs_z(block.T)
    ones = ((block[..., None] >> np.arange(BITS)) & 1).sum(axis=(0, 1))
    yield "share of ones in a bit", _largest((2 * ones - block.size) / math.sqrt(block.size))
    for name, a, b in neighbours(make):
        yield f"values, {name}", correlation_z(a, b)
        yield f"bits, {name}", _largest(bits_z(a, b))


def defects(make: MakeStream) -> Iterator[str]:
    """The names of the checks a stream fails; none for a good one."""
    return (name for name, score in scores(make) if not abs(score) < LIMIT)


def _largest(scores: np.ndarray) -> float:
    return float(np.abs(scores).max())


class Broken:
    """A stream with one defect, or with none."""

    def __init__(self, defect: str, *, seed: int, split: str, rows_B: np.ndarray) -> None:
        self.defect, self.seed, self.split, self.rows_B, self.calls = defect, seed, split, rows_B, 0

    def integers(self, high: int, shape: Sequence[int] = ()) -> np.ndarray:
        (columns,) = shape
        call, self.calls = self.calls, self.calls + 1
        good = NumpyDraw(
            seed=0 if self.defect == "one seed" else self.seed,
            split="" if self.defect == "one split" else self.split,
            rows_B=self.rows_B * 0 if self.defect == "one row" else self.rows_B,
        )
        good.calls = 0 if self.defect == "one call" else call
        values = good.integers(1 << BITS, (columns,))
        match self.defect:
            case "row + column":  # an address added up before it is mixed
                address = self.rows_B[:, None] + np.arange(columns)
                values = NumpyDraw(seed=self.seed, split=f"{self.split}{call}", rows_B=address.ravel()).integers(
                    1 << BITS
                )
                values = values.reshape(address.shape)
            case "call * column":
                address = (call * np.arange(columns))[None, :] + (self.rows_B << 20)[:, None]
                values = NumpyDraw(seed=self.seed, split=self.split, rows_B=address.ravel()).integers(1 << BITS)
                values = values.reshape(address.shape)
            case "seed + row":
                values = NumpyDraw(seed=0, split=f"{self.split}{call}", rows_B=self.rows_B + self.seed)
                values = values.integers(1 << BITS, (columns,))
            case "bias":
                values = np.maximum(values, good.integers(1 << BITS, (columns,)) >> 5)
            case "low bit of the row":
                values = (values & ~1) | (self.rows_B[:, None] & 1)
            case "too even":
                values = (np.arange(values.size).reshape(values.shape) * 663_608_941) % (1 << BITS)
            case "short period":
                values[:, 32:] = values[:, :-32]
        return (values * high) >> BITS


def broken(defect: str) -> MakeStream:
    return lambda seed, split, rows_B: Broken(defect, seed=seed, split=split, rows_B=rows_B)


def test_the_stream_has_no_defect() -> None:
    assert list(defects(numpy_draw)) == []


@pytest.mark.parametrize(
    ("defect", "check"),
    [
        ("one row", "bits, rows 1 apart"),
        ("one call", "bits, calls"),
        ("one seed", "values, seeds 3 and 2"),
        ("one split", "values, splits train and train0"),
        ("row + column", "values, other diagonal"),
        ("call * column", "values, calls exchanged with columns"),
        ("seed + row", "values, seeds exchanged with rows"),
        ("bias", "chi-square of integers(126)"),
        ("low bit of the row", "bits, rows 2 apart"),
        ("too even", "chi-square of integers(1000)"),
        ("too even", "runs along columns"),
        ("short period", "values, columns 32 apart"),
    ],
)
def test_a_broken_stream_is_found_out(defect: str, check: str) -> None:
    assert check in defects(broken(defect))


def test_the_broken_stream_without_a_defect_has_none() -> None:
    assert list(defects(broken("none"))) == []


def test_uniform_has_the_moments_and_the_law_of_the_uniform() -> None:
    values = numpy_draw(5, "train", rows_of(4000)).uniform((50,))
    assert values.dtype == np.float32
    assert 0 <= values.min() < values.max() < 1
    assert np.array_equal(values * 2**24, np.floor(values * 2**24))
    wide = values.astype(np.float64)
    assert abs(wide.mean() - 1 / 2) < LIMIT * math.sqrt(1 / 12 / wide.size)
    assert abs(wide.var() - 1 / 12) < LIMIT * math.sqrt(1 / 180 / wide.size)
    assert kolmogorov(values) < 2.6
    assert kolmogorov(values**1.02) > 2.6


def test_permutations_take_every_order_equally_often() -> None:
    orders = Draw(seed=0, split="train", rows_B=torch.arange(48_000)).permutation(4)
    index = {order: i for i, order in enumerate(permutations(range(4)))}
    counts = np.bincount([index[tuple(order)] for order in orders.tolist()], minlength=24)
    assert abs(chi_square_z(counts)) < LIMIT


def test_long_permutations_are_permutations_and_leave_no_trace_of_the_order() -> None:
    orders = numpy_draw(0, "train", rows_of(5000)).permutation(20)
    assert np.array_equal(np.sort(orders, axis=1), np.broadcast_to(np.arange(20), orders.shape))
    for place in (0, 7, 19):
        assert abs(chi_square_z(np.bincount(orders[:, place], minlength=20))) < LIMIT
    ascents = (orders[:, 1:] > orders[:, :-1]).sum(axis=1)
    assert abs(ascents.mean() - 19 / 2) < LIMIT * math.sqrt(21 / 12 / len(orders))


@pytest.mark.parametrize("weights", [(1, 1), (3, 1), (1, 2, 3, 4), (8, 0, 1, 1), (0, 5), (7, 0), (1, 999)])
def test_categorical_follows_its_weights(weights: tuple[int, ...]) -> None:
    values = numpy_draw(2, "train", rows_of(4000)).categorical(weights, (40,))
    counts = np.bincount(values.ravel(), minlength=len(weights))
    for count, weight in zip(counts, weights, strict=True):
        share = weight / sum(weights)
        assert abs(count - values.size * share) <= LIMIT * math.sqrt(values.size * share * (1 - share))


@pytest.mark.parametrize("high", [1, 2, 3, 10, 126, (1 << 31) - 1])
def test_integers_stay_below_high_and_reach_it(high: int) -> None:
    values = numpy_draw(0, "train", rows_of(2000)).integers(high, (10,))
    assert values.dtype == np.int64
    assert values.min() >= 0 and values.max() < high
    assert values.min() < max(1, high // 1000) and values.max() >= high - max(1, high // 1000)


@pytest.mark.parametrize("high", [3, 10, 126, 1000, (1 << 31) - 1])
def test_integers_are_the_address_bits_scaled_down(high: int) -> None:
    """Multiply-shift: the value is floor(share * high), where 30 bits of the share are known from another high."""
    share = numpy_draw(0, "train", rows_of(2000)).integers(1 << 30, (10,)) << 2
    values = numpy_draw(0, "train", rows_of(2000)).integers(high, (10,))
    assert (values >= share * high >> 32).all() and (values <= (share + 3) * high >> 32).all()


def test_a_child_is_a_stream_of_its_own_and_does_not_shift_its_parent() -> None:
    rows_B = rows_of(1024)
    alone = numpy_draw(0, "train", rows_B)
    expected = [alone.integers(1 << BITS, (32,)) for _ in range(2)]
    parent = numpy_draw(0, "train", rows_B)
    first = parent.integers(1 << BITS, (32,))
    child, sibling, grandchild = parent.child("a"), parent.child("b"), parent.child("a").child("a")
    blocks = [stream.integers(1 << BITS, (32,)) for stream in (child, sibling, grandchild)]
    assert np.array_equal(first, expected[0])
    assert np.array_equal(parent.integers(1 << BITS, (32,)), expected[1])
    assert np.array_equal(blocks[0], alone.child("a").integers(1 << BITS, (32,)))
    blocks += [*expected, numpy_draw(0, "a", rows_B).integers(1 << BITS, (32,))]
    for i, a in enumerate(blocks):
        for b in blocks[:i]:
            assert abs(correlation_z(a, b)) < LIMIT
            assert _largest(bits_z(a, b)) < LIMIT


def test_streams_of_splits_and_seeds_share_no_row() -> None:
    """A row of two 31-bit numbers: among 150,000 of them even one chance repetition has probability 0.002."""
    seen = set()
    streams = [(seed, split) for seed in range(3) for split in SPLITS]
    for seed, split in streams:
        values = numpy_draw(seed, split, rows_of(5000)).integers((1 << 31) - 1, (2,))
        seen.update(map(tuple, values.tolist()))
    assert len(seen) == 5000 * len(streams)
