"""Aggregates of a model over tasks, and comparisons of two models, each with a stratified bootstrap interval.

    iqm              mean of the middle half of all runs of all tasks; a run across the edge of it counts in part
    median, mean     over tasks, of a task's mean
    optimality_gap   how far below `goal` runs are on average, with those above it counted as at it
    profile          for each tau the share of runs with a score above it
    improvement      P(X > Y): a random run of X scores above a random one of Y, a tie counts half; averaged over tasks

Scores are scaled between a task's floor and perfection: 0 is the best guess from length and position. So no average
gives credit for what needs no computation, and a task that such a guess solves is left out. All tasks weigh the same,
whatever their number of seeds. The bootstrap draws seeds with replacement within each task and takes percentiles. It
only depends on the scores, the tasks' order by name and the key. numpy guarantees the words of Philox across versions,
but not its `integers`. So the words are used, and every version draws the same seeds. With three seeds for each task a
percentile interval is too narrow, so the number of runs stands beside it.

Agarwal et al. 2021, Deep reinforcement learning at the edge of the statistical precipice (arXiv 2108.13264). Their code
trims whole runs, ours fractions of runs. With equally many seeds for each task, the two are equal if four divides the
number of all runs.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from chomsky_ladder.harness.stats.cell_stats import CellStats, checked_share, finite
from chomsky_ladder.harness.stats.cells import SOLVED

Scores = Mapping[str, Sequence[float]]  # task -> a score for each run
_BLOCK = 500  # resamples at a time

Arrays = list[np.ndarray]  # one for each task: scores [n], or how often each was drawn in every resample [R, n]


class Estimate(NamedTuple):
    value: float
    low: float | None  # None if a task has a single run: nothing to resample
    high: float | None


@dataclass(frozen=True)
class Aggregates:
    tasks: int
    runs: int
    iqm: Estimate
    median: Estimate
    mean: Estimate
    optimality_gap: Estimate


@dataclass(frozen=True)
class Profile:
    """The share of runs above each tau, with a pointwise band."""

    taus: tuple[float, ...]
    share: tuple[float, ...]
    low: tuple[float, ...] | None
    high: tuple[float, ...] | None


@dataclass(frozen=True)
class Suite:
    """One model's runs over tasks. Runs that did not finish score 0 and are counted."""

    model: str
    scores: dict[str, tuple[float, ...]]
    """Scores of each task above its floor."""
    diverged: int
    failed: int


@dataclass(frozen=True, kw_only=True)
class Bootstrap:
    """The settings of a bootstrap."""

    confidence: float = 0.95
    resamples: int = 10_000
    key: int = 0

    def __post_init__(self) -> None:
        checked_share(self.confidence, "confidence")
        if self.resamples < 1 or self.key < 0:
            raise ValueError("a bootstrap needs a resample or more, and a key of 0 or more")

    def interval(self, values_R: np.ndarray) -> np.ndarray:
        """Return the two percentiles of the resamples, along the first axis."""
        tail = (1 - self.confidence) / 2
        return np.quantile(values_R, [tail, 1 - tail], axis=0)


BOOTSTRAP = Bootstrap()


def suites(
    cells: Sequence[CellStats], *, models: Sequence[str] | None = None, tasks: Sequence[str] | None = None
) -> dict[str, Suite]:
    """Return the runs of each model over the same tasks of one protocol: all in the cells, or those named.

    A task whose floor solves it is left out.
    """
    cells = [cell for cell in cells if cell.task not in given_away(cells)]
    models = sorted({cell.model for cell in cells}) if models is None else models
    wanted = [cell for cell in cells if cell.model in models and (tasks is None or cell.task in tasks)]
    protocols = sorted({cell.protocol for cell in wanted})
    if len(protocols) > 1:
        raise ValueError(f"an aggregate is over one protocol, not {len(protocols)}: {', '.join(protocols)}")
    raw = sorted({cell.task for cell in wanted if cell.measure == "test"})
    if raw:
        raise ValueError(f"no scaled accuracy, so in no aggregate: {', '.join(raw)}; name the other tasks")
    names = sorted({cell.task for cell in wanted} if tasks is None else set(tasks))
    found = {}
    for model in models:
        own = {cell.task: cell for cell in wanted if cell.model == model}
        missing = [task for task in names if task not in own]
        if missing or not names:
            raise ValueError(f"{model} has no runs of {', '.join(missing) or 'any task'}: name tasks all models have")
        found[model] = Suite(
            model,
            {task: above_floor(own[task]) for task in names},
            sum(own[task].diverged for task in names),
            sum(own[task].failed for task in names),
        )
    return found


