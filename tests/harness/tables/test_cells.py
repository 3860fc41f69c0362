"""Cells from hand-made records: which rate is selected and by what, what is counted, and what is shown."""

import random
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from chomsky_ladder.harness.stats.cell_stats import cell_stats
from chomsky_ladder.harness.stats.cells import cells
from chomsky_ladder.harness.store.record import collect, stored
from chomsky_ladder.harness.tables.write import markdown
from support.records_by_hand import FLOORS, filled, frame, record


def cell(*rows: dict[str, Any]) -> pd.Series:
    """The only cell that rows make."""
    table = cells(frame(*rows))
    assert len(table) == 1
    return table.iloc[0]


def shown(*rows: dict[str, Any]) -> dict[str, list[str]]:
    """The lines of a markdown table by their first entry."""
    text = re.sub(r"\\([\[\]])", r"\1", markdown(cells(frame(*rows))))
    lines = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return {line[0].strip(): [entry.strip() for entry in line[1:]] for line in lines}


def two_rates(**of_high: Any) -> list[dict[str, Any]]:
    """Two seeds at 1e-3 and two at 1e-2, the latter with other values."""
    return [
        *(
            record(lr=1e-3, seed=seed, test=0.5, test_scaled=0.0, validation=0.5, in_distribution=0.5)
            for seed in (0, 1)
        ),
        *(record(lr=1e-2, seed=seed, **of_high) for seed in (0, 1)),
    ]


def test_the_rate_is_chosen_on_validation_and_not_on_test() -> None:
    row = cell(*two_rates(validation=0.6, test=0.1, test_scaled=-0.8, in_distribution=0.1))
    assert row["lr"] == 1e-2 and row["mean"] == pytest.approx(-0.8)
    row = cell(*two_rates(validation=0.4, test=1.0, test_scaled=1.0, in_distribution=1.0))
    assert row["lr"] == 1e-3 and row["mean"] == 0.0
    assert (row["rates"], row["n"]) == (2, 2)


def test_the_rate_is_chosen_by_the_mean_over_seeds() -> None:
    rows = [record(lr=1e-2, seed=seed, validation=value) for seed, value in enumerate((1.0, 0.2, 0.2))]
    rows += [record(lr=1e-3, seed=seed, validation=0.5) for seed in range(3)]
    assert cell(*rows)["lr"] == 1e-3


def test_a_tie_goes_to_the_lower_rate() -> None:
    rows = [record(lr=lr, seed=seed, validation=0.75) for lr in (1e-2, 1e-4, 1e-3) for seed in (0, 1)]
    for order in (rows, rows[::-1]):
        assert cell(*order)["lr"] == 1e-4


def test_a_tie_is_not_decided_by_rounding() -> None:
    scores = (0.49089165867689355, 0.06993006993006994, 0.7153996101364523)
    rows = [record(lr=1e-3, seed=seed, validation=score) for seed, score in enumerate(scores)]
    rows += [record(lr=1e-2, seed=seed, validation=score) for seed, score in enumerate(scores[::-1])]
    chosen = {float(cell(*random.Random(key).sample(rows, 6))["lr"]) for key in range(20)}
    assert chosen == {1e-3}


def test_the_second_column_is_chosen_in_distribution() -> None:
    row = cell(*two_rates(validation=0.4, in_distribution=0.6, test=0.25, test_scaled=-0.5))
    assert (row["lr"], row["mean"]) == (1e-3, 0.0)
    assert (row["lr_in_distribution"], row["mean_in_distribution"]) == (1e-2, -0.5)


def test_a_cell_sums_up_the_seeds_in_their_order() -> None:
    rows = [record(seed=seed, test_scaled=value) for seed, value in ((2, 0.3), (0, 0.1), (1, 0.2))]
    row = cell(*rows)
    assert row["n"] == 3
    assert row["mean"] == pytest.approx(0.2)
    assert row["std"] == pytest.approx(0.1)  # of a sample: n - 1
    assert (row["median"], row["low"], row["high"], row["solved"], row["runs"]) == (0.2, 0.1, 0.3, 0, 3)
    assert row["seeds"] == "0.1000 0.2000 0.3000"
    assert (row["exact"], row["validation"], row["parameters"], row["seconds"]) == pytest.approx((0.7, 0.9, 1234, 4.0))
    assert shown(*rows)["LSTM"] == ["0.20 [0.10, 0.30] 0/3", "4.0"]


def test_one_seed_has_no_range() -> None:
    assert shown(record(test_scaled=0.256))["LSTM"] == ["0.26 0/1", "4.0"]


def test_where_scaled_accuracy_is_undefined_the_raw_one_is_shown() -> None:
    assert cell(record(test=0.9, test_scaled=None))["mean"] == 0.9
    lines = shown(record(task="a", test=0.9, test_scaled=None), record(task="b", test=0.9, test_scaled=0.8))
    assert lines["model"] == ["a<br>regular, raw", "b<br>regular", "s a run"]
    assert lines["LSTM"] == ["0.90 1/1", "0.80 0/1", "4.0"]
    assert lines["*floor: content free*"] == ["0.60", "0.20", ""]  # the floors are raw too
    assert shown(record(status="failed"))["model"] == ["parity<br>regular", "s a run"]


