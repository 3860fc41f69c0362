"""The value modulo 23 of an expression in prefix notation.

    * - 4 9 + 1 1  ->  13        (4 - 9) (1 + 1) modulo 23

Deterministic context-free. After Mano of Physics of Language Models: Part 4.1 (Allen-Zhu 2025, 2512.17351), whose
expressions have up to 16 operators. There digits are uniform, so 0 is the most frequent value. Here values are drawn
from the root down: that of the whole expression, then those of both parts of each operator, uniformly from the pairs
that fit. So every value is equally likely, whatever the length, the shape and the operators.

The first part of an operator has any length with equal probability. Measured at lengths 3..40 and at 40..256:

    the operators on the digits in order, from the left      .12   .05
    - from the right                                         .15   .05
    the sum of all digits                                    .07   .04
    the most frequent digit                                  .05   .04
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from chomsky_ladder.tasks._arithmetic import Arithmetic
from chomsky_ladder.tasks._kept import kept
from chomsky_ladder.tasks.base import register
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.formula_value import BITS, levels_of, num_levels

PLUS, MINUS, TIMES, ZERO = range(1, 5)  # digit d is ZERO + d


@register
@dataclass(frozen=True, kw_only=True)
class Mano(Arithmetic):
    name, version, level = "mano", 1, "context_free"

    modulus: int = 23
    """Digits and values are 0..modulus-1. With '*' it is a prime."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if "*" in self.operators and any(self.modulus % part == 0 for part in range(2, self.modulus)):
            raise ValueError(f"{self.name}: with '*' modulus must be a prime, not {self.modulus}")

    @property
    def vocab(self) -> tuple[str, ...]:
        return "PAD", "+", "-", "*", *(str(digit) for digit in range(self.modulus))

    @property
    def answers(self) -> tuple[int, ...]:
        return tuple(range(ZERO, ZERO + self.modulus))

    def legal_size(self, size: int) -> bool:
        return size % 2 == 1

    def symbols(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        return self.examples(draw, size_B, columns)[0]

    def examples(self, draw: Draw, size_B: Tensor, columns: int) -> tuple[Tensor, Tensor]:
        """Draw expressions with their values, one level of operators at a time.

        A part is stored in the column where its text starts, which no other part shares, as modulus * size + value.
        """
        m = self.modulus
        value_B, split_BL = draw.integers(m), draw.integers(2**BITS - 1, (columns,))
        operator_BL = PLUS + draw.integers(len(self.operators), (columns,))
        any_BL, unit_BL, pair_BL = (draw.integers(n, (columns,)) for n in (m, m - 1, 2 * m - 1))
        column_L = torch.arange(columns, device=size_B.device)
        levels_B = levels_of(columns, size_B.device)[size_B]
        born_BL = torch.where(column_L == 0, m * size_B[:, None] + value_B[:, None], 0)  # the parts of a level
        parts_BL = born_BL
        for level in range(num_levels(columns)):
            size_BL, value_BL = born_BL // m, born_BL % m
            longest_B1 = (2 << (levels_B - level - 1).clamp(min=0))[:, None] - 1  # that the levels below can divide
            left_BL = 2 * (split_BL * (size_BL - 1 >> 1) >> BITS) + 1
            left_BL = left_BL.minimum(longest_B1).maximum(size_BL - 1 - longest_B1)
            first_BL, second_BL = self._pair(operator_BL, value_BL, any_BL, unit_BL + 1, pair_BL)
            split = size_BL > 1
            at_BL = torch.where(split, column_L + 1, 0)
            born_BL = torch.zeros_like(born_BL).scatter_add(1, at_BL, torch.where(split, m * left_BL + first_BL, 0))
            rest_BL = torch.where(split, m * (size_BL - 1 - left_BL) + second_BL, 0)
            born_BL = born_BL.scatter_add(1, torch.where(split, at_BL + left_BL, 0), rest_BL)
            parts_BL = parts_BL + born_BL
        return torch.where(parts_BL // m > 1, operator_BL, ZERO + parts_BL % m), value_B + ZERO

    def _pair(
        self, operator_BL: Tensor, value_BL: Tensor, any_BL: Tensor, unit_BL: Tensor, pair_BL: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the values of both parts of an operator, uniform over the pairs whose result is the given value."""
        m = self.modulus
        first_BL, second_BL = any_BL, torch.where(operator_BL == PLUS, value_BL - any_BL, any_BL - value_BL) % m
        if "*" in self.operators:
            quotient_BL = value_BL * _inverses(m, value_BL.device)[unit_BL] % m
            # A product of 0 has 2 m - 1 pairs: (0, any) and (any but 0, 0).
            zero = value_BL == 0
            factor_BL = torch.where(zero, (pair_BL - m + 1).clamp(min=0), unit_BL)
            cofactor_BL = torch.where(zero, torch.where(pair_BL < m, pair_BL, 0), quotient_BL)
            times = operator_BL == TIMES
            first_BL = torch.where(times, factor_BL, first_BL)
            second_BL = torch.where(times, cofactor_BL, second_BL)
        return first_BL, second_BL

    def answer_law(self, length: int) -> np.ndarray:
        return self.uniform_law()


@kept
def _inverses(modulus: int, device: torch.device) -> Tensor:
    """Return the inverse of each number modulo a prime, 0 for 0."""
    return torch.tensor([pow(number, modulus - 2, modulus) for number in range(modulus)], device=device)
