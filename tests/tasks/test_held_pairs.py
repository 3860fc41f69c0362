"""Held-out pairs of word problems: none in training, all in tests, and answers after them counted apart."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from chomsky_ladder.harness.config.registry import find_model
from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.harness.train.evaluate import Evaluator
from chomsky_ladder.harness.train.metric import metrics_of
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.word_problem import WordProblem
from support.run_and_refusal import refusal

torch.set_num_threads(1)

Pair = tuple[str, str]


def sampled(task: WordProblem, *, split: str, size: int = 30, rows: int = 1500, seed: int = 0) -> list[list[str]]:
    """Return strings of `size` symbols without their fillers."""
    draw = Draw(seed=seed, split=split, rows_B=torch.arange(rows))
    batch = task.sample(draw, torch.full((rows,), task.length(size)), size)
    return [[task.vocab[token] for token in row[:: task.tokens_per]] for row in batch.tokens_BL.tolist()]


def seen(task: WordProblem, *, split: str = "train", seed: int = 0) -> set[Pair]:
    return {pair for string in sampled(task, split=split, seed=seed) for pair in pairwise(string)}


def held(task: WordProblem) -> set[Pair]:
    """The pairs that tests have and training does not, as the strings show them."""
    return seen(task, split="test") - seen(task)


def of_group(name: str, percent: int, **settings: object) -> WordProblem:
    return WordProblem(group=name, held_pairs=percent, **settings)


@pytest.mark.parametrize(
    ("task", "symbols", "each"),
    [
        (of_group("S3", 10), 6, 1),
        (of_group("S3", 25), 6, 2),
        (of_group("Z10", 50), 10, 5),
        (of_group("S4", 25, inputs="swaps"), 7, 2),
        (of_group("A4", 1, tokens_per=3), 12, 1),
        (of_group("A5", 80, inputs="generators=10"), 10, 8),
    ],
)
def test_training_and_validation_lack_as_many_pairs_as_asked_of_every_element(
    task: WordProblem, symbols: int, each: int
) -> None:
    alone = held(task)
    assert len(seen(task, split="test")) == symbols**2 and len(alone) == symbols * each
    for side in range(2):
        counts = Counter(pair[side] for pair in alone)
        assert len(counts) == symbols and set(counts.values()) == {each}
    every = seen(task)
    for split in ("train/before 1", "validation", "validation/train"):
        assert seen(task, split=split) == every
    assert seen(task, seed=7) == every  # no affair of the run's seed
    for split in ("test/longer", "horizon", "probe/train"):
        assert not seen(task, split=split).isdisjoint(alone)
    assert task.facts["held-out pairs"] == f"{symbols * each} of {symbols**2}"


def test_another_pick_holds_out_other_pairs_and_a_larger_share_the_same_and_more() -> None:
    few, more, other = (held(of_group("S3", *of)) for of in ((10,), (35,), (35,)))
    assert few < more == other
    assert len({frozenset(held(of_group("S3", 35, pick=pick))) for pick in range(4)}) > 1
    assert held(of_group("D3", 35)) != {(a, b) for a, b in more}


def test_allowed_strings_are_equally_likely() -> None:
    rows = 20_000
    counts = Counter(map(tuple, sampled(of_group("S3", 25), split="train", size=3, rows=rows)))
    assert len(counts) == 6 * 4 * 4
    for count in counts.values():
        p = 1 / len(counts)
        assert abs(count - rows * p) <= 5 * (rows * p * (1 - p)) ** 0.5


def test_first_held_out_pairs_stand_as_far_on_as_the_seen_pairs_they_are_beside() -> None:
    task, rows, size = of_group("S3", 25, asks="every"), 5000, 6
    batch = task.sample(Draw(seed=0, split="test", rows_B=torch.arange(rows)), torch.full((rows,), size + 1), size)
    is_pair_BL, is_held_BL = task.after_pairs(batch.tokens_BL)
    so_far_BL = is_held_BL.cumsum(1)
    for marks_BL, p in ((is_held_BL & (so_far_BL == 1), 1 / 3), (is_pair_BL & (so_far_BL == 0), 2 / 3)):
        for place, count in enumerate(marks_BL.sum(0).tolist()):
            share = p * (2 / 3) ** (place - 1) if place else 0
            assert abs(count - rows * share) <= 5 * (rows * share * (1 - share)) ** 0.5


def test_tests_are_those_of_the_task_without() -> None:
    task = of_group("A5", 25, asks="every")
    plain = replace(task, held_pairs=0)
    assert sampled(task, split="test") == sampled(plain, split="test")
    assert task.floors((10, 20)) == plain.floors((10, 20)) and task.demand == plain.demand
    assert not plain.holds_out and [metric.name for metric in metrics_of(plain)] == ["prefix"]


@pytest.mark.parametrize("settings", [{"asks": "every"}, {"asks": "every", "tokens_per": 2}, {}])
def test_answers_are_counted_apart(settings: dict[str, object]) -> None:
    """The answers of an untrained model, sorted by hand."""
    task = of_group("Z3", 30, **settings)
    run = Run(
        task=task,
        model=find_model("lstm").tiny(),
        train=Train(steps=10, batch=4, lengths=(5, 9)),
        eval=Eval(lengths=(3, 11), test=120, validation=60, batch=16),
    )
    torch.manual_seed(0)
    evaluator = Evaluator(run, run.model.build(len(task.vocab)), device=torch.device("cpu"), backend="auto")
    alone, found = held(replace(task, asks="every")), {name: [0, 0] for name in ("held", "other", "first", "seen")}
    for answers in evaluator.test_answers():
        for row in range(len(answers.rows_B)):
            tokens, right = answers.batch.tokens_BL[row].tolist(), answers.right_BL[row].tolist()
            scored = answers.batch.scored_BL[row].tolist()
            string = [task.vocab[token] for token in tokens[:: task.tokens_per] if token]
            was_held = [pair in alone for pair in pairwise(["", *string])]
            for place, is_held in enumerate(was_held[1:], 1):
                at = (place + 1) * task.tokens_per - 1
                kinds = ["held" if is_held else "other"]
                kinds += ["first"] * (is_held and not any(was_held[:place])) + ["seen"] * (
                    not any(was_held[: place + 1])
                )
                for kind in kinds:
                    found[kind][0] += right[at]
                    found[kind][1] += scored[at]
    score, names = evaluator.test(), ("held_pair", "other_pair", "first_held_pair", "seen_pairs")
    metrics = {metric.name: score.metric(metric) for metric in metrics_of(task)}
    assert all(total > 5 for _, total in found.values())
    assert [metrics[name] for name in names] == [right / total for right, total in found.values()]
    validation = {metric.name: evaluator.validation().metric(metric) for metric in metrics_of(task)}
    assert validation["held_pair"] is validation["first_held_pair"] is None
    assert validation["other_pair"] == validation["seen_pairs"] is not None


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"held_pairs": 100}, "held_pairs must lie in 0..99, not 100"),
        ({"held_pairs": -1}, "held_pairs must lie in 0..99"),
        ({"held_pairs": 10, "reveal": 10}, "held_pairs goes with reveal=0 and query=none"),
        ({"held_pairs": 10, "query": "token"}, "held_pairs goes with reveal=0 and query=none"),
        ({"held_pairs": 10, "inputs": "generators"}, "held_pairs=10 leaves fewer than two allowed successors"),
        ({"held_pairs": 90, "group": "S3"}, "held_pairs=90 leaves fewer than two allowed successors"),
    ],
)
def test_what_cannot_be_held_out_is_refused(settings: dict, said: str) -> None:
    assert said in refusal(lambda: WordProblem(**settings))
