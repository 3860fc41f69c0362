"""Is the string in a regular language of your own? A regular expression or a transition table says which.

    a b b a b a  ->  YES        (ab|ba)*, the default
    a b a a b a  ->  NO         a near miss: one symbol of a member is changed

Regular: the state is that of the minimal complete automaton, `dfa`, and `ladder describe` prints its size and the
class of the language. A pattern is made of letters, digits and other visible characters (those with a meaning behind
a backslash), of | * + ? ( ) {m} {m,} {m,n} [abc] [a-c] [^ab], and of . for any symbol of the alphabet. A table has a
row "state: symbol>state symbol>state .." for each state, the start first, then the accepting states:

    even: a>odd b>even; odd: a>even b>odd; accept odd        an odd number of "a"s

What a row leaves out leads to a dead state. Sampling slows with the number of states. Such languages: Bhattamishra et
al. 2020 (2009.11264), Liu et al. 2022 (2210.10749); near misses, there by any edit, in Butoi et al. 2024 (2411.07107).
"""

from dataclasses import dataclass

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

    pattern: str = "(ab|ba)*"
    """The language as a regular expression."""
    table: str = ""
    """The language as a transition table, used in place of the pattern where it is given."""
    alphabet: str = ""
    """The symbols, 2 to 26; where this is empty, those that occur in the pattern or the table."""

    @property
    def dfa(self) -> Automaton:
        if self.table:
            return from_table(self.table, alphabet=self.alphabet)
        return from_pattern(self.pattern, alphabet=self.alphabet)
