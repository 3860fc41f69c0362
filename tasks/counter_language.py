"""Is this a^k b^k, or a^k b^k c^k: the same number of each letter, in order?

    a a b b  ->  YES        a a b a  ->  NO        a a a b  ->  NO

One counter decides the first language, which is deterministic context-free. Two decide the second, which is
context-sensitive. Half the strings are members. The others have one block longer and another shorter by as much, or two
letters exchanged. Exchanged letters make a descending pair, so a window of two symbols scores .5 + `misordered` / 200.
All strings begin with a and end with the last letter, except with blocks of one letter. There the ends give the answer,
and `content_free` counts that. Gers and Schmidhuber 2001; Weiss et al. 2018 (1805.04908).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from chomsky_ladder.tasks.base import PAD, Floors, bounded, register
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.layout import Classification

A = 1
CEILING = 255  # the largest value of a counter in the state


@register
@dataclass(frozen=True, kw_only=True)
class CounterLanguage(Classification):
    name, version, level = "counter_language", 1, "counter"
    demand = "counter"

    language: Literal["anbn", "anbncn"] = "anbn"
    """The language: two blocks of equal length, or three."""
    near: int = 4
    """The most letters that one block may have too many, and another too few."""
    misordered: int = 20
    """Per cent of the non-members that have the right number of each letter, two of them exchanged."""

    def __post_init__(self) -> None:
        super().__post_init__()
        bounded(self, "near", 1, 64)
        bounded(self, "misordered", 0, 100)

    @property
    def letters(self) -> int:
        return len(self.language) // 2

    @property
    def vocab(self) -> tuple[str, ...]:
        return "PAD", *"abc"[: self.letters], "NO", "YES"

    @property
    def answers(self) -> tuple[int, ...]:
        return A + self.letters, A + self.letters + 1

    @property
    def state_sizes(self) -> tuple[int, ...]:
        """Return the sizes: letter reached (0 none, letters + 1 rejected), and each letter's lead over the next."""
        return self.letters + 2, *[CEILING + 1] * (self.letters - 1)

    def legal_size(self, size: int) -> bool:
        return size % self.letters == 0

    def symbols(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        return self.examples(draw, size_B, columns)[0]

    def examples(self, draw: Draw, size_B: Tensor, columns: int) -> tuple[Tensor, Tensor]:
        """Draw members. In half of them, one block takes letters from another, or two blocks exchange one letter."""
        no, yes = self.answers
        block_B = size_B // self.letters
        spare_B = (block_B - 1).clamp(min=1)  # no block gives its last letter if it has another
        kind_B = draw.categorical((100, 100 - self.misordered, self.misordered))
        pair_B = draw.integers(self.letters * (self.letters - 1))
        one_B = pair_B % self.letters
        other_B = (one_B + 1 + pair_B // self.letters) % self.letters
        moved_B = torch.where(kind_B == 1, draw.integers(spare_B.clamp(max=self.near)) + 1, 0)
        block_B2 = torch.stack([one_B, other_B], dim=1)
        # The first a and the last letter stay where they are, if those blocks have others.
        inside_B2 = torch.where((block_B2 > 0) & (block_B2 < self.letters - 1), block_B[:, None], spare_B[:, None])
        place_B2 = draw.integers(inside_B2, (2,)) + ((block_B2 == 0) & (block_B[:, None] > 1)).to(torch.int64)
        place_B2 = torch.where(kind_B[:, None] == 2, block_B2 * block_B[:, None] + place_B2, columns)

        position_L = torch.arange(columns, device=size_B.device)
        x_BL = torch.full_like(position_L, A)
        for letter in range(1, self.letters):
            gained_B = ((one_B < letter).to(torch.int64) - (other_B < letter).to(torch.int64)) * moved_B
            x_BL = x_BL + (position_L >= (letter * block_B + gained_B)[:, None])
        x_BL = torch.where(position_L == place_B2[:, :1], (other_B + A)[:, None], x_BL)
        x_BL = torch.where(position_L == place_B2[:, 1:], (one_B + A)[:, None], x_BL)
        return x_BL, torch.where(kind_B == 0, yes, no)

    def prefix_answers(self, x_BL: Tensor) -> Tensor:
        letter_BL, *leads = self._machine(x_BL)
        no, yes = self.answers
        return torch.where((letter_BL == self.letters) & (sum(leads) == 0), yes, no)

    def state(self, tokens_BL: Tensor) -> Tensor:
        return torch.stack(self._machine(tokens_BL), dim=2)

    def _machine(self, tokens_BL: Tensor) -> list[Tensor]:
        """Return the parts of the state."""
        reached_BL = tokens_BL.cummax(1).values
        step_BL = tokens_BL - pad(reached_BL[:, :-1], (1, 0))
        wrong_BL = (step_BL > 1) | ((step_BL < 0) & (tokens_BL != PAD))
        counts = [(tokens_BL == A + letter).cumsum(1) for letter in range(self.letters)]
        leads = [count_BL - next_BL for count_BL, next_BL in pairwise(counts)]
        for lead_BL in leads:
            wrong_BL = wrong_BL | (lead_BL < 0)
        rejected_BL = wrong_BL.cumsum(1) > 0
        held = [lead_BL.clamp(max=CEILING).masked_fill(rejected_BL, 0) for lead_BL in leads]
        return [reached_BL.masked_fill(rejected_BL, self.letters + 1), *held]

    def answer_law(self, length: int) -> np.ndarray:
        return self.uniform_law()

    def floors(self, lengths: Sequence[int], *, score: Literal["tokens", "lengths"] = "tokens") -> Floors:
        """Return the floors. `content_free` is the best guess from the length, the first and the last symbol."""
        # With blocks of one letter, non-members share members' ends only if a middle block gave its letter away.
        alike = (100 - self.misordered) / 100 * (self.letters - 2) / self.letters
        guesses = [1 - alike / 2 if self.size(length) == self.letters else 1 / 2 for length in lengths]
        return Floors(s_rand=1 / 2, best_constant=1 / 2, content_free=float(np.mean(guesses)))
