"""The outcome of a run: it holds its task, it learnt the task and lost it at longer strings, or it did not learn it.

    ●  held          solved at the lengths of the test
    ◐  lost          0.99 at the lengths of training, and not held
    ○  not learnt    neither

The outcome of a cell is that of most of its seeds.
"""

from collections.abc import Sequence
from typing import Literal

Outcome = Literal["held", "lost", "not learnt"]
MARKS: dict[Outcome, str] = {"held": "●", "lost": "◐", "not learnt": "○"}
LEARNT = 0.99  # scaled accuracy at the lengths of training
LEGEND = "● most seeds hold it, ◐ most learn it at training lengths (0.99) and lose it, ○ most do not learn it"


def outcome_of(*, holds: bool, in_training: float | None) -> Outcome:
    """Return the outcome of a run. `in_training`: its scaled accuracy there; None: it did not finish."""
    if holds:
        return "held"
    return "lost" if in_training is not None and in_training >= LEARNT else "not learnt"


def of_most(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the outcome of a cell; a seed that holds the task has learnt it, too."""
    if 2 * outcomes.count("held") > len(outcomes):
        return "held"
    return "lost" if 2 * outcomes.count("not learnt") < len(outcomes) else "not learnt"
