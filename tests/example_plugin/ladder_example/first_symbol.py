"""The symbol that came first.

b a a b  ->  b
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from chomsky_ladder.tasks.base import register
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.layout import Classification


@register
@dataclass(frozen=True, kw_only=True)
class FirstSymbol(Classification):
    name, version, level = "first_symbol", 1, "regular"
    vocab = ("PAD", "a", "b")
    answers = (1, 2)

    def symbols(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        return draw.integers(2, (columns,)) + 1

    def prefix_answers(self, x_BL: Tensor) -> Tensor:
        return x_BL[:, :1].expand_as(x_BL)

    def answer_law(self, length: int) -> np.ndarray:
        return np.array([[0, 0.5, 0.5]])

    def oracle(self, prompt: Sequence[int]) -> list[int]:
        return [prompt[0]]
