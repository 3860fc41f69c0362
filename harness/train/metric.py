"""A metric: a number for every scored string, and how the numbers of many strings become one.

    register(Metric(name="first_answer", about="the first answer right", count=first_right, per="strings"))

Each metric is a file of harness/train/metrics/ or of a plugin. The record of every scored run keeps its value, summed
by length as accuracy is, and `ladder table --kind metrics` shows it. A plugin's package announces its module by an
entry point of the group `ladder.metrics`. A file of your own comes with `--plugin`, which a run must then be given.
Accuracy, exact strings, hits and loss are in every score (harness/train/evaluate.py). They are not metrics of this
kind.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from chomsky_ladder.harness.config.rooms import open_room, registered
from chomsky_ladder.harness.train.forward import Answers
from chomsky_ladder.tasks.base import Task


@dataclass(frozen=True, kw_only=True)
class Metric:
    name: str
    about: str
    """A few words on what it is a share or a mean of."""
    count: Callable[[Answers], Tensor]
    """Return a number for each string of a batch, [B]. Sums of whole numbers are exact in any order."""
    per: Literal["strings", "answers"] | Callable[[Answers], Tensor]
    """The divisor of the sum over strings: the number of strings, of scored answers, or of what is counted, [B]."""
    wants: Callable[[Task], bool] = lambda task: True
    """Return True if the metric is meaningful for a task."""
    module: str = ""
    """The module that registers it. `register` fills it in."""

    @property
    def counts(self) -> dict[str, Callable[[Answers], Tensor]]:
        """Return the numbers that a score keeps of each string, by name: the metric's, and its own divisor's."""
        return {self.name: self.count} | ({f"{self.name}/of": self.per} if callable(self.per) else {})


METRICS: list[Metric] = []
ROOM = open_room("metric", "chomsky_ladder.harness.train.metrics", "ladder.metrics", METRICS)


def register(metric: Metric) -> Metric:
    """Make a metric known under its name."""
    return registered(metric, ROOM)


def metrics_of(task: Task) -> list[Metric]:
    """Return the metrics that are meaningful for a task, by name."""
    return [metric for metric in ROOM.all() if metric.wants(task)]
