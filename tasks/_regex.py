"""Read regular expressions for the task `regular`, and turn them into minimal automata.

    from_pattern("(ab)*", alphabet="")        3 states: all closed, an "a" open, dead

A pattern becomes a nondeterministic automaton with empty moves (Thompson 1968). Its sets of states are the states of a
deterministic one (Rabin and Scott 1959). A pattern that cannot be read is refused in one line that names the place.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple, NoReturn

from chomsky_ladder.tasks._automata import Automaton, minimised
from chomsky_ladder.tasks._kept import kept

MOST_SYMBOLS, MOST_STATES = 26, 256
MOST_SETS = 4096  # of states of the nondeterministic automaton
MOST_PLACES = 2000  # symbols of a pattern once its repetitions are written out
MOST_NESTED = 50


class _Symbols(NamedTuple):
    members: frozenset[str]
    negated: bool = False

    def of(self, alphabet: str) -> frozenset[str]:
        return frozenset(alphabet) - self.members if self.negated else self.members


class _Sequence(NamedTuple):
    parts: tuple["_Node", ...]


class _Choice(NamedTuple):
    parts: tuple["_Node", ...]


class _Repeat(NamedTuple):
    part: "_Node"
    low: int
    high: int | None


_Node = _Symbols | _Sequence | _Choice | _Repeat


def _weight(node: _Node) -> int:
    """Return an upper bound on the number of symbols once the repetitions are written out."""
    if isinstance(node, _Symbols):
        return 1
    if isinstance(node, _Repeat):
        return 1 + _weight(node.part) * (node.low + 1 if node.high is None else node.high)
    return 1 + sum(map(_weight, node.parts))


@dataclass
class _Parser:
    text: str
    place: int = 0
    used: set[str] = field(default_factory=set)

    def fail(self, why: str, *, place: int | None = None) -> NoReturn:
        place = self.place if place is None else place
        where = f"at character {place + 1} ({self.text[place]!r})" if place < len(self.text) else "at its end"
        raise ValueError(f"regular: pattern {self.text!r} {where}: {why}")

    @property
    def next(self) -> str:
        return self.text[self.place : self.place + 1]

    def take(self) -> str:
        self.place += 1
        return self.text[self.place - 1]

    def whole(self) -> _Node:
        node = self.choice(nested=0)
        if self.next:
            self.fail("no bracket is open here")
        return node

    def choice(self, *, nested: int) -> _Node:
        if nested > MOST_NESTED:
            self.fail(f"more than {MOST_NESTED} brackets are open")
        options = [self.sequence(nested=nested)]
        while self.next == "|":
            self.take()
            options.append(self.sequence(nested=nested))
        return options[0] if len(options) == 1 else _Choice(tuple(options))

    def sequence(self, *, nested: int) -> _Node:
        parts = []
        while self.next and self.next not in "|)":
            part, place = self.atom(nested=nested), self.place
            if self.next and self.next in "*+?{":
                part = _Repeat(part, *self.bounds())
                if _weight(part) > MOST_PLACES:
                    self.fail(f"written out, this repeats to more than {MOST_PLACES} symbols", place=place)
            parts.append(part)
        return _Sequence(tuple(parts))

    def bounds(self) -> tuple[int, int | None]:
        place = self.place
        if (mark := self.take()) != "{":
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[mark]
        found = re.compile(r"(\d{1,9})(,?)(\d{0,9})\}").match(self.text, self.place)
        if not found or (found[3] and not found[2]):
            self.fail("a repetition reads {m}, {m,} or {m,n}", place=place)
        self.place = found.end()
        low = int(found[1])
        high = int(found[3]) if found[3] else None if found[2] else low
        if high is not None and high < low:
            self.fail(f"{low} is more than {high}", place=place)
        return low, high

    def atom(self, *, nested: int) -> _Node:
        place, symbol = self.place, self.take()
        if symbol == "(":
            node = self.choice(nested=nested + 1)
            if not self.next:
                self.fail("this bracket is never closed", place=place)
            self.take()
            return node
        if symbol == "[":
            return self.bracket(place)
        if symbol == ".":
            return _Symbols(frozenset(), negated=True)
        if symbol in "*+?{":
            self.fail("there is nothing to repeat", place=place)
        if symbol in "]}^$":
            self.fail(f"this has no meaning here; the symbol is written \\{symbol}", place=place)
        return _Symbols(frozenset({self.literal(place)}))

    def literal(self, place: int) -> str:
        """Return the symbol at `place`, which may be escaped."""
        self.place = place
        symbol = self.take()
        if symbol == "\\":
            if not self.next or self.next.isalnum():
                self.fail("a backslash stands before a character that is neither letter nor digit", place=place)
            symbol = self.take()
        if symbol.isspace() or not symbol.isprintable():
            self.fail("a symbol must be visible", place=place)
        self.used.add(symbol)
        return symbol

    def bracket(self, place: int) -> _Node:
        negated = self.next == "^"
        self.place += negated
        members: set[str] = set()
        while self.next != "]":
            if not self.next:
                self.fail("this bracket is never closed", place=place)
            start = self.place
            low = high = self.literal(start)
            if self.next == "-" and self.text[self.place + 1 : self.place + 2] not in ("]", ""):
                self.take()
                high = self.literal(self.place)
                if high < low:
                    self.fail(f"{low} comes after {high}", place=start)
            members |= {chr(code) for code in range(ord(low), ord(high) + 1)}
        self.take()
        if not members:
            self.fail("this class names no symbol", place=place)
        self.used |= members
        return _Symbols(frozenset(members), negated=negated)


@dataclass
class Machine:
    """A nondeterministic automaton with empty moves, starting in state 0."""

    alphabet: str
    moves: list[list[tuple[frozenset[str], int]]] = field(default_factory=list)
    empty: list[list[int]] = field(default_factory=list)

    def add(self, node: _Node, start: int) -> int:
        """Add what the node describes. Return the state reached from `start`."""
        if isinstance(node, _Symbols):
            end = self.join([])
            self.moves[start].append((node.of(self.alphabet), end))
        elif isinstance(node, _Sequence):
            end = start
            for part in node.parts:
                end = self.add(part, end)
        elif isinstance(node, _Choice):
            end = self.join([self.add(option, start) for option in node.parts])
        else:
            end = start
            for _ in range(node.low):
                end = self.add(node.part, end)
            if node.high is None:
                end = self.join([end])
                self.empty[self.add(node.part, end)].append(end)
            else:
                end = self.join([end] + [end := self.add(node.part, end) for _ in range(node.high - node.low)])
        return end

    def join(self, ends: list[int]) -> int:
        """Return a new state, with empty moves to it."""
        self.moves.append([])
        self.empty.append([])
        for end in ends:
            self.empty[end].append(len(self.empty) - 1)
        return len(self.empty) - 1

    def closure(self, states: set[int]) -> frozenset[int]:
        found = dict.fromkeys(states)
        for state in (queue := list(found)):
            new = [after for after in self.empty[state] if after not in found]
            found |= dict.fromkeys(new)
            queue.extend(new)
        return frozenset(found)

    def deterministic(self, ends: Collection[int], *, what: str = "the pattern") -> Automaton:
        start = self.closure({0})
        number, rows = {start: 0}, []
        for states in (queue := [start]):
            reached: dict[str, set[int]] = {symbol: set() for symbol in self.alphabet}
            for symbols, after in chain.from_iterable(self.moves[state] for state in states):
                for symbol in symbols:
                    reached[symbol].add(after)
            row = [self.closure(reached[symbol]) for symbol in self.alphabet]
            for after in row:
                if after not in number:
                    number[after] = len(number)
                    queue.append(after)
            if len(number) > MOST_SETS:
                raise ValueError(f"regular: {what} needs more than {MOST_SETS} states before minimisation")
            rows.append(tuple(number[after] for after in row))
        return Automaton(tuple(rows), tuple(not states.isdisjoint(ends) for states in queue), self.alphabet)


@kept
def from_pattern(pattern: str, *, alphabet: str) -> Automaton:
    """Return the minimal automaton of a regular expression over `alphabet`; if that is "", over the symbols in it."""
    parser = _Parser(pattern)
    node = parser.whole()
    if _weight(node) > MOST_PLACES:
        raise ValueError(f"regular: the pattern has more than {MOST_PLACES} symbols, repetitions written out")
    machine = Machine(checked_alphabet(alphabet, parser.used))
    return minimal(machine.deterministic({machine.add(node, machine.join([]))}))


def checked_alphabet(given: str, used: set[str]) -> str:
    """Return the symbols in order: those given, or else those used."""
    symbols = "".join(sorted(set(given) or used))
    if given and (len(set(given)) < len(given) or any(s.isspace() or not s.isprintable() for s in given)):
        raise ValueError(f"regular: alphabet {given!r} must list visible symbols, each once")
    if missing := sorted(used - set(symbols)):
        raise ValueError(f"regular: {missing[0]!r} is not in the alphabet {given!r}")
    if not 2 <= len(symbols) <= MOST_SYMBOLS:
        raise ValueError(f"regular: an alphabet has 2..{MOST_SYMBOLS} symbols, not {len(symbols)} ({symbols!r})")
    return symbols


def minimal(automaton: Automaton) -> Automaton:
    """Return the minimal automaton of the same language. Refuse one with too many states."""
    found = minimised(automaton, most=MOST_STATES)
    if found is None:
        raise ValueError(f"regular: the minimal automaton has more than {MOST_STATES} states")
    return found
