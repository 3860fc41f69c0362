"""Is the string in this language of MLRegTest? 1,800 regular languages of sixteen classes, by their published names.

    b a b b  ->  YES        04.04.SL.4.1.1: no a b a b, and no c d c d
    a b a b  ->  NO

A name is alphabet, tier, class, width of factors, threshold, number. tasks/_mlregtest.py has the definitions, and
`ladder describe` shows the size of the automaton. Members and non-members are uniform over those of their length, as in
the published training, development and test sets. With test="adversarial" only the test's strings are one edit from the
other side (tasks/_border.py). The published short and long sets are lengths 20..29 and 31..50 (count="input"). Van der
Poel et al. 2024 (2304.07687).

Two points differ. The published development and test sets have no string twice, nor one of another set. Here each
string is drawn independently (and training strings are new, except with train.examples). A published adversarial pair
is a uniform string that has an edit to the other side, and the result of a random edit, which may be one symbol longer
or shorter than the set's lengths. Here each string is drawn independently, at its own length, with a probability
proportional to its number of such edits.
"""

from dataclasses import dataclass
from typing import Literal

from chomsky_ladder.tasks import _mlregtest
from chomsky_ladder.tasks._automata import Automaton
from chomsky_ladder.tasks._membership import Membership
from chomsky_ladder.tasks.base import register

GROUPS = ("Zp", "Reg")
"""The classes whose languages count modulo a number. All others are star-free."""


@register
@dataclass(frozen=True, kw_only=True)
class MlRegTest(Membership):
    name, version, level = "mlregtest", 1, "regular"
    tracks_state = True

    language: str = "04.04.SL.4.1.1"
    """The published name: alphabet, tier, class, width of factors, threshold, number."""
    negatives: Literal["uniform", "border"] = "uniform"
    """Kind of all strings: uniform on both sides, or one edit from the other side."""
    test: Literal["random", "adversarial"] = "random"
    """Kind of the test's strings: as in training, or one edit from the other side."""

    def __post_init__(self) -> None:
        if self.language not in _mlregtest.names():
            known = ", ".join(_mlregtest.classes())
            raise ValueError(
                f"mlregtest: no language {self.language!r}: names are like 04.04.SL.2.1.0, classes are {known}"
            )
        super().__post_init__()

    @property
    def dfa(self) -> Automaton:
        return _mlregtest.language(self.language)

    @property
    def demand(self) -> str:
        return super().demand or ("" if self.language.split(".")[2] in GROUPS else "star-free")

    def _negatives(self, split: str) -> Literal["uniform", "border"]:
        return "border" if self.test == "adversarial" and split.split("/")[0] == "test" else self.negatives
