"""The sum of two binary numbers, least bits first, closed by END.

    1 1 + 1 0 1 . . . . . . .  ->  0 0 0 1 END 0 0        3 + 5 = 8

Context-sensitive as a function. The operator's place is uniform. Each number is uniform among those with its number of
bits, leading zeros included, except 0. Deletang et al. 2022 (2207.02098) also have single numbers of one or two bits
(`every_length`). Such a number is its own sum:

    0 1  ->  0 1 END        0 0  ->  0 END
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from chomsky_ladder.tasks._binary import END, ONE, SHORTEST, ZERO, Operation
from chomsky_ladder.tasks.base import register
from chomsky_ladder.tasks.layout import Size


@register
@dataclass(frozen=True, kw_only=True)
class BinaryAddition(Operation):
    name, version, level = "binary_addition", 1, "context_sensitive"
    operator = "+"

    def slots(self, size: Size) -> Size:
        return size + 1

    def size_of_total(self, total: Size) -> Size:
        return (total - len(self.closing) - 1) // 2

    def columns(self, a_BK: Tensor, b_BK: Tensor) -> Tensor:
        return a_BK + b_BK

    def alone(self, number_BK: Tensor, size_B: Tensor) -> tuple[Tensor, Tensor]:
        return number_BK, torch.ones_like(size_B)

    def answer_law(self, length: int) -> np.ndarray:
        """Count all pairs of numbers without a 0, for each place of the operator and each slot."""
        size = self.size(length)
        if size < SHORTEST:
            return self._law_alone(size)
        first = np.arange(1, size - 1)[:, None]
        low, high = np.minimum(first, size - 1 - first), np.maximum(first, size - 1 - first)  # bits of the two numbers
        slot = np.arange(self.slots(size))
        reach, short = np.minimum(slot, high), np.minimum(slot, low)
        # As many pairs are below 2**slot as the sum of 2**reach - b over b < 2**short; a carry passes 2**high at most.
        below = _power(short - low) * (_power(reach - high) - _power(short - high - 1) + _power(-high - 1))
        below = np.where(slot > high, 1, below)
        below = below - _power(short - low - high) - _power(reach - low - high) + _power(-low - high)
        # A bit of the longer number is uniform and makes the sum's uniform; above it is the last carry.
        one = np.where(slot < high, 0.5, np.where(slot == high, _power(low - high - 1) - _power(-high - 1), 0))
        one = one - (_power(-high) * (slot < low) + _power(-low) * (slot < high)) / 2
        nonzero = (1 - _power(-low)) * (1 - _power(-high))
        below, one = ((share / nonzero).mean(axis=0) for share in (below, one))
        law = np.zeros((len(slot), len(self.vocab)))
        law[:, ONE] = one
        law[:, END] = np.diff(below, prepend=0)
        law[:, ZERO] = 1 - one - (law[:, END] if self.padding == "zeros" else below)
        return law.clip(0, 1)

    def _law_alone(self, size: int) -> np.ndarray:
        """Return the distribution for single numbers of this many bits, not all 1, with equal probability."""
        law, count = np.zeros((self.slots(size), len(self.vocab))), 2**size - 1
        for number in range(count):
            digits = [ONE if bit == "1" else ZERO for bit in reversed(f"{number:b}")]
            padding = [ZERO] * (self.slots(size) - len(digits) - 1) if self.padding == "zeros" else []
            for slot, token in enumerate([*digits, END, *padding]):
                law[slot, token] += 1 / count
        return law


def _power(exponent: np.ndarray) -> np.ndarray:
    return np.exp2(exponent.astype(np.float64))
