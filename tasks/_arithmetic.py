"""The settings shared by the tasks of arithmetic modulo m."""

from dataclasses import dataclass
from typing import Literal

from chomsky_ladder.tasks.base import bounded
from chomsky_ladder.tasks.layout import Classification


@dataclass(frozen=True, kw_only=True)
class Arithmetic(Classification):
    modulus: int = 5
    """Digits and values are 0..modulus-1."""
    operators: Literal["+-*", "+-"] = "+-*"
    """The operators drawn, uniformly."""

    def __post_init__(self) -> None:
        super().__post_init__()
        bounded(self, "modulus", 2, 50)
