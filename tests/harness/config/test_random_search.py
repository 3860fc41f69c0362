"""A random search is a list of runs that its seed alone decides."""

import random
from typing import Any

import pytest

from chomsky_ladder import Run, grid, log_uniform, random_search, uniform

OVER: dict[str, Any] = {"train.lr": log_uniform(1e-4, 1e-2), "model.num_blocks": [1, 2]}


def drawn(*, count: int = 4, seed: int = 0, over: dict[str, Any] = OVER) -> list[Run]:
    return random_search("parity", "lstm", count=count, seed=seed, over=over, protocol="xlstm_cpu")


def test_the_draws_stay_what_they_are() -> None:
    found = [(run.train.lr, run.model.num_blocks) for run in drawn()]
    assert found == [(0.00165, 1), (0.000473, 2), (0.00207, 2), (0.000773, 1)]


def test_the_seed_alone_decides_and_a_larger_count_only_adds() -> None:
    found = drawn()
    random.seed(1)
    assert drawn() == found == drawn(count=7)[:4] and len({run.run_id for run in drawn(count=7)}) == 7
    assert drawn(seed=1) != found


def test_a_value_depends_on_no_other_setting() -> None:
    both = drawn(over={"train.weight_decay": uniform(0, 0.5), **OVER})
    assert [run.train.lr for run in both] == [run.train.lr for run in drawn()]
    assert all(1e-4 <= run.train.lr <= 1e-2 and 0 <= run.train.weight_decay <= 0.5 for run in both)


def test_all_else_is_the_protocols_or_overridden() -> None:
    settings = {"train.steps": 9, "model.d_model": 8}
    (run,) = random_search(
        "parity", "lstm", count=1, over={"train.lr": [1e-3]}, protocol="xlstm_cpu", overrides=settings
    )
    (same,) = grid("parity", "lstm", protocol="xlstm_cpu", overrides={**settings, "train.lr": 1e-3}, seeds=1)
    assert run == same


def test_every_combination_of_lists_is_found_once() -> None:
    over = {"train.lr": [1e-2, 1e-3, 1e-3], "model.num_blocks": range(1, 4)}
    assert len({run.run_id for run in drawn(count=6, over=over)}) == 6
    with pytest.raises(ValueError, match="over has hardly more than 6 different settings, and count is 7"):
        drawn(count=7, over=over)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"count": 0}, "count is the number of runs to draw, not 0"),
        ({"over": {}}, "over names no setting"),
        ({"over": {"train.lr": 1e-3}}, r"over\['train.lr'\] must be a list of values or a range such as"),
        ({"over": {"train.schedule": "cosine"}}, "must be a list of values or a range"),
        ({"over": {"train.lr": []}}, "must be a list of values or a range"),
        ({"over": {"train.step": [3]}}, "train has no setting 'step'; did you mean steps"),
        ({"over": {"seed": [3]}}, "'seed' names no setting"),
        ({"over": {"train.batch": uniform(1, 9)}}, "train.batch: Input should be a valid integer"),
    ],
)
def test_what_cannot_be_drawn_is_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        drawn(**changes)


def test_settings_stand_in_one_place() -> None:
    with pytest.raises(ValueError, match=r"train.lr is drawn from over, so overrides cannot have it"):
        random_search("parity", "lstm", count=1, over=OVER, overrides={"train.lr": 1e-3})


@pytest.mark.parametrize(("low", "high"), [(0, 1), (1e-2, 1e-3), (1e-3, 1e-3), (1e-3, float("inf"))])
def test_a_log_range_is_positive_and_rises(low: float, high: float) -> None:
    with pytest.raises(ValueError, match="log_uniform takes a positive number and a higher one"):
        log_uniform(low, high)
    if low >= high:
        with pytest.raises(ValueError, match="uniform takes a low and a higher number"):
            uniform(low, high)
