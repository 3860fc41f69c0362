"""Laws of answers and floors agree with strings made here from the specification and labelled by the oracles.

Short strings are enumerated with their exact probabilities; long ones are drawn, and every count must lie within five
standard deviations (and three strings) of what the law says.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction

import numpy as np
import pytest
import torch

from chomsky_ladder.tasks.base import Task
from chomsky_ladder.tasks.bucket_sort import BucketSort
from chomsky_ladder.tasks.cycle_nav import CycleNav
from chomsky_ladder.tasks.even_pairs import EvenPairs
from chomsky_ladder.tasks.mod_arithmetic import ModArithmetic
from chomsky_ladder.tasks.parity import Parity
from chomsky_ladder.tasks.reverse_string import ReverseString
from chomsky_ladder.tasks.stack_manipulation import StackManipulation
from support.cases import some
from support.oracle_checks import symbols_of
from support.oracles import OPTIONS, ORACLES

torch.set_num_threads(1)

Choose = Callable[[Sequence[str]], str]

DEFAULTS: list[Task] = [
    Parity(),
    EvenPairs(),
    CycleNav(),
    ModArithmetic(),
    BucketSort(),
    ReverseString(),
    StackManipulation(),
]
VARIANTS: list[Task] = [
    Parity(query="token", supervision="dense"),
    EvenPairs(count="input", query="token"),
    CycleNav(cycle=2, query="token"),
    CycleNav(cycle=6, count="input"),
    ModArithmetic(query="none", count="input", operators="+-"),
    ModArithmetic(modulus=2),
    ModArithmetic(modulus=4, query="token", supervision="dense"),
    ModArithmetic(modulus=6, count="input"),
    BucketSort(num_symbols=3, query="token"),
    BucketSort(num_symbols=2, count="input", decode="teacher"),
    ReverseString(num_symbols=2, query="none"),
    StackManipulation(num_symbols=2, push=3, pop=1),
    StackManipulation(num_symbols=2, push=1, pop=2, count="input", query="none"),
    StackManipulation(num_symbols=2, push=0, pop=1),
    StackManipulation(num_symbols=3, push=1, pop=0, decode="teacher"),
]


def label(task: Task) -> str:
    """The name and what differs from the default."""
    values = {
        field.name: getattr(task, field.name) for field in fields(task) if getattr(task, field.name) != field.default
    }
    return "-".join([task.name, *(f"{name}={value}" for name, value in values.items())])


every_config = pytest.mark.parametrize("task", DEFAULTS + VARIANTS, ids=label)
every_task = pytest.mark.parametrize("task", DEFAULTS, ids=label)


def make_prompt(task: Task, size: int, choose: Choose) -> list[str]:
    """A string of `size` symbols, each choice uniform among its options, as the specification has it."""
    match task:
        case Parity() | EvenPairs():
            return [choose("ab") for _ in range(size)]
        case CycleNav():
            return [choose(["STAY", "+1", "-1"]) for _ in range(size)]
        case ModArithmetic(modulus=modulus, operators=operators):
            digits = [str(digit) for digit in range(modulus)]
            return [choose(operators if place % 2 else digits) for place in range(size)]
        case BucketSort(num_symbols=num) | ReverseString(num_symbols=num):
            return [choose([str(symbol) for symbol in range(num)]) for _ in range(size)]
        case StackManipulation(num_symbols=num, push=push, pop=pop):
            names = [str(symbol + 1) for symbol in range(num)]
            initial = int(choose([str(count) for count in range(1, size)]))
            prompt = ["ST" + choose(names) for _ in range(initial)]
            for _ in range(size - initial):
                operation = choose(["PS"] * push + ["POP"] * pop)
                prompt.append(operation if operation == "POP" else operation + choose(names))
            if not ORACLES[task.name](prompt):
                assert prompt.pop() == "POP"
                prompt.append("PS" + choose(names))
            return prompt
    raise AssertionError(task)


def outcomes(program: Callable[[Choose], list[str]]) -> Iterator[tuple[list[str], Fraction]]:
    """Everything a program of choices can return, with its probability: it runs once for every path of choices."""
    pending: list[tuple[int, ...]] = [()]
    while pending:
        path = pending.pop()
        probability, made = Fraction(1), 0

        def choose(options: Sequence[str]) -> str:
            nonlocal path, probability, made
            if made == len(path):
                pending.extend((*path, other) for other in range(1, len(options)))
                path = (*path, 0)
            probability, made = probability / len(options), made + 1
            return options[path[made - 1]]

        result = program(choose)
        yield result, probability


def answers_of(task: Task, prompt: Sequence[str]) -> list[tuple[int, int]]:
    """(slot, token) of every answer."""
    answers = ORACLES[task.name](prompt, **{name: getattr(task, name) for name in OPTIONS.get(task.name, ())})
    _, token_of = symbols_of(task)
    return [(slot, token_of[answer]) for slot, answer in enumerate(answers)]


def exact_law(task: Task, size: int) -> dict[tuple[int, int], Fraction]:
    law: dict[tuple[int, int], Fraction] = defaultdict(Fraction)
    for prompt, probability in outcomes(lambda choose: make_prompt(task, size, choose)):
        for place in answers_of(task, prompt):
            law[place] += probability
    return law


def short_sizes(task: Task) -> list[int]:
    """Sizes few enough of whose strings exist to make them all."""
    largest = {"parity": 6, "even_pairs": 6, "cycle_nav": 5, "mod_arithmetic": 5, "stack_manipulation": 4}.get(
        task.name, 3
    )
    return [size for size in range(1, largest + 1) if task.legal_size(size)]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_outcomes_are_complete(size: int) -> None:
    found = list(outcomes(lambda choose: [choose("abc") for _ in range(size)]))
    assert len({tuple(word) for word, _ in found}) == len(found) == 3**size
    assert sum(probability for _, probability in found) == 1


@every_config
def test_the_law_of_short_strings_is_exact(task: Task) -> None:
    for size in short_sizes(task):
        law = task.answer_law(task.length(size))
        assert law.dtype == np.float64
        assert law.shape == (task.slots(size), len(task.vocab))
        expected = np.zeros_like(law)
        for place, probability in exact_law(task, size).items():
            expected[place] = probability
        np.testing.assert_allclose(law, expected, rtol=0, atol=1e-12)


@pytest.mark.full
@pytest.mark.parametrize("task", some(DEFAULTS + VARIANTS, always=DEFAULTS), ids=label)
def test_the_law_of_long_strings_agrees_with_drawn_ones(task: Task) -> None:
    rows = 2000
    generator = random.Random(task.name)
    legal = task.legal_lengths(3, 256)
    for length in (legal[len(legal) // 40], legal[len(legal) // 7], legal[-1]):
        exact = task.answer_law(length)
        law = exact.clip(0, 1)
        np.testing.assert_allclose(law, exact, rtol=0, atol=1e-12)
        counts = np.zeros_like(law)
        for _ in range(rows):
            for place in answers_of(task, make_prompt(task, task.size(length), generator.choice)):
                counts[place] += 1
        tolerance = 5 * np.sqrt(rows * law * (1 - law)) + 3
        assert (np.abs(counts - rows * law) <= tolerance).all(), length
        slots = law.sum(axis=1)
        assert slots[0] == pytest.approx(1, abs=1e-9)
        assert (np.diff(slots) < 1e-9).all()
        assert set(np.flatnonzero(law.any(axis=0))) <= set(task.answers)


@every_config
def test_floors_of_short_strings_are_exact(task: Task) -> None:
    sizes = short_sizes(task)
    laws = [exact_law(task, size) for size in sizes]
    scored = sum(sum(law.values()) for law in laws)
    constant = max(sum(p for law in laws for (_, token), p in law.items() if token == t) for t in task.answers)
    known = sum(
        max(law.get((slot, token), Fraction(0)) for token in task.answers)
        for size, law in zip(sizes, laws, strict=True)
        for slot in range(task.slots(size))
    )
    floors = task.floors([task.length(size) for size in sizes])
    assert floors.s_rand == 1 / len(task.answers)
    assert floors.best_constant == pytest.approx(float(constant / scored), abs=1e-12)
    assert floors.content_free == pytest.approx(float(known / scored), abs=1e-12)


@pytest.mark.parametrize(
    "task",
    [
        Parity(),
        EvenPairs(),
        CycleNav(),
        CycleNav(cycle=2),
        ModArithmetic(operators="+-"),
        ReverseString(),
        StackManipulation(),
        StackManipulation(num_symbols=7, push=1, pop=3),
    ],
    ids=label,
)
def test_where_every_answer_is_equally_likely_all_floors_are_chance(task: Task) -> None:
    chance = 1 / len(task.answers)
    assert task.floors(task.legal_lengths(40, 256)) == pytest.approx((chance,) * 3, abs=1e-9)


def test_bucket_sort_scores_two_thirds_without_reading_its_input() -> None:
    task = BucketSort()
    floors = task.floors(task.legal_lengths(40, 256))
    assert (floors.content_free - floors.s_rand) / (1 - floors.s_rand) == pytest.approx(0.63, abs=0.005)
    assert floors.best_constant == pytest.approx(0.1, abs=1e-9)


def test_multiplication_makes_zero_the_commonest_result_of_short_strings_only() -> None:
    """The product in d op d, one operator in three, is 0 for 9 pairs of 25. Sums of many terms are uniform."""
    task = ModArithmetic()
    assert task.floors([task.length(3)])[1:] == pytest.approx((19 / 75, 19 / 75), abs=1e-12)
    assert task.floors(task.legal_lengths(3, 40)).best_constant > 0.206
    assert task.floors(task.legal_lengths(40, 256))[1:] == pytest.approx((1 / 5, 1 / 5), abs=1e-6)


@every_task
def test_the_counted_law_agrees_with_the_closed_form(task: Task) -> None:
    cls = type(task)
    counted = dataclass(frozen=True, kw_only=True)(type("Counted", (cls,), {"answer_law": Task.answer_law}))()
    length = task.legal_lengths(12, 20)[0]
    law, estimate = task.answer_law(length), counted.answer_law(length)
    law = np.pad(law, ((0, len(estimate) - len(law)), (0, 0)))  # the estimate has a slot a position
    rows = 4000
    assert (np.abs(estimate - law) * rows <= 5 * np.sqrt(rows * law * (1 - law)) + 3).all()
    assert not np.array_equal(estimate, law)
    lengths = task.legal_lengths(12, 14)
    assert counted.floors(lengths) == pytest.approx(task.floors(lengths), abs=0.03)
