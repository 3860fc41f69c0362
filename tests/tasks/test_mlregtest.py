"""The languages of MLRegTest are the published ones, and of the classes they are named after.

That a language is of a class is decided by strings: two that look alike to the class are both members or both not.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator
from functools import cache
from itertools import combinations
from statistics import median
from typing import Any

import pytest
import torch

from chomsky_ladder.harness.config.registry import find_task
from chomsky_ladder.tasks import _mlregtest, _monoid
from chomsky_ladder.tasks.draw import Draw
from support.cases import full, some

SIZES: dict[str, tuple[int, int, float, int, int]] = {
    "LT": (90, 6, 19.0, 46, 0),
    "LTT": (180, 4, 12.0, 69, 0),
    "PLT": (90, 3, 8.0, 22, 0),
    "PT": (90, 7, 29.5, 174, 0),
    "Reg": (30, 4, 10.0, 97, 0),
    "SF": (30, 3, 6.5, 50, 0),
    "SL": (90, 2, 7.0, 36, 0),
    "SP": (90, 4, 41.0, 612, 9),
    "TLT": (150, 6, 19.0, 46, 0),
    "TLTT": (300, 4, 13.0, 69, 0),
    "TPLT": (150, 3, 8.0, 22, 0),
    "TSL": (150, 2, 7.0, 36, 0),
    "TcoSL": (150, 3, 8.0, 37, 0),
    "Zp": (30, 2, 3.0, 5, 0),
    "coSL": (90, 3, 8.0, 37, 0),
    "coSP": (90, 5, 42.0, 613, 9),
}
"""For each class: languages; fewest, median and most live states; languages of more than 256: counts.tsv."""
PUBLISHED = "af82fbafb7fffdea647ffcf667625a35df4504a5d0b33d76c8fb8f86af71fd76"
"""Digest of all automata in the order of names. Then, 1,470 of them were compared with the published files."""
LONGEST = 7


def alive(name: str) -> int:
    """States from which a member can still come."""
    dfa = _mlregtest.language(name)
    dead = [state for state, row in enumerate(dfa.transitions) if set(row) == {state} and not dfa.accepting[state]]
    return dfa.num_states - len(dead)


@pytest.mark.full
def test_there_are_as_many_languages_of_each_class_and_size_as_published() -> None:
    found = defaultdict(list)
    for name in _mlregtest.names():
        found[name.split(".")[2]].append(alive(name))
    assert sum(map(len, found.values())) == 1800
    sizes = {kind: (len(n), min(n), median(n), max(n), sum(each > 256 for each in n)) for kind, n in found.items()}
    assert sizes == SIZES


@pytest.mark.full
def test_the_automata_are_the_published_ones() -> None:
    digest = hashlib.sha256()
    for name in sorted(_mlregtest.names()):
        dfa = _mlregtest.language(name)
        digest.update(repr((name, dfa.transitions, dfa.accepting, dfa.alphabet)).encode())
    assert digest.hexdigest() == PUBLISHED


# A string as a class sees it.

Look = Callable[[str], Hashable]


def factors(word: str, width: int) -> Iterator[str]:
    """All of a width, with marks around the string so that its ends are factors too."""
    marked = "<" * (width - 1) + word + ">" * (width - 1)
    return (marked[place : place + width] for place in range(len(marked) - width + 1))


def subsequences(word: str, width: int) -> frozenset[str]:
    return frozenset("".join(some) for size in range(width + 1) for some in combinations(word, size))


def in_order(word: str, width: int, parts: int) -> frozenset[tuple[str, ...]]:
    """Factors up to a width, so many one behind the other without overlap; and the first symbol."""
    found: set[tuple[tuple[str, ...], int]] = {((), 0)}
    for _ in range(parts):
        found |= {
            ((*had, word[start : start + size]), start + size)
            for had, end in found
            if len(had) < parts
            for start in range(end, len(word))
            for size in range(1, width + 1)
            if start + size <= len(word)
        }
    return frozenset(had for had, _ in found) | {("<" + word[:1],)}


def look(kind: str, width: int, threshold: int) -> Look:
    """Return what testable classes see of a string."""
    match kind.removeprefix("T"):
        case "LT":
            return lambda word: frozenset(factors(word, width))
        case "LTT":
            return lambda word: frozenset(
                (factor, min(count, threshold)) for factor, count in Counter(factors(word, width)).items()
            )
        case "PT":
            return lambda word: subsequences(word, width)
        case "PLT":
            return lambda word: in_order(word, width, threshold)
    raise AssertionError(kind)


def parts(kind: str, width: int) -> Callable[[str], frozenset[str]]:
    """Return what strict classes allow or forbid."""
    if kind.endswith("SL"):
        return lambda word: frozenset(factors(word, width))
    return lambda word: subsequences(word, width)


@cache
def members(name: str, longest: int) -> dict[str, bool]:
    """Return for all short strings whether they are in the language."""
    dfa = _mlregtest.language(name)
    state, layer = {"": 0}, [""]
    for _ in range(longest):
        grown = [(word + letter, word, place) for word in layer for place, letter in enumerate("abcd")]
        state |= {new: dfa.transitions[state[word]][place] for new, word, place in grown}
        layer = [new for new, _, _ in grown]
    return {word: dfa.accepting[at] for word, at in state.items()}


def is_of(name: str, kind: str, *, width: int, threshold: int, tier: str, longest: int = LONGEST) -> bool:
    """Return True if no two short strings prove that the language is not in the class."""
    said: dict[str, bool] = {}
    for word, yes in members(name, longest).items():
        on_tier = "".join(symbol for symbol in word if symbol in tier)
        if said.setdefault(on_tier, yes) != yes:
            return False
    if kind.endswith(("SL", "SP")):
        part = parts(kind, width)
        wanted = "co" not in kind
        seen = {word: part(word) for word in said}
        allowed = frozenset().union(*(seen[word] for word, yes in said.items() if yes == wanted))
        return all(yes == wanted or not seen[word] <= allowed for word, yes in said.items())
    alike: dict[Hashable, bool] = {}
    see = look(kind, width, threshold)
    return all(alike.setdefault(see(word), yes) == yes for word, yes in said.items())


def of_its_class(name: str, **other: Any) -> bool:
    _, tier, kind, width, threshold, _ = name.split(".")
    given = {"kind": kind, "width": int(width), "threshold": int(threshold), "tier": "abcd"[: int(tier)]} | other
    return is_of(name, **given)


NARROW = [n for n in _mlregtest.names() if n[:2] == "04" and n.split(".")[3] == "2" and ".Zp." not in n]
WIDER = [n for n in _mlregtest.names() if n[:2] == "04" and n.split(".")[3] == "4" and "PLT" not in n]


@pytest.mark.parametrize("name", some(NARROW, always=14))
def test_languages_are_of_their_class(name: str) -> None:
    assert of_its_class(name)


@pytest.mark.full
@pytest.mark.parametrize("name", WIDER[::9])
def test_languages_of_wider_factors_are_of_their_class(name: str) -> None:
    assert of_its_class(name)


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "lower"),
    [
        ("04.04.coSL.2.1.0", {"kind": "SL"}),
        ("04.04.SL.2.1.0", {"kind": "coSL"}),
        ("04.04.SL.4.1.0", {"width": 3}),
        ("04.04.coSP.2.1.0", {"kind": "SP"}),
        ("04.04.LT.2.1.0", {"kind": "SL"}),
        ("04.04.LTT.2.2.0", {"kind": "LT"}),
        ("04.04.LTT.2.3.0", {"threshold": 2}),
        ("04.04.PLT.2.2.1", {"kind": "LT"}),
        ("04.04.PLT.2.2.1", {"kind": "PT"}),
        ("04.04.PT.2.1.0", {"kind": "SP"}),
        ("04.04.PT.4.1.0", {"width": 2}),
        ("04.03.TSL.2.1.0", {"kind": "SL", "tier": "abcd"}),
        ("04.04.SL.2.1.0", {"tier": "abc"}),
    ],
)
def test_and_not_of_a_lower_one(name: str, lower: dict[str, Any]) -> None:
    assert of_its_class(name) and not of_its_class(name, **lower)


COUNTED = [n for n in _mlregtest.names() if n.split(".")[2] in ("Zp", "Reg")]


@pytest.mark.full
@pytest.mark.parametrize("size", ["04", full("16"), full("64")])
def test_zp_and_reg_have_groups_and_no_other_class_has(size: str) -> None:
    for name in (name for name in _mlregtest.names() if name[:2] == size):
        found = _monoid.syntactic_class(_mlregtest.language(name).transitions)
        assert found is None or found.star_free == (name not in COUNTED), name


@pytest.mark.parametrize(("number", "modulus", "among"), [(0, 2, {0}), (4, 3, {2}), (6, 3, {0, 2}), (9, 5, {0, 1, 2})])
def test_cyclic_languages_count_one_symbol(number: int, modulus: int, among: set[int]) -> None:
    said = members(f"04.04.Zp.{modulus}.1.{number}", 6)
    assert said == {word: word.count("c") % modulus in among for word in said}


STAR_FREE: dict[str, Callable[[str], bool]] = {  # over a b c d; by eye, from the definitions
    "04.04.SF.0.0.0": lambda word: "a" in word and "bc" not in word[word.rindex("a") + 1 :],
    "04.04.SF.0.0.1": lambda word: "ab" in word and "c" not in word[word.rindex("ab") + 2 :],
    "04.04.SF.0.0.5": lambda word: word[:1] == "a" and "bc" not in word[word.rindex("a") + 1 :],
    "04.04.Reg.0.0.0": lambda word: word.count("c") % 2 == 0 and "ab" not in word,
    "04.04.LT.2.1.1": lambda word: "aa" not in word or "bb" in word or "bc" in word,
    "04.03.TPLT.2.2.2": lambda word: "c" in word.replace("d", "").partition("ab")[2],
    "04.04.LTT.4.2.0": lambda word: sum(word[i : i + 4] == "aaaa" for i in range(len(word))) >= 2,
}


@pytest.mark.parametrize("name", STAR_FREE)
def test_some_languages_are_what_their_definition_says(name: str) -> None:
    said = members(name, 6)
    assert said == {word: STAR_FREE[name](word) for word in said}


def test_symbols_beyond_those_told_apart_act_as_the_last_of_them() -> None:
    for name in ("64.11.TSL.2.1.3", "64.64.PT.4.1.3", "16.07.TLT.2.1.1"):
        dfa = _mlregtest.language(name)
        assert len(dfa.alphabet) == int(name[:2]) == len({*dfa.alphabet})
        assert all(len(set(row[_mlregtest.TOLD_APART - 1 :])) == 1 for row in dfa.transitions)


def drawn(split: str, **settings: Any) -> list[tuple[str, bool]]:
    cls: Any = find_task("mlregtest")
    task = cls(count="input", language="04.04.SL.2.1.0", **settings)  # no a a
    batch = task.sample(Draw(seed=0, split=split, rows_B=torch.arange(400)), torch.full((400,), 20), 20)
    answers = batch.targets_BL.amax(1).tolist()
    rows = batch.tokens_BL.tolist()
    return [
        ("".join(task.vocab[token] for token in row), task.vocab[answer] == "YES")
        for row, answer in zip(rows, answers, strict=True)
    ]


@pytest.mark.parametrize("split", ["train", "validation", "test", "test/longer"])
def test_strings_of_the_test_alone_are_adversarial(split: str) -> None:
    """One edit from a member means one a a, or a a a alone; of uniform strings with a a, fewer than half are so."""
    words = drawn(split, test="adversarial")
    assert all(yes == ("aa" not in word) for word, yes in words)
    runs = [sum(word[i : i + 2] == "aa" for i in range(len(word))) for word, yes in words if not yes]
    near = sum(number == 1 for number in runs) / len(runs)
    assert (near > 0.9) == split.startswith("test")
    if not split.startswith("test"):
        assert words == drawn(split, test="random")


def test_an_unknown_language_is_refused_in_one_line() -> None:
    cls: Any = find_task("mlregtest")
    with pytest.raises(ValueError, match=r"no language '04\.02\.TSL\.2\.1\.0'.*classes are Zp, SF, Reg"):
        cls(language="04.02.TSL.2.1.0")
