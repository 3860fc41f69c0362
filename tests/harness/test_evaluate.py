"""Scores are what a slow loop over single strings counts, whatever the batch, the layout or the way of decoding."""

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from harness.build import build_model
from harness.config import Eval, Run, Train
from harness.data import evaluation_lengths
from harness.evaluate import Answers, Evaluator, Score, scaled
from harness.train import summary
from models.base import Context, ModelConfig
from models.encoder import EncoderConfig
from models.lstm import LSTMConfig
from models.transformer import TransformerConfig
from tasks.base import Batch, Task
from tasks.cycle_nav import CycleNav
from tasks.draw import Draw
from tasks.layout import Classification
from tasks.mod_arithmetic import ModArithmetic
from tasks.parity import Parity
from tasks.reverse_string import ReverseString
from tasks.stack_manipulation import StackManipulation

torch.set_num_threads(1)

CPU = torch.device("cpu")
SMALL = Eval(seed=2, lengths=(5, 14), test=29, validation=17, extrapolate=(), batch=8)
MODELS = [
    LSTMConfig(d_model=8, num_blocks=1),
    TransformerConfig(d_model=8, num_blocks=1, num_heads=2),
    EncoderConfig(d_model=8, num_blocks=1, num_heads=2),
]
SEVERAL = [CycleNav(), ReverseString(num_symbols=3), StackManipulation(num_symbols=2, count="input")]
TEACHER = [
    ReverseString(decode="teacher", num_symbols=3),
    StackManipulation(decode="teacher", num_symbols=2, push=2),
    ReverseString(decode="teacher", num_symbols=2, query="none"),
]


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


def run_of(task: Task, model: ModelConfig | None = None, *, measured: Eval = SMALL, **train: Any) -> Run:
    settings = Train(**{"lengths": (3, 9), "precision": "fp64", **train})
    return Run(task=task, model=model or LSTMConfig(d_model=8), train=settings, eval=measured, seed=1)


def untrained(run: Run) -> nn.Module:
    """The run's model at its start, but that only answers and PAD can be said, so that some answers are right."""
    model = build_model(run, CPU)
    with torch.no_grad():
        model.head.weight[[token not in run.task.answers for token in range(len(run.task.vocab))]] = 0
    return model


def evaluator_of(run: Run, model: nn.Module | None = None) -> Evaluator:
    return Evaluator(run, model or untrained(run), device=CPU, backend="reference")


def rows_of(task: Task, *, split: str, lengths: tuple[int, int], count: int) -> list[tuple[int, Batch]]:
    """Each evaluation string as a batch of its own, with its length."""
    legal = task.legal_lengths(*lengths)
    drawn = evaluation_lengths(task, legal, count=count, seed=SMALL.seed, split=split).tolist()
    draws = [Draw(seed=SMALL.seed, split=split, rows_B=torch.tensor([row])) for row in range(count)]
    return [
        (length, task.sample(draw, torch.tensor([length]), task.positions(length)))
        for length, draw in zip(drawn, draws, strict=True)
    ]


@torch.no_grad()
def heard_in_parallel(model: nn.Module, batch: Batch) -> list[list[float]]:
    """The logits of the answers to one string, read off one unpadded forward pass."""
    logits_BLV = model(batch.tokens_BL, Context(prompt_B=batch.prompt_B, backend="reference"))
    return logits_BLV[batch.scored_BL].tolist()


@torch.no_grad()
def heard_fed_back(model: nn.Module, batch: Batch) -> list[list[float]]:
    """The logits of the answers, each from a whole forward pass over the prompt and the model's answers before."""
    tokens = batch.tokens_BL[0, : int(batch.prompt_B)].tolist()
    heard: list[list[float]] = []
    for _ in range(int(batch.scored_BL.sum())):
        logits_BLV = model(torch.tensor([tokens + said_of(heard)]), Context(backend="reference"))
        heard.append(logits_BLV[0, -1].tolist())
    return heard


def said_of(heard: list[list[float]]) -> list[int]:
    """The most probable token of each answer."""
    return [max(range(len(logits)), key=logits.__getitem__) for logits in heard]


def nats_of(logits: list[float], target: int) -> float:
    """Minus the log probability of a token."""
    return math.log(math.fsum(math.exp(logit - logits[target]) for logit in logits))


def targets_of(batch: Batch) -> list[int]:
    return batch.targets_BL[batch.scored_BL].tolist()


def counted(strings: list[tuple[int, Batch]], heard: list[list[list[float]]]) -> Score:
    """The score of single strings, each with the logits of its answers."""
    counts: dict[int, Counter[str]] = {}
    nats: dict[int, list[float]] = {}
    for (length, batch), answers in zip(strings, heard, strict=True):
        targets = targets_of(batch)
        right = [a == b for a, b in zip(said_of(answers), targets, strict=True)]
        counts.setdefault(length, Counter()).update(strings=1, exact=all(right), scored=len(right), correct=sum(right))
        nats.setdefault(length, []).extend(map(nats_of, answers, targets))
    lengths = tuple(sorted(counts))
    columns = {what: tuple(counts[n][what] for n in lengths) for what in ("strings", "exact", "scored", "correct")}
    return Score(lengths, **columns, hits=columns["correct"], nats=tuple(math.fsum(nats[n]) for n in lengths))


