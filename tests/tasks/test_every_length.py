"""Strings of the lengths that only Deletang et al. have: all of them, with the chances and answers of their code."""

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor

from chomsky_ladder.harness.config.registry import find_task
from chomsky_ladder.tasks.base import Batch
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.stack_manipulation import StackManipulation

torch.set_num_threads(1)

NAMES = ["missing_duplicate", "stack_manipulation", "binary_addition", "binary_multiplication", "solve_equation"]
DEEPMIND: dict[str, dict[str, Any]] = {
    "missing_duplicate": {"num_symbols": 2, "hole": "either"},
    "stack_manipulation": {"num_symbols": 2, "reads": "top_down", "end": "token", "push": 2},
    "binary_addition": {"padding": "none"},
    "binary_multiplication": {"padding": "none"},
    "solve_equation": {"operators": "+-"},
}
SHORT: dict[str, dict[str, str]] = {  # every string of each length and its answer; all have the same chance
    "missing_duplicate 1": {"1": "1"},
    "missing_duplicate 3": {"MIS 0 EMPTY": "0", "MIS 1 EMPTY": "1", "0 MIS EMPTY": "0", "1 MIS EMPTY": "1"},
    "stack_manipulation 1": {"ST1": "ST1 END", "ST2": "ST2 END"},
    "binary_addition 1": {"0": "0 END"},
    "binary_addition 2": {"0 0": "0 END", "1 0": "1 END", "0 1": "0 1 END"},
    "binary_multiplication 1": {"0": "END"},
    "binary_multiplication 2": {"0 0": "0 END", "1 0": "0 END", "0 1": "0 END"},
    "solve_equation 1": {"0": "0"},
    "solve_equation 2": {"0 0": "0"},
}


def task_of(name: str, **settings: Any) -> Any:
    cls: Any = find_task(name)
    return cls(count="input", query="token", **DEEPMIND[name], **settings)


def strings(task: Any, length: int, *, rows: int) -> Counter[tuple[str, str]]:
    batch = task.sample(Draw(seed=0, split="test", rows_B=torch.arange(rows)), torch.full((rows,), length), 9)
    words = [" ".join(task.vocab[token] for token in row[:length]) for row in batch.tokens_BL.tolist()]
    answers = [
        " ".join(task.vocab[token] for token in row[scored].tolist())
        for row, scored in zip(batch.targets_BL, batch.scored_BL, strict=True)
    ]
    return Counter(zip(words, answers, strict=True))


@pytest.mark.parametrize("case", SHORT)
def test_short_strings_are_those_of_their_code(case: str) -> None:
    name, length = case.split()
    found = strings(task_of(name, every_length=True), int(length), rows=1200)
    assert found.keys() == set(SHORT[case].items())
    expected = 1200 / len(found)
    assert all(abs(count - expected) < 5 * expected**0.5 for count in found.values())


@pytest.mark.parametrize("name", NAMES)
def test_every_length_has_strings(name: str) -> None:
    assert task_of(name, every_length=True).legal_lengths(1, 40) == tuple(range(1, 41))
    assert task_of(name).legal_lengths(1, 40) != tuple(range(1, 41))


@pytest.mark.parametrize("name", NAMES)
def test_the_other_strings_stay_as_they_are(name: str) -> None:
    """A string is the same with the short ones in its batch and without."""
    usual, every = task_of(name), task_of(name, every_length=True)
    legal, rows = usual.legal_lengths(1, 30), 60
    lengths_B = torch.tensor(legal)[torch.arange(rows) % len(legal)]
    width = max(map(usual.positions, legal))

    def sampled(task: Any, lengths_B: Tensor) -> Batch:
        return task.sample(Draw(seed=1, split="train", rows_B=torch.arange(rows)), lengths_B, width)

    assert all(map(torch.equal, sampled(usual, lengths_B), sampled(every, lengths_B)))
    mixed_B = torch.where(torch.arange(rows) % 3 == 0, 1, lengths_B)
    kept_B = mixed_B == lengths_B
    for one, other in zip(sampled(every, mixed_B), sampled(usual, lengths_B), strict=True):
        assert torch.equal(one[kept_B], other[kept_B])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("length", [1, 2, 3])
@pytest.mark.parametrize("padding", ["zeros", "none"])
def test_the_law_of_short_strings_is_what_is_counted(name: str, length: int, padding: str) -> None:
    task = task_of(name, every_length=True)
    if name.startswith("binary"):
        task = type(task)(count="input", query="token", every_length=True, padding=padding)
    rows, law = 4000, task.answer_law(length)
    batch = task.sample(Draw(seed=3, split="test", rows_B=torch.arange(rows)), torch.full((rows,), length), 8)
    slot_BL = batch.scored_BL.cumsum(1) - 1
    counted = torch.zeros(law.shape, dtype=torch.float64)
    place = (slot_BL[batch.scored_BL], batch.targets_BL[batch.scored_BL])
    counted.index_put_(place, torch.tensor(1 / rows, dtype=torch.float64), accumulate=True)
    torch.testing.assert_close(counted, torch.tensor(law), rtol=0, atol=0.05)


def test_answers_are_not_fed_back_to_a_stack_that_looks_like_them() -> None:
    with pytest.raises(ValueError, match=r"^stack_manipulation: every_length has a stack that its answer"):
        StackManipulation(every_length=True, decode="teacher")
