"""Grammars of a user's own: every string against a parser of its own and against all strings written out.

The parser works on the rules as they are given, by intervals of a string, and knows no normal form.
"""

from collections import Counter
from functools import cache
from itertools import product

import pytest
import torch

from chomsky_ladder.harness.config.registry import find_task
from chomsky_ladder.tasks._derived import Derived, outside, shapes
from chomsky_ladder.tasks._grammar import ambiguous_size, derivations, normal
from chomsky_ladder.tasks._trees import derives, num_derivations
from chomsky_ladder.tasks.base import Task
from chomsky_ladder.tasks.draw import Draw
from support.cases import full, some
from support.run_and_refusal import refusal

GRAMMARS = {
    "anbn": "S -> a S b | ",
    "dyck-2": "S -> '(' S ')' S | '[' S ']' S |",
    "palindromes": "S -> a S a | b S b | a | b |",
    "ambiguous brackets": "S -> S S | a S b | ",
    "ambiguous unions": "S -> A | B; A -> a A b | a b; B -> a B | b B | b",
    "empty parts": "S -> A B A; A -> a | ; B -> b B c | A",
    "units in a ring": "S -> T | a; T -> U | b b; U -> S | c S | T c",
    "long sides": "S -> a b S c S b | c a | S a a",
    "regular": "S -> a T | b; T -> a S | b T | ",
}
SIZE = 6


def sides(grammar: str) -> dict[str, list[list[str]]]:
    """The rules as they are given; terminals of these grammars are no capitals."""
    rules = {}
    for line in grammar.split(";"):
        name, right = line.split("->")
        rules[name.strip()] = [[word.strip("'") for word in side.split()] for side in right.split("|")]
    return rules


def is_member(grammar: str, word: str) -> bool:
    """Intervals that each nonterminal has, until no more are found."""
    rules, found = sides(grammar), set[tuple[str, int, int]]()

    def ends(side: list[str], begin: int) -> set[int]:
        reached = {begin}
        for part in side:
            if part in rules:
                reached = {end for at in reached for end in range(at, len(word) + 1) if (part, at, end) in found}
            else:
                reached = {at + 1 for at in reached if word[at : at + 1] == part}
        return reached

    while True:
        more = {
            (name, begin, end)
            for name in rules
            for side in rules[name]
            for begin in range(len(word) + 1)
            for end in ends(side, begin)
        }
        if more <= found:
            return (next(iter(rules)), 0, len(word)) in found
        found |= more


@cache
def members(grammar: str, size: int) -> frozenset[str]:
    symbols = normal(grammar).symbols
    return frozenset(word for word in map("".join, product(symbols, repeat=size)) if is_member(grammar, word))


def encoded(words: list[str], symbols: tuple[str, ...]) -> torch.Tensor:
    return torch.tensor([[symbols.index(letter) for letter in word] for word in words])


@pytest.mark.parametrize("name", some(GRAMMARS, always=4))
def test_every_string_is_derived_if_and_only_if_it_is_in_the_language(name: str) -> None:
    grammar = GRAMMARS[name]
    made = normal(grammar)
    longest = SIZE if len(made.symbols) < 4 else 4
    words = list(map("".join, product(made.symbols, repeat=longest)))
    found_BL = derives(made, encoded(words, made.symbols))
    counts_BL = num_derivations(made, encoded(words, made.symbols))
    assert torch.equal(found_BL, counts_BL > 0)
    for size in range(1, longest + 1):
        said = {word[:size] for word, found in zip(words, found_BL[:, size - 1].tolist(), strict=True) if found}
        assert said == members(grammar, size)
        parses = {word[:size]: n for word, n in zip(words, counts_BL[:, size - 1].tolist(), strict=True)}
        assert sum(parses.values()) == derivations(made, size)[0][size]


@pytest.mark.parametrize("name", some(GRAMMARS, always=4))
def test_a_sure_non_member_is_none(name: str) -> None:
    made = normal(GRAMMARS[name])
    table, longest = outside(made, SIZE), SIZE
    for size in range(1, longest + 1):
        for (first, inner, last), said in zip(shapes(len(made.symbols)), table[:, size], strict=True):
            word = [first, *[inner] * (size - 2), last][:size]
            assert said == (not is_member(GRAMMARS[name], "".join(made.symbols[symbol] for symbol in word)))