@pytest.mark.parametrize("fate", ["diverged", "failed"])
def test_a_run_that_did_not_finish_is_counted_and_shown(fate: str) -> None:
    rows = [record(seed=0, test_scaled=0.5), record(seed=1, test_scaled=0.7), record(seed=2, status=fate)]
    row = cell(*rows)
    assert (row["n"], row[fate], row["mean"]) == (2, 1, pytest.approx(0.6))
    assert row["diverged"] + row["failed"] == 1
    assert shown(*rows)["LSTM"] == [f"0.60 [0.50, 0.70] 0/3, 1 {fate}", "4.0"]


def test_a_run_that_did_not_finish_counts_zero_in_the_selection() -> None:
    rows = [
        record(lr=1e-3, seed=0, validation=0.6, in_distribution=0.6),
        record(lr=1e-3, seed=1, validation=0.6, in_distribution=0.6),
        record(lr=1e-2, seed=0, validation=0.9, in_distribution=0.9),
        record(lr=1e-2, seed=1, status="diverged"),
    ]
    row = cell(*rows)
    assert (row["lr"], row["lr_in_distribution"]) == (1e-3, 1e-3)
    assert (row["n"], row["diverged"]) == (2, 1)  # of all rates


def test_a_cell_of_which_nothing_finished_says_so() -> None:
    rows = [record(model="mamba", seed=seed, status="diverged") for seed in (0, 1)]
    rows += [record(model="mamba", lr=1e-2, status="failed"), record(model="lstm")]
    row = cells(frame(*rows)).set_index("model").loc["mamba"]
    assert (row["n"], row["diverged"], row["failed"]) == (0, 2, 1)
    assert shown(*rows)["Mamba"] == ["2 diverged, 1 failed", "-"]


@pytest.mark.parametrize("fate", ["diverged", "failed"])
def test_a_table_of_which_nothing_finished_says_so(fate: str) -> None:
    assert shown(record(status=fate))["LSTM"] == [f"1 {fate}", "-"]
    rows = [record(status=fate, lr=lr, seed=seed) for lr in (1e-2, 1e-3) for seed in (0, 1)]
    lines = shown(*rows, record(status=fate, task="reverse_string", level="context_free"))
    assert lines["LSTM"] == [f"4 {fate}", f"1 {fate}", "-"]
    assert lines["*floor: content free*"] == ["-", "-", ""]
    assert lines["model"] == ["parity<br>regular", "reverse_string<br>context-free", "s a run"]


def test_a_rate_of_which_nothing_finished_is_never_chosen() -> None:
    row = cell(record(lr=1e-3, status="diverged"), record(lr=1e-2, validation=0.0, in_distribution=0.0))
    assert (row["lr"], row["n"], row["diverged"], row["rates"]) == (1e-2, 1, 1, 2)
    assert row["lr_in_distribution"] == 1e-2


def test_fates_are_counted_over_all_rates_of_the_cell() -> None:
    rows = [
        *(record(lr=1e-3, seed=seed, test_scaled=0.5) for seed in (0, 1)),
        *(record(lr=1e-2, seed=seed, status="diverged") for seed in (0, 1)),
        record(lr=1e-1, status="failed"),
    ]
    row = cell(*rows)
    assert (row["lr"], row["n"], row["diverged"], row["failed"], row["rates"]) == (1e-3, 2, 2, 1, 3)
    assert shown(*rows)["LSTM"] == ["0.50 0/2, 2 diverged, 1 failed", "4.0"]


@pytest.mark.parametrize("status", ["done", "diverged", "failed"])
def test_two_runs_of_one_rate_and_seed_are_refused(status: str) -> None:
    rows = [record(seed=0, run_id="first"), record(seed=0, run_id="second", status=status), record(seed=1)]
    with pytest.raises(ValueError, match=r"parity, lstm: runs of one rate and seed under one label: first, second$"):
        cells(frame(*rows))
    assert len(cells(frame(rows[0], record(seed=0, lr=1e-2), record(seed=0, model="transformer")))) == 2


def test_a_parameter_count_stays_whole_beside_a_run_that_has_none(tmp_path: Path) -> None:
    found = collect(filled(tmp_path))
    assert found.dtypes[["parameters", "state_bytes"]].astype(str).tolist() == ["Int64", "Int64"]
    assert stored(tmp_path / "records.csv").dtypes.equals(found.dtypes)
    lines = (tmp_path / "records.csv").read_text()
    assert ",4321,512," in lines and "4321.0" not in lines and "512.0" not in lines
    table = cells(found)
    assert str(table["parameters"].dtype) == "Int64"
    rows = [record(), record(model="mamba", status="failed", parameters=None)]
    assert ",1234" in cells(frame(*rows)).to_csv(index=False) and "1234.0" not in cells(frame(*rows)).to_csv()


