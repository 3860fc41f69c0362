"""Bracketed expressions over Z_m, drawn and evaluated one level of the tree at a time, for a whole batch at once.

    length 1  d        2  -d        3  (d)        4  (-d)        longer  (A op B), |A| uniform in 1 .. length - 4

This is the grammar of Deletang et al. 2022 (2207.02098). A node of the tree is stored in the column where its text
starts, which no other node shares: the parts of a pair at c start at c + 1 and after its operator. So one random number
for each column is enough. It splits the pair that starts there, or chooses the operator or digit that stands there.
Nothing is compacted, and every step has a fixed shape.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from chomsky_ladder.tasks._kept import kept
from chomsky_ladder.tasks.draw import Draw

PLUS, MINUS, TIMES, EQUALS, OPEN, CLOSE, ZERO = range(1, 8)  # codes of the text; digit d is ZERO + d
EXACT = 84  # symbols; expressions up to this length follow the grammar exactly
_BITS = 31


class Trees(NamedTuple):
    """Expressions laid out in columns."""

    codes_BL: Tensor  # the text; arbitrary beyond an expression's end
    span_BL: Tensor  # size of the node that starts here; 0 if none does
    pair_BL: Tensor  # bool: that node is a pair
    right_BL: Tensor  # for a pair the column of its right part, else its own
    levels: list[Tensor]  # bool [B, L] each: the pairs of a level, from the root down


def num_levels(size: int) -> int:
    """Return enough levels for any tree of up to `EXACT` symbols. At 1024, P(more are needed) is below 4e-6."""
    return min(max(size - 1, 0) // 4, 2 * size.bit_length() + 6)


def draw_trees(draw: Draw, size_B: Tensor, columns: int, *, modulus: int, num_operators: int) -> Trees:
    """Draw expressions of `size_B` symbols. A part too long for the remaining levels is cut to what they can divide."""
    draw_BL = draw.integers(2**_BITS - 1, (columns,))
    column_L = torch.arange(columns, device=draw_BL.device)
    born_BL = torch.where(column_L == 0, size_B[:, None], 0)  # the sizes of a level's nodes
    span_BL, left_BL, levels = born_BL, torch.zeros_like(born_BL), []
    for level in range(max(num_levels(size) for size in range(columns + 1))):
        spare_BL = (born_BL - 4).clamp(min=0)  # the left part has 1 .. spare symbols; 0 where there is no pair
        pair_BL = spare_BL > 0
        part_BL = (draw_BL * spare_BL >> _BITS) + pair_BL
        if columns > EXACT:  # by the string's own size, so that a wider batch has the same strings
            left_over_B = _levels(columns, draw_BL.device)[size_B] - level - 1
            longest_B1 = 7 * 2 ** left_over_B.clamp(min=0)[:, None] - 3
            part_BL = part_BL.minimum(longest_B1).maximum(spare_BL + pair_BL - longest_B1)
        born_BL = pad(part_BL, (1, 1)).scatter_add(1, part_BL + (column_L + 2), spare_BL - part_BL + pair_BL)
        born_BL = born_BL[:, :columns]
        span_BL, left_BL = span_BL + born_BL, left_BL + part_BL
        levels.append(pair_BL)
    pair_BL = left_BL > 0
    right_BL = torch.where(pair_BL, left_BL + 2, 0) + column_L
    return Trees(
        _text(draw_BL, span_BL, pair_BL, right_BL, modulus=modulus, num_operators=num_operators),
        span_BL,
        pair_BL,
        right_BL,
        levels,
    )


def _text(
    draw_BL: Tensor, span_BL: Tensor, pair_BL: Tensor, right_BL: Tensor, *, modulus: int, num_operators: int
) -> Tensor:
    columns = draw_BL.shape[1]
    column_L = torch.arange(columns, device=draw_BL.device)
    codes_BL = (draw_BL * modulus >> _BITS) + ZERO
    codes_BL = torch.where(span_BL > 2, OPEN, codes_BL)
    codes_BL = torch.where((span_BL == 2) | pad(span_BL == 4, (1, 0))[:, :columns], MINUS, codes_BL)
    codes_BL = pad(codes_BL, (0, 1))  # nodes without operator or bracket write behind the last column
    at_BL = torch.where(pair_BL, right_BL - 1, columns)
    operator_BL = (draw_BL * num_operators >> _BITS) + PLUS
    codes_BL = codes_BL.scatter(1, at_BL, operator_BL.gather(1, at_BL.clamp(max=columns - 1)))
    return codes_BL.scatter(1, torch.where(span_BL > 2, span_BL + (column_L - 1), columns), CLOSE)[:, :columns]


def evaluate(trees: Trees, *, modulus: int) -> Tensor:
    """Return the value of every node modulo m, in its column, [B, L]."""
    codes_BL, span_BL, pair_BL, right_BL, levels = trees
    columns = codes_BL.shape[1]
    column_L = torch.arange(columns, device=codes_BL.device)
    leaves, pairs = _tables(modulus, codes_BL.device)
    at_BL = (torch.where(pair_BL, 0, span_BL >> 1) + column_L).clamp(max=columns - 1)
    digit_BL = (codes_BL.gather(1, at_BL) - ZERO).clamp(0, modulus - 1)
    value_BL = looked_up(leaves, torch.add(digit_BL, span_BL & 1, alpha=modulus))
    operator_BL = (codes_BL.gather(1, (right_BL - 1).clamp(min=0)).clamp(PLUS, TIMES) - PLUS) * modulus**2
    for pair_BL in reversed(levels):
        index_BL = torch.add(value_BL.gather(1, right_BL) + operator_BL, pad(value_BL[:, 1:], (0, 1)), alpha=modulus)
        value_BL = torch.where(pair_BL, looked_up(pairs, index_BL), value_BL)
    return value_BL


def parts(trees: Trees, value_BL: Tensor) -> tuple[Tensor, Tensor]:
    """Return the values of the left and the right part of every pair."""
    return pad(value_BL[:, 1:], (0, 1)), value_BL.gather(1, trees.right_BL)


def looked_up(table: Tensor, index_BL: Tensor) -> Tensor:
    """Return table[index_BL], in half the time."""
    return table.index_select(0, index_BL.flatten()).view_as(index_BL)


@kept
def _levels(columns: int, device: torch.device) -> Tensor:
    return torch.tensor([num_levels(size) for size in range(columns + 1)], device=device)


@kept
def _tables(modulus: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the value of a leaf by [odd span, digit] and of a pair by [operator, left, right], both flat."""
    a, b = np.arange(modulus)[:, None], np.arange(modulus)[None]
    leaves = np.concatenate([-b, b]) % modulus  # a span of 2 or 4 has a minus
    pairs = np.stack([a + b, a - b, a * b]) % modulus
    return torch.from_numpy(leaves).flatten().to(device), torch.from_numpy(pairs).flatten().to(device)


def value_law(size: int, *, modulus: int, num_operators: int) -> np.ndarray:
    """Return P(value) for an expression of `size` symbols, [m]."""
    return _value_laws(1 << size.bit_length(), modulus, num_operators)[size]


@cache
def _value_laws(size: int, modulus: int, num_operators: int) -> np.ndarray:
    """Compute the distributions by the grammar, from short to long, [size + 1, m]."""
    m, digits = modulus, np.arange(modulus)
    a, b = digits[:, None], digits[None]
    outcomes = np.zeros((m, m, m))  # [left, right, value]: the share of operators that give it
    for table in (a + b, a - b, a * b)[:num_operators]:
        outcomes[a, b, table % m] += 1 / num_operators
    law = np.full((max(size, 4) + 1, m), 1 / m)
    for length in range(5, size + 1):
        joint = law[1 : length - 3].T @ law[length - 4 : 0 : -1] / (length - 4)
        law[length] = np.einsum("lr,lrv->v", joint, outcomes)
    return law
