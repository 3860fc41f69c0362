"""Regular languages in plain Python: patterns by Python's `re`, their automata by Brzozowski's derivatives.

A node of a pattern is one of ("none",), ("empty",), ("symbol", letters), ("then", left, right), ("or", nodes) and
("star", node). An automaton is a list of transitions, the next state for each letter, with a list of what accepts.

    >>> automaton("(ab)*", "ab")
    ([[1, 2], [2, 0], [2, 2]], [True, False, False])
"""

import re
from collections.abc import Callable, Sequence
from functools import cache, reduce
from string import ascii_letters, ascii_lowercase
from typing import Any
from unicodedata import normalize

from support.oracles_ladder import spelled, word

Node = tuple
Automaton = tuple[Sequence[Sequence[int]], Sequence[bool]]

NONE: Node = ("none",)
EMPTY: Node = ("empty",)


def then(left: Node, right: Node) -> Node:
    if NONE in (left, right):
        return NONE
    if left == EMPTY or right == EMPTY:
        return right if left == EMPTY else left
    return ("then", left[1], then(left[2], right)) if left[0] == "then" else ("then", left, right)


def either(left: Node, right: Node) -> Node:
    nodes = frozenset().union(*[node[1] if node[0] == "or" else {node} for node in (left, right)]) - {NONE}
    return NONE if not nodes else next(iter(nodes)) if len(nodes) == 1 else ("or", nodes)


def span(low: str, high: str) -> set[str]:
    return {chr(code) for code in range(ord(low), ord(high) + 1)}


def letters_of(pattern: str) -> str:
    """The letters that occur in a pattern, without those that only count."""
    found: set[str] = set()
    for low, high, escaped, letter in re.findall(r"(\w)-(\w)|\{[\d,]*\}|\\(.)|([^][(){}|*+?.^])", pattern):
        found |= span(low, high) if low else set(escaped + letter)
    return "".join(sorted(found))


def parse(pattern: str, letters: str) -> Node:
    """The node of a pattern: an alternative of sequences of what is repeated."""
    node, rest = parse_either(pattern, letters)
    assert rest == "", pattern
    return node


def parse_either(rest: str, letters: str) -> tuple[Node, str]:
    node, rest = parse_sequence(rest, letters)
    while rest[:1] == "|":
        other, rest = parse_sequence(rest[1:], letters)
        node = either(node, other)
    return node, rest


def parse_sequence(rest: str, letters: str) -> tuple[Node, str]:
    node = EMPTY
    while rest and rest[0] not in "|)":
        other, rest = parse_repeated(rest, letters)
        node = then(node, other)
    return node, rest


def parse_repeated(rest: str, letters: str) -> tuple[Node, str]:
    """A letter, class, dot or group, with what repeats it."""
    if rest[0] == "(":
        node, rest = parse_either(rest[1:], letters)
        assert rest[0] == ")"
        rest = rest[1:]
    elif rest[0] == "[":
        inside, rest = rest[1:].split("]", maxsplit=1)
        named = set(letters_of(inside))
        node = ("symbol", frozenset(set(letters) - named if inside[0] == "^" else named))
    elif rest[0] == "\\":
        node, rest = ("symbol", frozenset(rest[1])), rest[2:]
    else:
        node, rest = ("symbol", frozenset(letters if rest[0] == "." else rest[0])), rest[1:]
    while rest and rest[0] in "*+?{":
        if rest[0] == "{":
            counts, rest = rest[1:].split("}", maxsplit=1)
            low, comma, high = counts.partition(",")
            ways = [reduce(then, [node] * times, EMPTY) for times in range(int(low), int(high or low) + 1)]
            ways += [then(ways[0], ("star", node))] if comma and not high else []
            node = reduce(either, ways)
        else:
            star = ("star", node)
            node = star if rest[0] == "*" else then(node, star) if rest[0] == "+" else either(EMPTY, node)
            rest = rest[1:]
    return node, rest


