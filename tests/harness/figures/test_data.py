"""The numbers of figures are those computed by hand: chosen rates, spreads, training ranges, fronts and rungs."""

import json

import numpy as np
import pandas as pd
import pytest

from chomsky_ladder.harness.config.run import Eval, Train
from chomsky_ladder.harness.figures.kinds.cost import cost
from chomsky_ladder.harness.figures.kinds.learning import CURVE_COLUMNS, why_not
from chomsky_ladder.harness.figures.plot import Scene
from chomsky_ladder.harness.stats.view import CLASSES, LEVELS, cells_of, common_tasks, training_lengths
from chomsky_ladder.harness.store.labels import Identity
from chomsky_ladder.tasks.base import LEVELS as TASK_LEVELS
from support.records_by_hand import frame, record
from support.scenes import heat_map, ladder, learning, lengths


def rows_of(data: pd.DataFrame, **fixed: object) -> pd.DataFrame:
    for name, value in fixed.items():
        data = data[data[name] == value]
    return data


def one(data: pd.DataFrame, **fixed: object) -> pd.Series:
    found = rows_of(data, **fixed)
    assert len(found) == 1, found
    return found.iloc[0]


def test_heat_map_holds_medians_seeds_unfinished_runs_and_scaled_floors() -> None:
    data = heat_map(
        cells_of(
            frame(
                record(seed=0, test_scaled=0.6),
                record(seed=1, test_scaled=0.9),
                record(seed=2, status="diverged"),
                record(seed=0, lr=1e-2, validation=0.5, test_scaled=1.0),  # not the chosen rate
                record(task="dyck", level="context_free", status="failed"),
                record(task="mqar", level="none", test=0.7, test_scaled=None, best_constant=0.25),
            )
        )
    )
    cell = one(data, task="parity", model="lstm")
    assert (cell["lr"], cell["n"], cell["unfinished"]) == (1e-3, 2, 1)
    assert cell[["median", "min", "max", "solved", "runs"]].tolist() == [pytest.approx(0.75), 0.6, 0.9, 1, 3]
    lost = one(data, task="dyck")
    assert (lost["n"], lost["unfinished"]) == (0, 1) and np.isnan(lost["median"])
    assert one(data, task="parity", floor="best_constant")["median"] == pytest.approx(0.1)  # (.55 - .5) / .5
    assert one(data, task="parity", floor="content_free")["median"] == pytest.approx(0.2)
    assert one(data, task="mqar", model="lstm")["median"] == 0.7
    assert one(data, task="mqar", floor="best_constant")["median"] == 0.25  # raw, as its scores
    assert list(dict.fromkeys(data.loc[data["model"] != "", "task"])) == ["parity", "dyck", "mqar"]  # by class
    assert "dyck" not in set(data.loc[data["model"] == "", "task"])


def test_lengths_hold_every_bin_of_every_seed_and_the_range_trained_on() -> None:
    bins = [{"40..64": 0.9, "65..96": 0.75}, {"40..64": 0.8, "65..96": 0.5}]
    further = [{"512": 0.5}, {"512": 0.6}]
    data = lengths(
        cells_of(
            frame(
                *(
                    record(
                        seed=seed,
                        test_bins=json.dumps(bins[seed]),
                        extrapolation=json.dumps(further[seed]),
                        content_free_bins='{"40..64":0.55,"65..96":0.5}',
                        in_distribution=0.9 + 0.1 * seed,
                    )
                    for seed in (0, 1)
                )
            )
        )
    )
    found = {
        (row["kind"], row["low"], row["high"]): [row["median"], row["min"], row["max"], row["n"]]
        for row in rows_of(data, model="lstm").to_dict("records")
    }
    assert found == {
        ("training", 3, 40): pytest.approx([0.9, 0.8, 1.0, 2]),
        ("test", 40, 64): pytest.approx([0.7, 0.6, 0.8, 2]),
        ("test", 65, 96): pytest.approx([0.25, 0.0, 0.5, 2]),
        ("further", 512, 512): pytest.approx([0.1, 0.0, 0.2, 2]),
    }
    assert one(data, model="", low=40)["median"] == pytest.approx(0.1) and one(data, model="", low=65)["median"] == 0


