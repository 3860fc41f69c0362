"""The symbol that is missing from a string written twice.

    3 1 4 3 MIS 4  ->  1

Context-sensitive as defined: the symbol stands at the same place of the other copy. But it is also the only one that
occurs an odd number of times. So the task is regular in disguise: one bit of parity for each symbol answers every
string, whatever the order. Deletang et al. 2022 (2207.02098) use bits and a query token (`num_symbols=2`,
`hole="either"`, `query="token"`). In Beck et al. 2024 (2405.04517) the symbol is missing from the second copy. Deletang
et al. also have strings of odd length, closed by a symbol without meaning (`every_length`), and a single symbol, the
second of the alphabet, which is its own answer:

    3 1 MIS 1 EMPTY  ->  3        1  ->  1
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from chomsky_ladder.tasks.base import bounded, register
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.layout import Classification

MISSING, FIRST = 1, 2


@register
@dataclass(frozen=True, kw_only=True)
class MissingDuplicate(Classification):
    name, version, level = "missing_duplicate", 1, "context_sensitive"

    num_symbols: int = 9
    """The size of the alphabet."""
    hole: Literal["second", "either"] = "second"
    """The copy from which the symbol is missing."""
    every_length: bool = False
    """Add strings of odd length, with EMPTY after the second copy."""

    def __post_init__(self) -> None:
        super().__post_init__()
        bounded(self, "num_symbols", 2, 4096)

    @property
    def vocab(self) -> tuple[str, ...]:
        symbols = "PAD", "MIS", *map(str, range(self.num_symbols))
        return (*symbols, "EMPTY") if self.every_length else symbols

    @property
    def answers(self) -> tuple[int, ...]:
        return tuple(range(FIRST, FIRST + self.num_symbols))

    def legal_size(self, size: int) -> bool:
        return size >= 1 if self.every_length else size >= 2 and size % 2 == 0

    def symbols(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        half_B = (size_B // 2).clamp(min=1)
        word_BL = draw.integers(self.num_symbols, (max(columns // 2, 1),)) + FIRST
        hole_B = draw.integers(2 * half_B) if self.hole == "either" else half_B + draw.integers(half_B)
        position_L = torch.arange(columns, device=size_B.device)
        twice_BL = word_BL.gather(1, position_L % half_B[:, None])
        x_BL = torch.where(position_L == hole_B[:, None], MISSING, twice_BL)
        if not self.every_length:
            return x_BL
        x_BL = torch.where(position_L == 2 * half_B[:, None], FIRST + self.num_symbols, x_BL)
        return torch.where(size_B[:, None] == 1, FIRST + 1, x_BL)

    def answer(self, x_BL: Tensor, size_B: Tensor) -> Tensor:
        hole_B, half_B = x_BL.argmin(1), size_B // 2  # MIS is the least token of a string
        return x_BL.gather(1, ((hole_B + half_B) % (2 * half_B).clamp(min=1))[:, None])[:, 0]

    def answer_law(self, length: int) -> np.ndarray:
        law = self.uniform_law()
        if self.size(length) == 1:
            law[0] = np.arange(len(self.vocab)) == FIRST + 1
        return law
