"""The value of a Boolean formula in prefix notation.

    AND OR 0 NOT 1 NOT 0  ->  0        (0 or not 1) and not 0

Deterministic context-free. To evaluate Boolean formulas is complete for NC1 (Buss 1987, STOC). The first part of a gate
has any length with equal probability. NOT stands before half of all parts of four symbols or more.

Values are drawn from the root down: that of the whole formula, then those of both parts of each gate, uniformly from
the pairs that fit. So the answer is independent of length, shape, gates and NOTs together: only digits tell it, and the
best guess without them scores .5. Measured at lengths 3..40 and at 40..256:

    the last digit; the more frequent digit; the first gate     .52   .51
    a linear fit to counts of symbols and the first eight       .57   .50
    the parity of digits, gates and NOTs                        .59   .50
    digits turned by all NOTs above them vote, by depth         .80   .73
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from chomsky_ladder.tasks._kept import kept
from chomsky_ladder.tasks.base import register
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.layout import Classification

AND, OR, NOT, ZERO = range(1, 5)  # ONE is ZERO + 1
BITS = 31


@register
@dataclass(frozen=True, kw_only=True)
class FormulaValue(Classification):
    name, version, level = "formula_value", 1, "context_free"

    @property
    def vocab(self) -> tuple[str, ...]:
        return "PAD", "AND", "OR", "NOT", "0", "1"

    @property
    def answers(self) -> tuple[int, ...]:
        return ZERO, ZERO + 1

    def symbols(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        return self.examples(draw, size_B, columns)[0]

    def examples(self, draw: Draw, size_B: Tensor, columns: int) -> tuple[Tensor, Tensor]:
        """Draw formulas with their values, one level of gates at a time.

        A part is stored in the column where its text starts, which no other part shares, as 2 * size + value.
        """
        value_B, split_BL = draw.integers(2), draw.integers(2**BITS - 1, (columns,))
        coins_BL = draw.integers(12, (columns,))
        not_BL, or_BL, which_BL = coins_BL & 1, coins_BL >> 1 & 1, coins_BL >> 2
        column_L = torch.arange(columns, device=size_B.device)
        levels_B = levels_of(columns, size_B.device)[size_B]
        born_BL = torch.where(column_L == 0, 2 * size_B[:, None] + value_B[:, None], 0)  # the parts of a level
        parts_BL = born_BL
        for level in range(num_levels(columns)):
            negated_BL, body_BL, value_BL = _body(born_BL, not_BL)
            longest_B1 = (3 << (levels_B - level - 1).clamp(min=0))[:, None] - 1  # that the levels below can divide
            spare_BL = body_BL - 2
            left_BL = (split_BL * spare_BL >> BITS) + 1
            left_BL = left_BL.minimum(longest_B1).maximum(spare_BL + 1 - longest_B1)
            # An AND of 1 has two of 1, and one of 0 at most one of 1. OR is AND with 0 and 1 exchanged.
            both_BL = value_BL ^ or_BL
            one_BL, other_BL = (both_BL | (which_BL == part).long() for part in (1, 2))
            first_BL, second_BL = 2 * left_BL + (one_BL ^ or_BL), 2 * (body_BL - 1 - left_BL) + (other_BL ^ or_BL)
            gate_BL = body_BL > 2
            at_BL = torch.where(gate_BL, column_L + negated_BL + 1, 0)
            born_BL = torch.zeros_like(born_BL).scatter_add(1, at_BL, torch.where(gate_BL, first_BL, 0))
            after_BL = torch.where(gate_BL, at_BL + left_BL, 0)
            born_BL = born_BL.scatter_add(1, after_BL, torch.where(gate_BL, second_BL, 0))
            parts_BL = parts_BL + born_BL
        negated_BL, body_BL, value_BL = _body(parts_BL, not_BL)
        head_BL = torch.where(body_BL > 2, AND + or_BL, ZERO + value_BL)
        behind_BL = pad(torch.where(negated_BL == 1, head_BL, 0), (1, 0))[:, :columns]
        first_BL = torch.where(negated_BL == 1, NOT, head_BL)
        return torch.where(parts_BL > 0, first_BL, behind_BL), value_B + ZERO

    def answer_law(self, length: int) -> np.ndarray:
        return self.uniform_law()


def num_levels(size: int) -> int:
    """Return enough levels of gates for nearly any formula of this many symbols."""
    return min((size - 1) // 2, 2 * size.bit_length() + 10)


@kept
def levels_of(columns: int, device: torch.device) -> Tensor:
    """Return enough levels for each size, 0 to `columns`."""
    return torch.tensor([num_levels(size) for size in range(columns + 1)], device=device)


def _body(parts_BL: Tensor, not_BL: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return 1 where a part begins with NOT, and the size and the value of its digit or gate; else 0."""
    size_BL = parts_BL >> 1
    negated_BL = ((size_BL == 2) | ((size_BL > 3) & (not_BL == 1))).long()
    return negated_BL, size_BL - negated_BL, (parts_BL & 1) ^ negated_BL
