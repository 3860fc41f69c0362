"""The distinct symbols in the order of their first occurrence.

    7 2 7 7 5 2 ACT . . . . .  ->  7 2 5        three of the six slots stay blank and unscored

Filed outside the hierarchy: a finite memory is enough for a given alphabet, but it has more than 126! states. Beck et
al. 2024 (2405.04517), whose vocabulary has 128 tokens.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from chomsky_ladder.tasks.base import bounded, register
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.layout import MarkedTransduction

FIRST = 2


@register
@dataclass(frozen=True, kw_only=True)
class DistinctSymbols(MarkedTransduction):
    name, version, level = "set", 1, "none"
    hard = True

    num_symbols: int = 126
    """The size of the alphabet."""

    def __post_init__(self) -> None:
        bounded(self, "num_symbols", 2, 4096)

    @property
    def vocab(self) -> tuple[str, ...]:
        return "PAD", "ACT", *map(str, range(self.num_symbols))

    @property
    def answers(self) -> tuple[int, ...]:
        return tuple(range(FIRST, FIRST + self.num_symbols))

    def symbols(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        return draw.integers(self.num_symbols, (columns,)) + FIRST

    def transduce(self, x_BL: Tensor, size_B: Tensor) -> tuple[Tensor, Tensor]:
        rows, columns = x_BL.shape
        position_BL = torch.arange(columns, device=x_BL.device).expand(rows, columns)
        never_BV = x_BL.new_full((rows, len(self.vocab)), columns)
        first_BV = never_BV.scatter_reduce(1, x_BL, position_BL, "amin")
        is_first_BL = (first_BV.gather(1, x_BL) == position_BL) & (position_BL < size_B[:, None])
        num_BL = is_first_BL.cumsum(1)
        slot_BL = torch.where(is_first_BL, num_BL - 1, columns)
        answers_BM = x_BL.new_zeros(rows, columns + 1).scatter(1, slot_BL, x_BL)[:, :columns]
        return answers_BM, num_BL[:, -1]

    def answer_law(self, length: int) -> np.ndarray:
        """Return the law. All symbols are equally likely to come next, so only the number of distinct ones counts."""
        size = self.size(length)
        distinct = np.eye(size + 1)[0]
        old = np.arange(size + 1) / self.num_symbols  # the chance that the next symbol is one of those seen
        for _ in range(size):
            distinct[1:] = distinct[1:] * old[1:] + distinct[:-1] * (1 - old[:-1])
            distinct[0] = 0
        share = distinct[::-1].cumsum()[::-1][1:] / self.num_symbols
        return np.concatenate([np.zeros((size, FIRST)), np.tile(share[:, None], (1, self.num_symbols))], axis=1)