def assert_same(score: Score, expected: Score) -> None:
    """The same counts, and the same nats but for rounding."""
    assert replace(score, nats=()) == replace(expected, nats=())
    assert score.nats == pytest.approx(expected.nats, rel=1e-9)
    assert score.loss() == pytest.approx(expected.loss(), rel=1e-9)


def perfect_model(task: Task, *, split: str = "test", lengths: tuple[int, int] = (5, 14), count: int = 29) -> Lookup:
    model = Lookup(len(task.vocab))
    for _, batch in rows_of(task, split=split, lengths=lengths, count=count):
        model.learn(batch)
    return model


SCORE = Score(
    lengths=(3, 5, 8),
    strings=(2, 4, 1),
    exact=(1, 2, 0),
    scored=(4, 12, 4),
    correct=(3, 9, 0),
    hits=(2, 8, 0),
    nats=(1.5, 2.25, 6.25),
)


def test_loss_and_hits_weigh_every_answer_alike() -> None:
    assert SCORE.loss() == 10 / 20
    assert SCORE.hit_share() == 10 / 20
    assert replace(SCORE, nats=(0.0, 0.0, 0.0)).loss() == 0.0
    assert replace(SCORE, nats=(1e16, 20.0, -1e16)).loss() == 1.0  # summed without rounding
    assert replace(SCORE, hits=SCORE.scored).hit_share() == 1.0
    assert replace(SCORE, correct=SCORE.scored).hit_share() == SCORE.hit_share()


def test_accuracy_by_tokens_weighs_every_answer_alike() -> None:
    assert SCORE.accuracy() == 12 / 20
    assert SCORE.accuracy(score="tokens", low=4) == 9 / 16
    assert SCORE.accuracy(score="tokens", high=5) == 12 / 16


def test_accuracy_by_lengths_weighs_every_length_alike() -> None:
    assert SCORE.accuracy(score="lengths") == pytest.approx((0.75 + 0.75 + 0) / 3)
    assert SCORE.accuracy(score="lengths", low=5, high=8) == pytest.approx(0.75 / 2)


def test_a_range_holds_both_its_ends_and_may_be_empty() -> None:
    assert SCORE.accuracy(low=3, high=3) == 0.75
    assert SCORE.accuracy(low=8) == 0.0
    assert SCORE.accuracy(low=6, high=7) is None
    assert SCORE.accuracy(low=9, score="lengths") is None


def test_exact_strings_and_perfection() -> None:
    assert SCORE.exact_share() == 3 / 7
    assert not SCORE.is_perfect()
    assert replace(SCORE, correct=SCORE.scored).is_perfect()
    assert not replace(SCORE, correct=(4, 12, 3)).is_perfect()


def test_a_score_survives_its_plain_form() -> None:
    assert SCORE.plain() == {
        "lengths": [3, 5, 8],
        "strings": [2, 4, 1],
        "exact": [1, 2, 0],
        "scored": [4, 12, 4],
        "correct": [3, 9, 0],
        "hits": [2, 8, 0],
        "nats": [1.5, 2.25, 6.25],
    }
    assert Score.from_plain(SCORE.plain()) == SCORE


def test_scaled_accuracy_is_nought_at_chance_and_one_when_perfect() -> None:
    for chance in (0.5, 0.2, 1 / 126):
        assert scaled(chance, chance) == 0.0
        assert scaled(1.0, chance) == 1.0
    assert scaled(0.6, 0.2) == pytest.approx(0.5)
    assert scaled(0.0, 0.5) == -1.0


@pytest.mark.parametrize("how", ["tokens", "lengths"])
def test_the_bins_of_a_summary_part_the_whole(how: str) -> None:
    measured = replace(SMALL, bins=(5, 7, 10, 14), score=how)
    run = run_of(ReverseString(num_symbols=2), measured=measured)
    score = evaluator_of(run).test()
    tree = summary(run, score)
    assert list(tree["bins"]) == ["5..7", "8..10", "11..14"] == list(tree["content_free_bins"])
    parts = [(5, 7), (8, 10), (11, 14)]
    for (low, high), floor in zip(parts, tree["content_free_bins"].values(), strict=True):
        assert floor == run.task.floors(range(low, high + 1), score=how).content_free == pytest.approx(0.5)
    assert list(tree["bins"].values()) == [score.accuracy(score=how, low=low, high=high) for low, high in parts]
    weights = [
        sum(
            1 if how == "lengths" else n
            for length, n in zip(score.lengths, score.scored, strict=True)
            if a <= length <= b
        )
        for a, b in parts
    ]
    whole = sum(weight * value for weight, value in zip(weights, tree["bins"].values(), strict=True)) / sum(weights)
    assert tree["accuracy"] == score.accuracy(score=how) == pytest.approx(whole)
    assert len(set(tree["bins"].values())) == 3
    assert tree["scaled"] == pytest.approx(2 * whole - 1)
    assert tree["exact"] == score.exact_share()
    assert (tree["hits"], tree["loss"]) == (score.hit_share(), score.loss())
    assert tree["hits"] == score.accuracy()  # one answer is right here
    assert Score.from_plain(tree["counts"]) == score


