"""Is the number of ab and ba together even? It is even iff the string ends with its first symbol.

    a b b a b  ->  b        ab, ba, ab: odd (first is a, last is b)

Regular and star-free: the first symbol has to be kept. Deletang et al. 2022 (2207.02098); Beck et al. 2024.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from chomsky_ladder.tasks.base import PAD, register
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.layout import Classification

A, B = 1, 2


@register
@dataclass(frozen=True, kw_only=True)
class EvenPairs(Classification):
    name, version, level = "even_pairs", 1, "regular"
    demand = "star-free"
    tracks_state = True
    vocab: ClassVar[tuple[str, ...]] = ("PAD", "a", "b")
    answers: ClassVar[tuple[int, ...]] = (A, B)
    state_sizes: ClassVar[tuple[int, ...]] = (2, 2)  # the first symbol and the latest

    def symbols(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        return draw.integers(2, (columns,)) + A

    def prefix_answers(self, x_BL: Tensor) -> Tensor:
        return torch.where(x_BL == x_BL[:, :1], A, B)

    def answer_law(self, length: int) -> np.ndarray:
        return np.array([[0, 1.0, 0]]) if self.size(length) == 1 else np.array([[0, 0.5, 0.5]])

    def state(self, tokens_BL: Tensor) -> Tensor:
        position_L = torch.arange(tokens_BL.shape[1], device=tokens_BL.device)
        latest_BL = torch.where(tokens_BL != PAD, position_L, 0).cummax(1).values
        return torch.stack([tokens_BL[:, :1].expand_as(tokens_BL), tokens_BL.gather(1, latest_BL)], dim=-1) - A
