"""The final place on a cycle after a series of moves: addition of -1, 0, +1 modulo the cycle's length.

    +1 +1 STAY -1 +1  ->  P2

Regular: a cyclic group of `cycle` states. The public xLSTM code's default vocabulary makes a cycle of six. The paper's
nine tokens make five, as here. Deletang et al. 2022 (2207.02098); Beck et al. 2024 (2405.04517).
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from chomsky_ladder.tasks.base import bounded, register
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.layout import Classification

STAY, FORWARD, BACK, P0 = 1, 2, 3, 4


@register
@dataclass(frozen=True, kw_only=True)
class CycleNav(Classification):
    name, version, level = "cycle_nav", 1, "regular"
    tracks_state = True

    cycle: int = 5
    """The number of places on the cycle."""

    def __post_init__(self) -> None:
        super().__post_init__()
        bounded(self, "cycle", 2, 1000)

    @property
    def vocab(self) -> tuple[str, ...]:
        return "PAD", "STAY", "+1", "-1", *(f"P{place}" for place in range(self.cycle))

    @property
    def answers(self) -> tuple[int, ...]:
        return tuple(range(P0, P0 + self.cycle))

    @property
    def state_sizes(self) -> tuple[int, ...]:
        return (self.cycle,)

    @property
    def demand(self) -> str:
        if self.cycle == 2:
            return "parity"
        return "cyclic" if self.cycle & (self.cycle - 1) else ""  # nothing is known for 4, 8 ..

    def symbols(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        return draw.integers(3, (columns,)) + STAY

    def prefix_answers(self, x_BL: Tensor) -> Tensor:
        return self._place(x_BL) + P0

    def state(self, tokens_BL: Tensor) -> Tensor:
        return self._place(tokens_BL)[..., None]

    def _place(self, tokens_BL: Tensor) -> Tensor:
        return ((tokens_BL == FORWARD).to(torch.int64) - (tokens_BL == BACK).to(torch.int64)).cumsum(1) % self.cycle

    def answer_law(self, length: int) -> np.ndarray:
        step = sum(np.roll(np.eye(self.cycle), move, axis=1) for move in (-1, 0, 1)) / 3
        place = np.linalg.matrix_power(step, self.size(length))[0]
        return np.concatenate([np.zeros(P0), place])[None]
