"""Repeat the string from a single vector: a string of up to 15 different symbols, then its marker.

    1 12 3 ACT . .  ->  1 12 3        the 1 is read at ACT

Context-sensitive. This is `repetition` with the settings of MAD, Poli et al. 2024 (2403.17844): one of 16 tokens is the
marker, and it is the last of the 32 tokens of a string. MAD's model for this task is `autoencoder`, which computes
every answer from the one vector at the marker. Other models have their whole state at every blank, so for them this is
`repetition`. MAD's code also asks for the marker, which is the same in every string. MAD's harder versions have
alphabets of 31, 63 and 127 symbols, strings of 63, 127 and 255, and 6,400 to 800 training strings.
"""

from dataclasses import dataclass

from chomsky_ladder.tasks.base import register
from chomsky_ladder.tasks.repetition import Repetition


@register
@dataclass(frozen=True, kw_only=True)
class Compression(Repetition):
    name, version, level = "compression", 1, "context_sensitive"
    demand = "copying"
    hard = False

    num_symbols: int = 15
    """The size of the alphabet."""
