"""Counts of right answers, length by length, so that every other number of a score is a sum of these counts."""

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
    correct: tuple[int, ...]  # answers that are right: the target, or where several are allowed, one of them
    hits: tuple[int, ...]  # answers that are the target
    nats: tuple[float, ...]  # summed cross entropy of the targets
    others: dict[str, tuple[float, ...]] = field(default_factory=dict)  # what metrics counted, by their names

    def accuracy(self, *, score: str = "tokens", low: int = 0, high: int | None = None) -> float | None:
        """The share of right answers, or strings, among strings of length low..high; None where there are none."""
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
        """Cross entropy a scored token, in nats."""
        return math.fsum(self.nats) / sum(self.scored)

    def hit_share(self) -> float:
        """How often the most probable token is the target itself."""
        return sum(self.hits) / sum(self.scored)

    def exact_share(self) -> float:
        """The share of strings with every answer right."""
        return sum(self.exact) / sum(self.strings)

    def metric(self, metric: Metric) -> float | None:
        """What a metric makes of its counts; None where it was not counted."""
        if metric.name not in self.others:
            return None
        return math.fsum(self.others[metric.name]) / sum(self.strings if metric.per == "strings" else self.scored)

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


S = TypeVar("S")  # a score, or one of each of several models


class Scores(NamedTuple, Generic[S]):
    """All that a finished run is asked."""

    test: S
    validation: S
    in_distribution: S
    extrapolation: dict[int, S]


G = TypeVar("G", Score, Scores[Score])


class Given(NamedTuple, Generic[G]):
    """What a pack has scored for one of its members."""

    scores: G
    seconds: float  # its share
    backends: set[str]
    refused: str  # why they were not replayed, where they were to be


def scaled(accuracy: float, chance: float) -> float:
    """0 at chance, 1 at perfect, negative below chance."""
    return (accuracy - chance) / (1 - chance)
