"""The value that belongs to this key in all strings: a table that no string shows and that weights must learn.

    k5 ? k90 ? k5 ?  ->  v17 v3 v17            read at every question

Regular, and one state is enough: it tests a model's weights. `table` chooses the table. Two keys have different values.
MAD, Poli et al. 2024 (2403.17844), with the numbers of its code: of 256 tokens one is the question, 127 are keys and
128 values, and a string has 32 tokens. The floors assume that the table's values are known, but not their keys.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from chomsky_ladder.tasks._kept import kept
from chomsky_ladder.tasks.base import PAD, Batch, Task, bounded, register
from chomsky_ladder.tasks.draw import Draw, NumpyDraw

ASK, FIRST_KEY = 1, 2  # then the values


@register
@dataclass(frozen=True, kw_only=True)
class Memorization(Task):
    name, version, level = "memorization", 1, "regular"

    table: int = 0
    """The table, given by the key it is drawn with."""
    num_keys: int = 127
    """Number of keys, each with a value of its own."""
    num_values: int = 128
    """Number of values, at least as many as keys."""

    def __post_init__(self) -> None:
        bounded(self, "table", 0, 2**63 - 1)
        bounded(self, "num_keys", 1, 1 << 16)
        if not max(2, self.num_keys) <= self.num_values <= 1 << 16:
            raise ValueError(f"memorization: num_values must lie in num_keys..65536, not {self.num_values}")

    @property
    def vocab(self) -> tuple[str, ...]:
        keys, values = (f"k{key}" for key in range(self.num_keys)), (f"v{value}" for value in range(self.num_values))
        return "PAD", "?", *keys, *values

    @property
    def answers(self) -> tuple[int, ...]:
        return tuple(range(FIRST_KEY + self.num_keys, FIRST_KEY + self.num_keys + self.num_values))

    def legal_lengths(self, low: int, high: int) -> tuple[int, ...]:
        return tuple(range(max(low + low % 2, 2), high + 1, 2))

    def positions(self, length: int) -> int:
        return length

    def sample(self, draw: Draw, lengths_B: Tensor, width: int) -> Batch:
        key_BP = draw.integers(self.num_keys, ((width + 1) // 2,))
        value_BP = _values(self.table, self.num_keys, self.num_values, key_BP.device).take(key_BP) + self.answers[0]
        inside_BL = torch.arange(width, device=lengths_B.device) < lengths_B[:, None]
        shown_BL = torch.stack([key_BP + FIRST_KEY, torch.full_like(key_BP, ASK)], dim=2).flatten(1)[:, :width]
        asked_BL = torch.stack([torch.zeros_like(key_BP), value_BP], dim=2).flatten(1)[:, :width]
        tokens_BL, targets_BL = (torch.where(inside_BL, x_BL, PAD) for x_BL in (shown_BL, asked_BL))
        return Batch(tokens_BL, targets_BL, targets_BL != PAD, lengths_B, torch.full_like(lengths_B, 2))

    def answer_law(self, length: int) -> np.ndarray:
        law = np.zeros((length // 2, len(self.vocab)))
        used = _values(self.table, self.num_keys, self.num_values, torch.device("cpu")).numpy()
        law[:, used + self.answers[0]] = 1 / self.num_keys
        return law


@kept
def _values(table: int, num_keys: int, num_values: int, device: torch.device) -> Tensor:
    """Return the value of every key."""
    draw = NumpyDraw(seed=table, split="memorization", rows_B=np.arange(1))
    return torch.from_numpy(draw.permutation(num_values)[0, :num_keys].copy()).to(device)