def given_away(cells: Sequence[CellStats]) -> set[str]:
    """Return the tasks that the best guess from length and position solves."""
    return {cell.task for cell in cells if cell.floor is not None and cell.floor >= SOLVED}


def above_floor(cell: CellStats) -> tuple[float, ...]:
    """Return a score for every run; 0 at the floor and below it."""
    floor = max(0.0, cell.floor or 0.0)
    return tuple(round(max(0.0, score - floor) / (1 - floor), 12) for score in cell.outcomes)


def aggregate(scores: Scores, *, goal: float = 1.0, bootstrap: Bootstrap = BOOTSTRAP) -> Aggregates:
    tasks = _tasks(scores)
    capped = [np.minimum(scores_n, goal) for scores_n in tasks]
    means = _resampled(_task_means, tasks, bootstrap)
    is_capped = any((scores_n > goal).any() for scores_n in tasks)
    reached = _resampled(_task_means, capped, bootstrap) if is_capped else means
    return Aggregates(
        tasks=len(tasks),
        runs=sum(map(len, tasks)),
        iqm=_estimated(_resampled(_iqm, tasks, bootstrap), lambda iqm_R: iqm_R, bootstrap),
        median=_estimated(means, lambda means_TR: np.median(means_TR, axis=0), bootstrap),
        mean=_estimated(means, _mean, bootstrap),
        optimality_gap=_estimated(reached, lambda means_TR: goal - _mean(means_TR), bootstrap),
    )


def mean(scores: Scores, *, bootstrap: Bootstrap = BOOTSTRAP) -> Estimate:
    """Return the mean of `aggregate` alone, which is much faster than the other three."""
    return _estimated(_resampled(_task_means, _tasks(scores), bootstrap), _mean, bootstrap)


def contrast(scores: Scores, over: Scores, *, bootstrap: Bootstrap = BOOTSTRAP) -> Estimate:
    """Return the mean of task means of `scores` minus that of `over`, which may have other tasks."""
    mine, theirs = _tasks(scores), _tasks(over)
    weight_T = np.array([1 / len(mine)] * len(mine) + [-1 / len(theirs)] * len(theirs))
    means = _resampled(_task_means, mine + theirs, bootstrap)
    return _estimated(means, lambda means_TR: (weight_T[:, None] * means_TR).sum(axis=0), bootstrap)


def profile(
    scores: Scores,
    *,
    taus: Sequence[float] = tuple(tau / 100 for tau in range(101)),
    bootstrap: Bootstrap = BOOTSTRAP,
) -> Profile:
    tasks, taus = _tasks(scores), tuple(float(tau) for tau in finite(taus))
    once, drawn = _once(tasks), _drawn(tasks, bootstrap)
    share, low, high = [], [], []
    for tau in taus:
        above = [(scores_n > tau).astype(np.float64) for scores_n in tasks]
        share.append(float(_task_means(above, once).mean(axis=0)[0]))
        if drawn:
            bounds = bootstrap.interval(_task_means(above, drawn).mean(axis=0)).tolist()
            low.append(bounds[0])
            high.append(bounds[1])
    return Profile(taus, tuple(share), tuple(low) if drawn else None, tuple(high) if drawn else None)


def improvement(scores: Scores, over: Scores, *, bootstrap: Bootstrap = BOOTSTRAP) -> Estimate:
    """Return P(X > Y) for the scores of X over those of Y, on the same tasks; 0.5 if they are alike."""
    if set(scores) != set(over):
        raise ValueError(f"an improvement needs the same tasks on both sides, not also {set(scores) ^ set(over)}")
    mine, theirs = _tasks(scores), _tasks(over)
    # Twice the wins plus the ties of each pair of runs of X and Y: whole numbers.
    wins = [2.0 * (x_n[:, None] > y_m) + (x_n[:, None] == y_m) for x_n, y_m in zip(mine, theirs, strict=True)]

    def chance(x_counts: Arrays, y_counts: Arrays) -> np.ndarray:
        # Tasks with equal numbers of runs at once. Whole numbers as floats are exact in any order.
        share_TR = np.empty((len(wins), len(x_counts[0])))
        for shape in {wins_nm.shape for wins_nm in wins}:
            tasks = [task for task, wins_nm in enumerate(wins) if wins_nm.shape == shape]
            x_TRn, wins_Tnm, y_TRm = (np.stack([each[task] for task in tasks]) for each in (x_counts, wins, y_counts))
            share_TR[tasks] = ((x_TRn.astype(float) @ wins_Tnm) * y_TRm).sum(axis=2) / (2 * math.prod(shape))
        return share_TR.mean(axis=0)

    drawn = _drawn(mine + theirs, bootstrap)
    value = float(chance(_once(mine), _once(theirs))[0])
    return _estimate(value, chance(drawn[: len(mine)], drawn[len(mine) :]) if drawn else None, bootstrap)


