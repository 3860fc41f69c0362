"""Elements that may have no effect, and answers that are parts of the product: laws and beliefs by enumeration."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import product

import pytest
import torch

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.harness.conform.suite import check
from chomsky_ladder.harness.train.loop import execute
from chomsky_ladder.harness.train.metric import metrics_of
from chomsky_ladder.models.lstm import LSTMConfig
from chomsky_ladder.tasks.base import Batch
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.word_problem import WordProblem
from support.oracles_groups import members, names, neutral, observed, then
from support.run_and_refusal import refusal

torch.set_num_threads(1)

CASES = [
    {"group": "S3", "effect": 70, "asks": "every"},
    {"group": "S3", "effect": 60, "reveal": 30},
    {"group": "D4", "effect": 80, "reveal": 50, "observe": "image"},
    {"group": "S3", "effect": 75, "reveal": 40, "observe": "source", "query": "token"},
    {"group": "Z2xZ3", "effect": 50, "asks": "every", "tokens_per": 2},
]


def sampled(task: WordProblem, size: int, *, rows: int) -> Batch:
    draw = Draw(seed=3, split="test", rows_B=torch.arange(rows))
    length = task.length(size)
    return task.sample(draw, torch.full((rows,), length), task.positions(length))


def beliefs(task: WordProblem, string: Sequence[str]) -> list[dict[str, float]]:
    """P(answer) after each symbol, given the string up to there, from every choice of the elements that took effect."""
    is_shown = [task.reveal > 0 and place > 0 and string[place - 1] == "?" for place in range(len(string))]
    is_element = [symbol in members(task.group) and not shown for symbol, shown in zip(string, is_shown, strict=True)]
    found: list[dict[str, float]] = [defaultdict(float) for _ in string]
    for works in product((True, False), repeat=sum(is_element)):
        chance, state, left = 1.0, neutral(task.group), list(works)
        for place, symbol in enumerate(string):
            if is_element[place]:
                effect = left.pop(0)
                chance *= (task.effect if effect else 100 - task.effect) / 100
                state = then(state, members(task.group)[symbol]) if effect else state
            answer = observed(names(task.group)[state], group=task.group, observe=task.observe)
            if is_shown[place] and answer != symbol:
                chance = 0.0
            found[place][answer] += chance  # as often as there are choices after it
    return [{answer: chance / sum(law.values()) for answer, chance in law.items()} for law in found]


@pytest.mark.parametrize("settings", CASES)
def test_no_answer_is_likelier_than_the_best(settings: dict) -> None:
    task, size, rows = WordProblem(**settings), 8, 20
    batch = sampled(task, size, rows=rows)
    best_BL = task.best_possible(batch.tokens_BL)
    assert best_BL.dtype == torch.float64 and best_BL.shape == batch.tokens_BL.shape
    for row in range(rows):
        string = [task.vocab[token] for token in batch.tokens_BL[row, :size].tolist()]
        found = beliefs(task, string)
        assert best_BL[row, :size].tolist() == pytest.approx([max(law.values()) for law in found])
        for place in batch.scored_BL[row].nonzero()[:, 0].tolist():
            assert found[min(place, size - 1)][task.vocab[int(batch.targets_BL[row, place])]] > 0


@pytest.mark.parametrize("settings", CASES)
def test_the_best_answers_are_right_as_often_as_promised(settings: dict) -> None:
    task, rows = WordProblem(**settings), 1000
    size = 6 if task.reveal else 4
    batch = sampled(task, size, rows=rows)
    right, promised = 0, task.best_possible(batch.tokens_BL)[:, -1].sum().item()
    for row in range(rows):
        last = beliefs(task, [task.vocab[token] for token in batch.tokens_BL[row, :size].tolist()])[-1]
        right += max(last, key=lambda answer: last[answer]) == task.vocab[int(batch.targets_BL[row, -1])]
    assert abs(right - promised) < 5 * (rows * 0.25) ** 0.5
    assert promised < 0.95 * rows


def test_elements_look_the_same_whatever_they_do() -> None:
    rows, sure = 4000, WordProblem(group="Z60", count="input")
    unsure = WordProblem(group="Z60", count="input", effect=30)
    tokens = [sampled(task, 1, rows=rows).tokens_BL for task in (sure, unsure)]
    assert torch.equal(*tokens)
    batch = sampled(unsure, 1, rows=rows)
    is_moving_BL = batch.tokens_BL != 1  # another element than the neutral one
    moved = Counter((batch.targets_BL == batch.tokens_BL)[is_moving_BL].tolist())
    assert (batch.targets_BL[is_moving_BL] == batch.tokens_BL[is_moving_BL]).float().mean() == pytest.approx(
        0.3, abs=0.04
    )
    assert moved[False] == int((batch.targets_BL[is_moving_BL] == 1).sum())  # the others stay where they were
    assert (unsure.state_sizes, unsure.demand, sure.demand) == ((), "", "cyclic")


@pytest.mark.parametrize("settings", [*CASES[1:4], {"group": "S4", "observe": "image", "reveal": 20}])
def test_sampling_keeps_its_contract(settings: dict) -> None:
    outcomes = check(WordProblem(**settings))
    assert {outcome.verdict for outcome in outcomes} <= {"ok", "skip"}, outcomes


def test_a_part_of_the_product_is_its_coset() -> None:
    """Two elements have one image of 0 iff x y^-1 leaves 0 in place, and one source iff x^-1 y does."""
    found = members("A4")
    inverse = {name: tuple(sorted(range(4), key=images[0].__getitem__)) for name, images in found.items()}
    seen = {
        observe: WordProblem(group="A4", observe=observe, asks="every", count="input")
        for observe in ("image", "source")
    }
    said = {}
    for observe, task in seen.items():
        tokens_BL = torch.arange(1, 13)[:, None]
        said[observe] = dict(zip(found, task.prefix_answers(tokens_BL)[:, 0].tolist(), strict=True))
        assert set(said[observe].values()) == set(task.answers) and len(task.answers) == 4
        assert task.floors((20,)).s_rand == 1 / 4 and task.demand == "solvable"
    for x, y in product(found, repeat=2):
        x_first, inverse_first = then(found[x], (inverse[y],))[0], then((inverse[x],), found[y])[0]
        assert (said["image"][x] == said["image"][y]) == (x_first[0] == 0)
        assert (said["source"][x] == said["source"][y]) == (inverse_first[0] == 0)
    assert [task.state_sizes for task in seen.values()] == [(4,), (12,)]


def test_a_record_holds_the_ceiling(tmp_path: object) -> None:
    task = WordProblem(group="S3", reveal=30, effect=80)
    run = Run(
        task=task,
        model=LSTMConfig(d_model=8),
        train=Train(steps=4, batch=4, lengths=(4, 8)),
        eval=Eval(lengths=(4, 8), test=64, validation=16, every=0, bins=(4, 8), extrapolate=(), batch=64),
    )
    test = execute(run, Exec(results=tmp_path, device="cpu"), quiet=True)["test"]
    assert 0.5 < test["metrics"]["best_possible"] < 0.9
    counted = test["counts"]["others"]["best_possible"]
    assert test["metrics"]["best_possible"] == pytest.approx(sum(counted) / 64)
    assert [metric.name for metric in metrics_of(WordProblem())] == ["prefix"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"effect": 0}, "effect must lie in 1..100, not 0"),
        ({"effect": 101}, "effect must lie in 1..100"),
        ({"group": "A4xZ5", "observe": "image"}, "observe=image goes with a single group, not with A4xZ5"),
    ],
)
def test_what_is_no_such_problem_is_refused(settings: dict, said: str) -> None:
    assert said in refusal(lambda: WordProblem(**settings))
