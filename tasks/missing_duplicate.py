"""A string twice over, but one symbol is missing: which?

    3 1 4 3 MIS 4  ->  1

Context-sensitive as defined: the symbol stands at the same place of the other copy. But it is also the only one that
occurs an odd number of times, so that the task is regular in disguise: one bit of parity for each symbol answers every
string, whatever the order. Deletang et al. 2022 (2207.02098) use bits
and a query token (`num_symbols=2`, `hole="either"`, `query="token"`); Beck et al. 2024 (2405.04517) leave the symbol
out of the second copy.
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
    """The copy the symbol is missing from."""

    def __post_init__(self) -> None:
        super().__post_init__()
        bounded(self, "num_symbols", 2, 4096)

    @property
    def vocab(self) -> tuple[str, ...]:
        return "PAD", "MIS", *map(str, range(self.num_symbols))

    @property
    def answers(self) -> tuple[int, ...]:
        return tuple(range(FIRST, FIRST + self.num_symbols))

    def legal_size(self, size: int) -> bool:
        return size >= 2 and size % 2 == 0

    def symbols(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        half_B = size_B // 2
        word_BL = draw.integers(self.num_symbols, (columns // 2,)) + FIRST
        hole_B = draw.integers(size_B) if self.hole == "either" else half_B + draw.integers(half_B)
        position_L = torch.arange(columns, device=size_B.device)
        twice_BL = word_BL.gather(1, position_L % half_B[:, None])
        return torch.where(position_L == hole_B[:, None], MISSING, twice_BL)

    def answer(self, x_BL: Tensor, size_B: Tensor) -> Tensor:
        hole_B = x_BL.argmin(1)  # MIS is the least token of a string
        return x_BL.gather(1, ((hole_B + size_B // 2) % size_B)[:, None])[:, 0]

    def answer_law(self, length: int) -> np.ndarray:
        return self.uniform_law()
