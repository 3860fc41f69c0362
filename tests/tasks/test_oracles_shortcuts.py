"""The scores of rules that lack the mechanism a task needs, as the tasks' docstrings say."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from chomsky_ladder.harness.config.registry import find_task
from chomsky_ladder.tasks.base import Task
from chomsky_ladder.tasks.draw import Draw
from support.oracles import ORACLES
from support.oracles_automata import PAIRS
from support.oracles_circuits import OPERATORS, graph
from support.oracles_recall import PLACE_AXES, TIME_AXES, events_story, shapes_story

Strings = list[tuple[list[str], str]]
SHORT, LONG = (3, 40), (40, 256)
CLOSES = dict(PAIRS)


def strings(task: Task, low: int, high: int, *, rows: int = 5000) -> Strings:
    """Strings whose length is uniform over the legal ones, and their answers."""
    draw, legal = Draw(seed=7, split="test", rows_B=torch.arange(rows)), torch.tensor(task.legal_lengths(low, high))
    lengths_B = legal[draw.child("lengths").integers(len(legal))]
    batch = task.sample(draw, lengths_B, max(map(task.positions, legal.tolist())))
    answers = (batch.targets_BL * batch.scored_BL).amax(1).tolist()
    prompts, vocab = zip(batch.tokens_BL.tolist(), batch.prompt_B.tolist(), strict=True), task.vocab
    return [
        ([vocab[token] for token in row[:end]], vocab[answer])
        for (row, end), answer in zip(prompts, answers, strict=True)
    ]


def accuracy(said: Sequence[bool], made: Strings) -> float:
    return float(np.mean([yes == (answer == "YES") for yes, (_, answer) in zip(said, made, strict=True)]))


def from_ends(made: Strings) -> float:
    """The best guess from the length, the first and the last symbol."""
    seen: dict[tuple[int, str, str], list[int]] = {}
    for word, answer in made:
        seen.setdefault((len(word), word[0], word[-1]), [0, 0])[answer == "YES"] += 1
    return sum(map(max, seen.values())) / len(made)


def counted_alike(word: Sequence[str], kinds: int) -> bool:
    return all(word.count(a) == word.count(b) for a, b in PAIRS[:kinds])


def counted_along(word: Sequence[str], kinds: int) -> bool:
    """Return True if a separate counter for each kind never falls below zero and ends there."""
    symbols = np.array(word)
    heights = [np.cumsum((symbols == a).astype(int) - (symbols == b)) for a, b in PAIRS[:kinds]]
    return all(height.min() >= 0 and height[-1] == 0 for height in heights)


def neighbours_fit(word: Sequence[str]) -> bool:
    return all(CLOSES.get(a, b) == b for a, b in pairwise(word) if b not in CLOSES)


@pytest.mark.full
@pytest.mark.parametrize(
    ("lengths", "counts", "window", "both"), [(SHORT, 0.79, 0.79, 0.886), (LONG, 0.753, 0.645, 0.758)]
)
def test_balanced_strings_are_told_by_no_count_and_no_window(
    lengths: tuple[int, int], counts: float, window: float, both: float
) -> None:
    made = strings(find_task("dyck")(ask="valid"), *lengths)
    fits = [neighbours_fit(word) for word, _ in made]
    along = [counted_along(word, 2) for word, _ in made]
    assert accuracy([counted_alike(word, 2) for word, _ in made], made) == pytest.approx(counts, abs=0.02)
    assert accuracy(fits, made) == pytest.approx(window, abs=0.02)
    assert accuracy(list(np.logical_and(fits, along)), made) == pytest.approx(both, abs=0.02)
    shapes = [[CLOSES.get(symbol) is None for symbol in word] for word, _ in made]
    assert fitted(shapes, made) == pytest.approx(0.5, abs=0.03)
    dips = [min(np.cumsum(1 - 2 * np.array(shape))) >= 0 for shape in shapes]
    assert accuracy(dips, made) == pytest.approx(0.5, abs=0.02)


@pytest.mark.full
@pytest.mark.parametrize(("lengths", "score"), [(SHORT, 0.78), (LONG, 0.89)])
def test_brackets_of_one_kind_are_told_by_their_places_a_little(lengths: tuple[int, int], score: float) -> None:
    made = strings(find_task("dyck")(ask="valid", kinds=1), *lengths)
    assert fitted([[symbol == ")" for symbol in word] for word, _ in made], made) == pytest.approx(score, abs=0.04)


def fitted(shapes: list[list[bool]], made: Strings) -> float:
    """One weight for each position, fitted by least squares to the first half and scored on the other."""
    x = np.array([np.pad(1 - 2.0 * np.array(shape), (0, 256 - len(shape))) for shape in shapes])
    x, half = np.column_stack([x, np.ones(len(x))]), len(x) // 2
    y = np.array([2.0 * (answer == "YES") - 1 for _, answer in made])
    inner = x[:half].T @ x[:half] + np.eye(x.shape[1])
    weights = np.linalg.solve(inner, x[:half].T @ y[:half])
    return float(np.mean((x[half:] @ weights > 0) == (y[half:] > 0)))


@pytest.mark.parametrize("lengths", [SHORT, LONG])
def test_a_fault_at_depth_one_shows_in_two_neighbours(lengths: tuple[int, int]) -> None:
    made = strings(find_task("dyck")(ask="valid", depth=1), *lengths, rows=500)
    assert accuracy([neighbours_fit(word) for word, _ in made], made) == 1


@pytest.mark.parametrize(
    ("lengths", "kinds", "score"), [(SHORT, 2, 0.78), (LONG, 2, 0.765), (SHORT, 4, 0.67), (LONG, 4, 0.65)]
)
def test_the_last_symbol_is_often_what_closes_next(lengths: tuple[int, int], kinds: int, score: float) -> None:
    made = strings(find_task("dyck")(kinds=kinds), *lengths)
    said = [CLOSES[word[-1]] == answer if word[-1] in CLOSES else 1 / kinds for word, answer in made]
    assert np.mean(said) == pytest.approx(score, abs=0.02)


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *[("dyck", {"ask": "valid", "kinds": kinds}) for kinds in (1, 2, 3)],
        ("dyck", {"ask": "valid", "kinds": 1, "depth": 1}),
        *[("counter_language", {"misordered": misordered}) for misordered in (0, 20, 100)],
        *[("counter_language", {"language": "anbncn", "misordered": misordered}) for misordered in (0, 20, 100)],
    ],
)
def test_ends_tell_what_the_floor_says(name: str, settings: dict[str, object]) -> None:
    task = find_task(name)(**settings, count="input")
    for length in task.legal_lengths(1, 12):
        floor = task.floors([length]).content_free
        assert from_ends(strings(task, length, length, rows=8000)) == pytest.approx(floor, abs=0.025), length
    lengths = task.legal_lengths(1, 12)
    each = [task.floors([length]).content_free for length in lengths]
    assert task.floors(lengths).content_free == pytest.approx(np.mean(each), abs=1e-12)


@pytest.mark.parametrize("language", ["anbn", "anbncn"])
@pytest.mark.parametrize("misordered", [0, 20, 100])
def test_a_window_of_two_letters_tells_the_misordered(language: str, misordered: int) -> None:
    made = strings(find_task("counter_language")(language=language, misordered=misordered, count="input"), 3, 40)
    said = [all(a <= b for a, b in pairwise(word)) for word, _ in made]
    assert accuracy(said, made) == pytest.approx(0.5 + misordered / 200, abs=0.02)


@pytest.mark.parametrize("hole", ["second", "either"])
@pytest.mark.parametrize("num_symbols", [2, 9])
def test_the_missing_symbol_is_the_one_of_odd_count(hole: str, num_symbols: int) -> None:
    """A finite machine with one bit for each symbol answers every string."""
    for word, answer in strings(find_task("missing_duplicate")(hole=hole, num_symbols=num_symbols), 3, 256, rows=1000):
        assert [symbol for symbol in {*word} - {"MIS"} if word.count(symbol) % 2] == [answer]


def judged_by_counts(task: Task, made: Strings) -> tuple[float, float]:
    """The score of counting how often each of the two is the lesser, and the share that compares them outright."""
    told, axes = (events_story, TIME_AXES) if task.name == "qa_times" else (shapes_story, PLACE_AXES)
    right, outright = [], []
    for prompt, answer in made:
        facts, (a, relation, b) = told(prompt)
        (axis,) = [axis for axis in axes if relation in axis]
        pairs = [(x, y) if said == axis[0] else (y, x) for x, said, y in facts if said in axis]
        a, b = (a, b) if relation == axis[0] else (b, a)
        net = {thing: sum((x == thing) - (y == thing) for x, y in pairs) for thing in (a, b)}
        right.append(0.5 if net[a] == net[b] else (net[a] > net[b]) == (answer == "yes"))
        outright.append((a, b) in pairs or (b, a) in pairs)
    return float(np.mean(right)), float(np.mean(outright))


@pytest.mark.parametrize(
    ("name", "things", "facts", "score", "outright"),
    [
        ("qa_times", 8, 40, 0.95, 0.02),
        ("qa_times", 8, 160, 0.98, 0.94),
        ("qa_times", 8, 256, 0.99, 0.999),
        ("qa_times", 24, 256, 0.94, 0),
        ("qa_shapes", 8, 40, 0.96, 0),
        ("qa_shapes", 8, 160, 0.95, 0.09),
        ("qa_shapes", 8, 256, 0.97, 0.66),
        ("qa_shapes", 24, 256, 0.95, 0),
    ],
)
def test_orders_are_guessed_by_counting(name: str, things: int, facts: int, score: float, outright: float) -> None:
    task = find_task(name)(things=things)
    found = judged_by_counts(task, strings(task, facts, facts, rows=600))
    assert found == (pytest.approx(score, abs=0.04), pytest.approx(outright, abs=0.07))


@pytest.mark.parametrize(("facts", "score"), [(2, 0.61), (20, 0.235), (40, 0.23)])
def test_the_last_place_is_sometimes_the_answer(facts: int, score: float) -> None:
    made = strings(find_task("qa_places")(), facts, facts, rows=4000)
    assert np.mean([prompt[-6] == answer for prompt, answer in made]) == pytest.approx(score, abs=0.03)


@pytest.mark.parametrize(
    ("name", "setting", "value", "said"),
    [
        ("missing_duplicate", "num_symbols", 4097, "num_symbols must lie in 2..4096, not 4097"),
        ("set", "num_symbols", 1, "num_symbols must lie in 2..4096, not 1"),
        ("majority", "num_symbols", 1025, "num_symbols must lie in 2..1024, not 1025"),
        ("majority_count", "num_symbols", 1025, "num_symbols must lie in 2..1024, not 1025"),
        ("selective_copying", "num_symbols", 4097, "num_symbols must lie in 2..4096, not 4097"),
        ("selective_copying", "data", 4097, "data must lie in 1..4096, not 4097"),
        ("induction_heads", "num_symbols", 4097, "num_symbols must lie in 2..4096, not 4097"),
        ("k_hop", "num_symbols", 2, "num_symbols must lie in 3..4096, not 2"),
        ("depo", "num_nodes", 2, "num_nodes must lie in 3..4096, not 2"),
        ("mano", "modulus", 24, "with '\\*' modulus must be a prime, not 24"),
        ("reachability", "num_nodes", 7, "num_nodes must lie in 8..4096, not 7"),
        ("needle", "num_values", 4097, "num_values must lie in 2..4096, not 4097"),
        ("needle", "num_noise", 0, "num_noise must lie in 1..4096, not 0"),
        ("odds_first", "num_symbols", 4097, "num_symbols must lie in 2..4096, not 4097"),
        ("dyck", "depth", 65, "depth must lie in 1..64, not 65"),
        ("counter_language", "near", 65, "near must lie in 1..64, not 65"),
        ("counter_language", "misordered", 101, "misordered must lie in 0..100, not 101"),
        ("qa_times", "things", 2, "things must lie in 3..24, not 2"),
        ("qa_shapes", "things", 25, "things must lie in 3..24, not 25"),
    ],
)
def test_a_size_out_of_range_is_refused(name: str, setting: str, value: int, said: str) -> None:
    with pytest.raises(ValueError, match=f"{name}: {said}"):
        find_task(name)(**{setting: value})


@pytest.mark.full
@pytest.mark.parametrize(
    ("lengths", "digits", "parity", "vote"), [(SHORT, 0.518, 0.594, 0.8), (LONG, 0.505, 0.502, 0.73)]
)
def test_no_count_tells_the_value_of_a_formula(
    lengths: tuple[int, int], digits: float, parity: float, vote: float
) -> None:
    made = strings(find_task("formula_value")(), *lengths, rows=8000)
    right = np.array([answer == "1" for _, answer in made])

    def score(said: Sequence[bool]) -> float:
        share = float(np.mean(right == np.array(said)))
        return max(share, 1 - share)

    assert score([word.count("1") > word.count("0") for word, _ in made]) == pytest.approx(digits, abs=0.02)
    odd = [(word.count("1") + word.count("AND") + word.count("NOT")) % 2 == 1 for word, _ in made]
    assert score(odd) == pytest.approx(parity, abs=0.02)
    assert score([votes(word) > 0 for word, _ in made]) == pytest.approx(vote, abs=0.02)


@pytest.mark.full
@pytest.mark.parametrize(
    ("lengths", "left", "right", "total", "most"), [(SHORT, 0.12, 0.15, 0.07, 0.05), (LONG, 0.05, 0.05, 0.04, 0.04)]
)
def test_an_expression_is_not_told_without_its_tree(
    lengths: tuple[int, int], left: float, right: float, total: float, most: float
) -> None:
    made = strings(find_task("mano")(), *lengths, rows=6000)

    def score(guess: Callable[[list[str], list[int]], int]) -> float:
        parts = (([x for x in word if x in "+-*"], [int(x) for x in word if x not in "+-*"]) for word, _ in made)
        said = [str(guess(operators, digits) % 23) for operators, digits in parts]
        return float(np.mean([one == answer for one, (_, answer) in zip(said, made, strict=True)]))

    def from_left(operators: list[str], digits: list[int]) -> int:
        value = digits[0]
        for operator, digit in zip(operators, digits[1:], strict=True):
            value = OPERATORS[operator](value, digit)
        return value

    def from_right(operators: list[str], digits: list[int]) -> int:
        value = digits[-1]
        for operator, digit in zip(operators[::-1], digits[-2::-1], strict=True):
            value = OPERATORS[operator](digit, value)
        return value

    assert score(from_left) == pytest.approx(left, abs=0.02)
    assert score(from_right) == pytest.approx(right, abs=0.02)
    assert score(lambda _, digits: sum(digits)) == pytest.approx(total, abs=0.02)
    assert score(lambda _, digits: Counter(digits).most_common(1)[0][0]) == pytest.approx(most, abs=0.02)


@pytest.mark.full
@pytest.mark.parametrize(("lengths", "score"), [(SHORT, 0.72), (LONG, 0.62)])
def test_half_of_the_hops_are_not_enough(lengths: tuple[int, int], score: float) -> None:
    made = strings(replace(find_task("k_hop")(), supervision="final"), *lengths)
    said = [ORACLES["k_hop"]([f"h{min(4, int(word[0][1:]))}", *word[1:]])[0] for word, _ in made]
    right = [guess == answer for guess, (_, answer) in zip(said, made, strict=True)]
    assert np.mean(right) == pytest.approx(score, abs=0.02)


@pytest.mark.full
@pytest.mark.parametrize(("lengths", "joined", "four"), [(SHORT, 0.66, 1), (LONG, 0.5, 0.62)])
def test_a_way_is_not_told_by_few_steps_nor_without_direction(
    lengths: tuple[int, int], joined: float, four: float
) -> None:
    made = strings(find_task("reachability")(), *lengths)
    both = [[*word[:-3], *word[:-3][::-1], *word[-3:]] for word, _ in made]
    assert accuracy([ORACLES["reachability"](word)[0] == "YES" for word in both], made) == pytest.approx(
        joined, abs=0.02
    )
    assert accuracy([within(4, word) for word, _ in made], made) == pytest.approx(four, abs=0.02)


def within(steps: int, word: Sequence[str]) -> bool:
    edges, start, end = graph(word)
    reached = {start}
    for _ in range(steps):
        reached |= {after for before, after in edges if before in reached}
    return end in reached


def votes(word: Sequence[str]) -> float:
    """Add up the digits as signs, each turned by the NOTs above it and weighted by its depth."""
    pending, total = [1.0], 0.0
    for symbol in word:
        weight = pending.pop()
        if symbol in ("0", "1"):
            total += weight if symbol == "1" else -weight
        else:
            pending += [-weight] if symbol == "NOT" else [weight * 2 / 3] * 2
    return total