def _tasks(scores: Scores) -> Arrays:
    """Return the scores as arrays, tasks by name. Scores are sorted, so that the order of seeds changes no bit."""
    if not scores or not all(len(scores[task]) for task in scores):
        raise ValueError("an aggregate needs a task, and a run of each")
    return [np.sort(finite(scores[task])) for task in sorted(scores)]


def _once(tasks: Arrays) -> Arrays:
    return [np.ones((1, len(scores_n)), dtype=np.int64) for scores_n in tasks]


def _drawn(tasks: Arrays, bootstrap: Bootstrap) -> Arrays:
    """Return how often each run was drawn in each resample; [] if a task has only one run."""
    sizes = tuple(map(len, tasks))
    return list(draw_counts(sizes, bootstrap.resamples, bootstrap.key)) if min(sizes) > 1 else []


@lru_cache(maxsize=1)
def draw_counts(sizes: tuple[int, ...], rows: int, key: int) -> tuple[np.ndarray, ...]:
    """Return the draws for tasks with these numbers of runs. Models with equal numbers share them."""
    stream, counts = np.random.Philox(key=key), []
    for n in sizes:
        count_Rn = np.empty((rows, n), dtype=np.min_scalar_type(n))
        for start in range(0, rows, _BLOCK):
            block_Rn = count_Rn[start : start + _BLOCK]
            words_Rn = stream.random_raw(block_Rn.size).reshape(block_Rn.shape)
            run_Rn = ((words_Rn >> np.uint64(32)) * np.uint64(n) >> np.uint64(32)).astype(np.int64)
            cell_Rn = run_Rn + n * np.arange(len(block_Rn))[:, None]
            block_Rn[:] = np.bincount(cell_Rn.ravel(), minlength=block_Rn.size).reshape(block_Rn.shape)
        count_Rn.setflags(write=False)
        counts.append(count_Rn)
    return tuple(counts)


def _blocks(counts: Arrays) -> Iterator[Arrays]:
    """Yield the resamples in blocks."""
    for start in range(0, len(counts[0]) if counts else 0, _BLOCK):
        yield [count_Rn[start : start + _BLOCK] for count_Rn in counts]


def _resampled(
    of: Callable[[Arrays, Arrays], np.ndarray], tasks: Arrays, bootstrap: Bootstrap
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return a statistic of the runs as they are, and of each resample, along the last axis."""
    drawn = _drawn(tasks, bootstrap)
    blocks = [of(tasks, block) for block in _blocks(drawn)]  # at once, ten thousand runs would take a gigabyte
    return of(tasks, _once(tasks)), np.concatenate(blocks, axis=-1) if blocks else None


def _estimated(
    found: tuple[np.ndarray, np.ndarray | None], of: Callable[[np.ndarray], np.ndarray], bootstrap: Bootstrap
) -> Estimate:
    once, drawn = found
    return _estimate(float(of(once)[0]), None if drawn is None else of(drawn), bootstrap)


def _mean(means_TR: np.ndarray) -> np.ndarray:
    return means_TR.mean(axis=0)


def _estimate(value: float, values_R: np.ndarray | None, bootstrap: Bootstrap) -> Estimate:
    return Estimate(value, None, None) if values_R is None else Estimate(value, *bootstrap.interval(values_R).tolist())


def _task_means(tasks: Arrays, counts: Arrays) -> np.ndarray:
    """Return the task means, [tasks, R]."""
    means = [(count_Rn * x_n).sum(axis=1) / len(x_n) for x_n, count_Rn in zip(tasks, counts, strict=True)]
    return np.stack(means)


def _iqm(tasks: Arrays, counts: Arrays) -> np.ndarray:
    """Return the interquartile mean: sorted runs, each as long as its weight, between a quarter and three quarters."""
    unit = math.lcm(*map(len, tasks))  # integer weights, so that no rounding cuts a run
    total = unit * len(tasks)
    x_N = np.concatenate(tasks)
    order_N = np.argsort(x_N, kind="stable")
    kind = np.int32 if 4 * total < 2**31 else np.int64
    weights = [count_Rn.astype(kind) * (4 * unit // len(x_n)) for x_n, count_Rn in zip(tasks, counts, strict=True)]
    weight_RN = np.concatenate(weights, axis=1).take(order_N, axis=1)
    end_RN = weight_RN.cumsum(axis=1, dtype=kind)
    kept_RN = np.maximum(end_RN - weight_RN, total)
    np.subtract(np.minimum(end_RN, 3 * total, out=end_RN), kept_RN, out=kept_RN)
    return (kept_RN.clip(0, out=kept_RN) * x_N[order_N]).sum(axis=1) / (2 * total)
