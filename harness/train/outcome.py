"""A run's scores and errors, as its record and its last line show them."""

import errno
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

import torch

from chomsky_ladder.harness.config.run import Run, without_training_targets
from chomsky_ladder.harness.train.metric import metrics_of
from chomsky_ladder.harness.train.score import Score, scaled
from chomsky_ladder.tasks.base import Task


def summary(run: Run, score: Score, task: Task | None = None) -> dict[str, Any]:
    """Return a score as the record holds it: headline numbers, accuracy by length beside the floors, and the counts.

    `task` is the task of the strings if it is not the run's own.
    """
    how, task = run.eval.score, task or without_training_targets(run.task)
    accuracy = score.accuracy(score=how)
    assert accuracy is not None
    bins = by_length(run, score)
    floors = {
        f"{low}..{high}": task.floors(task.legal_lengths(low, high), score=floors_by(run)).content_free
        for low, high in _bins(run)
        if f"{low}..{high}" in bins
    }
    return {
        "accuracy": accuracy,
        # With several right answers, chance is not 1 / answers.
        "scaled": scaled(accuracy, 1 / len(task.answers)) if not task.allows_several else None,
        "exact": score.exact_share(),
        "hits": score.hit_share(),
        "loss": score.loss(),
        "bins": bins,
        "content_free_bins": floors,
        "metrics": {each.name: score.metric(each) for each in metrics_of(task) if score.metric(each) is not None},
        "counts": score.plain(),
    }


def miscounted(run: Run, made: dict[str, Any]) -> str:
    """Return the first number of a summary that does not follow from its counts; "" if there is none."""
    if not made.get("counts"):
        return ""
    score = Score.from_plain(made["counts"])
    accuracy = score.accuracy(score=run.eval.score)
    numbers = {"accuracy": accuracy, "exact": score.exact_share(), "hits": score.hit_share(), "loss": score.loss()}
    bins = by_length(run, score)
    numbers |= {name: bins.get(name) for name in {*bins, *made["bins"]}}
    for name, counted in numbers.items():
        value = made[name] if name in made else made["bins"].get(name)
        are_nan = value != value and counted != counted
        if counted is None or value is None or not (are_nan or math.isclose(value, counted)):
            return f"{name} is {value}, and its counts make {counted}"
    return ""


def by_length(run: Run, score: Score) -> dict[str, float]:
    """Return the accuracy in each bin of lengths that has strings."""
    values = {f"{low}..{high}": score.accuracy(score=run.eval.score, low=low, high=high) for low, high in _bins(run)}
    return {name: value for name, value in values.items() if value is not None}


def _bins(run: Run) -> list[tuple[int, int]]:
    """Return the shortest and the longest length of each bin."""
    edges = run.eval.bins
    return [(low if low == edges[0] else low + 1, high) for low, high in pairwise(edges)]


def floors_by(run: Run) -> Literal["tokens", "lengths"]:
    """Return how a run's floors are averaged. Floors of exact strings are averaged by length.

    An exact string is never more frequent than a right answer of the same length.
    """
    return "lengths" if run.eval.score == "strings" else run.eval.score


def last_word(results: Sequence[dict[str, Any] | None], seconds: float) -> str:
    """Return the last line that a person sees of a pack. `seconds` are those of training."""
    if len(results) > 1:
        done = [result["test"]["accuracy"] for result in results if result and result["status"] == "done"]
        mean = f", mean test accuracy {sum(done) / len(done):.3f}" if done else ""
        return f"{len(done)} of {len(results)} runs done{mean}, {seconds:.1f}s"
    (result,) = results
    assert result is not None
    if result["status"] == "diverged":
        return f"diverged at step {result['steps']}: loss {result['loss']}, gradient norm {result['grad_norm']}"
    spent = sum(result["seconds"][part] for part in ("train", "validate", "score"))
    return f"{result['steps']} steps, test accuracy {result['test']['accuracy']:.3f}, {spent:.1f}s"


def kind_of(error: Exception) -> str:
    """Return the kind of a failure, where that tells what to do about it; else "error"."""
    allocator = isinstance(error, RuntimeError) and "can't allocate memory" in str(error)  # torch's error on a CPU
    if isinstance(error, torch.OutOfMemoryError | MemoryError) or allocator:
        return "out of memory"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "disk full"
    return "error"
