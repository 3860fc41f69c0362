"""The square root of a binary number, rounded down, highest bits first.

    1 1 0 1 1 . . .  ->  1 0 1        the root of 27 is 5

Context-sensitive as a function. The number is uniform among those with its number of bits, leading zeros included,
except 0. The root is written with leading zeros. Deletang et al. 2022 (2207.02098).
"""

from dataclasses import dataclass
from math import isqrt
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from chomsky_ladder.tasks._binary import LIMB, ONE, ZERO, bits, carried, exceeds, limbs, nonzero_bits, products
from chomsky_ladder.tasks.base import register
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.layout import Size, Transduction


@register
@dataclass(frozen=True, kw_only=True)
class ComputeSqrt(Transduction):
    name, version, level = "compute_sqrt", 1, "context_sensitive"

    query: Literal["none", "token"] = "token"
    """The input between the number and the first answer: nothing, or one blank token."""

    @property
    def vocab(self) -> tuple[str, ...]:
        return "PAD", "0", "1"

    @property
    def answers(self) -> tuple[int, ...]:
        return ZERO, ONE

    def slots(self, size: Size) -> Size:
        return (size + 1) // 2

    def size_of_total(self, total: Size) -> Size:
        return (total - len(self.closing)) * 2 // 3

    def symbols(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        return nonzero_bits(draw, size_B, columns) + ZERO

    def transduce(self, x_BL: Tensor, size_B: Tensor) -> tuple[Tensor, Tensor]:
        columns, size_B1 = x_BL.shape[1], size_B[:, None]
        slots = self.slots(columns)
        num = -(-slots // LIMB)
        # Without pairs of leading zeros every number fills the same limbs, and its root half as many.
        odd_B1 = size_B1 % 2
        pairs_B1 = ((x_BL == ONE).to(torch.int64).argmax(1, keepdim=True) + odd_B1) // 2
        place_BL = torch.arange(2 * num * LIMB, device=x_BL.device) + 2 * pairs_B1 - odd_B1
        ones_BL = (x_BL.gather(1, place_BL.clamp(0, columns - 1)) == ONE) & (place_BL >= 0) & (place_BL < size_B1)
        root_BK = _root(limbs(ones_BL.flip(1), num=2 * num))
        slot_BM = torch.arange(slots, device=x_BL.device) - pairs_B1
        bits_BM = bits(root_BK, num * LIMB - 1 - slot_BM.clamp(min=0)) * (slot_BM >= 0)
        return bits_BM + ZERO, self.slots(size_B)

    def answer_law(self, length: int) -> np.ndarray:
        """Count the x in [u**2, v**2) where bit i of the root is 1: u an odd and v the next even multiple of 2**i."""
        size = self.size(length)
        law = np.zeros((self.slots(size), len(self.vocab)))
        for slot, place in enumerate(reversed(range(self.slots(size)))):
            runs = isqrt(2**size) >> (place + 1)  # with v**2 up to 2**size; one more may be cut short there
            cut = 2**size - ((2 * runs + 1) << place) ** 2
            ones = (runs * (2 * runs + 1) << 2 * place) + max(0, cut)
            law[slot, ONE] = ones / (2**size - 1)
            law[slot, ZERO] = (2**size - 1 - ones) / (2**size - 1)
        return law


def _root(x_BK: Tensor) -> Tensor:
    """Return the integer square roots of numbers with an even number of limbs whose highest two bits are not both 0.

    Two limbs are added at a time. (x - root**2) / (root + sqrt(x)) in float64 is the missing part of the root. It is
    rounded down, so that it never exceeds the true part and misses less than 1.1 of its last place.
    """
    num, base = x_BK.shape[1] // 2, 1 << LIMB
    left_BK, near_B, root_BK = pad(x_BK, (2, 1)), 0, x_BK[:, :0]
    for known in range(0, num, 2):  # limbs of the root
        if known:
            square_BK = products(root_BK, root_BK, num=2 * known)
            left_BK = pad(x_BK - pad(square_BK, (2 * (num - known), 0)), (2, 1))
        # The remainder is less than three limbs: the columns above cancel, modulo 2**64, and few below matter.
        last = 2 * num - known
        left_B = (left_BK[:, last + 2] * base + left_BK[:, last + 1]) * base + left_BK[:, last]
        left_B = left_B + (left_BK[:, last - 1] + left_BK[:, last - 2].double() / base) / base
        if not known:
            true_B = left_B.sqrt() / base  # a fraction below 1, like near_B
        lack_B = (left_B / (near_B + true_B) - 2**-4).floor().clamp(min=0)
        near_B = near_B + lack_B * 2.0 ** (-LIMB * (known + 2))
        lack_B = lack_B.to(torch.int64)
        root_BK = torch.cat([torch.stack([lack_B % base, lack_B // base], dim=1), root_BK], dim=1)
    root_BK = root_BK[:, num % 2 :]
    square_BK = products(root_BK, root_BK, num=2 * num)
    lacks_one_B = exceeds(x_BK, carried(square_BK + pad(2 * root_BK, (0, num))))
    return carried(root_BK + pad(lacks_one_B[:, None].to(torch.int64), (0, num - 1)))
