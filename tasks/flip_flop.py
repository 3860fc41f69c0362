"""A memory of one bit: w writes the bit after it, i ignores it, r reads the bit written last.

    w 1 i 0 r 1 i 0 r  ->  1        the last w wrote 1

Regular and star-free. Every inner r shows the bit it reads, so the answer repeats the bit after the last w or r. With
`ignore` near 100 that bit is far back, which is hard for soft attention. Liu et al. 2023 (2306.00946), whose three
distributions ignore 10, 80 and 98 percent.

With `silence` all instructions after a uniformly drawn pair are i. So the last write lies anywhere in the string, in
training and in the test alike.

    w 1 i 0 r 1 i 0 i 1 i 1 i 0 r  ->  1        silent after the third pair

With `undo` there is also u. It takes back the last write that still stands, and its bit means nothing:

    w 1 i 0 w 0 u 1 r  ->  1        the write of 0 is undone; the first write of a string cannot be

That needs all writes, on a stack: deterministic context-free, and no task of state tracking. After Undo Flip-Flop
(2604.05923). The frequencies of the instructions are ours.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from chomsky_ladder.tasks._stacks import top
from chomsky_ladder.tasks.base import PAD, bounded, register
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.layout import Classification

WRITE, READ, IGNORE, ZERO = 1, 2, 3, 4
UNDO = 6


@register
@dataclass(frozen=True, kw_only=True)
class FlipFlop(Classification):
    name, version, level = "flip_flop", 1, "regular"
    tracks_state = True
    answers: ClassVar[tuple[int, ...]] = (ZERO, ZERO + 1)

    ignore: int = 80
    """Per cent of the inner instructions that are i. The rest are w and r equally."""
    undo: int = 0
    """Per cent of the inner instructions that are u, before w and r share the rest."""
    silence: bool = False
    """True: all instructions after a uniformly drawn pair are i, up to the last r."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.ignore <= 99:
            raise ValueError(f"flip_flop: ignore must be a percentage in 0..99, not {self.ignore}")
        bounded(self, "undo", 0, 99 - self.ignore)
        if self.undo:
            object.__setattr__(self, "level", "context_free")
            object.__setattr__(self, "tracks_state", False)

    @property
    def demand(self) -> str:
        return "nesting" if self.undo else "star-free"

    @property
    def vocab(self) -> tuple[str, ...]:
        return "PAD", "w", "r", "i", "0", "1", *(("u",) if self.undo else ())

    @property
    def state_sizes(self) -> tuple[int, ...]:
        """Return the sizes: the bit held + 1 or 0, and the instruction that waits for its bit or 0 (4 is u)."""
        return 3, 5 if self.undo else 4

    def legal_size(self, size: int) -> bool:
        return size >= 3 and size % 2 == 1

    def symbols(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        """Draw pairs of an instruction and its bit. The last pair's bit lies beyond the string."""
        pairs = (columns + 1) // 2
        pair_P = torch.arange(pairs, device=size_B.device)
        share = 100 - self.ignore - self.undo
        weights = (share, share, 2 * self.ignore, *((2 * self.undo,) if self.undo else ()))
        instruction_BP = draw.categorical(weights, (pairs,)) + WRITE
        instruction_BP = torch.where(instruction_BP > IGNORE, UNDO, instruction_BP)
        instruction_BP = torch.where(pair_P == 0, WRITE, instruction_BP)
        bit_BP = draw.integers(2, (pairs,)) + ZERO
        if self.silence:
            is_silent_BP = pair_P > draw.integers(size_B[:, None] // 2, (1,))
            instruction_BP = torch.where(is_silent_BP, IGNORE, instruction_BP)
        instruction_BP = torch.where(pair_P == size_B[:, None] // 2, READ, instruction_BP)
        written_BP = _written(instruction_BP == WRITE, instruction_BP == UNDO if self.undo else None)
        bit_BP = bit_BP.gather(1, torch.where(instruction_BP == READ, written_BP, pair_P))
        return torch.stack([instruction_BP, bit_BP], dim=2).flatten(1)[:, :columns]

    def prefix_answers(self, x_BL: Tensor) -> Tensor:
        held_BL = self._held(x_BL)
        return torch.where(x_BL == READ, held_BL, PAD)

    def state(self, tokens_BL: Tensor) -> Tensor:
        position_L = torch.arange(tokens_BL.shape[1], device=tokens_BL.device)
        latest_BL = torch.where(tokens_BL != PAD, position_L, 0).cummax(1).values
        instruction_BL = torch.where(tokens_BL < ZERO, tokens_BL, torch.where(tokens_BL == UNDO, IGNORE + 1, 0))
        waiting_BL = instruction_BL.gather(1, latest_BL)
        return torch.stack([(self._held(tokens_BL) - ZERO + 1).clamp(min=0), waiting_BL], dim=2)

    def told_by_end(self, x_BL: Tensor) -> Tensor:
        """Return the bit after the last write or read. A read shows what was written before the window."""
        if self.undo:
            return super().told_by_end(x_BL)
        before_BL = pad(x_BL[:, :-1], (1, 0))
        is_shown_BL = (before_BL == WRITE) | (before_BL == READ)
        shown_B1 = _written(is_shown_BL, None)[:, -1:]
        return torch.where(is_shown_BL.gather(1, shown_B1), x_BL.gather(1, shown_B1), PAD)[:, 0]

    def _held(self, tokens_BL: Tensor) -> Tensor:
        """Return the bit of the last write that stands, as its token; PAD before there is one."""
        bit_BL = torch.where(pad(tokens_BL[:, :-1], (1, 0)) == WRITE, tokens_BL, PAD)
        return bit_BL.gather(1, _written(bit_BL != PAD, tokens_BL == UNDO if self.undo else None))

    def answer_law(self, length: int) -> np.ndarray:
        return self.uniform_law()


def _written(writes_BL: Tensor, undoes_BL: Tensor | None) -> Tensor:
    """Return where the last write that stands was made; column 0 if there is none."""
    if undoes_BL is None:
        return torch.where(writes_BL, torch.arange(writes_BL.shape[1], device=writes_BL.device), 0).cummax(1).values
    total_BL = (writes_BL.to(torch.int64) - undoes_BL.to(torch.int64)).cumsum(1)
    has_begun_BL = writes_BL.cumsum(1) > 0
    below_BL = torch.where(has_begun_BL, total_BL - 1, 0).cummin(1).values  # the first write stays
    return top(writes_BL, total_BL - below_BL)