@pytest.mark.parametrize(
    ("protocol", "test_bins", "trained"),
    [
        ("xlstm", ["40..64", "225..256"], (3, 40)),
        ("deepmind", ["41..100", "401..500"], (1, 40)),
        ("mamba3", ["255..256"], (3, 160)),
        ("mamba3 (train.curriculum=)", ["255..256"], (3, 40)),
        ("xlstm (train.steps=9, train.lengths=5..17)", [], (5, 17)),
        ("xlstm (train.curriculum=40..80..120)", [], (3, 120)),
        ("xlstm (train.lengths_per=batch)", [], (3, 40)),
        ("xlstm (eval.bins=40..50..60)", ["40..50", "51..60"], (3, 40)),
        ("xlstm (eval.bins=5)", [], (3, 40)),  # one edge makes no bin
        ("xlstm", ["60..70"], (60, 70)),  # a task with lengths of its own
        ("somebody's", ["40..64"], None),
    ],
)
def test_training_lengths_are_those_of_the_protocol_and_its_changes(
    protocol: str, test_bins: list[str], trained: tuple[int, int] | None
) -> None:
    assert training_lengths(under(protocol), test_bins) == trained


def under(protocol: str) -> Identity:
    return Identity.of({"protocol": protocol, "task": "parity", "model": "lstm"})


def test_defaults_of_training_and_test_lengths_are_those_of_a_run() -> None:
    assert training_lengths(under("xlstm")) == Train().lengths
    low, *highs = Eval().bins
    names = [f"{a}..{b}" for a, b in zip([low, *(edge + 1 for edge in highs)], highs, strict=False)]
    assert training_lengths(under("xlstm"), names) == Train().lengths
    assert tuple(TASK_LEVELS) == tuple(LEVELS)


def test_learning_curves_take_the_chosen_rate_and_hold_a_seed_that_stopped_early() -> None:
    records = frame(
        record(seed=0, run_id="a"),
        record(seed=1, run_id="b", stopped_early=True),
        record(seed=2, run_id="c", status="diverged"),
        record(seed=0, run_id="d", lr=1e-2, validation=0.5),
        record(seed=3, run_id="e"),
    )
    curves = pd.DataFrame(
        [
            ("a", 10, 0.5, 0.6),
            ("a", 20, 0.4, None),
            ("a", 30, 0.3, 0.8),
            ("b", 10, 0.1, 1.0),
            ("c", 10, 9.0, 0.5),
            ("d", 10, 9.0, 0.5),
            ("e", 10, 0.3, 0.8),
            ("of another protocol", 10, 9.0, 0.5),
        ],
        columns=["run_id", "step", "loss", "validation"],
    ).sample(frac=1, random_state=0)
    cells = cells_of(records)
    columns = ["step", "median", "min", "max", "n"]
    validation = learning(cells, curves, of="validation")[columns].to_numpy()
    assert validation == pytest.approx(np.array([[10, 0.6, 0.2, 1, 3], [30, 0.8, 0.6, 1, 2]]))
    loss = learning(cells, curves, of="loss")[columns].to_numpy()
    assert loss == pytest.approx(np.array([[10, 0.3, 0.1, 0.5, 3], [20, 0.25, 0.1, 0.4, 2], [30, 0.2, 0.1, 0.3, 2]]))


def test_runs_that_end_before_their_first_validation_have_no_curve() -> None:
    scene = Scene([], pd.DataFrame(columns=list(CURVE_COLUMNS)), {})
    assert why_not(scene).startswith("its runs have no curve: they end before the first validation")


def test_curves_that_are_none_are_refused() -> None:
    cells = cells_of(frame(record(run_id="a")))
    with pytest.raises(ValueError, match="these lack loss"):
        learning(cells, pd.DataFrame(columns=["run_id", "step", "validation"]), of="loss")
    twice = pd.DataFrame([("a", 10, 1.0, 0.5)] * 2, columns=["run_id", "step", "loss", "validation"])
    with pytest.raises(ValueError, match="step 10 of a twice"):
        learning(cells, twice, of="loss")


