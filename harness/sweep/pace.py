"""Estimate the time for the rest of a sweep from its own finished runs.

Before three runs have ended there is no estimate: models differ by a factor of three, and the first may have compiled
kernels. After that, the estimate for a run is the mean of runs with its task and model, else with its model, else of
all.
"""

from collections import defaultdict
from statistics import fmean

from chomsky_ladder.harness.config.run import Run

ENOUGH = 3  # runs


class Pace:
    def __init__(self) -> None:
        self._took: dict[tuple[str, ...], list[float]] = defaultdict(list)

    def add(self, run: Run, seconds: float) -> None:
        """Note the seconds of a run. A run with 0 seconds was not trained and is ignored."""
        if seconds > 0:
            for likeness in _likenesses(run):
                self._took[likeness].append(seconds)

    def seconds(self, run: Run) -> float | None:
        """Return the expected seconds of a run; None while too few have ended."""
        if len(self._took[()]) < ENOUGH:
            return None
        return next(fmean(self._took[likeness]) for likeness in _likenesses(run) if self._took[likeness])


def _likenesses(run: Run) -> list[tuple[str, ...]]:
    """Return keys of similar runs, from the most similar to all runs."""
    model = repr(run.model)
    return [(run.task.name, model), (model,), ()]
