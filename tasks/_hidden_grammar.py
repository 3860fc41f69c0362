"""Random grammars whose symbols hide their states: several states write the same symbol.

    a0 -> b1 c0 #    a1 -> c0 d2    b1 -> a1 #    ..        "a" is written by a0 and by a1, and what may follow differs

A state is one copy of a symbol. From each state, each symbol may follow with probability `density`, and the end of the
word # with probability `ends`. A symbol that may follow leads to one of its copies, drawn uniformly. So a state and the
next symbol determine the next state. # leads to the first states of words, which are copies of different symbols.
States that no word uses are left out. While some state cannot reach #, the first such state may be followed by it.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from chomsky_ladder.tasks._kept import kept
from chomsky_ladder.tasks.draw import NumpyDraw

END = 0  # the symbol #, and its one state


class HiddenGrammar(NamedTuple):
    names: tuple[str, ...]
    """The names of states: the symbol with the number of the copy. # is the first."""
    symbols: tuple[int, ...]
    """The symbol of each state: 0 for #, then the letters from 1."""
    successors: tuple[tuple[int, ...], ...]
    """The states that may follow each state, ascending: at most one of each symbol."""


@kept
def drawn(
    key: int, *, letters: str, ambiguous: int, copies: int, density: int, ends: int, starts: int
) -> HiddenGrammar:
    """Draw the grammar of a key. The first letters are ambiguous, and `density` and `ends` are in percent."""
    stream = NumpyDraw(seed=key, split="hidden_states", rows_B=np.arange(1))
    copies_K = np.array([1, *(copies if number < ambiguous else 1 for number in range(len(letters)))])
    first_K = copies_K.cumsum() - copies_K
    names = [f"{symbol}{copy}" for symbol, num in zip("#" + letters, copies_K, strict=True) for copy in range(num)]
    symbol_N, num = np.repeat(np.arange(len(copies_K)), copies_K), len(names)
    chance_K = np.array([ends, *[density] * len(letters)])
    leads_NK = stream.integers(100, (num, len(copies_K)))[0] < chance_K
    after_NK = first_K + stream.integers(copies_K, (num, len(copies_K)))[0]
    is_first_K = np.isin(np.arange(len(copies_K)), 1 + stream.permutation(len(letters))[0, :starts])
    after = [set(row[leads].tolist()) for row, leads in zip(after_NK, leads_NK, strict=True)]
    after[END] = set(after_NK[END][is_first_K].tolist())
    kept_states = sorted(_found_from(END, after))
    while lost := sorted(set(kept_states) - _found_from(END, _turned(after))):
        after[lost[0]].add(END)
    number = {state: place for place, state in enumerate(kept_states)}
    return HiddenGrammar(
        names=tuple(names[state] for state in kept_states),
        symbols=tuple(symbol_N[kept_states].tolist()),
        successors=tuple(tuple(sorted(number[to] for to in after[state])) for state in kept_states),
    )


def _found_from(state: int, after: list[set[int]]) -> set[int]:
    """Return the states that can be reached from one, itself among them."""
    found, queue = {state}, [state]
    for one in queue:
        fresh = after[one] - found
        found |= fresh
        queue.extend(fresh)
    return found


def _turned(after: list[set[int]]) -> list[set[int]]:
    """Return the states that lead to each state."""
    before: list[set[int]] = [set() for _ in after]
    for state, others in enumerate(after):
        for other in others:
            before[other].add(state)
    return before


def chances(grammar: HiddenGrammar) -> np.ndarray:
    """Return P(next state | state), [N, N]. All successors are equally likely."""
    table = np.zeros((len(grammar.names),) * 2)
    for state, after in enumerate(grammar.successors):
        table[state, list(after)] = 1 / len(after)
    return table


@lru_cache(maxsize=64)
def along(grammar: HiddenGrammar, elements: int) -> np.ndarray:
    """Return P(state of the first, second .. element of a string), [E, N]."""
    table, rows = chances(grammar), [np.eye(1, len(grammar.names), END)[0]]
    for _ in range(elements):
        rows.append(rows[-1] @ table)
    return np.stack(rows[1:])


@lru_cache(maxsize=64)
def in_the_long_run(grammar: HiddenGrammar) -> np.ndarray:
    """Return the share of each state in a long string, [N]: the stationary distribution."""
    table = chances(grammar)
    return np.linalg.solve((np.eye(len(table)) - table + 1).T, np.ones(len(table)))


def best_guesses(grammar: HiddenGrammar) -> tuple[float, float]:
    """Return how often the likeliest state is right in a long string, given the last symbol, and given the last two."""
    share_N, symbol_N = in_the_long_run(grammar), np.array(grammar.symbols)
    writes_KN = symbol_N == np.arange(symbol_N.max() + 1)[:, None]
    pair_KN = writes_KN @ (share_N[:, None] * chances(grammar))  # the symbol before, the state now
    one = sum(share_N[writes_N].max(initial=0) for writes_N in writes_KN)
    two = sum(pair_KN[:, writes_N].max(axis=1, initial=0).sum() for writes_N in writes_KN)
    return float(one), float(two)


def completed(grammar: HiddenGrammar) -> tuple[tuple[int, ...], ...]:
    """Return the transitions [state][symbol], with a further state for strings that the grammar does not have."""
    num, num_symbols = len(grammar.names), max(grammar.symbols) + 1
    rows = []
    for after in grammar.successors:
        to = {grammar.symbols[state]: state for state in after}
        rows.append(tuple(to.get(symbol, num) for symbol in range(num_symbols)))
    return *rows, (num,) * num_symbols
