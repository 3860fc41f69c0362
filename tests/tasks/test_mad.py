"""The synthetic tasks of MAD, read token by token in plain Python: answers, layouts, and how often what is."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import comb

import numpy as np
import pytest
import torch

from chomsky_ladder.harness.config.registry import find_task
from chomsky_ladder.tasks.base import Task
from chomsky_ladder.tasks.draw import Draw
from support.cases import full
from support.run_and_refusal import refusal


def recalled(string: Sequence[str], task: Task) -> list[str]:
    """The value to come at each key known before; the string must be pairs, each key with one value."""
    value_of: dict[str, str] = {}
    answers = []
    for place in range(0, len(string), 2):
        key, value = string[place : place + 2]
        if key[0] == "n":
            assert value[0] == "n" and place + 2 < len(string)
            answers += ["", ""]
            continue
        assert (key[0], value[0]) == ("k", "v")
        answers += [value if key in value_of else "", ""]
        assert value_of.setdefault(key, value) == value
    assert answers[-2]
    return answers


def recalled_words(string: Sequence[str], task: Task) -> list[str]:
    """The same of keys and values of several tokens, the next token of a value to come."""
    text = " ".join(string) + " "
    assert re.fullmatch(r"(_ )*((k\d+ )+(v\d+ )+)+", text)
    value_of: dict[str, list[str]] = {}
    answers = [""] * text.count("_")
    assert len(answers) < 2 * task.longest_pair
    for found in re.finditer(r"((?:k\d+ )+)((?:v\d+ )+)", text):
        key, value = found[1].split(), found[2].split()
        assert len(set(key)) == len(key) <= task.key_size and len(set(value)) == len(value) <= task.value_size
        assert task.keys == "any" or len(key) == task.key_size
        known = found[1] in value_of
        assert value_of.setdefault(found[1], value) == value
        answers += [""] * (len(key) - 1) + (value if known else [""] * len(value)) + [""]
    assert known
    return answers


def remembered(string: Sequence[str], task: Task) -> list[str]:
    return [""] * len(string)


def strings(task: Task, rows: int, lengths: Sequence[int], seed: int = 0) -> list[tuple[list[str], list[str], int]]:
    """Each row's tokens with the last answer behind them, its answers by position, and the length asked for."""
    draw = Draw(seed=seed, split="test", rows_B=torch.arange(rows))
    lengths_B = torch.tensor(lengths)[draw.rows_B % len(lengths)]
    batch = task.sample(draw, lengths_B, task.positions(max(lengths)) + 3)
    made = []
    for row, length in enumerate(lengths_B.tolist()):
        size = task.positions(length)
        tokens, targets = batch.tokens_BL[row].tolist(), batch.targets_BL[row].tolist()
        scored = batch.scored_BL[row].tolist()
        assert not any(tokens[size:]) and not any(targets[size:]) and scored == [target > 0 for target in targets]
        assert (int(batch.length_B[row]), int(batch.prompt_B[row])) == (size, 1 + scored.index(True))
        assert scored[size - 1] and {target for target in targets if target} <= set(task.answers)
        answers = [task.vocab[target] if target else "" for target in targets[:size]]
        made.append(([task.vocab[token] for token in tokens[:size]], answers, length))
    return made


CASES: list[tuple[str, dict, Callable]] = [
    ("in_context_recall", {}, recalled),
    ("in_context_recall", {"num_keys": 2, "num_values": 30}, recalled),
    ("in_context_recall", {"num_keys": 60, "noise": 99, "num_noise": 1}, recalled),
    ("noisy_in_context_recall", {}, recalled),
    ("fuzzy_in_context_recall", {}, recalled_words),
    ("fuzzy_in_context_recall", {"keys": "longest"}, recalled_words),
    ("fuzzy_in_context_recall", {"num_keys": 2, "key_size": 1, "value_size": 1}, recalled_words),
    ("fuzzy_in_context_recall", {"num_keys": 3, "key_size": 2, "num_values": 40, "value_size": 5}, recalled_words),
]


@pytest.mark.parametrize("rows", [60, full(10_000)])
@pytest.mark.parametrize(("name", "settings", "oracle"), CASES)
def test_values_are_those_given_before(name: str, settings: dict, oracle: Callable, rows: int) -> None:
    task = find_task(name)(**settings)
    for string, answers, length in strings(task, rows, task.legal_lengths(1, 90)):
        whole = [*string, answers[-1]]
        assert len(whole) == length
        assert oracle(whole, task)[: len(answers)] == answers, string


