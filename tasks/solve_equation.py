"""The digit x that makes an equation modulo 5 true; it has exactly one.

    ( 2 * ( x + 4 ) ) = 1 ACT  ->  4        2 * (4 + 4) = 16 = 1

Deterministic context-free. The left side is an expression of mod_arithmetic_brackets (tasks/_expressions.py) in which x
stands for one digit. So the equation is affine in x, and has one root iff every factor that multiplies x is a unit. x
replaces one of the digits for which that holds, with equal probability, and its own value is drawn anew: the answer is
uniform and independent of the rest. In the few expressions without such a digit (2% at lengths 3..40, 5% at 40..256) x
is any digit, and each '*' that would cancel it becomes '+'. Deletang et al. 2022 (2207.02098) leave '*' out for the
same reason (`operators="+-"`); Beck et al. 2024 (2405.04517) keep it. Deletang et al. also have 0 and 0 0 for lengths
too short for an equation, with the answer 0 (`every_length`).
"""

from dataclasses import dataclass
from math import gcd
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from chomsky_ladder.tasks._arithmetic import Arithmetic
from chomsky_ladder.tasks._expressions import EQUALS, PLUS, TIMES, ZERO, Trees, draw_trees, evaluate, looked_up, parts
from chomsky_ladder.tasks._kept import kept
from chomsky_ladder.tasks.base import register
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.layout import ACT

SHORTEST = 3  # symbols of an equation
X, DIGIT = 8, 9  # the tokens: PAD, ACT, the codes of an expression one higher, x, the digits


