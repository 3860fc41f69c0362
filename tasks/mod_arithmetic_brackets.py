"""The value modulo 5 of a fully bracketed expression.

    ( ( 2 + -1 ) * 4 ) =  ->  4        (2 - 1) * 4 = 4

Deterministic context-free. Depending on length an expression is d, -d, (d), (-d), else (A op B) with the length of A
uniform (tasks/_expressions.py). With '*', 0 is the most frequent value: .27 at lengths 3..40 and .31 at 40..256, where
always saying 0 scores .13 scaled. Deletang et al. 2022 (2207.02098) have no '*' and a query token (`operators="+-"`,
`query="token"`); Beck et al. 2024 (2405.04517) as here.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from torch import Tensor

from chomsky_ladder.tasks._arithmetic import Arithmetic
from chomsky_ladder.tasks._expressions import EQUALS, ZERO, draw_trees, evaluate, value_law
from chomsky_ladder.tasks.base import register
from chomsky_ladder.tasks.draw import Draw


@register
@dataclass(frozen=True, kw_only=True)
class ModArithmeticBrackets(Arithmetic):
    name, version, level = "mod_arithmetic_brackets", 1, "context_free"

    query: Literal["none", "token", "equals"] = "equals"
    """The input between the expression and the answer: nothing, one blank token, or '='."""

    @property
    def closing(self) -> tuple[int, ...]:
        return (EQUALS,) if self.query == "equals" else super().closing

    @property
    def vocab(self) -> tuple[str, ...]:
        return "PAD", "+", "-", "*", "=", "(", ")", *map(str, range(self.modulus))

    @property
    def answers(self) -> tuple[int, ...]:
        return tuple(range(ZERO, ZERO + self.modulus))

    def symbols(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        return self.examples(draw, size_B, columns)[0]

    def examples(self, draw: Draw, size_B: Tensor, columns: int) -> tuple[Tensor, Tensor]:
        trees = draw_trees(draw, size_B, columns, modulus=self.modulus, num_operators=len(self.operators))
        return trees.codes_BL, evaluate(trees, modulus=self.modulus)[:, 0] + ZERO

    def answer_law(self, length: int) -> np.ndarray:
        law = value_law(self.size(length), modulus=self.modulus, num_operators=len(self.operators))
        return np.concatenate([np.zeros(ZERO), law])[None]
