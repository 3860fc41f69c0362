"""The string once more, from what one vector holds of it: a string of 15 symbols, then its marker.

    1 12 3 ACT . .  ->  1 12 3        the 1 is read at ACT

Context-sensitive. `repetition` with the settings of MAD, Poli et al. 2024 (2403.17844): of 16 tokens one is the marker,
and of 32 a string it is the last. There the model of this task is `autoencoder`, which makes every answer of the one
vector at the marker; another one has its whole state at every blank, and this is `repetition`. Their code also asks for
the marker, which is the same in every string. Harder there: alphabets of 31, 63 and 127 symbols, strings of 63, 127 and
255, and 6,400 to 800 of them in training.
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
