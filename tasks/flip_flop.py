"""A memory of one bit: w writes the bit behind it, i ignores it, r reads the bit written last.

    w 1 i 0 r 1 i 0 r  ->  1        the last w wrote 1

Regular and star-free. Every inner r shows the bit it reads, so the answer only ever repeats the last bit behind a w;
with `ignore` near 100 that one lies far back, which is what soft attention misses. Liu et al. 2023 (2306.00946), whose
three distributions ignore 10, 80 and 98 percent.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from chomsky_ladder.tasks.base import PAD, register
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.layout import Classification

WRITE, READ, IGNORE, ZERO = 1, 2, 3, 4


@register
@dataclass(frozen=True, kw_only=True)
class FlipFlop(Classification):
    name, version, level = "flip_flop", 1, "regular"
    demand = "star-free"
    tracks_state = True
    vocab: ClassVar[tuple[str, ...]] = ("PAD", "w", "r", "i", "0", "1")
    answers: ClassVar[tuple[int, ...]] = (ZERO, ZERO + 1)
    state_sizes: ClassVar[tuple[int, ...]] = (
        3,
        4,
    )  # the bit held + 1 or 0, the instruction that waits for its bit or 0

    ignore: int = 80
    """How many percent of the inner instructions are i; the others are w and r equally."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.ignore <= 99:
            raise ValueError(f"flip_flop: ignore must be a percentage in 0..99, not {self.ignore}")

    def legal_size(self, size: int) -> bool:
        return size >= 3 and size % 2 == 1

    def symbols(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        """An instruction and its bit a pair; the last pair's bit lies beyond the string."""
        pairs = (columns + 1) // 2
        pair_P = torch.arange(pairs, device=size_B.device)
        share = 100 - self.ignore
        instruction_BP = draw.categorical((share, share, 2 * self.ignore), (pairs,)) + WRITE
        instruction_BP = torch.where(pair_P == 0, WRITE, instruction_BP)
        instruction_BP = torch.where(pair_P == size_B[:, None] // 2, READ, instruction_BP)
        bit_BP = draw.integers(2, (pairs,)) + ZERO
        written_BP = torch.where(instruction_BP == WRITE, pair_P, 0).cummax(1).values
        bit_BP = bit_BP.gather(1, torch.where(instruction_BP == READ, written_BP, pair_P))
        return torch.stack([instruction_BP, bit_BP], dim=2).flatten(1)[:, :columns]

    def prefix_answers(self, x_BL: Tensor) -> Tensor:
        held_BL = self._held(x_BL)
        return torch.where(x_BL == READ, held_BL, PAD)

    def state(self, tokens_BL: Tensor) -> Tensor:
        position_L = torch.arange(tokens_BL.shape[1], device=tokens_BL.device)
        latest_BL = torch.where(tokens_BL != PAD, position_L, 0).cummax(1).values
        waiting_BL = torch.where(tokens_BL < ZERO, tokens_BL, 0).gather(1, latest_BL)
        return torch.stack([(self._held(tokens_BL) - ZERO + 1).clamp(min=0), waiting_BL], dim=2)

    def _held(self, tokens_BL: Tensor) -> Tensor:
        """The bit written last, as its token; PAD before there is one."""
        bit_BL = torch.where(pad(tokens_BL[:, :-1], (1, 0)) == WRITE, tokens_BL, PAD)
        position_L = torch.arange(tokens_BL.shape[1], device=tokens_BL.device)
        return bit_BL.gather(1, torch.where(bit_BL != PAD, position_L, 0).cummax(1).values)

    def answer_law(self, length: int) -> np.ndarray:
        return self.uniform_law()
