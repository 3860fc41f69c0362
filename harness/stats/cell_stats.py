"""Statistics of one cell: its seeds at the chosen learning rate, and how soon they got there.

No run is dropped. Mean and deviation are over the finished seeds, as in the tables, with the others counted beside
them. In a share, a test or an aggregate, a run that did not finish scores 0 (chance, where accuracy is scaled). The
same holds in the selection of the learning rate.

    wilson(3, 3)      3 of 3 seeds: at least .4385 of all, with confidence .95

Wilson 1927, Probable inference, the law of succession, and statistical inference.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, median
from typing import Any, Literal

import numpy as np
import pandas as pd

from chomsky_ladder.harness.stats.cells import Place, Row, cell_rows, median_of, placed, solved_among
from chomsky_ladder.harness.stats.outcomes import Outcome, of_most, outcome_of
from chomsky_ladder.harness.store.labels import Identity
from chomsky_ladder.harness.store.titles import title_of

Measure = Literal["test_scaled", "test"]


@dataclass(frozen=True)
class Share:
    """A count of n, with the Wilson score interval of the share."""

    hits: int
    n: int
    low: float
    high: float

    @property
    def value(self) -> float:
        return self.hits / self.n


def wilson(hits: int, n: int, *, confidence: float = 0.95) -> Share:
    """Return the interval of all shares p for which |hits / n - p| <= z sqrt(p (1 - p) / n)."""
    if not 0 <= hits <= n or n == 0:
        raise ValueError(f"{hits} of {n} is no share")
    z = NormalDist().inv_cdf((1 + checked_share(confidence, "confidence")) / 2)
    share, middle = hits / n, z * z / (2 * n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    whole = 1 + z * z / n
    low = 0.0 if hits == 0 else (share + middle - half) / whole
    high = 1.0 if hits == n else (share + middle + half) / whole
    return Share(hits, n, low, high)


@dataclass(frozen=True)
class CellStats:
    """One protocol, task and model, at the learning rate chosen on validation."""

    protocol: str
    task: str
    level: str
    model: str
    lr: float  # the lowest one tried if nothing finished
    rates: int  # number of learning rates that were tried
    measure: Measure | None  # of the scores: raw if there is no scaled accuracy; None: nothing finished
    seeds: tuple[int, ...]  # finished, ascending
    scores: tuple[float, ...]  # of the finished seeds, at the last step
    mean: float | None
    std: float | None  # of a sample (n - 1); None under two seeds
    floor: float | None  # the best guess from length and position, in the same measure; None: nothing finished
    diverged: int  # at this learning rate
    failed: int  # at this learning rate
    unfinished_elsewhere: int  # diverged or failed at the other learning rates
    reached: Share  # runs at this rate that reached the threshold; unfinished ones did not
    identity: Identity
    outcome: Outcome | None  # of most runs at this rate; None: nothing finished, or training lengths were not scored

    @property
    def title(self) -> str:
        """Return the model's name in tables; its label if that holds a protocol setting (harness/stats/chosen.py)."""
        return title_of(self.identity) if self.identity.model == self.model else self.model

    @property
    def n(self) -> int:
        """Return the number of finished seeds."""
        return len(self.scores)

    @property
    def median(self) -> float | None:
        return median_of(self.scores)

    @property
    def range(self) -> tuple[float, float]:
        """Return the lowest and the highest score of a cell in which a seed finished."""
        return min(self.scores), max(self.scores)

    @property
    def best_seed(self) -> int | None:
        """Return the seed with the highest test score, the lowest of ties.

        It is chosen on test, so never a headline.
        """
        best = max(self.scores, default=None)
        return None if best is None else self.seeds[self.scores.index(best)]

    @property
    def best(self) -> float | None:
        return max(self.scores, default=None)

    @property
    def outcomes(self) -> tuple[float, ...]:
        """Return a score for every run at this learning rate; 0 for one that did not finish."""
        return self.scores + (0.0,) * (self.diverged + self.failed)


def cell_stats(records: pd.DataFrame, *, threshold: float | None = None, confidence: float = 0.95) -> list[CellStats]:
    """Return the statistics of every cell of the records, in the tables' order and at the tables' learning rates.

    `reached` counts the runs that score `threshold`, or by default those that count as solved in their protocol.
    """
    return stats_of(placed(records), threshold=threshold, confidence=confidence)


def stats_of(
    places: dict[Place, list[Row]], *, threshold: float | None = None, confidence: float = 0.95
) -> list[CellStats]:
    """Return the same statistics, given records by place. Much faster than making a frame for each cell."""
    found = []
    for row in cell_rows(places):
        cell = places[row["protocol"], row["task"], row["model"]]
        rate = row["lr"] if row["n"] else min(run["lr"] for run in cell)  # all tie at 0, and the lowest wins a tie
        chosen = sorted((run for run in cell if run["lr"] == rate), key=lambda run: run["seed"])
        measure: Measure | None = ("test_scaled" if row["scaled"] else "test") if row["n"] else None
        finished = [run for run in chosen if run["status"] == "done"]
        scores = tuple(float(run[measure]) for run in finished) if measure else ()
        mean, std = mean_and_std(scores)
        found.append(
            CellStats(
                **{name: str(row[name]) for name in ("protocol", "task", "level", "model")},
                lr=float(rate),
                rates=int(row["rates"]),
                measure=measure,
                seeds=tuple(int(run["seed"]) for run in finished),
                scores=scores,
                mean=mean,
                std=std,
                floor=_floor(row),
                diverged=sum(run["status"] == "diverged" for run in chosen),
                failed=sum(run["status"] == "failed" for run in chosen),
                unfinished_elsewhere=sum(run["lr"] != rate and run["status"] != "done" for run in cell),
                reached=wilson(_hits(finished, scores, threshold), len(chosen), confidence=confidence),
                identity=Identity.of(row),
                outcome=_outcome(finished, unfinished=len(chosen) - len(finished)),
            )
        )
    return found


