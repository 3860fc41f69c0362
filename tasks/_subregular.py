"""Regular languages by what their strings contain: automata made of factors, ends, counts and Boolean operations.

    make = Maker(3)                                   over the symbols 0, 1, 2
    make.contains((0, 0), (1,))                       two 0s side by side, and a 1 somewhere after them
    either(make.starts((0,)), opposite(...))          and so on; every automaton is minimal

`on_tier` reads some symbols and ignores the others. It turns a class of languages into its tier-based version.
"""

from collections.abc import Callable, Hashable
from typing import NamedTuple, TypeVar

from chomsky_ladder.tasks._automata import Automaton, minimised

State = TypeVar("State", bound=Hashable)
Word = tuple[int, ...]
MOST = 4096  # states of intermediate automata


class Maker(NamedTuple):
    """Languages over 0 .. num_symbols - 1."""

    num_symbols: int

    def contains(self, *words: Word) -> Automaton:
        """Accept strings with these words as factors, in this order and without overlap."""

        def step(state: tuple[int, Word], symbol: int) -> tuple[int, Word]:
            number, read = state
            if number == len(words):
                return state
            read = _begun((*read, symbol), words[number])
            return (number + 1, ()) if read == words[number] else (number, read)

        return self.explored((0, ()), step, lambda state: state[0] == len(words))

    def follows(self, word: Word) -> Automaton:
        """Accept strings with the word as a subsequence."""
        return self.contains(*((symbol,) for symbol in word))

    def starts(self, word: Word) -> Automaton:
        def step(state: int, symbol: int) -> int:
            return state if state in (-1, len(word)) else state + 1 if word[state] == symbol else -1

        return self.explored(0, step, lambda state: state == len(word))

    def stops(self, word: Word) -> Automaton:
        """Accept strings that end with the word."""

        return self.explored(Word(), lambda state, symbol: _begun((*state, symbol), word), lambda state: state == word)

    def overlapping(self, symbol: int, *, width: int, times: int) -> Automaton:
        """Accept strings with at least this many runs of `width` of a symbol, which may overlap."""

        def step(state: tuple[int, int], read: int) -> tuple[int, int]:
            run, found = state
            run = min(run + 1, width) if read == symbol else 0
            return run, min(found + (run == width), times)

        return self.explored((0, 0), step, lambda state: state[1] == times)

    def counted(self, symbol: int, modulus: int, residues: set[int]) -> Automaton:
        """Accept strings in which the symbol's count, modulo a number, is one of the residues."""
        return self.explored(
            0, lambda state, read: (state + (read == symbol)) % modulus, lambda state: state in residues
        )

    def explored(
        self, start: State, step: Callable[[State, int], State], accepts: Callable[[State], bool]
    ) -> Automaton:
        """Return the minimal automaton of a machine given by its steps."""
        return explored(start, step, accepts, num_symbols=self.num_symbols)


def _begun(read: Word, word: Word) -> Word:
    """Return the longest end of `read` with which the word begins."""
    while read != word[: len(read)]:
        read = read[1:]
    return read


def explored(
    start: State, step: Callable[[State, int], State], accepts: Callable[[State], bool], *, num_symbols: int
) -> Automaton:
    number, rows = {start: 0}, []
    for state in (queue := [start]):
        row = [step(state, symbol) for symbol in range(num_symbols)]
        for after in row:
            if after not in number:
                number[after] = len(number)
                queue.append(after)
        rows.append(tuple(number[after] for after in row))
        assert len(queue) <= MOST, "a language of too many states"
    alphabet = "".join(map(chr, range(num_symbols)))  # placeholder names, until the language gets its own
    found = minimised(Automaton(tuple(rows), tuple(map(accepts, queue)), alphabet), most=MOST)
    assert found is not None
    return found


def opposite(language: Automaton) -> Automaton:
    """Return the complement of the language."""
    return Automaton(language.transitions, tuple(not accepts for accepts in language.accepting), language.alphabet)


def both(one: Automaton, other: Automaton) -> Automaton:
    return _paired(one, other, lambda a, b: a and b)


def either(one: Automaton, *others: Automaton) -> Automaton:
    for other in others:
        one = _paired(one, other, lambda a, b: a or b)
    return one


def alike(one: Automaton, other: Automaton) -> Automaton:
    """Accept strings that are in both languages or in neither."""
    return _paired(one, other, lambda a, b: a == b)


def _paired(one: Automaton, other: Automaton, joined: Callable[[bool, bool], bool]) -> Automaton:
    def step(state: tuple[int, int], symbol: int) -> tuple[int, int]:
        return one.transitions[state[0]][symbol], other.transitions[state[1]][symbol]

    def accepts(state: tuple[int, int]) -> bool:
        return joined(one.accepting[state[0]], other.accepting[state[1]])

    return explored((0, 0), step, accepts, num_symbols=one.num_symbols)


def then(one: Automaton, *others: Automaton) -> Automaton:
    """Accept a string of each language, one after the other."""
    for other in others:
        one = _two(one, other)
    return one


def _two(one: Automaton, other: Automaton) -> Automaton:
    """Return the automaton whose states are a state of the first and all possible states of the second."""

    def entered(first: int, rest: frozenset[int]) -> tuple[int, frozenset[int]]:
        return first, rest | {0} if one.accepting[first] else rest

    def step(state: tuple[int, frozenset[int]], symbol: int) -> tuple[int, frozenset[int]]:
        first, rest = state
        return entered(one.transitions[first][symbol], frozenset(other.transitions[at][symbol] for at in rest))

    def accepts(state: tuple[int, frozenset[int]]) -> bool:
        return any(other.accepting[at] for at in state[1])

    return explored(entered(0, frozenset()), step, accepts, num_symbols=one.num_symbols)


def repeated(language: Automaton) -> Automaton:
    """Accept any number of strings of the language, one after the other."""
    begun = -1  # before the first symbol, where all is accepted

    def step(state: frozenset[int], symbol: int) -> frozenset[int]:
        after = {language.transitions[max(at, 0)][symbol] for at in state}
        return frozenset(after | ({begun} if any(language.accepting[at] for at in after) else set()))

    return explored(frozenset({begun}), step, lambda state: begun in state, num_symbols=language.num_symbols)


def on_tier(language: Automaton, tier: Callable[[int], bool]) -> Automaton:
    """Accept strings whose symbols on the tier form a string of the language."""
    return explored(
        0,
        lambda state, symbol: language.transitions[state][symbol] if tier(symbol) else state,
        lambda state: language.accepting[state],
        num_symbols=language.num_symbols,
    )
