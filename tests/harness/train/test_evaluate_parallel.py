"""Scores are what a slow loop over single strings counts, whatever the batch, the layout or the split."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.harness.train import evaluate
from chomsky_ladder.harness.train.outcome import summary
from chomsky_ladder.models.base import ModelConfig
from chomsky_ladder.models.block import Context
from chomsky_ladder.tasks.base import Batch, Task
from chomsky_ladder.tasks.cycle_nav import CycleNav
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.layout import Classification
from chomsky_ladder.tasks.mod_arithmetic import ModArithmetic
from chomsky_ladder.tasks.parity import Parity
from chomsky_ladder.tasks.reverse_string import ReverseString
from chomsky_ladder.tasks.stack_manipulation import StackManipulation
from support.slow_scores import (
    MODELS,
    SMALL,
    assert_same,
    counted,
    evaluator_of,
    heard_in_parallel,
    nats_of,
    rows_of,
    run_of,
    targets_of,
)

torch.set_num_threads(1)
SEVERAL = [CycleNav(), ReverseString(num_symbols=3), StackManipulation(num_symbols=2, count="input")]


@dataclass(frozen=True, kw_only=True)
class AnyButTheFirst(Classification):
    """Every symbol is right but the string's first; the target names one of the right ones."""

    name, version, level = "any_but_the_first", 1, "regular"
    vocab = ("PAD", "a", "b", "c")
    answers = (1, 2, 3)

    def symbols(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        return draw.integers(3, (columns,)) + 1

    def answer(self, x_BL: Tensor, size_B: Tensor) -> Tensor:
        return x_BL[:, 0] % 3 + 1

    def allowed(self, tokens_BL: Tensor) -> Tensor:
        token_V = torch.arange(4)
        return (token_V != tokens_BL[:, :1, None]).expand(-1, tokens_BL.shape[1], -1) & (token_V > 0)


@dataclass(frozen=True, kw_only=True)
class Fibonacci(Classification):
    """Strings of 1, 2, 3, 5, 8 or 13 symbols."""

    name, version, level = "fibonacci", 1, "regular"
    vocab = ("PAD", "a", "b")
    answers = (1, 2)

    def legal_size(self, size: int) -> bool:
        return size in (1, 2, 3, 5, 8, 13)

    def symbols(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        return draw.integers(2, (columns,)) + 1

    def answer(self, x_BL: Tensor, size_B: Tensor) -> Tensor:
        return x_BL[:, 0]


class Lookup(nn.Module):
    """Knows the outputs to the inputs it was shown; says the last token of the vocabulary to any other."""

    num_layers = 0

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        self.known: dict[tuple[int, ...], list[int]] = {}
        self.seen: list[tuple[bool, bool, bool]] = []
        self.rows: list[int] = []

    def learn(self, batch: Batch) -> None:
        for tokens, targets, length in zip(*(x.tolist() for x in (batch[0], batch[1], batch.length_B)), strict=True):
            self.known[tuple(tokens[:length])] = targets

    def forward(self, tokens_BL: Tensor, ctx: Context) -> Tensor:
        self.seen.append((self.training, torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")))
        self.rows.append(len(tokens_BL))
        assert ctx.valid_BL is not None and ctx.prompt_B is not None and ctx.masks is None
        ctx.backends.add(f"lookup on {ctx.backend}")
        said_BL = torch.full_like(tokens_BL, self.vocab_size - 1)
        for row, length in enumerate(ctx.valid_BL.sum(1).tolist()):
            known = self.known.get(tuple(tokens_BL[row, :length].tolist()), [])[: said_BL.shape[1]]
            said_BL[row, : len(known)] = torch.tensor(known, dtype=torch.int64)
        return nn.functional.one_hot(said_BL, self.vocab_size).float()


def perfect_model(task: Task, *, split: str = "test", lengths: tuple[int, int] = (5, 14), count: int = 29) -> Lookup:
    model = Lookup(len(task.vocab))
    for _, batch in rows_of(task, split=split, lengths=lengths, count=count):
        model.learn(batch)
    return model


@pytest.mark.parametrize("task", [Parity(), *SEVERAL], ids=lambda task: task.name)
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_a_score_equals_a_slow_loop_over_single_strings(task: Task, model: ModelConfig) -> None:
    evaluator = evaluator_of(run_of(task, model))
    strings = rows_of(task, split="test", lengths=SMALL.lengths, count=SMALL.test)
    heard = [heard_in_parallel(evaluator.model, batch) for _, batch in strings]
    score = evaluator.test()
    assert_same(score, counted(strings, heard))
    nats = [
        nats_of(logits, target)
        for (_, batch), answers in zip(strings, heard, strict=True)
        for logits, target in zip(answers, targets_of(batch), strict=True)
    ]
    assert score.loss() == pytest.approx(sum(nats) / len(nats), rel=1e-9)
    assert 0 < score.loss() < 2 * math.log(len(task.vocab))
    assert score.lengths == tuple(sorted(score.lengths))
    assert sum(score.strings) == SMALL.test
    assert 0 < score.accuracy() < 1


@pytest.mark.parametrize("task", [Parity(), *SEVERAL], ids=lambda task: task.name)
def test_a_perfect_model_scores_one(task: Task) -> None:
    evaluator = evaluator_of(run_of(task), perfect_model(task))
    score = evaluator.test()
    assert score.accuracy() == score.accuracy(score="lengths") == score.exact_share() == 1.0
    assert score.is_perfect()
    assert not evaluator.validation().is_perfect()  # strings it was never shown
    assert evaluator.backends == {"lookup on reference"}
    assert evaluator.model.rows[:4] == [8, 8, 8, 5]  # eval.batch strings at a time
    assert score.hit_share() == 1.0
    assert score.loss() == pytest.approx(math.log(1 + (len(task.vocab) - 1) / math.e), rel=1e-12)  # logits 1, 0, 0 ..


def test_one_wrong_answer_spoils_one_string() -> None:
    task = ReverseString(num_symbols=3)
    model = perfect_model(task)
    (length, batch), *_ = rows_of(task, split="test", lengths=SMALL.lengths, count=1)
    known = model.known[tuple(batch.tokens_BL[0].tolist())]
    known[-1] = 0  # never an answer
    score, whole = evaluator_of(run_of(task), model).test(), evaluator_of(run_of(task), perfect_model(task)).test()
    place = score.lengths.index(length)
    assert score.correct == tuple(n - (i == place) for i, n in enumerate(whole.correct))
    assert score.exact == tuple(n - (i == place) for i, n in enumerate(whole.exact))
    assert not score.is_perfect()


def test_an_answer_counts_only_where_one_is_asked_for() -> None:
    """A model that is right everywhere but where answers are read is wrong."""
    task = Parity()
    model = perfect_model(task)
    for known in model.known.values():
        known[-1] = 0
    score = evaluator_of(run_of(task), model).test()
    assert sum(score.correct) == 0 and sum(score.exact) == 0
    assert sum(score.scored) == SMALL.test


def test_the_score_does_not_depend_on_the_batch_size() -> None:
    scores = [
        evaluator_of(run_of(ReverseString(num_symbols=3), MODELS[1], measured=replace(SMALL, batch=batch))).test()
        for batch in (1, 8, 64)
    ]
    assert_same(scores[0], scores[1])
    assert_same(scores[0], scores[2])


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_a_model_is_evaluated_without_gradients_and_in_its_precision(precision: str) -> None:
    model = perfect_model(Parity()).train()
    evaluator_of(run_of(Parity(), precision=precision), model).test()
    assert set(model.seen) == {(False, False, precision == "bf16")}
    assert model.training and torch.is_grad_enabled()
    evaluator_of(run_of(Parity()), model.eval()).test()
    assert not model.training


def test_every_split_has_its_own_strings_and_lengths() -> None:
    task = ModArithmetic()
    measured = replace(SMALL, extrapolate=(20, 2, 31), extrapolation=5)
    run = run_of(task, measured=measured, lengths=(3, 40), curriculum=(11, 7))
    evaluator = evaluator_of(run, Lookup(len(task.vocab)))
    scores = {"test": evaluator.test(), "validation": evaluator.validation(), "train": evaluator.in_distribution()}
    assert {name: sum(score.strings) for name, score in scores.items()} == {"test": 29, "validation": 17, "train": 17}
    assert scores["test"].lengths == (5, 7, 9, 11, 13)
    assert set(scores["train"].lengths) == {3, 5, 7}  # the last stage's
    longer = evaluator.extrapolation()
    assert {length: (score.lengths, score.strings) for length, score in longer.items()} == {
        19: ((19,), (5,)),  # the nearest legal length below; below 2 there is none
        31: ((31,), (5,)),
    }
    for split, lengths, count, measure in (
        ("validation", (5, 14), 17, evaluator.validation),
        ("validation/train", (3, 7), 17, evaluator.in_distribution),
        ("test/longer", (19, 19), 5, lambda: evaluator.extrapolation()[19]),
    ):
        evaluator.model = perfect_model(task, split=split, lengths=lengths, count=count)
        assert measure().is_perfect()
        assert not evaluator.test().is_perfect()


def test_extrapolation_takes_the_longest_legal_string() -> None:
    measured = replace(SMALL, lengths=(2, 14), extrapolate=(10, 13), extrapolation=5)
    longer = evaluator_of(run_of(Fibonacci(count="input"), measured=measured)).extrapolation()
    assert {length: score.lengths for length, score in longer.items()} == {8: (8,), 13: (13,)}


def test_only_lengths_that_were_drawn_are_in_a_score() -> None:
    score = evaluator_of(run_of(Parity(), measured=replace(SMALL, test=3))).test()
    drawn = {length for length, _ in rows_of(Parity(), split="test", lengths=SMALL.lengths, count=3)}
    assert set(score.lengths) == drawn and sum(score.strings) == 3
    assert score.accuracy(score="lengths") is not None


def test_any_allowed_answer_is_right() -> None:
    task = AnyButTheFirst()
    run = run_of(task)
    strings = rows_of(task, split="test", lengths=SMALL.lengths, count=SMALL.test)
    for said, right, hit in (
        (lambda first: first % 3 + 1, 1.0, 1.0),  # the target
        (lambda first: (first + 1) % 3 + 1, 1.0, 0.0),  # the other allowed one
        (lambda first: first, 0.0, 0.0),
        (lambda first: 0, 0.0, 0.0),
    ):
        model = Lookup(4)
        for _, batch in strings:
            tokens = batch.tokens_BL[0].tolist()
            model.known[tuple(tokens)] = [said(tokens[0])] * len(tokens)
        score = evaluator_of(run, model).test()
        assert score.accuracy() == score.exact_share() == right
        assert score.hit_share() == hit
        assert score.loss() == pytest.approx(math.log(math.e + 3) - hit)  # of the target alone
        assert sum(score.scored) == SMALL.test  # other positions ask for nothing, whatever they allow
    assert summary(run, score)["scaled"] is None
    always_a = Lookup(4)
    for _, batch in strings:
        always_a.known[tuple(batch.tokens_BL[0].tolist())] = [1] * 20
    starts_otherwise = [int(batch.tokens_BL[0, 0]) != 1 for _, batch in strings]
    assert evaluator_of(run, always_a).test().accuracy() == np.mean(starts_otherwise)


def test_a_cpu_scores_no_more_strings_at_a_time_than_its_caches_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    run = replace(run_of(Parity()), eval=replace(run_of(Parity()).eval, test=100, batch=64))
    scorer, seen = evaluator_of(run), []
    parallel = type(scorer)._parallel

    def counted_parallel(self: Any, batch: Batch) -> Tensor:
        seen.append(len(batch.tokens_BL))
        return parallel(self, batch)

    monkeypatch.setattr(type(scorer), "_parallel", counted_parallel)
    few = scorer.test()
    assert seen == [32, 32, 32, 4]
    monkeypatch.setattr(evaluate, "CACHED", 1000)
    seen.clear()
    many = scorer.test()
    assert seen == [64, 36]
    longest = scorer.test_task.legal_lengths(*run.eval.lengths)[-1]
    monkeypatch.setattr(evaluate, "POSITIONS", 10 * longest)
    seen.clear()
    fewer = scorer.test()
    assert seen == [10] * 10
    for other in (many, fewer):
        assert (few.lengths, few.correct, few.exact) == (other.lengths, other.correct, other.exact)
        assert few.nats == pytest.approx(other.nats, rel=1e-6)
