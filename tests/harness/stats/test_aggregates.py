"""Aggregates over tasks against plain Python: copies, loops and fractions, and all resamples there are."""

import math
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chomsky_ladder.harness.stats.aggregates import Bootstrap, Estimate, aggregate, improvement, mean, profile, suites
from chomsky_ladder.harness.stats.cell_stats import cell_stats, wilson
from chomsky_ladder.harness.stats.claims import permutation_test, verdict
from support.records_by_hand import frame, record

FEW = Bootstrap(resamples=40)
RAGGED = {"parity": [0.1, 0.9, 0.4], "mqar": [0.2, 0.85], "dyck": [-0.05, 0.5, 0.5, 1.0]}
OTHER = {"parity": [0.3, 0.2, 0.4, 0.9], "mqar": [0.85, 0.6, 0.7], "dyck": [0.5, 0.0]}
RUNS = st.lists(st.integers(-20, 100).map(lambda value: value / 100), min_size=2, max_size=5)
SUITES = st.dictionaries(st.sampled_from("abcd"), RUNS, min_size=1)


def plain_iqm(tasks: Sequence[Sequence[float]]) -> float:
    """Every run copied until the tasks are equally long and four divides them; the middle half of the copies."""
    unit = 4 * math.lcm(*(len(runs) for runs in tasks))
    copies = sorted(score for runs in tasks for score in runs for _ in range(unit // len(runs)))
    quarter = len(copies) // 4
    return math.fsum(copies[quarter : 3 * quarter]) / (2 * quarter)


def plain_mean(tasks: Sequence[Sequence[float]]) -> float:
    return statistics.fmean(statistics.fmean(runs) for runs in tasks)


def plain_median(tasks: Sequence[Sequence[float]]) -> float:
    return statistics.median(statistics.fmean(runs) for runs in tasks)


def plain_gap(tasks: Sequence[Sequence[float]]) -> float:
    return 1 - plain_mean([[min(score, 1.0) for score in runs] for runs in tasks])


def plain_improvement(pairs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> Fraction:
    """The share of won pairs of runs in each task, a tie half a win, averaged in fractions."""
    chances = [
        sum((Fraction(1) if x > y else Fraction(1, 2) if x == y else Fraction(0)) for x in xs for y in ys)
        / (len(xs) * len(ys))
        for xs, ys in pairs
    ]
    return sum(chances) / len(chances)


def percentile(values: Sequence[float], share: float) -> float:
    """Between the two nearest of the sorted values, in proportion."""
    ranked = sorted(values)
    place = share * (len(ranked) - 1)
    low = math.floor(place)
    return ranked[low] + (place - low) * (ranked[min(low + 1, len(ranked) - 1)] - ranked[low])


def resampled(tasks: Sequence[Sequence[float]], *, resamples: int, key: int) -> list[list[list[float]]]:
    """The resamples by the documented use of Philox's words: task after task, row after row, the high 32 bits."""
    words = iter(int(word) for word in np.random.Philox(key=key).random_raw(resamples * sum(map(len, tasks))))
    by_task = [
        [[runs[(next(words) >> 32) * len(runs) >> 32] for _ in runs] for _ in range(resamples)] for runs in tasks
    ]
    return [list(rows) for rows in zip(*by_task, strict=True)]


def test_the_iqm_by_hand() -> None:
    eight = {"a": [8, 1, 6, 3], "b": [2, 7, 4, 5]}
    assert aggregate(eight, bootstrap=FEW).iqm.value == 4.5  # of 3 4 5 6
    assert aggregate({"a": [0, 1, 5]}, bootstrap=FEW).iqm.value == pytest.approx((0.25 * 0 + 1 + 0.25 * 5) / 1.5)
    assert aggregate({"a": [0.0, 1.0]}, bootstrap=FEW).iqm.value == 0.5
    # Two runs of weight 1/4 and one of 1/2: the middle half is the upper run of a, 1/4, and half of b's.
    assert aggregate({"a": [0, 1], "b": [10]}, bootstrap=FEW).iqm.value == pytest.approx(5.5)


def test_mean_median_and_gap_by_hand() -> None:
    found = aggregate({"a": [0.0, 0.5], "b": [1.0, 1.5, 0.5], "c": [0.5]}, goal=1.0)
    assert (found.tasks, found.runs) == (3, 6)
    assert found.mean == Estimate(pytest.approx((0.25 + 1.0 + 0.5) / 3), None, None)
    assert found.median.value == 0.5
    assert found.optimality_gap.value == pytest.approx(1 - (0.25 + (1 + 1 + 0.5) / 3 + 0.5) / 3)
    assert aggregate({"a": [0.2, 0.6]}, goal=0.5, bootstrap=FEW).optimality_gap.value == pytest.approx(0.15)


@given(SUITES, st.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_values_and_intervals_are_those_of_plain_python(scores: dict[str, list[float]], key: int) -> None:
    found = aggregate(scores, bootstrap=Bootstrap(confidence=0.8, resamples=30, key=key))
    tasks = [sorted(scores[task]) for task in sorted(scores)]
    rows = resampled(tasks, resamples=30, key=key)
    plain = {"iqm": plain_iqm, "mean": plain_mean, "median": plain_median, "optimality_gap": plain_gap}
    for name, of in plain.items():
        drawn = [of(row) for row in rows]
        expected = (of(tasks), percentile(drawn, 0.1), percentile(drawn, 0.9))
        assert getattr(found, name) == pytest.approx(expected, abs=1e-12), name


@pytest.mark.parametrize("name", ["iqm", "mean", "median"])
def test_the_interval_is_that_of_all_resamples(name: str) -> None:
    """Three seeds of two tasks have 27 * 27 equally likely resamples."""
    scores = {"a": [0.13, 0.41, 0.92], "b": [0.27, 0.55, 0.7]}
    of = {"iqm": plain_iqm, "mean": plain_mean, "median": plain_median}[name]
    every = [
        of((first, second)) for first in product(scores["a"], repeat=3) for second in product(scores["b"], repeat=3)
    ]
    found = getattr(aggregate(scores, bootstrap=Bootstrap(resamples=20_000)), name)
    below = [sum(value <= bound + 1e-12 for value in every) / len(every) for bound in (found.low, found.high)]
    strictly = [sum(value < bound - 1e-12 for value in every) / len(every) for bound in (found.low, found.high)]
    for target, low, high in zip((0.025, 0.975), strictly, below, strict=True):
        assert low - 0.006 <= target <= high + 0.006


@given(SUITES, st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_an_aggregate_lies_within_the_runs_and_depends_on_no_order(
    scores: dict[str, list[float]], shuffler: random.Random
) -> None:
    found, curve = aggregate(scores, bootstrap=FEW), profile(scores, taus=(0.0, 0.5), bootstrap=FEW)
    least, most = min(map(min, scores.values())), max(map(max, scores.values()))
    for value, low, high in (found.iqm, found.mean, found.median):
        assert least - 1e-12 <= value <= most + 1e-12
        assert least - 1e-12 <= low <= high <= most + 1e-12
    turned = {task: shuffler.sample(scores[task], len(scores[task])) for task in reversed(list(scores))}
    assert repr(aggregate(turned, bootstrap=FEW)) == repr(found)
    assert repr(mean(turned, bootstrap=FEW)) == repr(found.mean)
    assert repr(profile(turned, taus=(0.0, 0.5), bootstrap=FEW)) == repr(curve)


def test_the_key_and_the_confidence_move_the_interval_alone() -> None:
    base, other = aggregate(RAGGED), aggregate(RAGGED, bootstrap=Bootstrap(key=1))
    assert base.iqm.value == other.iqm.value and base.iqm[1:] != other.iqm[1:]
    narrow = aggregate(RAGGED, bootstrap=Bootstrap(confidence=0.5))
    assert base.iqm.low < narrow.iqm.low < narrow.iqm.high < base.iqm.high


def test_a_single_run_has_no_interval() -> None:
    single = {**RAGGED, "parity": [0.5]}
    assert aggregate(single).iqm[1:] == (None, None)
    assert profile(single, taus=(0.5,)).low is None
    assert improvement(RAGGED, single)[1:] == (None, None)


def test_the_profile_by_hand() -> None:
    found = profile({"a": [0.0, 0.5, 0.5, 1.0], "b": [0.25, 0.75]}, taus=(-1.0, 0.0, 0.25, 0.5, 1.0), bootstrap=FEW)
    assert found.share == pytest.approx((1.0, (0.75 + 1) / 2, (0.75 + 0.5) / 2, (0.25 + 0.5) / 2, 0.0))
    assert (found.low[0], found.high[0], found.low[-1], found.high[-1]) == (1.0, 1.0, 0.0, 0.0)
    assert len(profile(RAGGED, bootstrap=FEW).taus) == 101


def test_the_profiles_band_is_that_of_plain_python() -> None:
    taus = (0.0, 0.3, 0.5, 0.9)
    found = profile(RAGGED, taus=taus, bootstrap=Bootstrap(resamples=50, key=7))
    tasks = [sorted(RAGGED[task]) for task in sorted(RAGGED)]
    rows = resampled(tasks, resamples=50, key=7)
    for tau, low, high in zip(taus, found.low, found.high, strict=True):
        drawn = [plain_mean([[score > tau for score in runs] for runs in row]) for row in rows]
        assert (low, high) == pytest.approx((percentile(drawn, 0.025), percentile(drawn, 0.975)), abs=1e-12)


def test_the_improvement_by_hand() -> None:
    assert improvement({"a": [1, 2, 3]}, {"a": [0, 0.5]}, bootstrap=FEW) == (1.0, 1.0, 1.0)
    assert improvement({"a": [1, 2]}, {"a": [1, 3]}, bootstrap=FEW).value == (0.5 + 1) / 4
    two = improvement({"a": [1, 2], "b": [5, 5]}, {"a": [1, 3], "b": [5, 4]}, bootstrap=FEW)
    assert two.value == ((0.5 + 1) / 4 + (0.5 + 0.5 + 1 + 1) / 4) / 2


@given(SUITES, st.data())
@settings(max_examples=40, deadline=None)
def test_the_improvement_counts_as_fractions_do(scores: dict[str, list[float]], data: st.DataObject) -> None:
    over = {task: data.draw(RUNS) for task in scores}
    found = improvement(scores, over, bootstrap=Bootstrap(confidence=0.9, resamples=20, key=3))
    mine, theirs = ([sorted(of[task]) for task in sorted(of)] for of in (scores, over))
    drawn = [
        float(plain_improvement(list(zip(row[: len(mine)], row[len(mine) :], strict=True))))
        for row in resampled(mine + theirs, resamples=20, key=3)
    ]
    value = float(plain_improvement(list(zip(mine, theirs, strict=True))))
    assert found == pytest.approx((value, percentile(drawn, 0.05), percentile(drawn, 0.95)), abs=1e-12)
    assert found.value + improvement(over, scores, bootstrap=FEW).value == pytest.approx(1, abs=1e-14)
    assert improvement(scores, scores, bootstrap=FEW).value == 0.5


def test_what_is_no_suite_is_refused() -> None:
    for scores in ({}, {"a": []}, {"a": [0.5], "b": []}):
        with pytest.raises(ValueError, match="a task, and a run"):
            aggregate(scores)
    with pytest.raises(ValueError, match="finite"):
        aggregate({"a": [0.5, math.nan]})
    with pytest.raises(ValueError, match=r"the same tasks.*b"):
        improvement({"a": [1]}, {"a": [1], "b": [1]})
    for options in ({"confidence": 95}, {"resamples": 0}, {"key": -1}):
        with pytest.raises(ValueError, match=r"confidence|resample"):
            Bootstrap(**options)


def test_suites_hold_every_run_of_the_same_tasks() -> None:
    rows = [
        *(record(task="parity", seed=seed, test_scaled=value) for seed, value in enumerate((0.2, 0.4))),
        record(task="parity", seed=2, status="diverged"),
        record(task="mqar", seed=0, status="failed"),
        *(record(task=task, model="mamba", test_scaled=0.5) for task in ("parity", "mqar", "dyck")),
        record(task="open", model="mamba", test_scaled=None),
        record(task="parity", model="mamba", protocol="grazzi"),
    ]
    every = cell_stats(frame(*rows))
    xlstm = [cell for cell in every if cell.protocol == "xlstm"]
    found = suites(xlstm, tasks=("parity", "mqar"))
    assert list(found) == ["lstm", "mamba"]
    assert found["lstm"].scores == {"mqar": (0.0,), "parity": (0.0, 0.25, 0.0)}  # above a floor of .2
    assert (found["lstm"].diverged, found["lstm"].failed) == (1, 1)
    assert (found["mamba"].diverged, found["mamba"].failed, found["mamba"].scores["mqar"]) == (0, 0, (0.375,))
    assert list(suites(xlstm, models=("mamba",), tasks=("dyck",))) == ["mamba"]
    with pytest.raises(ValueError, match="one protocol, not 2: grazzi, xlstm"):
        suites(every)
    with pytest.raises(ValueError, match=r"no scaled accuracy.*: open;"):
        suites(xlstm)
    with pytest.raises(ValueError, match="lstm has no runs of dyck: "):
        suites([cell for cell in xlstm if cell.task != "open"])
    for model, task in (("gru", "parity"), ("mamba", "unheard_of")):
        with pytest.raises(ValueError, match=f"{model} has no runs of {task}"):
            suites(xlstm, models=(model,), tasks=("parity", task))
    with pytest.raises(ValueError, match="no runs of any task"):
        suites(xlstm, models=("mamba",), tasks=())


def everything() -> str:
    """The bytes of one result of each kind."""
    names, noise = ["lstm", "mamba", "gru"], random.Random(5)
    tasks = sorted({"parity", "mqar", "dyck"})
    rows = [
        record(model=model, task=task, seed=seed, test_scaled=noise.random())
        for model in names
        for task in tasks
        for seed in range(5)
    ]
    every = cell_stats(frame(*rows))
    of = {model: suite.scores for model, suite in suites(every).items()}
    return repr(
        [
            every,
            wilson(2, 5),
            {model: aggregate(scores) for model, scores in of.items()},
            profile(of["lstm"], taus=(0.2, 0.5)),
            improvement(of["lstm"], of["gru"]),
            permutation_test(RAGGED["dyck"], OTHER["parity"], exact_up_to=0),
            [verdict([cell for cell in every if cell.task == task]) for task in tasks],
        ]
    )


@pytest.mark.full
def test_two_processes_agree_to_the_byte() -> None:
    root = Path(__file__).parents[3]
    code = f"import runpy; print(runpy.run_path({__file__!r})['everything']())"
    environment = {**os.environ, "PYTHONHASHSEED": "77", "PYTHONPATH": f"{root}{os.pathsep}{root / 'tests'}"}
    other = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=root, capture_output=True, text=True, check=True
    )
    assert other.stdout.strip() == everything()
