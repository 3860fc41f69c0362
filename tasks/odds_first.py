"""The symbols at odd places, then those at even ones.

    5 1 4 2 3 ACT . . . .  ->  5 4 3 1 2        5 is read at ACT
    5 1 4 2 3 ACT . . . .  ->  1 2 5 4 3        first="even"

Context-sensitive: the place from which a slot takes its symbol depends on the length. Deletang et al. 2022 (2207.02098)
use bits and a blank for ACT (`num_symbols=2`, `query="token"`). Their paper says odd places first. Their code counts
places from 0, so it emits first what are the even places here (`first="even"`). Beck et al. 2024 (2405.04517) have ten
symbols.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from chomsky_ladder.tasks._rearrangement import Rearrangement
from chomsky_ladder.tasks.base import register


@register
@dataclass(frozen=True, kw_only=True)
class OddsFirst(Rearrangement):
    name, version, level = "odds_first", 1, "context_sensitive"
    hard = True

    first: Literal["odd", "even"] = "odd"
    """The places that come first, counted from 1: the first, third, fifth and so on, or the others."""

    def places(self, slot_M: Tensor, size_B1: Tensor) -> Tensor:
        start = int(self.first == "even")  # places count from 0 here
        place_M = 2 * slot_M + start
        return torch.where(place_M < size_B1, place_M, place_M - ((size_B1 - 1 + start) | 1))
