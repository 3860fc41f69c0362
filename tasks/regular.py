"""Is the string in a regular language of your own? A regular expression, a transition table or a file says which.

    a b b a b a  ->  YES        (ab|ba)*, the default
    a b a a b a  ->  NO         a near miss: one symbol of a member is changed

Regular: the state is that of the minimal complete automaton, `dfa`, and `ladder describe` prints its size and the
class of the language. A pattern is made of letters, digits and other visible characters (those with a meaning behind
a backslash), of | * + ? ( ) {m} {m,} {m,n} [abc] [a-c] [^ab], and of . for any symbol of the alphabet. A table has a
row "state: symbol>state symbol>state .." for each state, the start first, then the accepting states:

    even: a>odd b>even; odd: a>even b>odd; accept odd        an odd number of "a"s

What a row leaves out leads to a dead state. A file is an automaton in AT&T's text format, as MLRegTest's .att files are
(tasks/_att.py); its hash is what a run's identity has of it. Sampling slows with the number of states. Such languages:
Bhattamishra et al. 2020 (2009.11264), Liu et al. 2022 (2210.10749); near misses, there by any edit, in Butoi et al.
2024 (2411.07107).
"""

from dataclasses import dataclass
from typing import ClassVar

from chomsky_ladder.tasks._att import digest, open_att
from chomsky_ladder.tasks._automata import Automaton
from chomsky_ladder.tasks._membership import Membership
from chomsky_ladder.tasks._regex import from_pattern
from chomsky_ladder.tasks._table import from_table
from chomsky_ladder.tasks.base import register


@register
@dataclass(frozen=True, kw_only=True)
class Regular(Membership):
    name, version, level = "regular", 1, "regular"
    tracks_state = True
    outside_identity: ClassVar[tuple[str, ...]] = ("file",)  # wherever it lies, its hash names it

    pattern: str = "(ab|ba)*"
    """The language as a regular expression."""
    table: str = ""
    """The language as a transition table, used in place of the pattern where it is given."""
    alphabet: str = ""
    """The symbols, 2 to 26, of a file 64; where this is empty, those that occur."""
    file: str = ""
    """The language as a file of an automaton (.att), used in place of both where it is given."""
    file_sha256: str = ""
    """Of that file, 16 digits; found out where it is not given, and what a run's identity has of the file."""

    def __post_init__(self) -> None:
        if self.file:
            if self.table:
                raise ValueError("regular: table and file are two languages: leave one out")
            try:
                found = digest(self.file)
            except ValueError:
                if self.file_sha256:
                    return  # of a record whose file has gone; it can be read, not trained or scored again
                raise
            if self.file_sha256 not in ("", found):
                said = f"has another automaton now than file_sha256={self.file_sha256} says"
                raise ValueError(f"regular: {self.file} {said}")
            object.__setattr__(self, "file_sha256", found)
        elif self.file_sha256:
            raise ValueError("regular: file_sha256 is the hash of a file, which is not given")
        super().__post_init__()

    @property
    def dfa(self) -> Automaton:
        if self.file:
            return open_att(self.file, self.file_sha256, alphabet=self.alphabet)
        if self.table:
            return from_table(self.table, alphabet=self.alphabet)
        return from_pattern(self.pattern, alphabet=self.alphabet)
