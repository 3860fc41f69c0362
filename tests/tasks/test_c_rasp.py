"""The decision on C-RASP against 170 languages of a paper, against the monoid, and on automata with known counters."""

import csv
import itertools
import random
import time
from pathlib import Path

import pytest

from chomsky_ladder.tasks import _groups, _mlregtest
from chomsky_ladder.tasks._c_rasp import in_c_rasp
from chomsky_ladder.tasks._regex import from_pattern
from chomsky_ladder.tasks.regular import Regular
from support.cases import full

Table = tuple[tuple[int, ...], ...]
Map = tuple[int, ...]

PAPER = Path(__file__).with_name("c_rasp_languages.csv")
"""Tables 1 and 2 of Yang et al. 2026 (2608.13433), without languages of an unnamed alphabet or number."""


def of(pattern: str, alphabet: str) -> bool:
    return in_c_rasp(from_pattern(pattern, alphabet=alphabet).transitions)


def test_it_agrees_with_the_papers_languages() -> None:
    """A substring ab is there a language of two symbols: of three it is a flip-flop."""
    with PAPER.open() as file:
        rows = list(csv.DictReader(file))
    wrong = []
    for row in rows:
        alphabet = "ab" if row["pattern"] == "(a|b)*ab(a|b)*" else "abce" if "e" in row["pattern"] else "abc"
        if of(row["pattern"], alphabet) != (row["in_c_rasp"] == "True"):
            wrong.append(row["pattern"])
    assert not wrong and len(rows) == 170 and sum(row["in_c_rasp"] == "True" for row in rows) == 86


@pytest.mark.parametrize("depth", [1, 3, 9])
def test_brackets_of_bounded_depth_are_in(depth: int) -> None:
    """A counter from 0 to `depth`, and a dead state for whatever leaves it."""
    dead = depth + 1
    up = [*range(1, depth + 1), dead, dead]
    down = [dead, *range(depth), dead]
    assert in_c_rasp(tuple(zip(up, down, strict=True)))


def test_the_last_of_two_writes_is_not() -> None:
    assert not in_c_rasp(((0, 1, 0), (0, 1, 1)))


@pytest.mark.parametrize("group", ["Z2", "Z3", "S3", "A5"])
def test_groups_are_not(group: str) -> None:
    assert not in_c_rasp(_groups.transitions(group))


def test_a_neutral_symbol_changes_nothing() -> None:
    """A symbol that leaves every state as it is has no number but 0."""
    rng = random.Random(5)
    for _ in range(60):
        table = drawn(rng)
        assert in_c_rasp(table) == in_c_rasp(tuple((*row, q) for q, row in enumerate(table)))


def test_what_is_in_has_one_idempotent_in_each_r_class() -> None:
    """A necessary condition, from the monoid alone (theorem 13 there): no groups, and at most one idempotent."""
    rng, counts = random.Random(1), [0, 0, 0]
    for _ in range(300):
        table = drawn(rng)
        necessary, found = one_idempotent(table), in_c_rasp(table)
        assert necessary or not found
        counts[necessary + found] += 1
    assert counts[0] > 20 and counts[2] > 20


def test_the_condition_is_not_enough() -> None:
    table = from_pattern("(ab|bba)*", alphabet="ab").transitions
    assert one_idempotent(table) and not in_c_rasp(table)


def drawn(rng: random.Random) -> Table:
    """Return a random automaton whose symbols mostly go along a line, so that both answers are common."""
    size, symbols = rng.randint(2, 5), rng.randint(1, 3)
    table = tuple(
        tuple(rng.randrange(size) if rng.random() < 0.3 else min(q + s, size - 1) for s in range(symbols))
        for q in range(size)
    )
    reached = {0}
    for _ in range(size):
        reached |= {table[q][s] for q in reached for s in range(symbols)}
    number = {q: place for place, q in enumerate(sorted(reached))}
    return tuple(tuple(number[r] for r in table[q]) for q in sorted(reached))


def one_idempotent(table: Table) -> bool:
    """Say if the monoid has no group, and at most one idempotent among elements that reach each other on the right."""
    letters = [tuple(row[s] for row in table) for s in range(len(table[0]))]
    monoid = right_ideal(tuple(range(len(table))), letters)
    below = {element: right_ideal(element, letters) for element in monoid}
    for element in monoid:
        power = element
        while then(power, power) != power:
            power = then(power, element)
        if then(power, element) != power:
            return False
    idempotents = [element for element in monoid if then(element, element) == element]
    return not any(one in below[other] and other in below[one] for one, other in itertools.combinations(idempotents, 2))


def then(one: Map, other: Map) -> Map:
    return tuple(other[q] for q in one)


def right_ideal(element: Map, letters: list[Map]) -> set[Map]:
    found, queue = {element}, [element]
    for one in queue:
        for letter in letters:
            after = then(one, letter)
            if after not in found:
                found.add(after)
                queue.append(after)
    return found


def test_the_largest_automata_take_no_long_time() -> None:
    size, start = 256, time.process_time()
    counter = tuple((min(q + 1, size - 1), max(q - 1, 0), q) for q in range(size))
    assert not in_c_rasp(counter)  # its ends are walls at which a count is lost
    dead = size - 1
    assert in_c_rasp(tuple((q + 1 if q < dead - 1 else dead, q - 1 if 0 < q < dead else dead) for q in range(size)))
    assert time.process_time() - start < 20


def test_regular_tasks_say_so() -> None:
    assert Regular(pattern="(ab|bbaa)*").facts["in C-RASP"] == "yes"
    assert Regular(pattern="(ab|aabb)*").facts["in C-RASP"] == "no"


@pytest.mark.parametrize("step", [45, full(1)])
def test_of_mlregtest_the_piecewise_languages_are_in(step: int) -> None:
    """Languages testable by subsequences are R-trivial. Factors ask for the last symbol, and Zp and Reg have groups."""
    found: dict[str, set[bool]] = {}
    for name in list(_mlregtest.names())[::step]:
        found.setdefault(name.split(".")[2], set()).add(in_c_rasp(_mlregtest.language(name).transitions))
    assert {kind for kind, one in found.items() if True in one} - {"SF"} == {"SP", "coSP", "PT"}
    assert all(found[kind] == {True} for kind in ("SP", "coSP", "PT")) and {"SL", "LT", "TSL", "Zp"} <= set(found)
