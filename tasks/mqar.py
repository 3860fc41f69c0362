"""Multi-query associative recall: the value that came with this key. Many keys, each asked once.

    k3 v1 k0 v7 _ k0 _ _ k3  ->  v7 v1        two pairs; each answer is read at its query, and nothing is fed back

Outside the hierarchy: a finite table, but one that no small machine holds. Arora et al. 2023 (2312.04927), whose code
places queries at every second position, draws distinct values and fills with any token. Here every position after the
pairs can be a query, values are independent, and fillers are blank or values. As in the paper, the place i = 1, 2, ..
at which a key is asked has weight i**(a - 1), and places are drawn without replacement, the first for the first key.
"""

from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from chomsky_ladder.tasks._kept import kept
from chomsky_ladder.tasks.base import PAD, Batch, Task, bounded, register
from chomsky_ladder.tasks.draw import Draw

BLANK, FIRST_KEY = 1, 2  # then the keys, then the values
CELL_BITS, STEP_BITS = 12, 18  # the exponential's table has 2**12 cells of 2**18 steps
MOST_PLACES = 1 << 14  # in a region, so that no race time reaches NEVER
NEVER = 1 << 62


@register
@dataclass(frozen=True, kw_only=True)
class Mqar(Task):
    name, version, level = "mqar", 1, "none"
    demand = "recall"

    num_keys: int = 64
    """Number of keys."""
    num_values: int = 64
    """Number of values."""
    pairs: int = 8
    """Number of keys that a string gives a value and asks for. It then has at least 3 * pairs positions."""
    power: int = 1
    """100 a: how far after the pairs queries lie, from mostly at once (1, as in Zoology's code) to anywhere (100)."""
    filler: Literal["blank", "values"] = "blank"
    """Filler after the pairs where nothing is asked: '_', or random values."""

    def __post_init__(self) -> None:
        bounded(self, "num_values", 2, 4096)
        if self.num_keys > MOST_PLACES:
            raise ValueError(f"mqar has at most {MOST_PLACES} keys, not {self.num_keys}")
        if not 1 <= self.pairs <= self.num_keys:
            raise ValueError(f"mqar: pairs must lie in 1..num_keys ({self.num_keys}), not {self.pairs}")
        if not 1 <= self.power <= 100:
            raise ValueError(f"mqar: power is a percentage in 1..100, not {self.power}")

    @property
    def vocab(self) -> tuple[str, ...]:
        keys, values = (f"k{key}" for key in range(self.num_keys)), (f"v{value}" for value in range(self.num_values))
        return "PAD", "_", *keys, *values

    @property
    def answers(self) -> tuple[int, ...]:
        return tuple(range(FIRST_KEY + self.num_keys, FIRST_KEY + self.num_keys + self.num_values))

    def legal_lengths(self, low: int, high: int) -> tuple[int, ...]:
        return tuple(range(max(low, 3 * self.pairs), min(high, 2 * self.pairs + MOST_PLACES) + 1))

    def positions(self, length: int) -> int:
        return length

    def sample(self, draw: Draw, lengths_B: Tensor, width: int) -> Batch:
        columns = width - 2 * self.pairs
        key_BP = _lowest(draw.integers(2**31 - 1, (self.num_keys,)) * MOST_PLACES, self.pairs) + FIRST_KEY
        value_BP = draw.integers(self.num_values, (self.pairs,)) + self.answers[0]
        place_BP = self._places(draw, lengths_B - 2 * self.pairs, columns)
        blank_BN = key_BP.new_zeros(len(key_BP), columns)
        filler_BN = blank_BN + BLANK
        if self.filler == "values":
            filler_BN = draw.integers(self.num_values, (columns,)) + self.answers[0]
        pairs_BL = torch.stack([key_BP, value_BP], dim=2).flatten(1)
        tokens_BL = torch.cat([pairs_BL, filler_BN.scatter(1, place_BP, key_BP)], dim=1)
        targets_BL = torch.cat([torch.zeros_like(pairs_BL), blank_BN.scatter(1, place_BP, value_BP)], dim=1)
        inside_BL = torch.arange(width, device=lengths_B.device) < lengths_B[:, None]
        prompt_B = place_BP.amin(1) + 2 * self.pairs + 1
        return Batch(torch.where(inside_BL, tokens_BL, PAD), targets_BL, targets_BL != PAD, lengths_B, prompt_B)

    def _places(self, draw: Draw, places_B: Tensor, columns: int) -> Tensor:
        """Return the place after the pairs at which each key is asked, [B, P]: where exponential clocks ring, first to
        last.

        Efraimidis and Spirakis 2006: their order is a weighted draw without replacement.
        """
        uniform_BN = draw.integers(1 << (CELL_BITS + STEP_BITS), (columns,))
        cell_BN, step_BN = uniform_BN >> STEP_BITS, uniform_BN & ((1 << STEP_BITS) - 1)
        knot_K, rise_K = _exponential(uniform_BN.device)
        wait_BN = knot_K.take(cell_BN) + ((rise_K.take(cell_BN) * step_BN) >> STEP_BITS)
        wait_BN = wait_BN * _mean_waits(self.power, 1 << columns.bit_length(), uniform_BN.device)[:columns]
        column_N = torch.arange(columns, device=uniform_BN.device)
        wait_BN = torch.where(column_N < places_B[:, None], wait_BN, NEVER)
        return _lowest(wait_BN & -MOST_PLACES, self.pairs)

    def answer_law(self, length: int) -> np.ndarray:
        return self.uniform_law(self.pairs)


def _lowest(key_BN: Tensor, count: int) -> Tensor:
    """Return the columns of the lowest keys, multiples of MOST_PLACES, in their order; of equal keys the first."""
    column_N = torch.arange(key_BN.shape[1], device=key_BN.device)
    return (key_BN + column_N).topk(count, dim=1, largest=False).indices


@kept
def _exponential(device: torch.device) -> tuple[Tensor, Tensor]:
    """Return -ln(1 - k / 2**12) and the rise to the next, in units of 2**-28: the same integers on every platform.

    Between these times the distribution function is linear, less than 1e-6 off up to its 99th percentile. The 2**-12 of
    all times beyond the last are spread evenly about their true mean.
    """
    cells = 1 << CELL_BITS
    with localcontext(prec=30):
        times = [-(Decimal(cells - k) / cells).ln() for k in range(cells)]
        knots = [int((time * (1 << 28)).to_integral_value()) for time in [*times, times[-1] + 2]]
    knot_K = torch.tensor(knots, device=device)
    return knot_K[:-1], knot_K.diff()


@kept
def _mean_waits(power: int, places: int, device: torch.device) -> Tensor:
    """Return i**(1 - a) for the places i = 1, 2, .. in units of 2**-16: the reciprocal of each place's weight."""
    with localcontext(prec=30):
        waits = [Decimal(place) ** (1 - Decimal(power) / 100) for place in range(1, places + 1)]
        return torch.tensor([int((wait * (1 << 16)).to_integral_value()) for wait in waits], device=device)
