"""Does a random automaton accept this string? Every key is another regular language of the same size.

    b b a b b a a a a b a  ->  YES        the automaton of key 0

Regular: the state is that of the minimal complete automaton, `dfa`. It is the reachable part of a larger random
automaton. This is drawn again until it has `num_states` states (Carayol and Nicaud 2012: all such structures are
equally likely), is minimal, and has strings of every length from 32 to 256 both inside and outside its language.
Members and non-members are drawn as in `regular`. Random automata are learnt in Liu et al. 2022 (2210.10749).
"""

from dataclasses import dataclass
from math import exp

import numpy as np

from chomsky_ladder.tasks._automata import Automaton, minimised, reachable
from chomsky_ladder.tasks._kept import kept
from chomsky_ladder.tasks._labelled import mixed
from chomsky_ladder.tasks._membership import Membership
from chomsky_ladder.tasks.base import bounded, register
from chomsky_ladder.tasks.draw import NumpyDraw

LETTERS = "abcdefghijklmnopqrstuvwxyz"
TRIES = 1000
LONG = slice(32, 257)


@register
@dataclass(frozen=True, kw_only=True)
class RandomDfa(Membership):
    name, version, level = "random_dfa", 1, "regular"
    tracks_state = True

    automaton: int = 0
    """The automaton, given by the key it is drawn with."""
    num_states: int = 8
    """Number of states of the minimal automaton."""
    num_symbols: int = 2
    """The size of the alphabet."""

    def __post_init__(self) -> None:
        bounded(self, "automaton", 0, 2**63 - 1)
        if not (2 <= self.num_states <= 256 and 2 <= self.num_symbols <= len(LETTERS)):
            size = f"{self.num_states} states and {self.num_symbols} symbols"
            raise ValueError(f"random_dfa: an automaton has 2..256 states and 2..{len(LETTERS)} symbols, not {size}")
        super().__post_init__()

    @property
    def dfa(self) -> Automaton:
        return _drawn(self.automaton, num_states=self.num_states, alphabet=LETTERS[: self.num_symbols])


@kept
def _drawn(key: int, *, num_states: int, alphabet: str) -> Automaton:
    num_symbols = len(alphabet)
    reached = 1.0  # the share of a large random structure that the start reaches
    for _ in range(100):
        reached = 1 - exp(-num_symbols * reached)
    larger = round(num_states / reached)
    stream = NumpyDraw(seed=key, split="random_dfa", rows_B=np.arange(1))
    for number in range(TRIES):
        draw = stream.child(str(number))
        transitions = draw.integers(larger, (larger, num_symbols))[0].tolist()
        accepting = draw.integers(2, (larger,))[0].tolist()
        part = reachable(Automaton(tuple(map(tuple, transitions)), tuple(map(bool, accepting)), alphabet))
        minimal = minimised(part, most=num_states)
        if part.num_states == num_states and minimal == part and mixed(part, 256)[LONG].all():
            return part
    raise ValueError(f"random_dfa: none of {TRIES} automata is minimal with {num_states} states: try another key")
