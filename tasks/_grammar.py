"""Read context-free grammars for the task `grammar`, and convert them to rules of two symbols or one terminal (Chomsky
1959).

    normal("S -> a S b | ")        S -> A T | A B, T -> S B, A -> a, B -> b; the empty string of S is left out

A rule is "Name -> words | words", the first rule is the start, and rules are separated by ";" or a new line. A word
that begins with a capital is a nonterminal. Any other word, or a quoted one, is a terminal symbol. No word at all is
the empty string. Other texts are refused in one line.

Long right sides are split in two from the left. Then empty sides and those of a single nonterminal are removed. None of
these steps makes two derivations of a string that had one.
"""

import re
from itertools import product
from typing import NamedTuple, NoReturn

from chomsky_ladder.tasks._kept import kept

MOST_RULES, MOST_NONTERMINALS, MOST_SYMBOLS = 96, 64, 26
MOST_LONG = 2000  # characters
MOST_TOLD = 4096  # strings that are written out to find two derivations of one
RESERVED = ("PAD", "NO", "YES")
_WORD = re.compile(r"""'[^'\s]*'|"[^"\s]*"|[^\s'"]+|['"]""")

Side = tuple["Word", ...]


class Word(NamedTuple):
    name: str
    is_terminal: bool


class Grammar(NamedTuple):
    """A grammar in normal form. Nonterminals are numbers, the start is 0; terminals are indices into `symbols`."""

    symbols: tuple[str, ...]
    pairs: tuple[tuple[int, int, int], ...]  # rules A -> B C, in order
    letters: tuple[tuple[int, int], ...]  # rules A -> a, in order

    @property
    def size(self) -> int:
        return 1 + max((rule[0] for rule in (*self.pairs, *self.letters)), default=0)


@kept
def normal(text: str) -> Grammar:
    """Return the grammar in normal form, without the empty string."""
    rules = _read(text)
    start = next(iter(rules))
    _check_use(rules, start)
    cut = _cut(rules)
    single = _without_units(_without_empty(cut))
    made = _numbered(single, start)
    if not made.letters:
        _refuse(f"{start} has no string but the empty one")
    if len(made.symbols) > MOST_SYMBOLS:
        _refuse(f"it has {len(made.symbols)} symbols, more than {MOST_SYMBOLS}")
    for what, found, most in (
        ("rules of two symbols", len(made.pairs), MOST_RULES),
        ("nonterminals", made.size, MOST_NONTERMINALS),
    ):
        if found > most:
            _refuse(f"the normal form has {found} {what}, more than {most}")
    return made


def _read(text: str) -> dict[str, list[Side]]:
    """Return the right sides of every nonterminal, in their order."""
    if len(text) > MOST_LONG:
        _refuse(f"it has {len(text)} characters, more than {MOST_LONG}")
    rules: dict[str, list[Side]] = {}
    for line in re.split(r";|\n", text):
        if not line.strip():
            continue
        left, arrow, right = line.partition("->")
        name = left.strip()
        if not arrow or not re.fullmatch(r"[A-Z]\w*'*", name):
            _refuse(f'in {line.strip()!r}: a rule reads "Name -> words | words", its name with a capital')
        sides = [tuple(_word(found[0], line) for found in _WORD.finditer(side)) for side in _alternatives(right)]
        longest = max(map(len, sides))
        if longest > MOST_RULES:  # each word but two makes a rule of two symbols
            _refuse(f"a right side of {name} has {longest} words, more than {MOST_RULES}")
        rules.setdefault(name, []).extend(tuple(word for word in side if word.name) for side in sides)
    if not rules:
        _refuse('it has no rule; one reads "S -> a S b | "')
    return rules


def _alternatives(right: str) -> list[str]:
    """Split at bars outside of quotes."""
    return re.sub(r"""('[^']*'|"[^"]*")|\|""", lambda found: found[1] or "\n", right).split("\n")


def _word(word: str, line: str) -> Word:
    if word in ("'", '"'):
        _refuse(f"in {line.strip()!r}: a quote is not closed")
    if word[0] in "'\"":
        made = Word(word[1:-1], True)
    elif word in ("ε", "epsilon"):
        return Word("", True)
    elif word[0].isupper():
        return Word(word, False)
    elif any(letter.isupper() for letter in word) or "->" in word:
        _refuse(f"in {line.strip()!r}: put spaces between the symbols of {word!r}, and rules on lines or behind ;")
    else:
        made = Word(word, True)
    if made.name in RESERVED:
        _refuse(f"{made.name!r} cannot be a symbol")
    return made


def _check_use(rules: dict[str, list[Side]], start: str) -> None:
    """Check that every nonterminal is defined, can be reached and derives a string."""
    used = {word.name for sides in rules.values() for side in sides for word in side if not word.is_terminal}
    if missing := sorted(used - set(rules)):
        _refuse(f"no rule says what {missing[0]} is; a symbol that begins with a capital stands in quotes")
    ends = _closed(rules, frozenset())
    if start not in ends:
        _refuse(f"the language is empty: no derivation from {start} ends")
    reached, new = {start}, [start]
    while new:
        after = {word.name for side in rules[new.pop()] for word in side if not word.is_terminal} - reached
        reached |= after
        new += sorted(after)
    for name in rules:
        if name not in reached:
            _refuse(f"{name} is useless: nothing derives it from {start}")
        if name not in ends:
            _refuse(f"{name} is useless: no derivation from it ends")