@pytest.mark.parametrize("value", [-0.004, -0.0, -1e-12])
def test_nothing_is_minus_nought(value: float) -> None:
    chance = FLOORS["s_rand"]
    floors = {"best_constant": chance + value / 2, "content_free": chance + value / 2}
    lines = shown(record(test_scaled=value, **floors))
    assert lines["LSTM"] == ["0.00 0/1", "4.0"]
    assert lines["*floor: best constant*"] == lines["*floor: content free*"] == ["0.00", ""]
    assert shown(record(test_scaled=-0.006))["LSTM"] == ["-0.01 0/1", "4.0"]


def test_a_missing_cell_is_a_dash() -> None:
    rows = [record(task="parity", model="lstm"), record(task="even_pairs", model="transformer", test_scaled=1.0)]
    assert shown(*rows) == {
        "model": ["even_pairs<br>regular", "parity<br>regular", "s a run"],
        "---": ["---:", "---:", "---:"],
        "LSTM": ["-", "0.80 0/1", "4.0"],
        "Transformer": ["1.00 1/1", "-", "4.0"],
        "*floor: best constant*": ["0.10", "0.10", ""],
        "*floor: content free*": ["0.20", "0.20", ""],
    }


def test_tasks_stand_in_the_order_of_the_hierarchy() -> None:
    levels = {
        "z": "regular",
        "b": "counter",
        "y": "context_free",
        "a": "context_sensitive",
        "x": "none",
        "c": "regular",
    }
    header = shown(*(record(task=task, level=level) for task, level in levels.items()))["model"]
    assert [name.split("<br>")[0] for name in header[:-1]] == ["c", "z", "b", "y", "a", "x"]
    assert header[3] == "y<br>context-free"


def test_two_protocols_are_two_tables() -> None:
    rows = [
        record(protocol="xlstm"),
        record(protocol="grazzi", test_scaled=0.1),
        record(protocol="xlstm (train.steps=7)"),
    ]
    text = markdown(cells(frame(*rows)))
    titles = [line for line in text.splitlines() if line.startswith("#")]
    assert titles == ["### grazzi", "### xlstm", "### xlstm (train.steps=7)"]
    parts = text.split("### ")[1:]
    assert ["0.10 0/1" in part for part in parts] == [True, False, False]
    assert [part.count("| LSTM |") for part in parts] == [1, 1, 1]


def test_rates_of_two_protocols_are_not_chosen_among() -> None:
    rows = [record(protocol="xlstm", lr=1e-2, validation=0.5), record(protocol="grazzi", lr=1e-3, validation=0.9)]
    table = cells(frame(*rows)).set_index("protocol")
    assert table["lr"].to_dict() == {"xlstm": 1e-2, "grazzi": 1e-3}
    assert table["rates"].to_dict() == {"xlstm": 1, "grazzi": 1}


def test_a_smoke_run_and_a_selection_say_what_they_are() -> None:
    text = markdown(cells(frame(record(protocol="quick"), *two_rates(validation=0.9))))
    quick, xlstm = text.split("### ")[1:]
    assert "smoke run" in quick and "chosen on validation" not in quick
    assert "smoke run" not in xlstm and "chosen on validation" in xlstm


def test_floors_are_scaled_like_the_cells() -> None:
    rows = [
        record(task="a", s_rand=0.2, best_constant=0.28, content_free=0.6),
        record(task="b", status="failed"),
        record(task="c", s_rand=0.5, best_constant=0.5, content_free=0.25),
    ]
    lines = shown(*rows)
    assert lines["*floor: best constant*"] == ["0.10", "-", "0.00", ""]
    assert lines["*floor: content free*"] == ["0.50", "-", "-0.50", ""]
    table = cells(frame(*rows)).set_index("task")
    assert table.loc["a", ["s_rand", "best_constant", "content_free"]].tolist() == [0.2, 0.28, 0.6]


def test_a_protocol_says_how_its_paper_measures_and_what_is_solved() -> None:
    near = {"test": 0.92, "test_scaled": 0.84}
    assert shown(record(**near))["LSTM"] == ["0.84 0/1", "4.0"]
    rows = [record(protocol="deepmind", seed=0, **near), record(protocol="deepmind", seed=1, test=0.8, test_scaled=0.6)]
    lines = shown(*rows)
    assert lines["LSTM"] == ["0.86 [0.80, 0.92] 1/2", "4.0"]
    assert lines["*floor: content free*"] == ["0.60", ""]
    text = markdown(cells(frame(*rows)))
    assert "raw as in the paper" in text and "The paper's cells are the best seed." in text
    assert "best seed" not in markdown(cells(frame(record())))
    (stats,) = cell_stats(frame(*rows))
    assert (stats.reached.hits, stats.reached.n) == (1, 2)
    assert [cell_stats(frame(*rows), threshold=0.7)[0].reached.hits] == [1]
