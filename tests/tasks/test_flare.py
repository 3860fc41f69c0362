"""FLaRe's languages: every short string is decided, and members follow the published samplers, made here by hand."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise, product
from math import isqrt, prod
from typing import Any

import numpy as np
import pytest
import torch

from chomsky_ladder.harness.config.registry import find_task
from chomsky_ladder.tasks import _edits, _flare
from chomsky_ladder.tasks._labelled import TRIES, Regular
from chomsky_ladder.tasks.draw import Draw
from support.cases import full
from support.oracles_flare import ALPHABETS, NAMES, has_members, is_in

LANGUAGES = [language for name in NAMES for language in find_task(name).languages]
Law = dict[str, Fraction]


def recogniser(language: str) -> Any:
    return _flare.OTHERS[language] if language in _flare.OTHERS else Regular(_flare.automaton(language))


def draws(rows: int) -> Draw:
    return Draw(seed=3, split="train", rows_B=torch.arange(rows))


def words(language: str, x_BL: torch.Tensor, size: int) -> list[list[str]]:
    symbols = ALPHABETS[language].split()
    return [[symbols[symbol] for symbol in row[:size]] for row in x_BL.tolist()]


def test_all_eighteen_languages_are_there() -> None:
    assert sorted(LANGUAGES) == sorted(ALPHABETS) and len(LANGUAGES) == 18


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("most", [4000, full(60_000)])
def test_every_short_string_is_decided(language: str, most: int) -> None:
    """Symbols after a string's end change nothing."""
    found, symbols = recogniser(language), ALPHABETS[language].split()
    size = 1
    while len(symbols) ** size <= most:
        strings = list(product(range(len(symbols)), repeat=size))
        behind = [(number % len(symbols),) * 3 for number in range(len(strings))]
        x_BL = torch.tensor([a + b for a, b in zip(strings, behind, strict=True)])
        accepts = found.accepts(x_BL, torch.full((len(strings),), size)).tolist()
        expected = [is_in(language, [symbols[symbol] for symbol in string]) for string in strings]
        assert accepts == expected
        assert any(expected) == bool(found.has_members(size, x_BL.device)[size])
        size += 1


@pytest.mark.parametrize("language", LANGUAGES)
def test_members_and_their_stand_ins_are_what_they_are_called_at_every_length(language: str) -> None:
    found = recogniser(language)
    for size in (1, 2, 3, 4, 5, 7, 17, 18, 64, 65, 130, 301):
        if not has_members(language, size):
            continue
        for inside, make in ((True, found.members), (False, found.others)):
            x_BL = make(draws(60), torch.full((60,), size), size + 3)
            assert all(is_in(language, word) == inside for word in words(language, x_BL, size)), size
            assert (found.accepts(x_BL, torch.full((60,), size)) == inside).all()


@pytest.mark.parametrize("language", LANGUAGES)
def test_edited_members_are_seen_through(language: str) -> None:
    """One edit of a long member: the string is decided as the definition has it, which no random string would show."""
    found, rows, size = recogniser(language), 200, 61 if has_members(language, 61) else 60
    size_B = torch.full((rows,), size)
    x_BL = found.members(draws(rows), size_B, size)
    kind_BM = torch.tensor([_edits.REPLACE] + [_edits.NOTHING] * (_edits.MOST_EDITS - 1)).expand(rows, -1)
    plan = _edits.Plan(kind_BM, size_B, size_B > 0)
    x_BL = _edits.edited(draws(rows).child("edit"), x_BL, plan, num_symbols=found.num_symbols)
    expected = [is_in(language, word) for word in words(language, x_BL, size)]
    assert found.accepts(x_BL, size_B).tolist() == expected and not all(expected)


OFTEN = {"majority": 0.32, "first": 0.3, "even-pairs": 0.3, "parity": 0.06}


@pytest.mark.parametrize("language", LANGUAGES)
def test_strings_seldom_have_to_stand_in(language: str) -> None:
    """A stand-in is used if all tried strings are members: as often as tasks/_flare.py says."""
    found, rows, size = recogniser(language), 2000, 39 if has_members(language, 39) else 40
    size_B = torch.full((rows,), size)
    others_BL = _edits.non_members(found, draws(rows), size_B, size, tries=TRIES)
    last_BL = found.others(draws(rows).child("others"), size_B, size)
    stood_in = (others_BL == last_BL).all(1)
    share = float(stood_in.float().mean())
    assert share <= OFTEN.get(language, 0.002)
    assert share >= OFTEN.get(language, 0) / 2
    assert not found.accepts(others_BL, size_B).any()