@pytest.mark.parametrize("rows", [60, full(10_000)])
@pytest.mark.parametrize("settings", [{}, {"table": 5, "num_keys": 2, "num_values": 2}])
def test_a_table_is_the_same_in_all_strings(settings: dict, rows: int) -> None:
    task = find_task("memorization")(**settings)
    value_of: dict[str, str] = {}
    for string, answers, length in strings(task, rows, [2, 8, 40]):
        assert len(string) == length and set(string[1::2]) == {"?"} and not any(answers[0::2])
        for key, value in zip(string[0::2], answers[1::2], strict=True):
            assert (key[0], value[0]) == ("k", "v") and value_of.setdefault(key, value) == value
    assert len(set(value_of.values())) == len(value_of) <= task.num_keys


def test_tables_differ() -> None:
    tables = {str(strings(find_task("memorization")(table=number), 9, [40])) for number in range(5)}
    assert len(tables) == 5


@pytest.mark.full
def test_the_last_key_is_any_of_those_before_and_a_fifth_is_noise() -> None:
    task = find_task("noisy_in_context_recall")(num_keys=3)
    noise = pairs = 0
    lasts: Counter[int] = Counter()
    for string, _, _ in strings(task, 6000, [42]):
        keys = [key for key in string[:-1:2] if key[0] == "k"]
        noise += 20 - len(keys)
        pairs += 19  # one is no noise
        order = list(dict.fromkeys(keys))
        if len(order) == 3:
            lasts[order.index(string[-1])] += 1
    assert abs(noise / pairs - 0.2) < 5 * (0.16 / pairs) ** 0.5
    mean = sum(lasts.values()) / 3
    assert max(abs(count - mean) for count in lasts.values()) < 5 * mean**0.5


def test_sizes_of_words_are_uniform() -> None:
    task = find_task("fuzzy_in_context_recall")()
    keys: Counter[int] = Counter()
    values: Counter[int] = Counter()
    for string, _, _ in strings(task, 3000, [60]):
        found = re.search(r"((?:k\d+ )+)((?:v\d+ )+)k", " ".join(string))
        assert found
        keys[len(found[1].split())] += 1
        values[len(found[2].split())] += 1
    for counts in (keys, values):
        assert len(counts) == 3 and max(abs(count - 1000) for count in counts.values()) < 5 * 1000**0.5


def gaps(task: Task, length: int, rows: int) -> np.ndarray:
    """Return the number of blanks before each data symbol, and after the last."""
    made = []
    for string, answers, _ in strings(task, rows, [length]):
        body = string[: string.index("ACT")]
        places = [place for place, symbol in enumerate(body) if symbol != "_"]
        assert [body[place] for place in places] == [*answers[len(body) :]]
        made.append(np.diff([-1, *places, len(body)]) - 1)
    return np.array(made)


@pytest.mark.full
@pytest.mark.parametrize("slot", [0, full(2), full(3)])
def test_each_blank_is_before_any_of_the_data(slot: int) -> None:
    """mad-lab's generate_copying_instance inserts blanks so: the number before one symbol is binomial."""
    rows, data, blanks = 4000, 4, 20
    task = find_task("selective_copying")(data=data, noise="before", count="input")
    found = gaps(task, data + blanks, rows)
    assert found.shape == (rows, data + 1) and (found.sum(1) == blanks).all() and not found[:, data].any()
    chances = [comb(blanks, k) * (1 / data) ** k * (1 - 1 / data) ** (blanks - k) for k in range(10)]
    seen = [*(int((found[:, slot] == k).sum()) for k in range(10)), int((found[:, slot] >= 10).sum())]
    mean = rows * np.array([*chances, 1 - sum(chances)])
    freedom = len(seen) - 1
    assert ((seen - mean) ** 2 / mean).sum() < freedom + 6 * (2 * freedom) ** 0.5 + 6
    anywhere = gaps(replace(task, noise="anywhere"), data + blanks, rows)
    assert anywhere.var(0)[slot] > 2 * found.var(0)[slot] and anywhere[:, data].any()


def test_floors_guess_a_value() -> None:
    for name, share in (("in_context_recall", 1 / 8), ("noisy_in_context_recall", 1 / 8)):
        assert find_task(name)().floors([40, 60]) == pytest.approx((share,) * 3)
    floors = find_task("memorization")().floors([40])
    assert floors == pytest.approx((1 / 128, 1 / 127, 1 / 127))


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("in_context_recall", {"noise": 100}, "noise must lie in 0..99, not 100"),
        ("in_context_recall", {"num_keys": 1}, "num_keys must lie in 2..4096, not 1"),
        ("memorization", {"num_values": 126}, "num_values must lie in num_keys..65536, not 126"),
        ("fuzzy_in_context_recall", {"key_size": 6}, "key_size must lie in 1..5, not 6"),
        ("fuzzy_in_context_recall", {"num_values": 2}, "value_size must lie in 1..2, not 3"),
    ],
)
def test_what_is_no_recall_is_refused(name: str, settings: dict, said: str) -> None:
    assert said in refusal(lambda: replace(find_task(name)(), **settings))