def test_strings_with_two_derivations_are_found() -> None:
    found = {name: ambiguous_size(normal(grammar))[0] for name, grammar in GRAMMARS.items()}
    assert {name: size for name, size in found.items() if size} == {
        "ambiguous brackets": 6,
        "empty parts": 2,
        "ambiguous unions": 2,
        "units in a ring": 3,
    }


def drawn(task: Task, size: int, rows: int) -> list[tuple[str, bool]]:
    draw = Draw(seed=3, split="train", rows_B=torch.arange(rows))
    batch = task.sample(draw, torch.full((rows,), size), size)
    yes = task.answers[1]
    return [
        ("".join(task.vocab[token] for token in tokens), answer == yes)
        for tokens, answer in zip(batch.tokens_BL.tolist(), batch.targets_BL[:, -1].tolist(), strict=True)
    ]


@pytest.mark.full
@pytest.mark.parametrize("size", [full(4), 8])
@pytest.mark.parametrize("name", ["anbn", "dyck-2", "palindromes", "ambiguous brackets"])
def test_members_are_uniform_over_the_strings(name: str, size: int) -> None:
    rows = 12_000
    found = drawn(find_task("grammar")(grammar=GRAMMARS[name], count="input"), size, rows)
    inside = Counter(word for word, is_in in found if is_in)
    assert abs(inside.total() - rows / 2) < 5 * (rows / 4) ** 0.5
    num = len(members(GRAMMARS[name], size)) if name != "dyck-2" else {4: 8, 8: 224}[size]
    assert len(inside) == num
    mean = inside.total() / num
    assert max(abs(count - mean) for count in inside.values()) < 5 * mean**0.5
    assert not any(is_member(GRAMMARS[name], word) for word, is_in in found[:400] if not is_in)


def test_brackets_of_one_shape_with_more_derivations_are_no_likelier() -> None:
    """One of the five shapes of six symbols has two derivations. Unthinned it is twice as likely."""
    language = Derived(normal(GRAMMARS["ambiguous brackets"]))
    draws = Draw(seed=0, split="train", rows_B=torch.arange(6000)), torch.full((6000,), 6)
    plain, even = (
        Counter(map(tuple, make(draws[0].child("one"), draws[1], 6).tolist()))[0, 1, 0, 1, 0, 1]
        for make in (language.members, language.even_members)
    )
    assert abs(plain - 2000) < 5 * 2000**0.5 and abs(even - 1200) < 5 * 1200**0.5


def test_a_nonterminal_is_named_once_and_quotes_make_symbols_of_anything() -> None:
    task = find_task("grammar")(grammar="List -> 'Item' | List '|' 'Item'\nList -> \"'\"")
    assert task.vocab == ("PAD", "'", "Item", "|", "NO", "YES")
    assert normal("S -> ε | a S b") == normal("S -> '' | a S b") == normal(" S->a S b|") == normal("S -> a S b; S -> ;")


@pytest.mark.parametrize(
    ("grammar", "said"),
    [
        ("S -> a X", "no rule says what X is"),
        ("S -> a S", "the language is empty: no derivation from S ends"),
        ("S -> a; X -> b", "X is useless: nothing derives it from S"),
        ("S -> a | X b; X -> X a", "X is useless: no derivation from it ends"),
        ("S -> S S | ", "S has no string but the empty one"),
        ("S -> aSb | ", "put spaces between the symbols of 'aSb'"),
        ("S -> a b -> c", "put spaces between the symbols of '->'"),
        ("s -> a", "a rule reads"),
        ("S a", "a rule reads"),
        ("", "it has no rule"),
        ("S -> a '", "a quote is not closed"),
        ("S -> a 'NO'", "'NO' cannot be a symbol"),
        ("S -> " + " ".join("abcdefghijklmnopqrstuvwxyz0"), "it has 27 symbols, more than 26"),
        ("S -> " + "a " * 70 + "| b", "the normal form has 70 nonterminals, more than 64"),
        ("S -> " + "a " * 1000, "characters, more than 2000"),
        ("S -> " + "a " * 900, "a right side of S has 900 words, more than 96"),
        ("S -> a S | a", "no length up to 256 has both members and strings surely outside"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(grammar: str, said: str) -> None:
    found = refusal(lambda: find_task("grammar")(grammar=grammar))
    assert said in found and "\n" not in found and found.startswith("grammar: ")
