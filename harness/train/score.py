"""Counts of right answers, length by length. Every other number of a score is a sum of these counts."""

import math
from dataclasses import dataclass, field, fields
from typing import Any, Generic, NamedTuple, TypeVar

from chomsky_ladder.harness.train.metric import Metric


@dataclass(frozen=True)
class Score:
    """Counts for each length, in ascending order."""

    lengths: tuple[int, ...]
    strings: tuple[int, ...]
    exact: tuple[int, ...]  # strings with every answer right
    scored: tuple[int, ...]  # answers
    correct: tuple[int, ...]  # right answers: the target, or one of the allowed ones
    hits: tuple[int, ...]  # answers equal to the target
    nats: tuple[float, ...]  # summed cross entropy of the targets
    others: dict[str, tuple[float, ...]] = field(default_factory=dict)  # counts of metrics, by name

    def accuracy(self, *, score: str = "tokens", low: int = 0, high: int | None = None) -> float | None:
        """Return the share of right answers, or strings, among lengths low..high; None if there are none."""
        counts = (self.exact, self.strings) if score == "strings" else (self.correct, self.scored)
        rows = [
            (right, total)
            for length, right, total in zip(self.lengths, *counts, strict=True)
            if length >= low and (high is None or length <= high)
        ]
        if not rows:
            return None
        if score == "lengths":
            return sum(right / total for right, total in rows) / len(rows)
        return sum(right for right, _ in rows) / sum(total for _, total in rows)

    def loss(self) -> float:
        """Return the cross entropy per scored token, in nats."""
        return math.fsum(self.nats) / sum(self.scored)

    def hit_share(self) -> float:
        """Return how often the most probable token is the target itself."""
        return sum(self.hits) / sum(self.scored)

    def exact_share(self) -> float:
        """Return the share of strings with every answer right."""
        return sum(self.exact) / sum(self.strings)

    def metric(self, metric: Metric) -> float | None:
        """Return the value of a metric; None if it was not counted, or there was nothing to count."""
        if metric.name not in self.others:
            return None
        if callable(metric.per):
            total = math.fsum(self.others[f"{metric.name}/of"])
        else:
            total = sum(self.strings if metric.per == "strings" else self.scored)
        return math.fsum(self.others[metric.name]) / total if total else None

    def is_perfect(self) -> bool:
        return self.correct == self.scored

    def plain(self) -> dict[str, Any]:
        tree = {each.name: list(getattr(self, each.name)) for each in fields(self) if each.name != "others"}
        others = {name: list(values) for name, values in self.others.items()}
        return {**tree, "others": others} if others else tree

    @classmethod
    def from_plain(cls, tree: dict[str, Any]) -> "Score":
        others = {name: tuple(values) for name, values in tree.get("others", {}).items()}
        return cls(**{name: tuple(values) for name, values in tree.items() if name != "others"}, others=others)


S = TypeVar("S")  # a score, or a list of scores, one for each model


class Scores(NamedTuple, Generic[S]):
    """All scores of a finished run."""

    test: S
    validation: S
    in_distribution: S
    extrapolation: dict[int, S]


G = TypeVar("G", Score, Scores[Score])


class Given(NamedTuple, Generic[G]):
    """Scores that a pack computed for one of its members."""

    scores: G
    seconds: float  # its share
    backends: set[str]
    refused: str  # why scores were not replayed although they were meant to be


def scaled(accuracy: float, chance: float) -> float:
    """Return 0 at chance, 1 at perfect, and a negative number below chance."""
    return (accuracy - chance) / (1 - chance)
