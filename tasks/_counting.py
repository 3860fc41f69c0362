"""Classifications that count the symbols of a uniform string, and the distribution of the largest counts.

The counts in a uniform string of n symbols are distributed like Poisson variables that sum to n. So the probability
that no count of the K symbols exceeds m is, up to a constant, the z**n coefficient of f_m(z)**K. Here f_m is the
generating function of a Poisson variable of mean n/K, cut after z**m. A discrete Fourier transform gives the
coefficient.
"""

from dataclasses import dataclass
from math import isqrt

import numpy as np
import torch
from torch import Tensor

from chomsky_ladder.tasks.base import bounded
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.layout import Classification

FIRST = 1
SATURATED = 255


@dataclass(frozen=True, kw_only=True)
class Counting(Classification):
    num_symbols: int = 63
    """The size of the alphabet."""

    def __post_init__(self) -> None:
        super().__post_init__()
        bounded(self, "num_symbols", 2, 1024)

    @property
    def vocab(self) -> tuple[str, ...]:
        return "PAD", *map(str, range(1, self.num_symbols + 1))

    @property
    def answers(self) -> tuple[int, ...]:
        return tuple(range(FIRST, FIRST + self.num_symbols))

    @property
    def state_sizes(self) -> tuple[int, ...]:
        """Return the count of each symbol, up to 255."""
        return (SATURATED + 1,) * self.num_symbols

    def symbols(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        return draw.integers(self.num_symbols, (columns,)) + FIRST

    def counts(self, x_BL: Tensor, size_B: Tensor) -> Tensor:
        """Count each symbol in each whole string, [B, symbols]."""
        inside_BL = torch.arange(x_BL.shape[1], device=x_BL.device) < size_B[:, None]
        zeros_BC = x_BL.new_zeros(x_BL.shape[0], self.num_symbols)
        return zeros_BC.scatter_add(1, x_BL - FIRST, inside_BL.to(torch.int64))

    def state(self, tokens_BL: Tensor) -> Tensor:
        symbol_C = torch.arange(FIRST, FIRST + self.num_symbols, device=tokens_BL.device)
        count_BLC = (tokens_BL[..., None] == symbol_C).cumsum(1, dtype=torch.int32)
        return count_BLC.clamp(max=SATURATED).to(torch.int64)


def occurrences(x_BL: Tensor) -> Tensor:
    """Count how often the symbol at each position has occurred so far, [B, L]: its rank among its equals in a sort."""
    position_L = torch.arange(x_BL.shape[1], device=x_BL.device)
    sorted_BL, order_BL = x_BL.sort(dim=1, stable=True)
    starts_BL = sorted_BL != sorted_BL.roll(1, dims=1)
    rank_BL = position_L + 1 - torch.where(starts_BL, position_L, 0).cummax(1).values
    return torch.zeros_like(x_BL).scatter(1, order_BL, rank_BL)


def largest_counts(size: int, num_symbols: int) -> range:
    """Return the possible values of the largest count, without an upper tail of probability 1e-18."""
    tail = _poisson(size, num_symbols)[::-1].cumsum()[::-1]
    return range(-(-size // num_symbols), int((num_symbols * tail > 1e-18).sum()))


def generating(size: int, num_symbols: int) -> tuple[np.ndarray, np.ndarray]:
    """Return f_m on the unit circle, [M + 1, points], for m from one less than the first of `largest_counts` to the
    last.

    Also returns weights [points]: the real part of p @ weights is the z**size coefficient of any product p of
    `num_symbols` of them, up to a constant. Half the circle is enough, since the coefficients are real.
    """
    # Aliases are this many powers or more from z**size, where a Poisson variable of that mean has less than 1e-18.
    points = (31 + 10 * isqrt(size)) | 1
    half = np.arange(points // 2 + 1)
    turns = -2j * np.pi / points
    counts = largest_counts(size, num_symbols)
    circle = np.exp(-turns * (np.arange(counts.stop)[:, None] * half % points))
    f = (_poisson(size, num_symbols)[: counts.stop, None] * circle).cumsum(axis=0)
    f = np.concatenate([np.zeros((1, len(half))), f])[counts.start :]
    return f, np.where(half == 0, 1, 2) * np.exp(turns * (size * half % points))


def _poisson(size: int, num_symbols: int) -> np.ndarray:
    """Return the distribution of one symbol's count at the string's mean length, cut after `size`."""
    ratio = size / num_symbols / np.arange(1, size + 1)
    log = np.concatenate([[0.0], np.cumsum(np.log(ratio))])
    return np.exp(log - size / num_symbols)
