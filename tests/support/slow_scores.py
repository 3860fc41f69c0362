"""Small runs to evaluate, and what a slow loop over single strings hears, says and counts."""

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.harness.train.build import build_model
from chomsky_ladder.harness.train.data import evaluation_lengths
from chomsky_ladder.harness.train.evaluate import Evaluator
from chomsky_ladder.harness.train.score import Score
from chomsky_ladder.models.base import ModelConfig
from chomsky_ladder.models.block import Context
from chomsky_ladder.models.encoder import EncoderConfig
from chomsky_ladder.models.lstm import LSTMConfig
from chomsky_ladder.models.transformer import TransformerConfig
from chomsky_ladder.tasks.base import Batch, Task
from chomsky_ladder.tasks.draw import Draw

CPU = torch.device("cpu")
SMALL = Eval(seed=2, lengths=(5, 14), test=29, validation=17, extrapolate=(), batch=8)
MODELS = [
    LSTMConfig(d_model=8, num_blocks=1),
    TransformerConfig(d_model=8, num_blocks=1, num_heads=2),
    EncoderConfig(d_model=8, num_blocks=1, num_heads=2),
]


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
        counts[length].update(prefix=next((place for place, is_right in enumerate(right) if not is_right), len(right)))
        nats.setdefault(length, []).extend(map(nats_of, answers, targets))
    lengths = tuple(sorted(counts))
    columns = {what: tuple(counts[n][what] for n in lengths) for what in ("strings", "exact", "scored", "correct")}
    others = {"prefix": tuple(float(counts[n]["prefix"]) for n in lengths)}
    summed = tuple(math.fsum(nats[n]) for n in lengths)
    return Score(lengths, **columns, hits=columns["correct"], nats=summed, others=others)


def assert_same(score: Score, expected: Score) -> None:
    """The same counts, and the same nats but for rounding."""
    assert replace(score, nats=()) == replace(expected, nats=())
    assert score.nats == pytest.approx(expected.nats, rel=1e-9)
    assert score.loss() == pytest.approx(expected.loss(), rel=1e-9)
