"""The symbol found by k hops back from the last one: k-hop induction heads.

    h2 0 1 2 3 1 0 2 1  ->  1        0 followed the 1 before, and 1 followed the 0 before that

A hop leads from a symbol to what followed its last earlier occurrence, and the next hop goes on from there. The first
symbol of a string is the number of hops. Neighbours differ, else symbols are uniform. Where an earlier occurrence is
missing the answer is _. Answers of prefixes are trained, too (`supervision`); the last one is scored.

Sanford, Hsu and Telgarsky 2024 (2402.09268), who show that transformers of logarithmic depth can do it. Their code has
4 symbols, 0 to 16 hops and strings of 100. Regular for a finite alphabet: it is enough to hold, for each symbol and
number of hops, the answer right after its last occurrence.

Always _ scores .38 at lengths 3..40, where the length alone scores .45. At 40..256 no constant scores more than .25.
The number of hops with the last three symbols scores .54 and .37. Going four hops at most scores .72 and .62.
"""

from dataclasses import dataclass
from math import comb
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from chomsky_ladder.tasks.base import bounded, register
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.layout import Classification

NONE, FIRST = 1, 2  # then the symbols, then the numbers of hops


@register
@dataclass(frozen=True, kw_only=True)
class KHop(Classification):
    name, version, level = "k_hop", 1, "regular"

    supervision: Literal["final", "dense"] = "dense"
    """Training targets: the answer of the whole string, or that of every prefix. Evaluation scores the whole string."""
    num_symbols: int = 4
    """The size of the alphabet, the numbers of hops aside. A hop goes back num_symbols - 1 positions on average."""
    hops: tuple[int, int] = (1, 8)
    """The least and the greatest number of hops. Each is as frequent."""

    def __post_init__(self) -> None:
        super().__post_init__()
        bounded(self, "num_symbols", 3, 4096)
        low, high = self.hops
        if not 0 <= low <= high <= 64:
            raise ValueError(f"k_hop: hops must be two numbers in 0..64 that do not fall, not {low}, {high}")

    @property
    def vocab(self) -> tuple[str, ...]:
        low, high = self.hops
        return "PAD", "_", *map(str, range(self.num_symbols)), *(f"h{hops}" for hops in range(low, high + 1))

    @property
    def answers(self) -> tuple[int, ...]:
        return tuple(range(NONE, FIRST + self.num_symbols))

    def legal_size(self, size: int) -> bool:
        return size >= 2

    def symbols(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        low, high = self.hops
        first_B, step_BL = draw.integers(self.num_symbols), draw.integers(self.num_symbols - 1, (columns,)) + 1
        walk_BL = (step_BL.cumsum(1) + first_B[:, None]) % self.num_symbols + FIRST
        hops_B = draw.integers(high - low + 1) + FIRST + self.num_symbols
        return torch.cat([hops_B[:, None], walk_BL[:, 1:]], dim=1)

    def prefix_answers(self, x_BL: Tensor) -> Tensor:
        columns = x_BL.shape[1]
        column_L, lost = torch.arange(columns, device=x_BL.device), columns
        place_BL = (x_BL * columns + column_L).argsort(dim=1)  # symbol by symbol, each in its order
        symbol_BL = x_BL.gather(1, place_BL)
        again_BL = pad(symbol_BL[:, 1:] == symbol_BL[:, :-1], (1, 0))
        behind_BL = torch.where(again_BL, place_BL.roll(1, dims=1) + 1, lost)
        hop_BL = pad(torch.zeros_like(x_BL).scatter(1, place_BL, behind_BL), (0, 1), value=lost)
        at_BL, hops_B1 = column_L.expand_as(x_BL), x_BL[:, :1] - FIRST - self.num_symbols + self.hops[0]
        for hop in range(self.hops[1]):
            at_BL = torch.where(hop < hops_B1, hop_BL.gather(1, at_BL), at_BL)
        return pad(pad(x_BL, (0, 1), value=NONE).gather(1, at_BL)[:, 1:], (1, 0))

    def answer_law(self, length: int) -> np.ndarray:
        """Return P(_) and equal shares of the rest. A hop's way back is geometric, so k hops take k coins."""
        low, high = self.hops
        coins, p = max(self.size(length) - 3, 0), 1 / (self.num_symbols - 1)
        heads = np.array([comb(coins, k) * p**k * (1 - p) ** (coins - k) for k in range(high)])
        none = float(np.mean([heads[:hops].sum() for hops in range(low, high + 1)]))
        law = np.zeros(len(self.vocab))
        law[list(self.answers)] = [none, *[(1 - none) / self.num_symbols] * self.num_symbols]
        return law[None]
