"""Is the number of b's odd? A two-state automaton, the simplest language whose state must never be forgotten.

    a b b a b  ->  b        three b's: odd

Regular and not star-free. Hard attention cannot do it (Hahn 2020, 1906.06755), nor can a diagonal recurrence with
non-negative eigenvalues at finite precision (Grazzi et al. 2024, 2411.12537). Deletang et al. 2022 (2207.02098); Beck
et al. 2024 (2405.04517).
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from chomsky_ladder.tasks.base import register
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.layout import Classification

A, B = 1, 2


@register
@dataclass(frozen=True, kw_only=True)
class Parity(Classification):
    name, version, level = "parity", 1, "regular"
    demand = "parity"
    tracks_state = True
    vocab: ClassVar[tuple[str, ...]] = ("PAD", "a", "b")
    answers: ClassVar[tuple[int, ...]] = (A, B)
    state_sizes: ClassVar[tuple[int, ...]] = (2,)

    def symbols(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        return draw.integers(2, (columns,)) + A

    def prefix_answers(self, x_BL: Tensor) -> Tensor:
        return (x_BL == B).cumsum(1) % 2 + A

    def answer_law(self, length: int) -> np.ndarray:
        return self.uniform_law()

    def state(self, tokens_BL: Tensor) -> Tensor:
        return ((tokens_BL == B).cumsum(1) % 2)[..., None]
