"""The data among the noise, in order. Data symbols lie at random places, noise everywhere else.

    _ 3 _ _ 0 _ 7 _ ACT . .  ->  3 0 7        data = 3

Outside the hierarchy: the number of answers is fixed. So it needs a finite memory of `data` symbols, filled depending
on content, which a time-invariant linear recurrence cannot do. Jing et al. 2017 (1706.02761) call it denoise. Gu and
Dao 2023 (2312.00752) have sixteen data symbols among 4096. MAD's version (Poli et al. 2024, 2403.17844) is
noise="before": its code puts each blank before a random data symbol. So gaps are far more alike than among places drawn
at once (of 223 blanks before 16 symbols, 13.9 +- 3.6, not +- 12.7), and no blank comes after the last.
"""

from dataclasses import dataclass
from typing import Literal

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
    """Number of symbols that data are made of."""
    data: int = 8
    """Number of data symbols in a string, and of answers."""
    noise: Literal["anywhere", "before"] = "anywhere"
    """Placement of noise. anywhere: data lie at uniform places. before: each blank precedes a uniform data symbol."""

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
        place_BM = self._places(draw, size_B, columns)
        symbol_BM = draw.integers(self.num_symbols, (self.data,)) + FIRST
        return place_BM.new_full((len(place_BM), columns), NOISE).scatter(1, place_BM, symbol_BM)

    def _places(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        """Return the places of the data; in order with noise="before", else in any order."""
        position_L = torch.arange(columns, device=size_B.device)
        if self.noise == "before":
            before_BN = draw.integers(self.data, (columns,))
            before_BN = torch.where(position_L < size_B[:, None] - self.data, before_BN, self.data)
            blanks_BM = before_BN.new_zeros(len(before_BN), self.data + 1)
            blanks_BM = blanks_BM.scatter_add(1, before_BN, torch.ones_like(before_BN))[:, : self.data]
            return blanks_BM.cumsum(1) + position_L[: self.data]
        key_BL = torch.where(position_L < size_B[:, None], draw.integers(2**31 - 1, (columns,)), BEYOND)
        return (key_BL * columns + position_L).topk(self.data, dim=1, largest=False).indices

    def transduce(self, x_BL: Tensor, size_B: Tensor) -> tuple[Tensor, Tensor]:
        data_BL = x_BL != NOISE
        slot_BL = torch.where(data_BL, data_BL.cumsum(1) - 1, self.data)
        answers_BM = x_BL.new_zeros(x_BL.shape[0], self.data + 1).scatter(1, slot_BL, x_BL)
        return answers_BM[:, : self.data], torch.full_like(size_B, self.data)

    def answer_law(self, length: int) -> np.ndarray:
        return self.uniform_law(self.data)