def test_a_bin_without_strings_is_left_out() -> None:
    run = run_of(ModArithmetic(), measured=replace(SMALL, bins=(5, 7, 8, 13)))
    tree = summary(run, evaluator_of(run).test())
    assert list(tree["bins"]) == list(tree["content_free_bins"]) == ["5..7", "9..13"]
    assert None not in tree["bins"].values()


def test_floors_of_dense_supervision_are_those_of_what_is_scored() -> None:
    measured = replace(SMALL, bins=(5, 14))
    trees = []
    for supervision in ("final", "dense"):
        run = run_of(ModArithmetic(supervision=supervision), measured=measured)
        trees.append(summary(run, evaluator_of(run).test()))
    assert trees[0] == trees[1]


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


@pytest.mark.parametrize("task", TEACHER, ids=["reverse", "stack", "reverse-without-query"])
@pytest.mark.parametrize("model", MODELS[:2], ids=lambda model: model.name)
def test_answers_fed_back_equal_a_slow_loop(task: Task, model: ModelConfig) -> None:
    evaluator = evaluator_of(run_of(task, model))
    strings = rows_of(task, split="test", lengths=SMALL.lengths, count=SMALL.test)
    heard = [heard_fed_back(evaluator.model, batch) for _, batch in strings]
    assert_same(evaluator.test(), counted(strings, heard))
    legal = task.legal_lengths(*SMALL.lengths)
    answers = list(evaluator.answers("test", legal, SMALL.test))
    found = {row: said for one in answers for row, said in heard_of(one)}
    assert found == dict(enumerate(map(said_of, heard)))
    for one in answers:
        assert one.nats_BL.dtype == torch.float64
        assert (one.nats_BL[~one.batch.scored_BL] == 0).all()
        for place, row in enumerate(one.rows_B.tolist()):
            expected = list(map(nats_of, heard[row], targets_of(strings[row][1])))
            assert one.nats_BL[place, one.batch.scored_BL[place]].tolist() == pytest.approx(expected, rel=1e-9)


def heard_of(answers: Answers) -> list[tuple[int, list[int]]]:
    """Row -> what was said in its answer slots; each but the last stands in the input behind its slot."""
    heard = []
    for place, row in enumerate(answers.rows_B.tolist()):
        slots = answers.batch.scored_BL[place].nonzero()[:, 0].tolist()
        said = answers.said_BL[place, slots].tolist()
        assert slots == list(range(slots[0], slots[0] + len(slots)))
        assert answers.batch.tokens_BL[place, slots[1:]].tolist() == said[:-1]
        right = [a == b for a, b in zip(said, answers.batch.targets_BL[place, slots].tolist(), strict=True)]
        assert answers.right_BL[place].nonzero()[:, 0].tolist() == [s for s, ok in zip(slots, right, strict=True) if ok]
        heard.append((row, said))
    return heard


@pytest.mark.parametrize("model", MODELS[:2], ids=lambda model: model.name)
def test_answers_fed_back_are_not_the_teachers(model: ModelConfig) -> None:
    """An untrained model that is shown the right answers says other things than one that hears its own."""
    task = TEACHER[0]
    evaluator = evaluator_of(run_of(task, model))
    strings = rows_of(task, split="test", lengths=SMALL.lengths, count=SMALL.test)
    shown = [heard_in_parallel(evaluator.model, batch) for _, batch in strings]
    heard = [heard_fed_back(evaluator.model, batch) for _, batch in strings]
    shown_said, heard_said = (list(map(said_of, answers)) for answers in (shown, heard))
    assert shown_said != heard_said
    assert [said[0] for said in shown_said] == [said[0] for said in heard_said]
    score, forced = evaluator.test(), counted(strings, shown)
    assert score.correct != forced.correct
    assert abs(score.loss() - forced.loss()) > 1e-6


@pytest.mark.parametrize("task", [Parity(supervision="dense"), ModArithmetic(supervision="dense", query="token")])
def test_dense_supervision_is_scored_on_final_answers(task: Classification) -> None:
    dense, final = evaluator_of(run_of(task)), evaluator_of(run_of(replace(task, supervision="final")))
    assert dense.test() == final.test()
    assert dense.test().scored == dense.test().strings
    assert dense.validation() == final.validation() and dense.in_distribution() == final.in_distribution()
    draw = Draw(seed=0, split="train", rows_B=torch.arange(4))
    assert task.sample(draw, torch.full((4,), 9), task.positions(9)).scored_BL.sum() > 4  # there was more to score
