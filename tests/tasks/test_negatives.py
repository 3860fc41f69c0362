"""Non-members of a language: uniform strings, strings after edits, and those one edit from the other side.

The oracles make every string of a length and every edit of it by hand, and ask `re` or a run of the automaton.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from chomsky_ladder.harness.config.registry import find_task
from chomsky_ladder.tasks import _automata, _edits
from chomsky_ladder.tasks.base import Task
from chomsky_ladder.tasks.draw import Draw
from support.cases import some
from support.oracles_regular import run

ROWS = 20_000
CASES: list[tuple[str, str, int]] = [
    ("(ab)*", "", 4),
    ("(ab)*", "", 5),
    ("(ab|ba)*", "", 6),
    ("[ab]*aa[ab]*", "", 6),  # others are rare in long strings
    ("(a|bc)*", "abcd", 3),  # d stands for nothing that c does not, nowhere alike
    ("(a|[bcd])*a", "abcde", 3),  # b, c and d lead everywhere alike
    ("(b*ab*a)*b*", "", 5),
    ("a", "ab", 1),
    ("a", "ab", 2),
]


def task_of(pattern: str, alphabet: str, negatives: str) -> Any:
    cls: Any = find_task("regular")
    return cls(pattern=pattern, alphabet=alphabet, negatives=negatives, count="input")


def random_language(**settings: Any) -> Any:
    cls: Any = find_task("random_dfa")
    return cls(count="input", negatives="border", **settings)


def drawn(task: Task, size: int, *, rows: int = ROWS) -> list[tuple[str, bool]]:
    batch = task.sample(
        Draw(seed=5, split="train", rows_B=torch.arange(rows)), torch.full((rows,), size), task.positions(size)
    )
    words = ["".join(task.vocab[token] for token in row) for row in batch.tokens_BL.tolist()]
    answers = batch.targets_BL.amax(1).tolist()
    return [(word, task.vocab[answer] == "YES") for word, answer in zip(words, answers, strict=True)]


def edits_of(word: str, letters: str) -> Iterator[str]:
    """Yield the result of every edit of a string, as often as there are edits that make it."""
    for place in range(len(word) + 1):
        yield from (word[:place] + letter + word[place:] for letter in letters)
    for place, symbol in enumerate(word):
        yield word[:place] + word[place + 1 :]
        yield from (word[:place] + letter + word[place + 1 :] for letter in letters if letter != symbol)


def beside(size: int, letters: str, member: Callable[[str], bool], *, inside: bool) -> dict[str, int]:
    """The strings of a size on one side, and how many edits lead to the other."""
    words = ("".join(word) for word in product(letters, repeat=size))
    own = [word for word in words if member(word) == inside]
    ways = {word: sum(member(other) != inside for other in edits_of(word, letters)) for word in own}
    return {word: count for word, count in ways.items() if count}


def assert_law(found: Sequence[str], law: dict[str, Fraction]) -> None:
    """Nothing outside it, and a chi-square less than six of its standard deviations above its mean."""
    counts = Counter(found)
    assert set(counts) <= set(law), sorted(set(counts) - set(law))[:5]
    assert sum(law.values()) == 1
    expected = np.array([float(share) * len(found) for share in law.values()])
    seen = np.array([counts[word] for word in law])
    freedom = len(law) - 1
    assert ((seen - expected) ** 2 / expected).sum() <= freedom + 6 * (2 * freedom) ** 0.5 + 6


def as_law(weights: dict[str, int]) -> dict[str, Fraction]:
    return {word: Fraction(weight, sum(weights.values())) for word, weight in weights.items()}


@pytest.mark.parametrize(("pattern", "alphabet", "size"), CASES)
@pytest.mark.parametrize("negatives", ["uniform", "one_edit", "border"])
def test_both_sides_have_the_law_of_the_definition(pattern: str, alphabet: str, size: int, negatives: str) -> None:
    task = task_of(pattern, alphabet, negatives)
    letters = alphabet or "ab"

    def member(word: str) -> bool:
        return bool(re.fullmatch(pattern, word))

    everything = ["".join(word) for word in product(letters, repeat=size)]
    uniform = [{word: 1 for word in everything if member(word) == inside} for inside in (False, True)]
    border = [beside(size, letters, member, inside=inside) for inside in (False, True)]
    others = uniform[0] if negatives == "uniform" else border[0]
    members = border[1] if negatives == "border" else uniform[1]
    if not (others and members):
        assert not task.legal_size(size)
        return
    assert task.legal_size(size)
    words = drawn(task, size)
    assert abs(sum(yes for _, yes in words) - ROWS / 2) < 5 * (ROWS / 4) ** 0.5
    assert_law([word for word, yes in words if yes], as_law(members))
    assert_law([word for word, yes in words if not yes], as_law(others))


@pytest.mark.full
@pytest.mark.parametrize("key", some(range(6)))
def test_strings_beside_a_random_language_have_an_edit_to_the_other_side(key: int) -> None:
    """Awkward lengths are included. Where strings are few, their probabilities are checked, too."""
    task = random_language(automaton=key, num_states=6, num_symbols=3)
    made = (task.dfa.transitions, task.dfa.accepting)

    def member(word: str) -> bool:
        return task.dfa.accepting[run(made, "abc", word)[-1] if word else 0]

    for size in (1, 2, 17, 64, 65, 130):
        if not task.legal_size(size):
            continue
        for word, yes in drawn(task, size, rows=40):
            assert member(word) == yes and len(word) == size
            assert any(member(other) != yes for other in edits_of(word, "abc")), word
    for inside in (False, True):
        law = as_law(beside(5, "abc", member, inside=inside))
        assert_law([word for word, yes in drawn(task, 5) if yes == inside], law)


@pytest.mark.parametrize("negatives", ["one_edit", "border"])
@pytest.mark.parametrize(("pattern", "alphabet"), [("(ab)*", ""), ("a{3}", "ab"), ("(aa|ab|ba|bb)*", "ab")])
def test_legal_lengths_are_those_that_have_such_strings(pattern: str, alphabet: str, negatives: str) -> None:
    """Length alone tells if an even number of symbols was read, so no length has both."""
    if pattern.startswith("(aa"):
        with pytest.raises(ValueError, match="both in the language and outside"):
            task_of(pattern, alphabet, negatives)
        return
    task = task_of(pattern, alphabet, negatives)
    for size in range(1, 7):
        sides = [
            beside(size, "ab", lambda word: bool(re.fullmatch(pattern, word)), inside=side) for side in (False, True)
        ]
        members = any(re.fullmatch(pattern, "".join(word)) for word in product("ab", repeat=size))
        assert task.legal_size(size) == (bool(sides[0]) and (bool(sides[1]) if negatives == "border" else members))


@pytest.mark.parametrize("negatives", ["uniform", "border"])
@pytest.mark.parametrize("size", [1, 2, 17, 64, 65, 130])
def test_a_path_place_by_place_is_the_one_by_maps(negatives: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    task = task_of("(a|bc)*(ab|c)?", "abcd", negatives)
    if task.legal_size(size):
        by_maps = drawn(task, size, rows=200)
        monkeypatch.setattr(_automata, "WIDE", 1)
        assert drawn(task, size, rows=200) == by_maps


@pytest.mark.full
def test_languages_of_many_states_are_walked_through_and_border() -> None:
    """613 states, 21,845 pairs of them: strings that do not fit side by side as maps."""
    cls: Any = find_task("mlregtest")
    task = cls(language="04.04.SP.6.1.8", negatives="border", count="input")
    assert task.dfa.num_states > _automata.WIDE

    def member(word: str) -> bool:
        state = 0
        for symbol in word:
            state = task.dfa.transitions[state]["abcd".index(symbol)]
        return task.dfa.accepting[state]

    for word, yes in drawn(task, 30, rows=60):
        assert member(word) == yes and any(member(other) != yes for other in edits_of(word, "abcd"))


def edited_by_hand(word: str, kinds: Sequence[str], letters: str) -> dict[str, Fraction]:
    """Return the distribution after edits of these kinds, with each place and each inserted symbol equally likely."""
    law = {word: Fraction(1)}
    for kind in kinds:
        after: dict[str, Fraction] = {}
        for old, share in law.items():
            places = range(len(old) + (kind == "insert"))
            made = [
                old[:place] + letter + old[place + (kind != "insert") :]
                for place in places
                for letter in ([""] if kind == "delete" else letters)
                if kind != "replace" or letter != old[place]
            ]
            for new in made:
                after[new] = after.get(new, Fraction(0)) + share / len(made)
        law = after
    return law


@pytest.mark.parametrize(
    "kinds",
    [["insert"], ["delete"], ["replace"], ["delete", "insert"], ["insert", "replace"], ["replace", "delete"]],
    ids="-".join,
)
def test_edits_are_made_as_by_hand(kinds: list[str]) -> None:
    word, names = "abc", ["insert", "replace", "delete"]
    rows_B = torch.arange(ROWS)
    kind = [names.index(name) for name in kinds] + [_edits.NOTHING] * (_edits.MOST_EDITS - len(kinds))
    size_B = torch.full((ROWS,), len(word))
    plan = _edits.Plan(torch.tensor(kind).expand(ROWS, -1), size_B, size_B > 0)
    x_BL = torch.tensor([0, 1, 2] + [0] * _edits.MOST_EDITS).expand(ROWS, -1)
    found_BL = _edits.edited(Draw(seed=1, split="train", rows_B=rows_B), x_BL, plan, num_symbols=3)
    size = len(word) + kinds.count("insert") - kinds.count("delete")
    found = ["".join("abc"[symbol] for symbol in row[:size]) for row in found_BL.tolist()]
    assert_law(found, edited_by_hand(word, kinds, "abc"))


def test_edits_are_as_many_as_a_coin_says_and_lead_to_the_size_asked_for() -> None:
    """If every size has members, 1/2 have one edit, 1/4 two .., and the last number takes the rest."""
    rows_B, size_B = torch.arange(ROWS), torch.full((ROWS,), 50)
    plan = _edits.planned(Draw(seed=2, split="train", rows_B=rows_B), size_B, torch.ones(64, dtype=torch.bool))
    counts = Counter((plan.kind_BM != _edits.NOTHING).sum(1).tolist())
    law = {number: Fraction(1, 2**number) for number in range(1, _edits.MOST_EDITS)}
    law[_edits.MOST_EDITS] = Fraction(1, 2 ** (_edits.MOST_EDITS - 1))
    assert_law([str(n) for n in counts.elements()], {str(n): share for n, share in law.items()})
    grown_B = (plan.kind_BM == _edits.INSERT).sum(1) - (plan.kind_BM == _edits.DELETE).sum(1)
    assert plan.found_B.all() and torch.equal(plan.size_B + grown_B, size_B)
    kinds = Counter(plan.kind_BM[plan.kind_BM != _edits.NOTHING].tolist())
    assert_law([str(n) for n in kinds.elements()], {str(n): Fraction(1, 3) for n in range(3)})


def test_only_edits_that_start_from_a_member_are_planned() -> None:
    rows_B, size_B = torch.arange(2000), torch.arange(2000) % 12 + 2
    even_S = torch.arange(64) % 2 == 0
    plan = _edits.planned(Draw(seed=3, split="train", rows_B=rows_B), size_B, even_S)
    assert even_S[plan.size_B[plan.found_B]].all() and plan.found_B.float().mean() > 0.95
    size_B = plan.size_B
    for kind_B in plan.kind_BM.unbind(1):
        takes_B = (kind_B == _edits.DELETE) | (kind_B == _edits.REPLACE)
        assert not (takes_B & (size_B == 0) & plan.found_B).any()
        size_B = size_B + (kind_B == _edits.INSERT).long() - (kind_B == _edits.DELETE).long()


@pytest.mark.parametrize(("pattern", "letters"), [("(ab)*", "ab"), ("a[ab]*", "ab"), ("(a|bc)*", "abc")])
def test_of_the_edited_half_most_lie_near_a_member(pattern: str, letters: str) -> None:
    """One edit of a member makes half of them, of which some are members: at least .2 of all others lie one away."""
    size = 10
    words = drawn(task_of(pattern, letters, "edits"), size, rows=2000)
    others = [word for word, yes in words if not yes]
    assert all(bool(re.fullmatch(pattern, word)) == yes for word, yes in words)
    near = sum(any(re.fullmatch(pattern, other) for other in edits_of(word, letters)) for word in others)
    assert near / len(others) > 0.2


@pytest.mark.full
def test_members_beside_edited_strings_are_uniform() -> None:
    words = [word for word, yes in drawn(task_of("(a|bc)*", "abc", "edits"), 6) if yes]
    members = ["".join(w) for w in product("abc", repeat=6) if re.fullmatch("(a|bc)*", "".join(w))]
    assert_law(words, as_law(dict.fromkeys(members, 1)))


@pytest.mark.parametrize("negatives", ["uniform", "edits", "one_edit", "border"])
def test_floors_tell_what_the_ends_do(negatives: str) -> None:
    """a[ab]*b: a string is a member if it begins with a and ends with b."""
    task = task_of("a[ab]*b", "", negatives)
    floors = task.floors([10])
    assert floors[:2] == (0.5, 0.5)
    assert floors.content_free == pytest.approx(1 if negatives == "uniform" else 0.5)


def test_alike_symbols_do_not_change_what_the_ends_tell() -> None:
    """One symbol for three, weighed: the same floor as by the ends of all strings of five symbols."""
    task, member = task_of("[bcd]?(a|[bcd]{2})*", "abcd", "uniform"), re.compile("[bcd]?(a|[bcd]{2})*")
    table: dict[tuple[str, str], list[Fraction]] = {}
    sides: list[list[str]] = [[], []]
    for word in map("".join, product("abcd", repeat=5)):
        sides[bool(member.fullmatch(word))].append(word)
    for side, words in enumerate(sides):
        for word in words:
            table.setdefault((word[0], word[-1]), [Fraction(0), Fraction(0)])[side] += Fraction(1, len(words))
    assert task.floors([5]).content_free == pytest.approx(float(sum(map(max, table.values())) / 2), abs=1e-6)


def test_too_many_edits_are_refused_in_one_line() -> None:
    with pytest.raises(ValueError, match="too many edits to count the strings one edit from the other side"):
        random_language(num_states=200, num_symbols=20)
