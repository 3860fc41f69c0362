"""The string twice: two copies of bits.

    1 0 1 ACT . . . . .  ->  1 0 1 1 0 1        the first 1 is read at ACT

Context-sensitive. This is `repetition` with the settings of Deletang et al. 2022 (2207.02098), who have a blank for ACT
(`query="token"`).
"""

from dataclasses import dataclass

from chomsky_ladder.tasks.base import register
from chomsky_ladder.tasks.repetition import Repetition


@register
@dataclass(frozen=True, kw_only=True)
class DuplicateString(Repetition):
    name, version, level = "duplicate_string", 1, "context_sensitive"
    demand = "copying"
    hard = False

    num_symbols: int = 2
    """The size of the alphabet."""
    copies: int = 2
    """Number of times that the answer repeats the string."""
