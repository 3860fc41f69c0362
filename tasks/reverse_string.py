"""The string from its last symbol to its first.

    1 2 3 ACT . .  ->  3 2 1        3 is read at ACT

Deterministic context-free: a stack does it. Deletang et al. 2022 (2207.02098) use bits and a blank for ACT
(`num_symbols=2`, `query="token"`); Beck et al. 2024 (2405.04517) ten symbols.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from tasks.base import register
from tasks.draw import Draw
from tasks.layout import Transduction

ACT, FIRST = 1, 2


@register
@dataclass(frozen=True, kw_only=True)
class ReverseString(Transduction):
    name, version, level = "reverse_string", 1, "context_free"

    query: Literal["none", "token", "act"] = "act"
    """What stands between the string and the first answer: nothing, one blank token, or ACT."""
    num_symbols: int = 10
    """The size of the alphabet."""

    def __post_init__(self) -> None:
        if self.num_symbols < 2:
            raise ValueError(f"reverse_string needs at least 2 symbols, not {self.num_symbols}")

    @property
    def closing(self) -> tuple[int, ...]:
        return (ACT,) if self.query == "act" else super().closing

    @property
    def vocab(self) -> tuple[str, ...]:
        return "PAD", "ACT", *map(str, range(self.num_symbols))

    @property
    def answers(self) -> tuple[int, ...]:
        return tuple(range(FIRST, FIRST + self.num_symbols))

    def symbols(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        return draw.integers(self.num_symbols, (columns,)) + FIRST

    def transduce(self, x_BL: Tensor, size_B: Tensor) -> tuple[Tensor, Tensor]:
        slot_L = torch.arange(x_BL.shape[1], device=x_BL.device)
        return x_BL.gather(1, (size_B[:, None] - 1 - slot_L).clamp(min=0)), size_B

    def answer_law(self, length: int) -> np.ndarray:
        uniform = np.full(self.num_symbols, 1 / self.num_symbols)
        return np.tile(np.concatenate([np.zeros(FIRST), uniform]), (self.size(length), 1))
