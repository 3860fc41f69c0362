"""Word problems as published: the groups are groups, their inputs those named, and sessions as random as declared."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.harness.train.loop import execute
from chomsky_ladder.models.lstm import LSTMConfig
from chomsky_ladder.tasks._groups import group
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.word_problem import WordProblem
from support.cases import full
from support.oracles_groups import elements, generators, members, names, then
from support.run_and_refusal import refusal

torch.set_num_threads(1)

ORDERS = {"S3": 6, "S4": 24, "S5": 120, "A4": 12, "A5": 60, "A6": 360, "Z2": 2, "Z60": 60, "D3": 6, "D7": 14}
ORDERS |= {"A4xZ5": 60, "S3xZ2": 12, "Z3xD4xZ2": 48}
SMALL = [name for name, order in ORDERS.items() if order <= 60]


def sampled(task: WordProblem, size: int, *, rows: int = 400) -> list[list[str]]:
    draw = Draw(seed=2, split="test", rows_B=torch.arange(rows))
    batch = task.sample(draw, torch.full((rows,), task.length(size)), task.positions(task.length(size)))
    return [[task.vocab[token] for token in row[:size]] for row in batch.tokens_BL.tolist()]


@pytest.mark.parametrize("name", [*SMALL, full("S5"), full("A6")])
def test_a_table_is_that_of_the_group(name: str) -> None:
    found = group(name)
    assert len(set(found.names)) == len(found.elements) == ORDERS[name] == len(set(found.elements))
    assert found.names == tuple(elements(name))
    own, name_of = list(members(name).values()), names(name)
    for x, first in enumerate(own):
        for y in range(0, len(own), 1 if len(own) <= 60 else 7):
            assert found.names[found.table[x, y]] == name_of[then(first, own[y])]
    assert (found.table[0] == np.arange(len(own))).all() and (found.table[:, 0] == np.arange(len(own))).all()
    assert all(sorted(row) == list(range(len(own))) for row in found.table.tolist())


@pytest.mark.parametrize("name", ORDERS)
def test_generators_generate(name: str) -> None:
    found = group(name)
    assert [found.names[one] for one in found.generators] == generators(name)
    reached = {0}
    while len(reached) < len(reached := reached | {found.table[x, y] for x in reached for y in found.generators}):
        pass
    assert len(reached) == ORDERS[name]


def test_what_a_group_asks_of_a_state() -> None:
    asked = {name: WordProblem(group=name).demand for name in ORDERS}
    assert asked == {
        **dict.fromkeys(("S5", "A5", "A6"), "non-solvable"),
        **dict.fromkeys(("S3", "S4", "A4", "D3", "D7", "A4xZ5", "S3xZ2", "Z3xD4xZ2"), "solvable"),
        "Z2": "parity",
        "Z60": "cyclic",
    }
    assert WordProblem(group="Z4").demand == "" and WordProblem(group="Z2xZ2").demand == "parity"
    assert WordProblem(group="A5xZ2").facts["transition monoid"] == "120 elements"


@pytest.mark.parametrize(
    ("settings", "num"),
    [
        ({"group": "S5", "inputs": "swaps"}, 1 + 10),
        ({"group": "S5", "inputs": "3-perm"}, 1 + 10 + 20),
        ({"group": "A5", "inputs": "3-perm"}, 1 + 20),
        ({"group": "S4", "inputs": "swaps"}, 1 + 6),
        ({"group": "A5", "inputs": "generators"}, 2),
        ({"group": "A5", "inputs": "generators=2"}, 2),
        ({"group": "A5", "inputs": "generators=12"}, 12),
        ({"group": "S5", "inputs": "generators=32"}, 32),
        ({"group": "A4xZ5", "inputs": "generators"}, 4),
        ({"group": "Z60", "inputs": "all"}, 60),
    ],
)
def test_inputs_are_as_many_as_their_name_says(settings: dict[str, str], num: int) -> None:
    task = WordProblem(**settings)
    seen = Counter(symbol for string in sampled(task, 25) for symbol in string)
    assert len(seen) == num and max(seen.values()) < 2 * min(seen.values())
    assert seen.keys() >= set(generators(task.group)) or "generators" not in task.inputs


def test_further_generators_are_the_same_for_all_and_another_seed_has_others() -> None:
    def drawn(number: int, pick: int = 0) -> set[str]:
        strings = sampled(WordProblem(group="S5", inputs=f"generators={number}", pick=pick), 40)
        return {symbol for string in strings for symbol in string}

    assert drawn(4) < drawn(8) < drawn(32) and drawn(8) == drawn(8) != drawn(8, pick=1)
    two = [sampled(WordProblem(group="S5", inputs=inputs), 9) for inputs in ("generators", "generators=2")]
    assert two[0] == two[1]


def test_fillers_follow_every_element() -> None:
    task = WordProblem(group="Z60", tokens_per=3, asks="every")
    draw = Draw(seed=0, split="test", rows_B=torch.arange(3))
    batch = task.sample(draw, torch.tensor([10, 7, 4]), 12)
    alone = replace(task, tokens_per=1).sample(draw.child(""), torch.tensor([4, 3, 2]), 4)
    assert batch.scored_BL.nonzero().tolist() == [[0, 2], [0, 5], [0, 8], [1, 2], [1, 5], [2, 2]]
    assert alone.prompt_B.tolist() == [1] * 3 and batch.prompt_B.tolist() == [3] * 3
    assert task.legal_lengths(1, 13) == (4, 7, 10, 13) and replace(task, count="input").legal_lengths(1, 7) == (3, 6)


@pytest.mark.parametrize(
    "settings",
    [
        *({}, {"inputs": "generators"}, {"asks": "every", "tokens_per": 2}),
        *({"effect": 60, "inputs": "generators"}, {"observe": "image", "inputs": "swaps"}),
        {"observe": "source", "effect": 70, "asks": "every"},
    ],
)
@pytest.mark.parametrize("reveal", [0, 40, 100])
def test_floors_are_those_of_counted_strings(settings: dict[str, str], reveal: int) -> None:
    if reveal and "asks" in settings:
        pytest.skip("a session asks last")
    task, rows = WordProblem(group="S3", count="input", supervision="final", reveal=reveal, **settings), 4000
    for size in (2, 4, 6, 10):
        batch = task.sample(Draw(seed=1, split="x", rows_B=torch.arange(rows)), torch.full((rows,), size), size)
        law = task.answer_law(size)
        scored = batch.targets_BL[batch.scored_BL].view(rows, -1)
        assert law.shape == (scored.shape[1], len(task.vocab))
        for slot in range(len(law)):
            counted = torch.bincount(scored[:, slot], minlength=len(task.vocab)).numpy() / rows
            assert law[slot].sum() == pytest.approx(1)
            assert np.abs(counted - law[slot]).max() < 5 * math.sqrt(0.25 / rows)


def test_a_session_prints_as_often_as_asked_and_never_what_it_is_asked_last() -> None:
    size, reveal = 200, 30
    strings = sampled(WordProblem(group="S3", reveal=reveal), size)
    prints = sum(string[:-1].count("?") for string in strings) / len(strings)
    expected = size * reveal / (100 + 2 * reveal)  # an element and, so often, two symbols behind it
    assert abs(prints - expected) < 0.03 * expected
    assert all(string[-1] == "?" and string[-2] != "?" and string[-3] != "?" for string in strings)
    everywhere = sampled(WordProblem(group="S3", reveal=100), 8, rows=50)
    assert all([place for place, x in enumerate(string) if x == "?"] == [1, 4, 7] for string in everywhere)
    assert all([p for p, x in enumerate(s) if x == "?"] == [1, 6] for s in sampled(WordProblem(reveal=100), 7, rows=50))


def test_a_print_says_the_state_that_the_elements_alone_would_have_made() -> None:
    task = WordProblem(group="A5", reveal=35)
    for string in sampled(task, 60, rows=40):
        state, after_ask = members("A5")["01234"], False
        for symbol in string:
            if after_ask:
                assert names("A5")[state] == symbol
            elif symbol != "?":
                state = then(state, members("A5")[symbol])
            after_ask = symbol == "?" and not after_ask


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"group": "Q8"}, "word_problem: no group 'Q8'"),
        ({"group": "S2"}, "no group 'S2'"),
        ({"group": "A3xZ5"}, "no group 'A3xZ5'"),
        ({"group": ""}, "no group ''"),
        ({"group": "S7"}, "S7 has more than 1000 elements"),
        ({"group": "S5xZ9"}, "S5xZ9 has more than 1000 elements"),
        ({"group": "Z900"}, "Z900 has more than 1000 elements, or moves more than 256 points"),
        ({"group": "A5", "inputs": "swaps"}, "A5 has no inputs=swaps"),
        ({"group": "S3xZ2", "inputs": "3-perm"}, "S3xZ2 has no inputs=3-perm"),
        ({"inputs": "some"}, "inputs are all, generators, generators=n, swaps or 3-perm, not 'some'"),
        ({"inputs": "generators=1"}, "S5 has generators=2 to generators=120, not 1"),
        ({"inputs": "generators=121"}, "generators=120, not 121"),
        ({"tokens_per": 0}, "tokens_per must lie in 1..64, not 0"),
        ({"reveal": 101}, "reveal must lie in 0..100"),
        ({"reveal": 10, "tokens_per": 2}, "reveal goes with tokens_per=1 and asks=last"),
        ({"reveal": 10, "asks": "every"}, "reveal goes with"),
    ],
)
def test_what_is_no_word_problem_is_refused(settings: dict, said: str) -> None:
    assert said in refusal(lambda: WordProblem(**settings))


def test_sequence_accuracy_may_be_the_headline(tmp_path: object) -> None:
    run = Run(
        task=WordProblem(group="Z2", asks="every"),
        model=LSTMConfig(d_model=16),
        train=Train(steps=60, batch=16, lengths=(3, 6), lr=1e-2),
        eval=Eval(lengths=(3, 6), test=64, validation=16, every=0, bins=(3, 6), extrapolate=(), score="strings"),
    )
    test = execute(run, Exec(results=tmp_path, device="cpu"), quiet=True)["test"]
    counts = test["counts"]
    assert test["accuracy"] == test["exact"] == sum(counts["exact"]) / sum(counts["strings"])
    assert sum(counts["scored"]) > 2 * 64 and 0.1 < test["accuracy"] < sum(counts["correct"]) / sum(counts["scored"])
