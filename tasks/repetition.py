"""The string once more, or several times over.

    1 2 3 ACT . .  ->  1 2 3        with copies=2: 1 2 3 ACT . . . . .  ->  1 2 3 1 2 3

Context-sensitive: the copy language { w w } is not context-free; a queue can do it. Beck et al. 2024 (2405.04517);
`duplicate_string` is the same rule with the settings of Deletang et al. 2022.
"""

from dataclasses import dataclass

from torch import Tensor

from chomsky_ladder.tasks._rearrangement import Rearrangement
from chomsky_ladder.tasks.base import register
from chomsky_ladder.tasks.layout import Size


@register
@dataclass(frozen=True, kw_only=True)
class Repetition(Rearrangement):
    name, version, level = "repetition", 1, "context_sensitive"
    demand = "copying"
    hard = True

    copies: int = 1
    """Number of times that the answer repeats the string."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.copies <= 8:
            raise ValueError(f"{self.name}: the number of copies must lie in 1..8, not {self.copies}")

    def slots(self, size: Size) -> Size:
        return self.copies * size

    def size_of_total(self, total: Size) -> Size:
        return (total - len(self.closing)) // (1 + self.copies)

    def places(self, slot_M: Tensor, size_B1: Tensor) -> Tensor:
        return slot_M % size_B1
