"""What a metric is: a number for every scored string, and how the numbers of many strings become one.

    register(Metric(name="first_answer", about="the first answer right", count=first_right, per="strings"))

A file of harness/train/metrics/, or of a plugin, is one. Every run that is scored keeps its value in its record, summed
by length as accuracy is, and `ladder table --kind metrics` shows it. A plugin's package announces its module by an
entry point of the group `ladder.metrics`; a file of one's own comes with `--plugin`, which a run must then be given.
Accuracy, exact strings, hits and loss are in every score (harness/train/evaluate.py) and no metrics of this kind.
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
    """What it is a share or a mean of, in a few words."""
    count: Callable[[Answers], Tensor]
    """Of each string of a batch a number, [B]; sums of whole numbers are exact in any order."""
    per: Literal["strings", "answers"]
    """What the sum over strings is divided by: how many strings there are, or how many scored answers."""
    wants: Callable[[Task], bool] = lambda task: True
    """Whether it says something of a task."""
    module: str = ""
    """Where it is registered; filled in by `register`."""


METRICS: list[Metric] = []
ROOM = open_room("metric", "chomsky_ladder.harness.train.metrics", "ladder.metrics", METRICS)


def register(metric: Metric) -> Metric:
    """Make a metric known under its name."""
    return registered(metric, ROOM)


def metrics_of(task: Task) -> list[Metric]:
    """Those that say something of a task, by name."""
    return [metric for metric in ROOM.all() if metric.wants(task)]
