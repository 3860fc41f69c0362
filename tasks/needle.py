"""The value hidden in a haystack: noise with one value somewhere in it, then a question.

    n3 n0 n9 v4 n0 n15 n2 ?  ->  v4

Regular, and the simplest test of holding one symbol for long. `span` puts the needle early, late or anywhere. After
Kamradt's test of language models (2023), as Hsieh et al. 2024 (2404.06654) made it synthetic; here a single token.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from chomsky_ladder.tasks.base import bounded, register
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.layout import Classification

ASK, VALUE = 1, 2  # then the values, then the noise


@register
@dataclass(frozen=True, kw_only=True)
class Needle(Classification):
    name, version, level = "needle", 1, "regular"

    num_values: int = 10
    """Number of values that a needle can have."""
    num_noise: int = 16
    """Number of symbols in the haystack's alphabet."""
    span: tuple[int, int] = (0, 100)
    """The needle's possible places, in percent of the haystack: 0 is its first symbol, 100 its last."""

    def __post_init__(self) -> None:
        super().__post_init__()
        bounded(self, "num_values", 2, 4096)
        bounded(self, "num_noise", 1, 4096)
        low, high = self.span
        if not 0 <= low <= high <= 100:
            raise ValueError(f"needle: span must be two percentages that do not fall, not {low}, {high}")

    @property
    def vocab(self) -> tuple[str, ...]:
        values = (f"v{value}" for value in range(self.num_values))
        return "PAD", "?", *values, *(f"n{noise}" for noise in range(self.num_noise))

    @property
    def answers(self) -> tuple[int, ...]:
        return tuple(range(VALUE, VALUE + self.num_values))

    @property
    def state_sizes(self) -> tuple[int, ...]:
        """Return the number of states: the value seen + 1, or 0."""
        return (self.num_values + 1,)

    def legal_size(self, size: int) -> bool:
        return size >= 2

    def symbols(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        last_B = size_B - 2
        to_B = self.span[1] * last_B // 100
        from_B = torch.minimum((self.span[0] * last_B + 99) // 100, to_B)
        place_B = from_B + draw.integers(to_B - from_B + 1)
        value_B = draw.integers(self.num_values) + VALUE
        position_L = torch.arange(columns, device=size_B.device)
        noise_BL = draw.integers(self.num_noise, (columns,)) + VALUE + self.num_values
        x_BL = torch.where(position_L == place_B[:, None], value_B[:, None], noise_BL)
        return x_BL.masked_fill(position_L == size_B[:, None] - 1, ASK)

    def answer(self, x_BL: Tensor, size_B: Tensor) -> Tensor:
        return self._value(x_BL).amax(1)

    def state(self, tokens_BL: Tensor) -> Tensor:
        return (self._value(tokens_BL).cummax(1).values - VALUE + 1)[..., None]

    def _value(self, tokens_BL: Tensor) -> Tensor:
        """Return the token where it is a value, ASK elsewhere."""
        return tokens_BL.masked_fill(tokens_BL >= VALUE + self.num_values, ASK).clamp(min=ASK)

    def answer_law(self, length: int) -> np.ndarray:
        return self.uniform_law()
