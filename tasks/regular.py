"""Is the string in a regular language of your own, given by a regular expression, a transition table or a file?

    a b b a b a  ->  YES        (ab|ba)*, the default
    a b a a b a  ->  NO         a near miss: one symbol of a member is changed

Regular: the state is that of the minimal complete automaton, `dfa`. `ladder describe` prints its size and the class of
the language. A pattern is made of letters, digits and other visible characters (those with a meaning after a
backslash), of | * + ? ( ) {m} {m,} {m,n} [abc] [a-c] [^ab], and of . for any symbol of the alphabet. A table has a row
"state: symbol>state symbol>state .." for each state, the start first, then the accepting states:

    even: a>odd b>even; odd: a>even b>odd; accept odd        an odd number of "a"s

A symbol missing from a row leads to a dead state. A file is an automaton in AT&T's text format, like MLRegTest's .att
files (tasks/_att.py). The run's identity holds its hash. Sampling slows down with the number of states. Such languages:
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
    outside_identity: ClassVar[tuple[str, ...]] = ("file",)  # the hash identifies it, wherever it lies

    pattern: str = "(ab|ba)*"
    """The language as a regular expression."""
    table: str = ""
    """The language as a transition table; if given, it replaces the pattern."""
    alphabet: str = ""
    """The symbols, 2 to 26, for a file up to 64; if empty, those that occur."""
    file: str = ""
    """The language as a file of an automaton (.att); if given, it replaces both."""
    file_sha256: str = ""
    """Hash of that file, 16 digits, which is part of the run's identity; computed if not given."""

    def __post_init__(self) -> None:
        if self.file:
            if self.table:
                raise ValueError("regular: table and file are two languages: leave one out")
            try:
                found = digest(self.file)
            except ValueError:
                if self.file_sha256:
                    return  # a record whose file is gone can be read, not trained or scored again
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