def _closed(rules: dict[str, list[Side]], found: frozenset[str], *, empty: bool = False) -> frozenset[str]:
    """Return the nonterminals that derive a string, or, with `empty`, the empty string."""
    while True:
        more = {
            name
            for name, sides in rules.items()
            if any(all(word.name in found if not word.is_terminal else not empty for word in side) for side in sides)
        }
        if more <= found:
            return found
        found |= more


def _cut(rules: dict[str, list[Side]]) -> dict[str, list[Side]]:
    """Split right sides into two nonterminals or one terminal. New nonterminals are named by what they stand for."""
    made: dict[str, list[Side]] = {}

    def named(side: Side) -> Word:
        """Return a nonterminal for a right side."""
        if len(side) == 1 and not side[0].is_terminal:
            return side[0]
        name = " ".join(repr(word.name) if word.is_terminal else word.name for word in side) + " "
        if name not in made:
            made[name] = []
            made[name] = [halves(side)]
        return Word(name, False)

    def halves(side: Side) -> Side:
        return (named(side[:1]), named(side[1:])) if len(side) > 1 else side

    for name, sides in rules.items():
        made[name] = [halves(side) for side in sides]
    return made


def _without_empty(rules: dict[str, list[Side]]) -> dict[str, list[Side]]:
    empty = _closed(rules, frozenset(), empty=True)

    def shorter(side: Side) -> set[Side]:
        """Return the side with and without each part that may be empty."""
        ways = ((side[:i] + side[i + 1 :]) for i, word in enumerate(side) if word.name in empty and len(side) > 1)
        return {side, *ways} - {()}

    return {name: sorted(set().union(*map(shorter, sides))) for name, sides in rules.items()}


def _without_units(rules: dict[str, list[Side]]) -> dict[str, set[Side]]:
    def alike(name: str) -> set[str]:
        found, new = {name}, [name]
        while new:
            sides = (side for side in rules[new.pop()] if len(side) == 1 and not side[0].is_terminal)
            after = {side[0].name for side in sides} - found
            found |= after
            new += sorted(after)
        return found

    return {
        name: {side for other in alike(name) for side in rules[other] if len(side) == 2 or side[0].is_terminal}
        for name in rules
    }


def _numbered(rules: dict[str, set[Side]], start: str) -> Grammar:
    """Number what the start derives, in an order that depends on the rules alone."""
    ends = _closed({name: sorted(sides) for name, sides in rules.items()}, frozenset())
    number, queue = {start: 0}, [start]
    useful = {
        name: sorted(side for side in sides if all(word.is_terminal or word.name in ends for word in side))
        for name, sides in rules.items()
    }
    for name in queue:
        for word in (word for side in useful[name] for word in side if not word.is_terminal):
            if word.name not in number:
                number[word.name] = len(number)
                queue.append(word.name)
    symbols = tuple(sorted({word.name for name in queue for side in useful[name] for word in side if word.is_terminal}))
    pairs = {
        (number[name], number[side[0].name], number[side[1].name])
        for name in queue
        for side in useful[name]
        if len(side) == 2
    }
    letters = {(number[name], symbols.index(side[0].name)) for name in queue for side in useful[name] if len(side) == 1}
    return Grammar(symbols, tuple(sorted(pairs)), tuple(sorted(letters)))


@kept
def derivations(grammar: Grammar, most: int) -> tuple[tuple[int, ...], ...]:
    """Count every nonterminal's derivations of 0, 1 .. `most` symbols."""
    counts = [[0] * (most + 1) for _ in range(grammar.size)]
    for head, _ in grammar.letters:
        counts[head][1] += 1
    for size in range(2, most + 1):
        for head, left, right in grammar.pairs:
            first, second = counts[left], counts[right]
            counts[head][size] += sum(first[k] * second[size - k] for k in range(1, size) if first[k])
    return tuple(map(tuple, counts))


@kept
def ambiguous_size(grammar: Grammar) -> tuple[int, int]:
    """Return the size of the shortest string with two derivations (0: none found), and the largest size searched."""
    strings: list[list[set[bytes]]] = [[set() for _ in range(grammar.size)] for _ in range(2)]
    for head, symbol in grammar.letters:
        strings[1][head].add(bytes((symbol,)))
    size = 1
    while True:
        counts = derivations(grammar, size + 1)
        if size >= 16 or sum(row[size + 1] for row in counts) > MOST_TOLD:
            return 0, size
        size += 1
        new: list[set[bytes]] = [set() for _ in range(grammar.size)]
        for head, left, right in grammar.pairs:
            for k in range(1, size):
                new[head] |= {x + y for x, y in product(strings[k][left], strings[size - k][right])}
        strings.append(new)
        if len(new[0]) < counts[0][size]:
            return size, size


def _refuse(why: str) -> NoReturn:
    raise ValueError(f"grammar: {why}")
