"""The string from its last symbol to its first.

    1 2 3 ACT . .  ->  3 2 1        3 is read at ACT

Deterministic context-free: a stack does it. Deletang et al. 2022 (2207.02098) use bits and a blank for ACT
(`num_symbols=2`, `query="token"`); Beck et al. 2024 (2405.04517) ten symbols.
"""

from dataclasses import dataclass

from torch import Tensor

from chomsky_ladder.tasks._rearrangement import Rearrangement
from chomsky_ladder.tasks.base import register


@register
@dataclass(frozen=True, kw_only=True)
class ReverseString(Rearrangement):
    name, version, level = "reverse_string", 1, "context_free"
    demand = "reversal"
    hard = True

    def places(self, slot_M: Tensor, size_B1: Tensor) -> Tensor:
        return size_B1 - 1 - slot_M
