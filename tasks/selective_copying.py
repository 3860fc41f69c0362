"""The data among the noise, in order. Data symbols lie at random places, noise everywhere else.

    _ 3 _ _ 0 _ 7 _ ACT . .  ->  3 0 7        data = 3

Outside the hierarchy: the number of answers is fixed, so it is a finite memory of `data` symbols that has to be
filled by content, which a time-invariant linear recurrence cannot do. Jing et al. 2017 (1706.02761) call it denoise;
Gu and Dao 2023 (2312.00752) have sixteen data symbols among 4096.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from chomsky_ladder.tasks.base import bounded, register
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.layout import MarkedTransduction, Size

NOISE, FIRST = 2, 3
BEYOND = 2**31  # above every key drawn


@register
@dataclass(frozen=True, kw_only=True)
class SelectiveCopying(MarkedTransduction):
    name, version, level = "selective_copying", 1, "none"

    num_symbols: int = 16
    """How many symbols data are made of."""
    data: int = 8
    """How many data symbols a string has, and answers."""

    def __post_init__(self) -> None:
        bounded(self, "num_symbols", 2, 4096)
        bounded(self, "data", 1, 4096)

    @property
    def vocab(self) -> tuple[str, ...]:
        return "PAD", "ACT", "_", *map(str, range(self.num_symbols))

    @property
    def answers(self) -> tuple[int, ...]:
        return tuple(range(FIRST, FIRST + self.num_symbols))

    def slots(self, size: Size) -> Size:
        return self.data

    def size_of_total(self, total: Size) -> Size:
        return total - len(self.closing) - self.data

    def legal_size(self, size: int) -> bool:
        return size >= self.data

    def symbols(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        position_L = torch.arange(columns, device=size_B.device)
        key_BL = torch.where(position_L < size_B[:, None], draw.integers(2**31 - 1, (columns,)), BEYOND)
        place_BM = (key_BL * columns + position_L).topk(self.data, dim=1, largest=False).indices
        symbol_BM = draw.integers(self.num_symbols, (self.data,)) + FIRST
        return torch.full_like(key_BL, NOISE).scatter(1, place_BM, symbol_BM)

    def transduce(self, x_BL: Tensor, size_B: Tensor) -> tuple[Tensor, Tensor]:
        data_BL = x_BL != NOISE
        slot_BL = torch.where(data_BL, data_BL.cumsum(1) - 1, self.data)
        answers_BM = x_BL.new_zeros(x_BL.shape[0], self.data + 1).scatter(1, slot_BL, x_BL)
        return answers_BM[:, : self.data], torch.full_like(size_B, self.data)

    def answer_law(self, length: int) -> np.ndarray:
        return self.uniform_law(self.data)