# The published samplers for one length, as laws.


def binary(value: int, size: int) -> str:
    return "".join(str(value >> place & 1) for place in range(size))


def spaced(size: int, cuts: int, chosen: Sequence[int]) -> list[tuple[Fraction, list[int]]]:
    """The parts, at least 1 each, that uniform cuts make of what is left of a size; the chosen ones part it."""
    spare = size - 2 * len(chosen) - 1
    found = []
    for drawn in product(range(max(spare, 1)), repeat=cuts):
        ends = [0, *(sorted(drawn)[number] for number in chosen), max(spare, 0)]
        found.append((Fraction(1, max(spare, 1) ** cuts), [b - a + 1 for a, b in pairwise(ends)]))
    return found


def operations(size: int, sign: str, cuts: int, made: Callable[[int, int], int]) -> Law:
    law: Law = defaultdict(Fraction)
    for share, (one, other, last) in spaced(size, cuts, (0, 1)):
        small, large = sorted((one, other))
        for x in range(2 ** (min(small, last) if sign == "+" else small)):
            if sign == "+":
                most = min(2**large, 2**last - x)
            else:  # ours: as many bits as surely fit
                most = 2 ** min(large, max(last - x.bit_length(), 0)) if x else 2**large
            for y in range(most):
                both = [binary(x, small), binary(y, large)]
                for first, second in (both, both[::-1]):
                    number = 2 ** min(small, last) if sign == "+" else 2**small
                    law[f"{first}{sign}{second}={binary(made(x, y), last)}"] += share / number / most / 2
    return law


def sums(size: int) -> Law:
    return operations(size, "+", 2, lambda x, y: x + y)


def products(size: int) -> Law:
    return operations(size, "*", 3, lambda x, y: x * y)


def roots(size: int) -> Law:
    law: Law = defaultdict(Fraction)
    for share, (one, last) in spaced(size, 2, (1,)):
        most = 2 ** min(one, 2 * last)
        for x in range(most):
            law[f"{binary(x, one)}={binary(isqrt(x), last)}"] += share / most
    return law


