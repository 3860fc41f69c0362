"""The symbol that followed the first MARK. The string ends with a second MARK.

    3 0 MARK 7 1 4 MARK  ->  7        7 followed the first MARK

Regular: the symbol that followed the first MARK has to be kept. Two layers of attention find it by the mechanism after
which Olsson et al. 2022 (2209.11895) named the heads. As a task with one special token it is that of Gu and Dao 2023
(2312.00752), who train on 256 symbols.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from chomsky_ladder.tasks.base import bounded, register
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.layout import Classification

MARK, FIRST = 1, 2


@register
@dataclass(frozen=True, kw_only=True)
class InductionHeads(Classification):
    name, version, level = "induction_heads", 1, "regular"

    num_symbols: int = 16
    """The size of the alphabet, MARK aside."""

    def __post_init__(self) -> None:
        super().__post_init__()
        bounded(self, "num_symbols", 2, 4096)

    @property
    def vocab(self) -> tuple[str, ...]:
        return "PAD", "MARK", *map(str, range(self.num_symbols))

    @property
    def answers(self) -> tuple[int, ...]:
        return tuple(range(FIRST, FIRST + self.num_symbols))

    @property
    def state_sizes(self) -> tuple[int, ...]:
        """Return the number of states: 0 before MARK, 1 at it, then 2 and more for the symbol that followed it."""
        return (self.num_symbols + 2,)

    def legal_size(self, size: int) -> bool:
        return size >= 3

    def symbols(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        position_L = torch.arange(columns, device=size_B.device)
        mark_B = draw.integers(size_B - 2)
        marks_BL = (position_L == mark_B[:, None]) | (position_L == size_B[:, None] - 1)
        return (draw.integers(self.num_symbols, (columns,)) + FIRST).masked_fill(marks_BL, MARK)

    def answer(self, x_BL: Tensor, size_B: Tensor) -> Tensor:
        behind_B = (x_BL == MARK).to(torch.int64).argmax(1) + 1
        return x_BL.gather(1, behind_B[:, None])[:, 0]

    def state(self, tokens_BL: Tensor) -> Tensor:
        mark_BL = tokens_BL == MARK
        mark_BL = mark_BL & (mark_BL.cumsum(1) == 1)
        behind_BL = pad(mark_BL[:, :-1], (1, 0))
        rise_BL = torch.where(behind_BL, tokens_BL - FIRST + 1, mark_BL.to(torch.int64))
        return rise_BL.cumsum(1)[..., None]

    def answer_law(self, length: int) -> np.ndarray:
        return self.uniform_law()
