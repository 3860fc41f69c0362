"""Transductions whose answers are the string's own symbols in another order: copies, reversals, shuffles.

Such a task says from which place each answer slot takes its symbol (`places`). Symbols are uniform, so every answer is.
"""

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from chomsky_ladder.tasks.base import bounded
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.layout import MarkedTransduction

FIRST = 2


@dataclass(frozen=True, kw_only=True)
class Rearrangement(MarkedTransduction):
    num_symbols: int = 10
    """The size of the alphabet."""

    def __post_init__(self) -> None:
        bounded(self, "num_symbols", 2, 4096)

    @abstractmethod
    def places(self, slot_M: Tensor, size_B1: Tensor) -> Tensor:
        """Return the place in the string, from 0, that each answer slot repeats, [B, M]; any value in unused slots."""

    @property
    def vocab(self) -> tuple[str, ...]:
        return "PAD", "ACT", *map(str, range(self.num_symbols))

    @property
    def answers(self) -> tuple[int, ...]:
        return tuple(range(FIRST, FIRST + self.num_symbols))

    def symbols(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        return draw.integers(self.num_symbols, (columns,)) + FIRST

    def transduce(self, x_BL: Tensor, size_B: Tensor) -> tuple[Tensor, Tensor]:
        columns = x_BL.shape[1]
        place_BM = self.places(torch.arange(self.slots(columns), device=x_BL.device), size_B[:, None])
        return x_BL.gather(1, place_BM.clamp(0, columns - 1)), self.slots(size_B)

    def answer_law(self, length: int) -> np.ndarray:
        return self.uniform_law(self.slots(self.size(length)))