def majorities(size: int) -> Law:
    ones = range(size // 2 + 1, size + 1)
    strings = ["".join(bits) for bits in product("01", repeat=size)]
    number = Counter(string.count("1") for string in strings)
    return {s: Fraction(1, len(ones) * number[s.count("1")]) for s in strings if s.count("1") in ones}


def gaps(size: int) -> Law:
    law: Law = defaultdict(Fraction)
    half = size // 2
    for bits in product("01", repeat=half):
        for place in range(half):
            w = "".join(bits[:place]) + "1" + "".join(bits[place + 1 :])
            ones = [at for at, bit in enumerate(w * 2) if bit == "1"]
            for at in ones:
                law[(w * 2)[:at] + "_" + (w * 2)[at + 1 :]] += Fraction(1, 2**half * half * len(ones))
    return law


def stacks(size: int) -> Law:
    law: Law = defaultdict(Fraction)
    pairs = [(s, p) for s in range(size) for p in range(size) if 2 * s + 3 * p + 1 == size]
    for initial, pushes in pairs:
        for bits in product("01", repeat=initial):
            todo = [(Fraction(1, len(pairs) * 2**initial), list(bits), list(bits), 0)]
            while todo:
                share, held, said, done = todo.pop()
                push = share if not held else share / 2
                if held:
                    todo.append((share / 2, held[:-1], [*said, "POP"], done))
                if done == pushes:
                    law[" ".join([*said, "#", *held[::-1]])] += push
                else:
                    todo += [(push / 2, [*held, bit], [*said, "PUSH", bit], done + 1) for bit in "01"]
    return law


@pytest.mark.parametrize(
    ("language", "size", "law"),
    [
        ("binary-addition", 5, sums),
        ("binary-addition", 8, sums),
        ("binary-multiplication", 8, products),
        ("compute-sqrt", 3, roots),
        ("compute-sqrt", 8, roots),
        ("majority", 6, majorities),
        ("majority", 7, majorities),
        ("missing-duplicate-string", 6, gaps),
        ("stack-manipulation", 7, stacks),
        ("stack-manipulation", 10, stacks),
    ],
)
def test_members_are_drawn_as_published(language: str, size: int, law: Callable[[int], Law]) -> None:
    rows, expected = 20_000, law(size)
    assert sum(expected.values()) == 1
    joint = " " if language == "stack-manipulation" else ""
    x_BL = recogniser(language).members(draws(rows), torch.full((rows,), size), size)
    assert follows(expected, [joint.join(word) for word in words(language, x_BL, size)])


def follows(law: Law, strings: Sequence[str]) -> bool:
    """Return True if a chi-square statistic lies within six of its standard deviations of its mean."""
    counts, rows = Counter(strings), len(strings)
    assert set(counts) <= set(law)
    seen, mean = np.array([[counts[word], float(share) * rows] for word, share in law.items()]).T
    freedom = len(law) - 1
    return bool(((seen - mean) ** 2 / mean).sum() <= freedom + 6 * (2 * freedom) ** 0.5 + 6)


CHOICES: dict[str, Callable[[str], int]] = {  # symbols that may follow, and the end
    "parity": lambda w: 2 + w.count("1") % 2,
    "even-pairs": lambda w: 2 + (w[:1] == w[-1:]),
    "dyck-2-3": lambda w: 1 if sum(1 if c in "([" else -1 for c in w) == 3 else 3,
    "first": lambda w: 3 if w else 1,
    "cycle-navigation": lambda w: 1 if w[-1:].isdigit() else 4,
}


def walked(language: str, size: int) -> Law:
    """The members of a size, as the walk makes them whose choices are all as likely."""
    law: Law = {}
    for string in product(ALPHABETS[language].split(), repeat=size):
        if is_in(language, list(string)):
            prefixes = ["".join(string[:end]) for end in range(size + 1)]
            law["".join(string)] = 1 / prod(Fraction(CHOICES[language](prefix)) for prefix in prefixes)
    return {word: share / sum(law.values()) for word, share in law.items()}


@pytest.mark.full
@pytest.mark.parametrize(
    ("language", "size"),
    [("parity", 7), ("dyck-2-3", 6), full("even-pairs", 7), full("first", 6), full("cycle-navigation", 4)],
)
def test_walks_are_as_likely_as_their_choices(language: str, size: int) -> None:
    """prepare_sampler.py of the published code: a state's transitions and its end share a weight of 1."""
    law, rows = walked(language, size), 20_000
    task: Any = find_task("flare_regular")(language=language, members="walks", count="input")
    batch = task.sample(draws(2 * rows), torch.full((2 * rows,), size), size)
    is_member_B = batch.targets_BL[:, -1] == task.answers[1]
    found = ["".join(word) for word in words(language, batch.tokens_BL[is_member_B] - 1, size)]
    assert follows(law, found)
    uniform = recogniser(language).members(draws(rows), torch.full((rows,), size), size)
    same = len(set(law.values())) == 1
    assert follows(law, ["".join(word) for word in words(language, uniform, size)]) == same
    assert same == (language in ("first", "cycle-navigation"))


@pytest.mark.parametrize("language", ["marked-copy", "unmarked-reversal", "odds-first", "bucket-sort"])
def test_the_first_half_is_uniform(language: str) -> None:
    size = 6 if language == "unmarked-reversal" else 7
    x_BL = recogniser(language).members(draws(20_000), torch.full((20_000,), size), size)
    counts = Counter(tuple(row[:3]) for row in x_BL.tolist())
    number = 125 if language == "bucket-sort" else 8
    assert len(counts) == number
    assert all(abs(count - 20_000 / number) < 6 * (20_000 / number) ** 0.5 for count in counts.values())


def test_another_language_is_refused_in_one_line() -> None:
    cls: Any = find_task("flare_regular")
    with pytest.raises(ValueError, match=r"flare_regular: language must be one of first, .*, not 'majority'"):
        cls(language="majority")
    with pytest.raises(ValueError, match="flare_regular: members=walks goes with negatives=edits, not uniform"):
        cls(members="walks", negatives="uniform")
