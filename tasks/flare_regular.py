"""Is the string in this regular language of FLaRe? First, repetition, parity, pairs, cycles, arithmetic or brackets.

    0 1 1 0 1 0 0  ->  YES        parity: an odd number of 1s
    0 1 1 0 0 0 0  ->  NO         a member after one edit

first: 1, then anything. repeat-01: 0 1 0 1 .. even-pairs: first symbol = last. cycle-navigation: steps on a circle of
five, then the digit of the place reached. modular-arithmetic-simple: digits and operators evaluated from the left,
modulo 5, without precedence, then = and the value. dyck-2-3: two kinds of brackets, three deep. tasks/_flare.py lists
the differences from Butoi et al. 2024 (2411.07107). Members of a length are uniform here. The published ones are those
of members="walks", as their prepare_sampler.py weighs them. They differ in parity, even-pairs and dyck-2-3.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from chomsky_ladder.tasks._automata import Automaton
from chomsky_ladder.tasks._flare import automaton, checked_language, walking_odds
from chomsky_ladder.tasks._membership import Membership
from chomsky_ladder.tasks.base import register


@register
@dataclass(frozen=True, kw_only=True)
class FlareRegular(Membership):
    name, version, level = "flare_regular", 1, "regular"
    tracks_state = True
    languages: ClassVar[tuple[str, ...]] = (
        *("first", "repeat-01", "parity", "even-pairs"),
        *("cycle-navigation", "modular-arithmetic-simple", "dyck-2-3"),
    )

    language: str = "parity"
    """The language, by its published name."""
    negatives: Literal["edits", "uniform", "one_edit", "border"] = "edits"
    """Kind of non-members: edited members and uniform strings, as published, or another kind of tasks/_labelled.py."""

    members: Literal["uniform", "walks"] = "uniform"
    """Distribution of members of a length. uniform. walks: as published, a walk that chooses uniformly among the
    symbols that may follow and the end; only with negatives=edits.
    """

    def __post_init__(self) -> None:
        checked_language(self.name, self.language, self.languages)
        super().__post_init__()
        if self.members == "walks" and self.negatives != "edits":
            raise ValueError(f"flare_regular: members=walks goes with negatives=edits, not {self.negatives}")

    @property
    def dfa(self) -> Automaton:
        return automaton(self.language)

    @property
    def member_odds(self) -> tuple[int, ...]:
        return walking_odds(self.language) if self.members == "walks" else ()
