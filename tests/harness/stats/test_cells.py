"""Statistics of a cell from hand-made records, and times to accuracy."""

import math
import random
import statistics
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chomsky_ladder.harness.stats.cell_stats import (
    CellStats,
    TimeToAccuracy,
    cell_stats,
    mean_and_std,
    time_to_accuracy,
    times_to_accuracy,
    wilson,
)
from chomsky_ladder.harness.stats.cells import cells
from support.records_by_hand import frame, record


def cell(*rows: dict[str, Any], threshold: float = 0.9) -> CellStats:
    """The only cell that rows make."""
    (found,) = cell_stats(frame(*rows), threshold=threshold)
    return found


def time(reached: int | None, *, threshold: Literal["95", "99"] = "95", **changes: Any) -> TimeToAccuracy:
    """Return the time to accuracy of a run of 400 steps, each of 205 tokens and a quarter of a second."""
    known = {"steps": 400, "train_seconds": 100.0, "tokens_per_step": 205.0, **changes}
    return time_to_accuracy(record(**known, **{f"steps_to_{threshold}": reached}), threshold=threshold)


def test_wilson_by_hand() -> None:
    z2 = 3.841458820694124  # the square of 1.959964
    share = wilson(3, 3)
    assert (share.value, share.high) == (1.0, 1.0)
    assert share.low == pytest.approx(1 / (1 + z2 / 3), abs=1e-12) == pytest.approx(0.4385, abs=1e-4)
    assert wilson(0, 3).low == 0.0
    assert wilson(0, 3).high == pytest.approx(1 - share.low)
    half = wilson(5, 10)
    assert (half.low, half.high) == pytest.approx((0.2366, 0.7634), abs=5e-5)
    assert wilson(81, 263, confidence=0.95).low == pytest.approx(0.2553, abs=5e-5)  # Newcombe 1998, table I
    assert wilson(81, 263, confidence=0.95).high == pytest.approx(0.3662, abs=5e-5)
    assert wilson(5, 10, confidence=0.5).low > half.low


@given(st.integers(1, 60), st.data(), st.sampled_from((0.5, 0.9, 0.95, 0.99)))
def test_wilson_holds_the_shares_whose_score_test_does_not_reject(n: int, data: st.DataObject, level: float) -> None:
    hits = data.draw(st.integers(0, n))
    share = wilson(hits, n, confidence=level)
    assert 0 <= share.low <= share.value <= share.high <= 1
    z = statistics.NormalDist().inv_cdf(0.5 + level / 2)
    for edge in (share.low, share.high):
        if 0 < edge < 1:
            assert abs(share.value - edge) == pytest.approx(z * math.sqrt(edge * (1 - edge) / n), abs=1e-9)


@pytest.mark.parametrize(("hits", "n", "confidence"), [(1, 0, 0.9), (0, 0, 0.9), (-1, 3, 0.9), (4, 3, 0.9), (1, 2, 95)])
def test_what_is_no_share_is_refused(hits: int, n: int, confidence: float) -> None:
    with pytest.raises(ValueError, match=r"no share|between 0 and 1"):
        wilson(hits, n, confidence=confidence)


def test_a_cell_by_hand() -> None:
    rows = [record(seed=seed, test_scaled=value) for seed, value in ((4, 0.95), (0, 0.5), (2, 0.95), (1, 0.9))]
    found = cell(*rows)
    assert (found.protocol, found.task, found.level, found.model) == ("xlstm", "parity", "regular", "lstm")
    assert (found.lr, found.measure, found.n) == (1e-3, "test_scaled", 4)
    assert (found.seeds, found.scores) == ((0, 1, 2, 4), (0.5, 0.9, 0.95, 0.95))
    assert found.mean == pytest.approx(0.825)
    assert found.std == pytest.approx(math.sqrt((0.325**2 + 0.075**2 + 2 * 0.125**2) / 3))
    assert (found.best, found.best_seed) == (0.95, 2)
    assert found.reached == wilson(3, 4)  # 0.9 is at the threshold
    assert cell(*rows, threshold=0.91).reached == wilson(2, 4)
    (wide,) = cell_stats(frame(*rows), confidence=0.99)
    assert wide.reached == wilson(3, 4, confidence=0.99)


def test_runs_that_did_not_finish_are_counted() -> None:
    rows = [
        *(record(seed=seed, test_scaled=1.0) for seed in (0, 1)),
        record(seed=2, status="diverged"),
        *(record(seed=seed, status="failed") for seed in (3, 4)),
        record(lr=1e-2, seed=0, validation=0.1, test_scaled=0.2),
        record(lr=1e-2, seed=1, status="diverged"),
        record(lr=1e-1, seed=0, status="failed"),
    ]
    found = cell(*rows, threshold=-1.0)
    assert (found.lr, found.n, found.diverged, found.failed, found.unfinished_elsewhere) == (1e-3, 2, 1, 2, 2)
    assert (found.mean, found.std) == (1.0, 0.0)
    assert found.outcomes == (1.0, 1.0, 0.0, 0.0, 0.0)
    assert found.reached == wilson(2, 5)  # whatever the threshold, they did not reach it