@register
@dataclass(frozen=True, kw_only=True)
class SolveEquation(Arithmetic):
    name, version, level = "solve_equation", 1, "context_free"

    query: Literal["none", "token", "act"] = "act"
    """The input between the equation and the answer: nothing, one blank token, or ACT."""
    every_length: bool = False
    """Add the strings of one and two zeros."""

    @property
    def closing(self) -> tuple[int, ...]:
        return (ACT,) if self.query == "act" else super().closing

    @property
    def vocab(self) -> tuple[str, ...]:
        return "PAD", "ACT", "+", "-", "*", "=", "(", ")", "x", *map(str, range(self.modulus))

    @property
    def answers(self) -> tuple[int, ...]:
        return tuple(range(DIGIT, DIGIT + self.modulus))

    def legal_size(self, size: int) -> bool:
        return size >= (1 if self.every_length else SHORTEST)

    def symbols(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        return self.examples(draw, size_B, columns)[0]

    def examples(self, draw: Draw, size_B: Tensor, columns: int) -> tuple[Tensor, Tensor]:
        if not self.every_length:
            return self._equations(draw, size_B, columns)
        x_BL, answer_B = self._equations(draw, size_B.clamp(min=SHORTEST), max(columns, SHORTEST))
        is_short_B = size_B < SHORTEST
        x_BL = torch.where(is_short_B[:, None], DIGIT, x_BL[:, :columns])
        return x_BL, torch.where(is_short_B, DIGIT, answer_B)

    def _equations(self, draw: Draw, size_B: Tensor, columns: int) -> tuple[Tensor, Tensor]:
        column_L, end_B1 = torch.arange(columns, device=size_B.device), size_B[:, None] - 2
        trees = draw_trees(draw, size_B - 2, columns, modulus=self.modulus, num_operators=len(self.operators))
        left_BL, right_BL = parts(trees, evaluate(trees, modulus=self.modulus))
        operator_BL = trees.codes_BL.gather(1, (trees.right_BL - 1).clamp(min=0))
        product_BL, is_unit = trees.pair_BL & (operator_BL == TIMES), _units(self.modulus, size_B.device)
        loses_left_BL = product_BL & ~looked_up(is_unit, right_BL)
        loses_right_BL = product_BL & ~looked_up(is_unit, left_BL)

        digits_BL = (trees.codes_BL >= ZERO) & (column_L < end_B1)
        kept_BL = digits_BL & (_covers(trees, loses_left_BL, loses_right_BL) == 0)
        rank_BL = torch.where(kept_BL.any(1, keepdim=True), kept_BL, digits_BL).cumsum(1)
        chosen_B1 = draw.integers(rank_BL[:, -1])[:, None]
        x_B1 = (rank_BL <= chosen_B1).sum(1, keepdim=True)
        root_B1 = draw.integers(self.modulus)[:, None]

        in_left_BL = trees.pair_BL & (column_L < x_B1) & (x_B1 < trees.right_BL)
        in_right_BL = (trees.right_BL <= x_B1) & (x_B1 < trees.span_BL + column_L) & trees.pair_BL
        mended_BL = (loses_left_BL & in_left_BL) | (loses_right_BL & in_right_BL)
        operator_BL = torch.where(mended_BL, PLUS, operator_BL)
        step_BL = torch.add(operator_BL, torch.where(in_left_BL, right_BL, left_BL), alpha=4) * 2 + in_right_BL
        value_B1 = self._climb(trees, x_B1, root_B1, step_BL, in_left_BL | in_right_BL)

        codes_BL = pad(trees.codes_BL, (0, 1)).scatter(1, torch.where(mended_BL, trees.right_BL - 1, columns), PLUS)
        tokens_BL = codes_BL[:, :columns] + 1
        tokens_BL = torch.where(tokens_BL > ZERO, tokens_BL + (DIGIT - ZERO - 1), tokens_BL)
        tokens_BL = torch.where(column_L == x_B1, X, tokens_BL)
        tokens_BL = torch.where(column_L == end_B1, EQUALS + 1, tokens_BL)
        return torch.where(column_L > end_B1, value_B1 + DIGIT, tokens_BL), root_B1[:, 0] + DIGIT

    def _climb(self, trees: Trees, x_B1: Tensor, root_B1: Tensor, step_BL: Tensor, above_BL: Tensor) -> Tensor:
        """Evaluate the left side with x at its root: from x upwards, pair by pair."""
        negated_B1 = (trees.span_BL.gather(1, (x_B1 - 1).clamp(min=0)) == 2) & (x_B1 > 0)
        negated_B1 = negated_B1 | ((trees.span_BL.gather(1, (x_B1 - 2).clamp(min=0)) == 4) & (x_B1 > 1))
        value_B1 = torch.where(negated_B1, -root_B1, root_B1) % self.modulus
        levels, table = len(trees.levels), _steps(self.modulus, x_B1.device)
        rank_BL = torch.where(above_BL, above_BL.cumsum(1), levels + 1)
        path_BK = torch.zeros_like(rank_BL[:, :1]).expand(-1, levels + 2).scatter(1, rank_BL, step_BL)
        for level in range(levels, 0, -1):
            value_B1 = looked_up(table, torch.add(value_B1, path_BK[:, level, None], alpha=self.modulus))
        return value_B1

    def answer_law(self, length: int) -> np.ndarray:
        law = self.uniform_law()
        if self.size(length) < SHORTEST:
            law[0] = np.arange(len(self.vocab)) == DIGIT
        return law


def _covers(trees: Trees, cancels_left_BL: Tensor, cancels_right_BL: Tensor) -> Tensor:
    """Count the products that cancel each column: first columns of parts minus the columns after their last."""
    columns = trees.span_BL.shape[1]
    column_L = torch.arange(columns, device=trees.span_BL.device)
    left_BL, right_BL = cancels_left_BL.long(), cancels_right_BL.long()
    edges_BL = pad(left_BL, (1, 1))
    edges_BL = edges_BL.scatter_add(1, trees.right_BL, right_BL - left_BL)  # the left part ends before its operator
    edges_BL = edges_BL.scatter_add(1, (trees.span_BL + (column_L - 1)).clamp(0, columns), -right_BL)
    return edges_BL[:, :columns].cumsum(1)


@kept
def _units(modulus: int, device: torch.device) -> Tensor:
    return torch.tensor([gcd(value, modulus) == 1 for value in range(modulus)], device=device)


@kept
def _steps(modulus: int, device: torch.device) -> Tensor:
    """Return a flat table: [the other part, operator, x is in the right part, the part x is in] -> the pair's value."""
    other, part = np.arange(modulus)[:, None], np.arange(modulus)[None]
    nothing = part + 0 * other  # step 0 fills the path of a tree that has fewer levels
    left = [nothing, part + other, part - other, part * other]  # by the operator's code
    right = [nothing, other + part, other - part, other * part]
    table = np.stack([np.stack(left), np.stack(right)])  # [right, operator, other, part]
    return torch.from_numpy(table.transpose(2, 1, 0, 3) % modulus).flatten().to(device)