def test_cost_marks_the_pareto_front_over_tasks_all_models_shown_have() -> None:
    scores = {"best": 0.9, "cheap": 0.5, "dominated": 0.5, "equal": 0.5}
    sizes = {"best": 300, "cheap": 100, "dominated": 200, "equal": 100}
    rows = [
        record(
            task=task,
            model=model,
            seed=seed,
            parameters=sizes[model],
            device=f"device {seed}",
            test_scaled=score + 0.1 * seed,
        )
        for model, score in scores.items()
        for task in ("parity", "majority")
        for seed in (0, 1)
        if (task, model, seed) != ("parity", "best", 1)
    ]
    rows.append(record(task="parity", model="best", seed=1, status="diverged"))
    rows.append(record(task="parity", model="half"))
    rows.append(record(task="mqar", level="none", model="best"))
    data = cost(cells_of(frame(*rows))).set_index("model")
    assert list(data.index) == ["best", "cheap", "dominated", "equal", "half"]
    assert data.loc["half", "runs"] == 0 and np.isnan(data.loc["half", "mean"])
    assert data.loc["best", "tasks"] == "majority; parity" and data.loc["best", "runs"] == 4
    assert data.loc["best", "mean"] == pytest.approx((0.875 + 1.0 + 0.875 + 0) / 4)  # above a floor of .2
    assert data.loc["cheap", "device"] == "device 0; device 1"
    assert data.loc["cheap", "mean"] == pytest.approx((0.55 - 0.2) / 0.8)
    assert data.loc["cheap", "low"] == pytest.approx(0.375) and data.loc["cheap", "high"] == pytest.approx(0.5)
    assert data.loc[list(sizes), "parameters"].to_dict() == sizes
    assert data["front_parameters"].eq(True).to_dict() == {
        "best": True,
        "cheap": True,
        "dominated": False,
        "equal": True,
        "half": False,
    }
    assert not data["front_state_bytes"].eq(True).any()  # nobody has measured it


def test_tasks_of_the_cost_keep_most_cells() -> None:
    def tasks(**of_model: str) -> list[str]:
        rows = [record(model=model, task=task) for model, names in of_model.items() for task in names]
        return common_tasks(cells_of(frame(*rows)))

    assert tasks(a="xyz", b="xyz", c="x") == ["x", "y", "z"]  # 6 cells, not 3
    assert tasks(a="xy", b="xz", c="xw") == ["x"]  # 3 cells in common, not 2
    assert tasks(a="x", b="y") == ["x"]


def rung(model: str, level: str, *scores: float, floor: float = 0.5) -> list[dict[str, object]]:
    return [
        record(model=model, level=level, task=f"{level}_{i}", test_scaled=score, content_free=floor)
        for i, score in enumerate(scores)
    ]


def test_ladder_climbs_past_the_unknown_and_not_past_a_miss() -> None:
    levels = ("regular", "regular", "context_free", "context_sensitive")
    scores = {"gap": (1.0, 0.9, 1.0, 0.0), "low": (1.0, 0.89, 1.0, 1.0), "top": (1.0, 1.0, 1.0, 1.0)}
    rows = [
        record(model=model, level=level, task=f"{level}_{i}", test_scaled=score, content_free=0.5)
        for model, own in scores.items()
        for i, (level, score) in enumerate(zip(levels, own, strict=True))
    ]
    rows += rung("out", "none", 1.0) + rung("few", "regular", 1.0)
    data = ladder(cells_of(frame(*rows)))
    kinds = {model: list(part["rung"]) for model, part in data.groupby("model")}
    assert kinds == {
        "few": [""],  # without most of the tasks
        "gap": ["held", "unknown", "held", "missed"],
        "low": ["missed", "unknown", "held", "held"],
        "top": ["held", "unknown", "held", "held"],
    }
    climbed = data[data["climbed"]].set_index("model")["level"].to_dict()
    assert climbed == {"gap": "context_free", "top": "context_sensitive"}
    low = one(data, model="low", level="regular")
    assert (low["held"], low["measured"]) == (1, 2)
    assert (low["held_tasks"], low["missed_tasks"]) == ("regular_0", "regular_1")


def test_ladder_counts_runs_that_diverged_and_no_task_that_tells_nothing() -> None:
    place = {"level": "counter", "task": "majority"}
    rows = [
        *(record(model="a", seed=seed, test_scaled=1.0) for seed in (0, 1)),
        record(model="a", seed=2, status="diverged"),  # 2 of 3 runs hold it
        *(record(model="b", seed=seed, test_scaled=0.95) for seed in (0, 1)),
        *(record(model="b", seed=seed, status="diverged") for seed in (2, 3)),  # 2 of 4 are not most
        *(record(model=model, **place, status="diverged") for model in "ab"),
        *(row for model in "ab" for row in rung(model, "context_free", 1.0, floor=0.96)),  # .92 without looking
        *(record(model=model, level="context_sensitive", task="raw", test=1.0, test_scaled=None) for model in "ab"),
    ]
    data = ladder(cells_of(frame(*rows)))
    assert list(rows_of(data, model="a")["rung"]) == ["held", "missed", "unknown", "unknown"]
    assert list(rows_of(data, model="b")["rung"]) == ["missed", "missed", "unknown", "unknown"]
    assert list(data["level"]) == [*CLASSES, *CLASSES]