def nullable(node: Node) -> bool:
    """Return True if a node describes the empty string."""
    match node:
        case ("then", left, right):
            return nullable(left) and nullable(right)
        case ("or", nodes):
            return any(map(nullable, nodes))
    return node[0] in ("empty", "star")


def derivative(node: Node, letter: str) -> Node:
    """Return the expression of what may follow a letter."""
    match node:
        case ("symbol", letters):
            return EMPTY if letter in letters else NONE
        case ("then", left, right):
            first = then(derivative(left, letter), right)
            return either(first, derivative(right, letter)) if nullable(left) else first
        case ("or", nodes):
            return reduce(either, [derivative(each, letter) for each in nodes])
        case ("star", inside):
            return then(derivative(inside, letter), node)
    return NONE


@cache
def automaton(pattern: str, letters: str) -> Automaton:
    """The minimal complete automaton of a pattern, its states numbered breadth-first."""
    nodes, steps = [parse(pattern, letters)], []
    for node in nodes:  # it grows meanwhile
        after = [derivative(node, letter) for letter in letters]
        nodes += [new for i, new in enumerate(after) if new not in nodes and new not in after[:i]]
        steps.append([nodes.index(new) for new in after])
    return minimal((steps, list(map(nullable, nodes))))


@cache
def tabulated(table: str, letters: str) -> Automaton:
    """The same of a table; what a row leaves out leads to a dead state behind the last."""
    *rows, last = [row.split() for row in table.split(";")]
    names = [row[0].removesuffix(":") for row in rows]
    steps = [[len(rows)] * len(letters) for _ in range(len(rows) + 1)]
    for step, row in zip(steps, rows, strict=False):
        for letter, name in (arrow.split(">") for arrow in row[1:]):
            step[letters.index(letter)] = names.index(name)
    assert last[0] == "accept"
    return minimal((steps, [name in last[1:] for name in [*names, ""]]))


def minimal(made: Automaton) -> Automaton:
    """States that no string tells apart become one; those reached are numbered breadth-first, the start 0."""
    steps, accepts = made
    block = list(map(int, accepts))
    while True:
        kinds = [(block[state], *[block[next_state] for next_state in step]) for state, step in enumerate(steps)]
        finer = [kinds.index(kind) for kind in kinds]
        if len(set(finer)) == len(set(block)):
            break
        block = finer
    found = [block[0]]
    for kind in found:  # it grows meanwhile
        for next_state in steps[block.index(kind)]:
            if block[next_state] not in found:
                found.append(block[next_state])
    firsts = [block.index(kind) for kind in found]
    return [[found.index(block[after]) for after in steps[state]] for state in firsts], [accepts[s] for s in firsts]


def run(made: Automaton, letters: Sequence[str], string: Sequence[str]) -> list[int]:
    """The state after each symbol of a string."""
    states, state = [], 0
    for symbol in string:
        state = made[0][state][letters.index(symbol)]
        states.append(state)
    return states


def letters_read(pattern: str, table: str, alphabet: str) -> str:
    """The alphabet of a task: the one it names, or what its table or pattern speaks of."""
    if alphabet:
        return "".join(sorted(alphabet))
    return "".join(sorted(set(re.findall("(.)>", table)))) if table else letters_of(pattern)


def machine_of(pattern: str, table: str, alphabet: str) -> tuple[Automaton, str]:
    letters = letters_read(pattern, table, alphabet)
    return tabulated(table, letters) if table else automaton(pattern, letters), letters


def has_members_and_others(size: int, made: Automaton, *, beside: frozenset[bool] = frozenset()) -> bool:
    """Return True if some strings of this many symbols are in the language and some are not.

    `beside` are the sides, False for others, whose strings must have an edit to the other side.
    """
    steps, accepts = made
    reached = {0}
    for _ in range(size):
        reached = {after for state in reached for after in steps[state]}
    if len({accepts[state] for state in reached}) < 2:
        return False
    ends = {(accepts[own], accepts[other]) for own, other in edited_once(size, made)} if beside else set()
    return all((side, not side) in ends for side in beside)