def test_a_cell_of_which_nothing_finished_keeps_its_runs() -> None:
    rows = [record(lr=lr, seed=seed, status="diverged") for lr in (1e-2, 1e-3) for seed in (0, 1)]
    found = cell(*rows, record(lr=1e-3, seed=2, status="failed"))
    assert (found.lr, found.measure, found.n, found.mean, found.std, found.best, found.best_seed) == (
        1e-3,
        None,
        0,
        None,
        None,
        None,
        None,
    )
    assert (found.diverged, found.failed, found.unfinished_elsewhere, found.outcomes) == (2, 1, 2, (0.0, 0.0, 0.0))
    assert found.reached == wilson(0, 3)


def test_one_seed_has_no_deviation() -> None:
    assert (cell(record(test_scaled=0.5)).mean, cell(record(test_scaled=0.5)).std) == (0.5, None)


def test_where_scaled_accuracy_is_undefined_the_raw_one_counts() -> None:
    found = cell(*(record(seed=seed, test=value, test_scaled=None) for seed, value in enumerate((0.6, 0.8))))
    assert (found.measure, found.scores) == ("test", (0.6, 0.8))


def test_cells_agree_with_the_table_in_any_order_of_records() -> None:
    noise = random.Random(0)
    rows = [
        record(
            protocol=protocol,
            task=task,
            model=model,
            lr=lr,
            seed=seed,
            status=noise.choice(("done", "done", "done", "diverged", "failed")),
            **{name: noise.random() for name in ("test_scaled", "validation", "in_distribution")},
        )
        for protocol in ("quick", "xlstm")
        for task in ("parity", "mqar")
        for model in ("lstm", "mamba")
        for lr in (1e-3, 1e-2)
        for seed in range(4)
    ]
    table = cells(frame(*rows)).to_dict("records")
    found = cell_stats(frame(*rows))
    assert len(found) == 8
    for row, stats in zip(table, found, strict=True):
        names = ("protocol", "task", "model", "lr", "n")
        assert [getattr(stats, name) for name in names] == [row[name] for name in names]
        assert stats.mean == pytest.approx(row["mean"], abs=1e-14)
        assert (stats.std is None) == (stats.n == 1)
        assert stats.std is None or stats.std == pytest.approx(row["std"], abs=1e-14)
        assert stats.n + stats.diverged + stats.failed == 4
        assert stats.diverged + stats.failed + stats.unfinished_elsewhere == row["diverged"] + row["failed"]
    for key in range(3):
        assert repr(cell_stats(frame(*random.Random(key).sample(rows, len(rows))))) == repr(found)


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=9), st.randoms(use_true_random=False))
def test_mean_and_deviation_do_not_depend_on_the_order(scores: list[float], shuffler: random.Random) -> None:
    mean, std = mean_and_std(scores)
    assert mean == pytest.approx(statistics.fmean(scores), abs=1e-15)
    assert std == pytest.approx(statistics.stdev(scores), abs=1e-15)
    shuffler.shuffle(scores)
    assert mean_and_std(scores) == (mean, std)


def test_time_to_accuracy_by_hand() -> None:
    assert time(200) == TimeToAccuracy("95", 200, 200 * 205, 50.0, 400)
    assert time(None) == TimeToAccuracy("95", None, None, None, 400)
    assert time(300, threshold="99") == TimeToAccuracy("99", 300, 300 * 205, 75.0, 400)
    with pytest.raises(ValueError, match="does not know when"):
        time(200, tokens_per_step=None)


def test_the_median_time_is_never_where_half_did_not_get_there() -> None:
    fast, slow, slower, never = time(100), time(200), time(400), time(None)
    all_did = times_to_accuracy([slower, fast, slow])
    assert (all_did.steps, all_did.tokens, all_did.seconds) == (200, 200 * 205, 50.0)
    assert (all_did.reached, all_did.bound) == (wilson(3, 3), None)
    most = times_to_accuracy([never, slower, fast])
    assert (most.steps, most.reached, most.bound) == (400, wilson(2, 3), 400)  # not 250, the median of those that did
    half = times_to_accuracy([fast, never, never, slow])
    assert (half.steps, half.tokens, half.seconds) == (None, None, None)
    assert (half.reached, half.bound) == (wilson(2, 4), 400)
    assert times_to_accuracy([fast, slow, never, slower]).steps == 300  # of the middle two
    assert times_to_accuracy([never, time(None, steps=100)]).bound == 100


def test_runs_that_did_not_finish_count_as_never() -> None:
    found = times_to_accuracy([time(100), time(200)], unfinished=1)
    assert (found.steps, found.reached, found.bound) == (200, wilson(2, 3), 0)
    assert times_to_accuracy([time(100), time(200)], unfinished=2).steps is None


def test_times_to_two_accuracies_are_not_mixed() -> None:
    for times in ([time(100), time(100, threshold="99")], []):
        with pytest.raises(ValueError, match="times to one accuracy"):
            times_to_accuracy(times)