def _hits(finished: Sequence[Row], scores: Sequence[float], threshold: float | None) -> int:
    if threshold is None:
        return solved_among(finished)
    return sum(score >= threshold for score in scores)


def _outcome(finished: Sequence[Row], *, unfinished: int) -> Outcome | None:
    if not finished or any(pd.isna(row["in_distribution"]) for row in finished):
        return None
    chances = [0.0 if pd.isna(row["test_scaled"]) else float(row["s_rand"]) for row in finished]
    outcomes: list[Outcome] = [
        outcome_of(holds=solved_among([row]) == 1, in_training=(row["in_distribution"] - chance) / (1 - chance))
        for row, chance in zip(finished, chances, strict=True)
    ]
    outcomes.extend(outcome_of(holds=False, in_training=None) for _ in range(unfinished))
    return of_most(outcomes)


def _floor(row: Mapping[str, Any]) -> float | None:
    if not row["n"] or pd.isna(row["content_free"]):
        return None
    return (row["content_free"] - row["s_rand"]) / (1 - row["s_rand"]) if row["scaled"] else float(row["content_free"])


def mean_and_std(scores: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the mean and the sample deviation, with exact sums: the order of seeds changes no bit."""
    if not scores:
        return None, None
    mean = math.fsum(scores) / len(scores)
    if len(scores) == 1:
        return mean, None
    return mean, math.sqrt(math.fsum((score - mean) ** 2 for score in scores) / (len(scores) - 1))


@dataclass(frozen=True)
class TimeToAccuracy:
    """The first validation of a run at or above a threshold: an upper bound, up to the spacing of validations."""

    threshold: str  # in per cent
    steps: int | None  # None: not by `last_step`; more steps might have reached it
    tokens: float | None
    seconds: float | None  # of training
    last_step: int


def time_to_accuracy(record: dict[str, Any], *, threshold: Literal["95", "99"] = "95") -> TimeToAccuracy:
    """Return the time of a finished run to an accuracy, from its record; the first records lack it and are refused."""
    steps = record[f"steps_to_{threshold}"]
    if pd.isna(record["tokens_per_step"]):
        raise ValueError(f"the record of {record['run_id']} does not know when it got where")
    if pd.isna(steps):
        return TimeToAccuracy(threshold, None, None, None, int(record["steps"]))
    tokens, seconds = record["tokens_per_step"], record["train_seconds"] / record["steps"]
    return TimeToAccuracy(threshold, int(steps), int(steps) * tokens, int(steps) * seconds, int(record["steps"]))


@dataclass(frozen=True)
class TimesToAccuracy:
    """The times of a cell's seeds.

    A median of None, not "never", means that half of the runs or more did not get there.
    """

    threshold: str
    reached: Share
    steps: float | None
    tokens: float | None
    seconds: float | None
    bound: int | None  # the earliest last step of runs that did not get there; None: all did


def times_to_accuracy(
    times: Sequence[TimeToAccuracy], *, unfinished: int = 0, confidence: float = 0.95
) -> TimesToAccuracy:
    """Return the medians over seeds. A run that did not get there comes after all that did.

    `unfinished` runs diverged or failed. They count as not there by step 0.
    """
    thresholds = {time.threshold for time in times}
    if len(thresholds) != 1 or unfinished < 0:
        raise ValueError("times to one accuracy, of a run or more, are what can be summarised")
    total, ends = len(times) + unfinished, [time.last_step for time in times if time.steps is None]
    return TimesToAccuracy(
        thresholds.pop(),
        wilson(len(times) - len(ends), total, confidence=confidence),
        *(_median([getattr(time, name) for time in times], total) for name in ("steps", "tokens", "seconds")),
        bound=min(ends + [0] * unfinished, default=None),
    )


def _median(values: Sequence[float | None], total: int) -> float | None:
    never = math.inf
    ranked = [never if value is None else float(value) for value in values] + [never] * (total - len(values))
    middle = median(ranked)
    return None if middle == never else middle


def finite(scores: Sequence[float]) -> np.ndarray:
    """Return the scores as an array. Refuse missing ones."""
    array = np.asarray(scores, dtype=np.float64)
    if array.ndim != 1 or not np.isfinite(array).all():
        raise ValueError(f"scores are a row of finite numbers, not {scores}")
    return array


def checked_share(value: float, name: str) -> float:
    if not 0 < value < 1:
        raise ValueError(f"{name} is between 0 and 1, not {value}")
    return value