@cache
def _ends_of_both(moves: frozenset[tuple[int, ...]], size: int) -> tuple[frozenset[int], frozenset[tuple[int, int]]]:
    """Return the states where a string of `size` symbols may end, and pairs of its end and that after one edit."""
    if size == 0:
        before, pairs = frozenset({0}), set()
    else:
        last, ends = _ends_of_both(moves, size - 1)
        before = frozenset(move[state] for move in moves for state in last)
        pairs = {(move[own], move[other]) for own, other in ends for move in moves}
        pairs |= {(move[state], state) for state in last for move in moves}
        pairs |= {(move[state], put[state]) for state in last for move in moves for put in moves}
    return before, frozenset(pairs | {(state, move[state]) for state in before for move in moves})


def edited_once(size: int, made: Automaton) -> frozenset[tuple[int, int]]:
    moves = frozenset(map(tuple, zip(*made[0], strict=True)))
    for shorter in range(size):  # so that none waits for very many shorter ones
        _ends_of_both(moves, shorter)
    return _ends_of_both(moves, size)[1]


BESIDE = {"one_edit": frozenset({False}), "border": frozenset({False, True})} | dict.fromkeys(
    ("near", "uniform", "edits"), frozenset()
)
"""The sides whose strings lie one edit from the other, by the setting `negatives`."""


def regular_language(string: Sequence[str], *, pattern: str, table: str, alphabet: str, **_: object) -> bool:
    return spelled(string, letters_read(pattern, table, alphabet))


def regular(prompt: Sequence[str], *, pattern: str = "(ab|ba)*", table: str = "", alphabet: str = "") -> list[str]:
    """Return YES if a string is in the language of the table or, without one, of the pattern."""
    if not table:
        return ["YES" if re.fullmatch(pattern, "".join(word(prompt))) else "NO"]
    made, letters = machine_of(pattern, table, alphabet)
    return ["YES" if made[1][run(made, letters, word(prompt))[-1]] else "NO"]


def regular_states(
    prompt: Sequence[str], *, pattern: str = "(ab|ba)*", table: str = "", alphabet: str = ""
) -> list[tuple[int]]:
    """The state of the minimal automaton."""
    states = [(state,) for state in run(*machine_of(pattern, table, alphabet), word(prompt))]
    return states + states[-1:] * (len(prompt) - len(states))


def random_dfa_language(string: Sequence[str], *, num_symbols: int, **_: object) -> bool:
    return spelled(string, ascii_lowercase[:num_symbols])


def random_dfa(prompt: Sequence[str], *, dfa: Any) -> list[str]:
    """Return YES if the automaton of the task accepts a string."""
    last = run((dfa.transitions, dfa.accepting), dfa.alphabet, word(prompt))[-1]
    return ["YES" if dfa.accepting[last] else "NO"]


def random_dfa_states(prompt: Sequence[str], *, dfa: Any) -> list[tuple[int]]:
    """The state of the automaton of the task."""
    states = [(state,) for state in run((dfa.transitions, dfa.accepting), dfa.alphabet, word(prompt))]
    return states + states[-1:] * (len(prompt) - len(states))


def mlregtest_language(string: Sequence[str], *, language: str, **_: object) -> bool:
    letters = ascii_letters + "".join(vowel + accent for vowel in "aeou" for accent in "\u0301\u0300\u030c")
    return spelled(string, list(normalize("NFC", letters))[: int(language[:2])])


LANGUAGES: dict[str, Callable[..., bool]] = {
    "regular": regular_language,
    "random_dfa": random_dfa_language,
    "mlregtest": mlregtest_language,
}
ORACLES: dict[str, Callable[..., list[str]]] = {"regular": regular, "random_dfa": random_dfa, "mlregtest": random_dfa}
MACHINES: dict[str, Callable[..., list[tuple[int, ...]]]] = {
    "regular": regular_states,
    "random_dfa": random_dfa_states,
    "mlregtest": random_dfa_states,
}
OPTIONS: dict[str, tuple[str, ...]] = {
    "regular": ("pattern", "table", "alphabet"),
    "random_dfa": ("dfa",),
    "mlregtest": ("dfa",),
}
