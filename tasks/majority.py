"""The most frequent symbol; of several, the smallest.

    3 7 1 7 3 5  ->  3        3 and 7 occur twice

A counter language: one counter for each symbol, compared at the end. Uniform strings are often tied, and the rule
favours small symbols. `tie="unique"` makes one symbol the most frequent and keeps the answers' distribution. Beck et
al. 2024 (2405.04517), whose vocabulary has 64 tokens.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from chomsky_ladder.tasks._counting import FIRST, Counting, generating, occurrences
from chomsky_ladder.tasks.base import register
from chomsky_ladder.tasks.draw import Draw


@register
@dataclass(frozen=True, kw_only=True)
class Majority(Counting):
    name, version, level = "majority", 1, "counter"
    demand = "majority"

    tie: Literal["smallest", "unique"] = "smallest"
    """Ties: the smallest symbol wins, or it also replaces one other symbol of the string, so that there is no tie."""

    def symbols(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        x_BL = super().symbols(draw, size_B, columns)
        if self.tie == "smallest":
            return x_BL
        count_BC = self.counts(x_BL, size_B)
        most_B = count_BC.amax(1)
        tied_B = (count_BC == most_B[:, None]).sum(1) > 1
        mode_B1 = count_BC.argmax(1)[:, None] + FIRST
        others_BL = x_BL != mode_B1
        taken_B = draw.integers(size_B - most_B) + 1  # one of the other symbols, counted from 1
        takes_BL = others_BL & (others_BL.cumsum(1) == taken_B[:, None]) & tied_B[:, None]
        return torch.where(takes_BL, mode_B1, x_BL)

    def prefix_answers(self, x_BL: Tensor) -> Tensor:
        # The largest (count, -symbol) so far: a symbol got its count when it last occurred.
        rank_BL = occurrences(x_BL) * len(self.vocab) - x_BL
        return -rank_BL.cummax(1).values % len(self.vocab)

    def answer(self, x_BL: Tensor, size_B: Tensor) -> Tensor:
        return self.counts(x_BL, size_B).argmax(1) + FIRST

    def told_by_end(self, x_BL: Tensor) -> Tensor:
        return self.prefix_answers(x_BL)[:, -1]

    def answer_law(self, length: int) -> np.ndarray:
        """Compute P(answer > v): for some m, all counts are <= m, those of the first v symbols < m, and not all < m."""
        f, weights = generating(self.size(length), self.num_symbols)
        powers = np.ones((self.num_symbols + 1, *f.shape), dtype=complex)
        np.cumprod(np.broadcast_to(f, (self.num_symbols, *f.shape)), axis=0, out=powers[1:])
        below, upto = powers[:, :-1], powers[::-1, 1:]
        above = np.einsum("vmp,vmp->vp", below, upto - powers[::-1, :-1]) @ weights
        law = -np.diff(above.real) / above[0].real
        return np.concatenate([np.zeros(FIRST), law.clip(0, 1)])[None]
