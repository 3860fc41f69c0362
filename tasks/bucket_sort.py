"""The symbols in ascending order. The answer starts where the string ends, without a marker.

    3 1 0 3 . . .  ->  0 1 3 3        0 is read at the last symbol

Context-sensitive as a function. Counting each symbol is enough, so a bounded number of counters can do it. Length and
position alone reach .63 (scaled) at the paper's lengths: the largest floor of the suite. Deletang et al. 2022 sort five
symbols after a query token; Beck et al. 2024 (2405.04517) ten.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from chomsky_ladder.tasks.base import bounded, register
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.layout import Transduction

FIRST = 1


@register
@dataclass(frozen=True, kw_only=True)
class BucketSort(Transduction):
    name, version, level = "bucket_sort", 1, "context_sensitive"
    demand = "sorting"

    num_symbols: int = 10
    """The size of the alphabet."""

    def __post_init__(self) -> None:
        bounded(self, "num_symbols", 2, 4096)

    @property
    def vocab(self) -> tuple[str, ...]:
        return "PAD", *map(str, range(self.num_symbols))

    @property
    def answers(self) -> tuple[int, ...]:
        return tuple(range(FIRST, FIRST + self.num_symbols))

    def symbols(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        return draw.integers(self.num_symbols, (columns,)) + FIRST

    def transduce(self, x_BL: Tensor, size_B: Tensor) -> tuple[Tensor, Tensor]:
        beyond_BL = torch.arange(x_BL.shape[1], device=x_BL.device) >= size_B[:, None]
        return torch.where(beyond_BL, len(self.vocab), x_BL).sort(dim=1).values, size_B

    def answer_law(self, length: int) -> np.ndarray:
        """Use order statistics: answer j is at most s iff more than j of the n symbols are."""
        size = self.size(length)
        at_most = np.zeros((size, self.num_symbols + 1))
        for s in range(1, self.num_symbols + 1):
            at_most[:, s] = 1 - np.cumsum(_binomial(size, s / self.num_symbols))[:size]
        return np.concatenate([np.zeros((size, FIRST)), np.diff(at_most, axis=1).clip(0, 1)], axis=1)


def _binomial(trials: int, chance: float) -> np.ndarray:
    """Return P(k successes) for k = 0..trials, from the ratio of neighbours, in logarithms (no underflow)."""
    if chance == 1:
        return np.eye(trials + 1)[trials]
    k = np.arange(trials)
    log = np.concatenate([[0.0], np.cumsum(np.log((trials - k) / (k + 1)) + np.log(chance / (1 - chance)))])
    weights = np.exp(log - log.max())
    return weights / weights.sum()
