"""The automata of `regular` and `random_dfa` are the minimal ones, and the oracle's own are what `re` says."""

import re
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chomsky_ladder.harness.config.registry import find_task
from support.oracle_variants import variants
from support.oracles_regular import Automaton, automaton, letters_of, machine_of, minimal, run, tabulated

LEAVES = st.sampled_from(["a", "b", "c", ".", "[ab]", "[^a]", "[b-c]", "(ab|c)", "()"])
REPEATS = st.sampled_from(["", "*", "+", "?", "{2}", "{1,}", "{0,2}", "{1,3}"])
RANDOM_PATTERNS = st.recursive(
    LEAVES,
    lambda inner: (
        st.tuples(inner, inner).map("".join)
        | st.tuples(inner, inner).map(lambda two: "(" + "|".join(two) + ")")
        | st.tuples(inner, REPEATS).map(lambda two: f"({two[0]}){two[1]}")
    ),
    max_leaves=6,
)
LITERAL: list[tuple[str, str, list[list[int]], list[bool]]] = [
    ("(ab)*", "s: a>t; t: b>s; accept s", [[1, 2], [2, 0], [2, 2]], [True, False, False]),
    ("(b*ab*a)*b*ab*", "even: a>odd b>even; odd: a>even b>odd; accept odd", [[1, 0], [0, 1]], [False, True]),
    (
        "(0|1(01*0)*1)*",  # multiples of three, the highest bit first
        "zero: 0>zero 1>one; one: 0>two 1>zero; two: 0>one 1>two; accept zero",
        [[0, 1], [2, 0], [1, 2]],
        [True, False, False],
    ),
    (
        "a[ab]*b",
        "s: a>in; in: a>in b>out; out: b>again a>in; again: a>in b>out; accept out again",
        [[1, 2], [1, 3], [2, 2], [1, 3]],
        [False, False, False, True],
    ),
    (r"\*+a", "s: *>t; t: *>t a>u; u:; accept u", [[1, 2], [1, 3], [2, 2], [2, 2]], [False, False, False, True]),
]
"""A pattern, a table of the same language, and the transitions and accepting states of its minimal automaton."""


def strings(letters: str, longest: int) -> list[str]:
    return ["".join(string) for size in range(1, longest + 1) for string in product(letters, repeat=size)]


def accepted(made: Automaton, letters: str, string: str) -> bool:
    return made[1][run(made, letters, string)[-1]]


@given(pattern=RANDOM_PATTERNS)
def test_derivatives_accept_what_re_accepts(pattern: str) -> None:
    made = automaton(pattern, "abc")
    assert minimal(made) == made
    for string in strings("abc", 5):
        assert accepted(made, "abc", string) == bool(re.fullmatch(pattern, string)), string


@given(data=st.data())
def test_states_are_told_apart_by_some_string_and_minimal_joins_the_others(data: st.DataObject) -> None:
    """A random automaton against its minimal one: as many states as there are different futures, and no others."""
    num = data.draw(st.integers(1, 6))
    steps = data.draw(st.lists(st.lists(st.integers(0, num - 1), min_size=2, max_size=2), min_size=num, max_size=num))
    accepts = data.draw(st.lists(st.booleans(), min_size=num, max_size=num))
    small, everything = minimal((steps, accepts)), ["", *strings("ab", num)]
    ends = {string: run((steps, accepts), "ab", string)[-1] if string else 0 for string in everything}
    futures = {}
    for string, start in ends.items():
        moved = [*steps, steps[start]]  # a copy of the state is the start
        future = [accepts[start]]
        for more in strings("ab", num):
            state = len(moved) - 1
            for symbol in more:
                state = moved[state]["ab".index(symbol)]
            future.append(accepts[state])
        futures[string] = tuple(future)
        assert futures[string][1:] == tuple(accepted(small, "ab", string + more) for more in strings("ab", num))
    assert len(small[0]) == len(set(futures.values()))


@pytest.mark.parametrize(("pattern", "table", "steps", "accepts"), LITERAL, ids=[each[0] for each in LITERAL])
def test_patterns_and_tables_have_the_automata_of_the_literature(
    pattern: str, table: str, steps: list[list[int]], accepts: list[bool]
) -> None:
    letters = letters_of(pattern)
    assert automaton(pattern, letters) == tabulated(table, letters) == (steps, accepts)
    for task in (find_task("regular")(pattern=pattern), find_task("regular")(table=table)):
        assert "".join(task.vocab) == "PAD" + letters + "NOYES"
        assert task.state_sizes == (len(steps),)


@given(data=st.data())
def test_a_task_has_as_many_states_as_the_minimal_automaton(data: st.DataObject) -> None:
    task = data.draw(variants("regular"))
    (steps, _), letters = machine_of(task.pattern, task.table, task.alphabet)
    assert task.state_sizes == (len(steps),)
    assert task.vocab == ("PAD", *letters, "NO", "YES")


@given(data=st.data())
def test_random_automata_are_minimal_complete_and_of_the_size_asked_for(data: st.DataObject) -> None:
    task = data.draw(variants("random_dfa"))
    steps, accepts = [list(step) for step in task.dfa.transitions], list(task.dfa.accepting)
    assert task.state_sizes == (task.num_states,) and len(accepts) == len(steps) == task.num_states
    assert all(len(step) == task.num_symbols and set(step) <= set(range(task.num_states)) for step in steps)
    assert task.vocab == ("PAD", *"abcdefghijklmnopqrstuvwxyz"[: task.num_symbols], "NO", "YES")
    assert minimal((steps, accepts)) == (steps, accepts)


@pytest.mark.full
def test_every_key_is_another_automaton() -> None:
    made = {find_task("random_dfa")(automaton=key).dfa for key in range(100)}
    assert len(made) == 100
