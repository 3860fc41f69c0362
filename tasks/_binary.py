"""Whole numbers of any length as rows of bits, and the tasks that combine two of them.

    1 1 + 1 . . . . .  ->  0 0 1 END 0        3 + 1 = 4, least bits first

Deletang et al. 2022 (2207.02098) also have strings too short for two numbers (`every_length`): one number alone, whose
bits are not all 1.

Arithmetic is on limbs of 22 bits, the least first, [B, K], so columns of sums and products stay far below 2**63. At the
end a carry may run through a row of full limbs. A running maximum finds where it stops without a loop.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.layout import Transduction

ZERO, ONE, OPERATOR, END = 1, 2, 3, 4

LIMB = 22
_FULL = (1 << LIMB) - 1
SHORTEST = 3  # symbols of an operation
_REDRAWN = 24  # random bits that replace a zero: no number is off its share by more than 2**-24


def limbs(bits_BL: Tensor, *, num: int) -> Tensor:
    """Turn rows of bits, the least first, into `num` limbs."""
    places = torch.arange(LIMB, device=bits_BL.device)
    bits_BKL = pad(bits_BL.to(torch.int64), (0, num * LIMB - bits_BL.shape[1])).unflatten(1, (num, LIMB))
    return (bits_BKL << places).sum(2)


def bits(number_BK: Tensor, place_BL: Tensor) -> Tensor:
    """Return the bits of each number at the given places, the least at 0."""
    return (number_BK.gather(1, place_BL // LIMB) >> place_BL % LIMB) & 1


def products(a_BK: Tensor, b_BK: Tensor, *, num: int) -> Tensor:
    """Return the first `num` columns of a long multiplication, before carrying."""
    windows_BMK = pad(b_BK, (a_BK.shape[1] - 1, num - b_BK.shape[1])).unfold(1, a_BK.shape[1], 1)
    return (windows_BMK * a_BK.flip(1)[:, None]).sum(2)


def carried(columns_BK: Tensor) -> Tensor:
    """Carry columns below 2**(3 * LIMB - 4) into limbs. The carry out of the last one is lost."""
    for _ in range(2):  # then each column exceeds a limb by one carry at most
        columns_BK = (columns_BK & _FULL) + pad(columns_BK >> LIMB, (1, -1))
    # A full column passes its carry on; every other column decides its own.
    order_K = 2 * torch.arange(columns_BK.shape[1], device=columns_BK.device)
    decided_BK = torch.where(columns_BK == _FULL, 0, order_K + (columns_BK > _FULL)).cummax(1).values
    return (columns_BK + pad(decided_BK & 1, (1, -1))) & _FULL


def exceeds(a_BK: Tensor, b_BK: Tensor) -> Tensor:
    """Return True if a > b, [B], by the highest limb in which they differ."""
    order_K = 2 * torch.arange(1, a_BK.shape[1] + 1, device=a_BK.device)
    return (torch.where(a_BK == b_BK, 0, order_K + (a_BK > b_BK)).amax(1) & 1) == 1


def nonzero_bits(draw: Draw, length_B: Tensor, columns: int) -> Tensor:
    """Draw rows of `length_B` bits, uniform among those that are not all 0. Beyond them bits are 0."""
    place_L = torch.arange(columns, device=length_B.device)
    bits_BL = draw.integers(2, (columns,)) * (place_L < length_B[:, None])
    instead_B = draw.integers((1 << length_B.clamp(max=_REDRAWN)) - 1) + 1
    instead_BL = (instead_B[:, None] >> place_L.clamp(max=_REDRAWN)) & 1
    return torch.where(bits_BL.any(1, keepdim=True), bits_BL, instead_BL)


@dataclass(frozen=True, kw_only=True)
class Operation(Transduction):
    """Two numbers of at least one bit, neither of them 0, with an operator between them, and their result."""

    operator: ClassVar[str]
    blank_answer: ClassVar[int] = ZERO

    query: Literal["none", "token"] = "token"
    """The input between the string and the first answer: nothing, or one blank token."""
    padding: Literal["zeros", "none"] = "zeros"
    """The slots after END: "0", or empty and unscored."""
    every_length: bool = False
    """Add strings of one or two bits without an operator."""

    @abstractmethod
    def columns(self, a_BK: Tensor, b_BK: Tensor) -> Tensor:
        """Return the columns of the result of two numbers of K limbs, before carrying, [B, K]."""

    @abstractmethod
    def alone(self, number_BK: Tensor, size_B: Tensor) -> tuple[Tensor, Tensor]:
        """Return the result for a single number of `size_B` bits without an operator, and its fewest digits, [B]."""

    @property
    def vocab(self) -> tuple[str, ...]:
        return "PAD", "0", "1", self.operator, "END"

    @property
    def answers(self) -> tuple[int, ...]:
        return ZERO, ONE, END

    def legal_size(self, size: int) -> bool:
        return size >= (1 if self.every_length else SHORTEST)

    def symbols(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        position_L = torch.arange(columns, device=size_B.device)
        long_B = size_B.clamp(min=SHORTEST)
        split_B = draw.integers(long_B - 2) + 1
        behind_BL = position_L - split_B[:, None]
        a_BL = nonzero_bits(draw, split_B, columns)
        b_BL = nonzero_bits(draw, long_B - 1 - split_B, columns).gather(1, (behind_BL - 1).clamp(min=0))
        x_BL = torch.where(behind_BL == 0, OPERATOR, torch.where(behind_BL < 0, a_BL, b_BL) + ZERO)
        if not self.every_length:
            return x_BL
        number_B1 = draw.child("alone").integers((1 << size_B.clamp(max=SHORTEST - 1)) - 1)[:, None]
        alone_BL = ((number_B1 >> position_L.clamp(max=SHORTEST)) & 1) + ZERO
        return torch.where(size_B[:, None] < SHORTEST, alone_BL, x_BL)

    def transduce(self, x_BL: Tensor, size_B: Tensor) -> tuple[Tensor, Tensor]:
        columns = x_BL.shape[1]
        slots = self.slots(columns)
        num = -(-slots // LIMB)
        position_M = torch.arange(slots, device=x_BL.device)
        position_L = position_M[:columns]
        split_B1 = (x_BL == OPERATOR).to(torch.int64).argmax(1, keepdim=True)
        place_BL = position_L + split_B1 + 1
        b_BL = (x_BL.gather(1, place_BL.clamp(max=columns - 1)) == ONE) & (place_BL < size_B[:, None])
        a_BK = limbs((x_BL == ONE) & (position_L < split_B1), num=num)
        result_BK = carried(self.columns(a_BK, limbs(b_BL, num=num)))
        if self.every_length:
            number_BK = limbs((x_BL == ONE) & (position_L < size_B[:, None]), num=num)
            alone_BK, digits_B = self.alone(number_BK, size_B)
            is_alone_B1 = size_B[:, None] < SHORTEST
            result_BK = torch.where(is_alone_B1, alone_BK, result_BK)
        bits_BM = bits(result_BK, position_M.expand(len(x_BL), -1))
        num_B1 = ((position_M + 1) * bits_BM).amax(1, keepdim=True)
        if self.every_length:
            num_B1 = torch.where(is_alone_B1, num_B1.maximum(digits_B[:, None]), num_B1)
        answers_BM = torch.where(position_M == num_B1, END, bits_BM + ZERO)
        return answers_BM, self.slots(size_B) if self.padding == "zeros" else num_B1[:, 0] + 1
