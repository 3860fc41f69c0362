"""The time that the rest of a sweep will take, from its own runs that have ended.

Before three runs have ended nothing is said: models differ by a factor of three, and the first one may have compiled
kernels. Then a run is expected to take what runs of its task and model took, else those of its model, else all.
"""

from collections import defaultdict
from statistics import fmean

from chomsky_ladder.harness.config.run import Run

ENOUGH = 3  # runs


class Pace:
    def __init__(self) -> None:
        self._took: dict[tuple[str, ...], list[float]] = defaultdict(list)

    def add(self, run: Run, seconds: float) -> None:
        """Note what a run took; one of no time was not trained."""
        if seconds > 0:
            for likeness in _likenesses(run):
                self._took[likeness].append(seconds)

    def seconds(self, run: Run) -> float | None:
        """Return the expected seconds of a run, or None as long as too few have ended."""
        if len(self._took[()]) < ENOUGH:
            return None
        return next(fmean(self._took[likeness]) for likeness in _likenesses(run) if self._took[likeness])


def _likenesses(run: Run) -> list[tuple[str, ...]]:
    """From the closest to any run at all."""
    model = repr(run.model)
    return [(run.task.name, model), (model,), ()]
