"""State-based recall: who looks at less than the whole string does no better than chance, and swaps are any two's."""

import pytest
import torch

from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.state_recall import StateRecall
from support.cases import full
from support.oracles_recall import recall_parts
from support.run_and_refusal import refusal

ROWS = 4000


def strings(task: StateRecall, swaps: int) -> list[tuple[list[str], str]]:
    size = task.given + 2 * swaps + 1
    draw = Draw(seed=1, split="test", rows_B=torch.arange(ROWS))
    batch = task.sample(draw, torch.full((ROWS,), size + 1), size)
    answers = batch.targets_BL[:, -1].tolist()
    rows = batch.tokens_BL.tolist()
    return [([task.vocab[x] for x in row], task.vocab[y]) for row, y in zip(rows, answers, strict=True)]


@pytest.mark.full
@pytest.mark.parametrize("swaps", [0, full(1), 3, full(30)])
def test_where_a_variable_began_says_what_is_left_of_it(swaps: int) -> None:
    """A swap moves a's address with 2 of 5; where it is by then, it comes from each other variable alike."""
    task = StateRecall(bits=16)
    kept = 1.0
    for _ in range(swaps):
        kept = kept * 3 / 5 + (1 - kept) / 10
    right = answered = 0
    for string, answer in strings(task, swaps):
        given, held, _ = recall_parts(string, bits=16, variables=5)
        right += given[2 * int(held[1][1:]) + 1] == answer
        answered += answer == "1"
    expected = kept + (1 - kept) / 2  # else the bit is another, and a coin
    assert abs(right / ROWS - expected) < 5 * 0.5 / ROWS**0.5
    assert abs(answered / ROWS - 0.5) < 5 * 0.5 / ROWS**0.5
    assert task.floors([task.given + 2 * swaps + 2]) == (0.5, 0.5, 0.5)


def test_swaps_are_of_any_two() -> None:
    task, counts = StateRecall(variables=3), {}
    for string, _ in strings(task, 2):
        *_, rest = recall_parts(string, bits=6, variables=3)
        for pair in (tuple(rest[:2]), tuple(rest[2:4])):
            counts[pair] = counts.get(pair, 0) + 1
    assert len(counts) == 6 and max(abs(n - 2 * ROWS / 6) for n in counts.values()) < 5 * (2 * ROWS / 6) ** 0.5


def test_it_asks_for_the_group_of_its_variables() -> None:
    assert [StateRecall(bits=8, variables=n).demand for n in (3, 4, 5, 6)] == ["solvable"] * 2 + ["non-solvable"] * 2


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"bits": 4}, "bits must lie in variables (5)..1024, not 4"),
        ({"bits": 1025}, "..1024, not 1025"),
        ({"variables": 2}, "variables must lie in 3..6, not 2"),
        ({"supervision": "dense"}, "state_recall has no answer for a prefix"),
    ],
)
def test_what_is_no_recall_is_refused(settings: dict, said: str) -> None:
    assert said in refusal(lambda: StateRecall(**settings))
