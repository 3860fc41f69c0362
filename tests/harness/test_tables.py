"""Tables from hand-made records: who is selected and by what, what is counted, and the same bytes every time."""

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from harness.config import Run
from harness.protocols import preset_run
from harness.records import RunFolder
from harness.tables import Record, cells, collect, markdown, stored, write
from harness.train import labels

SCORES = (
    "s_rand",
    "best_constant",
    "content_free",
    "test",
    "test_scaled",
    "test_exact",
    "test_hits",
    "test_loss",
    "validation",
    "in_distribution",
    "train_seconds",
    "score_seconds",
)
FLOORS = {"s_rand": 0.5, "best_constant": 0.55, "content_free": 0.6}


def record(*, status: str = "done", **changes: Any) -> dict[str, Any]:
    """One row; of a run that is not done, without scores."""
    row: dict[str, Any] = {
        "protocol": "xlstm",
        "task": "parity",
        "level": "regular",
        "model": "lstm",
        "lr": 1e-3,
        "seed": 0,
        "status": status,
        "steps": 100,
        "parameters": 1234,
        **FLOORS,
        "test": 0.9,
        "test_scaled": 0.8,
        "test_exact": 0.7,
        "test_hits": 0.85,
        "test_loss": 0.25,
        "validation": 0.9,
        "in_distribution": 0.9,
        "train_seconds": 3.0,
        "score_seconds": 1.0,
    }
    row |= changes
    if status != "done":
        row |= dict.fromkeys(SCORES)
    named = (row["protocol"], row["task"], row["model"], row["lr"], row["seed"])
    return Record(**{"run_id": "-".join(map(str, named)), **row}).model_dump()


def frame(*rows: dict[str, Any]) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=list(Record.model_fields))


def cell(*rows: dict[str, Any]) -> pd.Series:
    """The only cell that rows make."""
    table = cells(frame(*rows))
    assert len(table) == 1
    return table.iloc[0]


def shown(*rows: dict[str, Any]) -> dict[str, list[str]]:
    """The lines of a markdown table by their first entry."""
    text = markdown(cells(frame(*rows)))
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


def test_a_cell_is_mean_and_deviation_over_the_seeds_in_their_order() -> None:
    rows = [record(seed=seed, test_scaled=value) for seed, value in ((2, 0.3), (0, 0.1), (1, 0.2))]
    row = cell(*rows)
    assert row["n"] == 3
    assert row["mean"] == pytest.approx(0.2)
    assert row["std"] == pytest.approx(0.1)  # of a sample: n - 1
    assert row["seeds"] == "0.1000 0.2000 0.3000"
    assert (row["exact"], row["validation"], row["parameters"], row["seconds"]) == pytest.approx((0.7, 0.9, 1234, 4.0))
    assert shown(*rows)["lstm"] == ["0.20 ± 0.10 (3)", "4.0"]


def test_one_seed_has_no_deviation() -> None:
    assert shown(record(test_scaled=0.256))["lstm"] == ["0.26 (1)", "4.0"]


def test_where_scaled_accuracy_is_undefined_the_raw_one_is_shown() -> None:
    assert cell(record(test=0.9, test_scaled=None))["mean"] == 0.9
    lines = shown(record(task="a", test=0.9, test_scaled=None), record(task="b", test=0.9, test_scaled=0.8))
    assert lines["model"] == ["a<br>regular, raw", "b<br>regular", "s a run"]
    assert lines["lstm"] == ["0.90 (1)", "0.80 (1)", "4.0"]
    assert lines["*floor: content free*"] == ["0.60", "0.20", ""]  # the floors are raw too
    assert shown(record(status="failed"))["model"] == ["parity<br>regular", "s a run"]


@pytest.mark.parametrize("fate", ["diverged", "failed"])
def test_a_run_that_did_not_finish_is_counted_and_shown(fate: str) -> None:
    rows = [record(seed=0, test_scaled=0.5), record(seed=1, test_scaled=0.7), record(seed=2, status=fate)]
    row = cell(*rows)
    assert (row["n"], row[fate], row["mean"]) == (2, 1, pytest.approx(0.6))
    assert row["diverged"] + row["failed"] == 1
    assert shown(*rows)["lstm"] == [f"0.60 ± 0.14 (2, 1 {fate})", "4.0"]


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
    assert shown(*rows)["mamba"] == ["2 diverged, 1 failed", "-"]


@pytest.mark.parametrize("fate", ["diverged", "failed"])
def test_a_table_of_which_nothing_finished_says_so(fate: str) -> None:
    assert shown(record(status=fate))["lstm"] == [f"1 {fate}", "-"]
    rows = [record(status=fate, lr=lr, seed=seed) for lr in (1e-2, 1e-3) for seed in (0, 1)]
    lines = shown(*rows, record(status=fate, task="reverse_string", level="context_free"))
    assert lines["lstm"] == [f"4 {fate}", f"1 {fate}", "-"]
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
    assert shown(*rows)["lstm"] == ["0.50 ± 0.00 (2, 2 diverged, 1 failed)", "4.0"]


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
    assert lines["lstm"] == ["0.00 (1)", "4.0"]
    assert lines["*floor: best constant*"] == lines["*floor: content free*"] == ["0.00", ""]
    assert shown(record(test_scaled=-0.006))["lstm"] == ["-0.01 (1)", "4.0"]


def test_a_missing_cell_is_a_dash() -> None:
    rows = [record(task="parity", model="lstm"), record(task="even_pairs", model="transformer", test_scaled=1.0)]
    assert shown(*rows) == {
        "model": ["even_pairs<br>regular", "parity<br>regular", "s a run"],
        "---": ["---:", "---:", "---:"],
        "lstm": ["-", "0.80 (1)", "4.0"],
        "transformer": ["1.00 (1)", "-", "4.0"],
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
    assert ["0.10 (1)" in part for part in parts] == [True, False, False]
    assert [part.count("| lstm |") for part in parts] == [1, 1, 1]


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


def many_rows() -> list[dict[str, Any]]:
    """Rows of several protocols, tasks, models, rates and seeds, some of which did not finish."""
    noise = random.Random(0)
    rows = []
    for protocol in ("xlstm", "quick"):
        for task, level in (("parity", "regular"), ("reverse_string", "context_free")):
            for model in ("lstm", "transformer"):
                for lr in (1e-2, 1e-3):
                    for seed in range(3):
                        scores = {
                            name: noise.random() for name in ("test", "test_scaled", "validation", "in_distribution")
                        }
                        status = "diverged" if noise.random() < 0.2 else "done"
                        place = {"protocol": protocol, "task": task, "level": level, "model": model}
                        rows.append(record(**place, lr=lr, seed=seed, status=status, **scores))
    return rows


def test_the_order_of_records_does_not_change_a_byte() -> None:
    rows = many_rows()
    tables = [cells(frame(*random.Random(key).sample(rows, len(rows)))) for key in range(8)]
    assert len({markdown(table) for table in tables}) == 1
    assert len({table.to_csv(index=False, float_format="%.6g") for table in tables}) == 1


def result_of(run: Run, **changes: Any) -> dict[str, Any]:
    """A result as the loop writes it."""
    score = {
        "accuracy": 0.875,
        "scaled": 0.75,
        "exact": 0.5,
        "hits": 0.8,
        "loss": 0.25,
        "bins": {"40..64": 0.9, "65..96": 0.7},
        "content_free_bins": {"40..64": 0.5, "65..96": 0.51},
        "counts": {},
    }
    return {
        **labels(run),
        "status": "done",
        "steps": 20_000,
        "parameters": 4321,
        "state_bytes": 512,
        "numerics": {"device": "a processor", "torch": "2.11.0"},
        "fingerprint": "abcdef012345",
        "mixed_numerics": False,
        "provenance": {"commit": "c0ffee", "dirty": True},
        "stopped_early": True,
        "floors": FLOORS,
        "test": score,
        "validation": {**score, "accuracy": 0.8125},
        "in_distribution": {**score, "accuracy": 1.0},
        "extrapolation": {"512": {**score, "accuracy": 0.1}, "1024": {**score, "accuracy": 1 / 3}},
        "backends": ["torch.lstm", "torch.sdpa"],
        "seconds": {"train": 12.5, "score": 0.1},
        **changes,
    }


def failure_of(run: Run, error: str = "RuntimeError: once") -> dict[str, Any]:
    """A failure as the loop writes it."""
    return {**labels(run), "error": error, "traceback": "", "provenance": {"commit": "c0ffee", "dirty": True}}


def folder_of(results: Path, run: Run) -> RunFolder:
    folder = RunFolder(results, run.run_id)
    folder.open(run)
    return folder


def runs() -> list[Run]:
    run = preset_run("parity", "lstm", seed=4)
    return [
        run,
        replace(run, seed=5),
        replace(run, seed=6),
        replace(run, seed=7, model=replace(run.model, d_model=16), eval=replace(run.eval, test=9)),
    ]


def filled(results: Path) -> Path:
    """A folder with a run that is done, one that diverged, one that failed and one under way."""
    done, diverged, failed, under_way = runs()
    folder_of(results, done).finish(result_of(done))
    whole = result_of(diverged, status="diverged", steps=7, loss="nan")
    scoreless = {k: v for k, v in whole.items() if k not in ("test", "validation", "in_distribution", "extrapolation")}
    folder_of(results, diverged).finish(scoreless)
    folder_of(results, failed).fail(failure_of(failed, 'RuntimeError: a "quote", a comma\nand a line'))
    folder_of(results, under_way).log(step=1, loss=0.5)
    return results


def test_a_finished_run_becomes_a_record(tmp_path: Path) -> None:
    run = runs()[3]
    folder = folder_of(tmp_path, run)
    assert Record.of(folder) is None
    folder.finish(result_of(run))
    found = Record.of(folder)
    assert found is not None
    assert found.model_dump() == {
        "run_id": run.run_id,
        "protocol": "xlstm_20k (eval.test=9)",
        "task": "parity",
        "level": "regular",
        "model": "lstm (d_model=16)",
        "lr": 1e-2,
        "seed": 7,
        "status": "done",
        "steps": 20_000,
        "stopped_early": True,
        "parameters": 4321,
        "state_bytes": 512,
        **FLOORS,
        "test": 0.875,
        "test_scaled": 0.75,
        "test_exact": 0.5,
        "test_hits": 0.8,
        "test_loss": 0.25,
        "test_bins": '{"40..64":0.9,"65..96":0.7}',
        "content_free_bins": '{"40..64":0.5,"65..96":0.51}',
        "extrapolation": '{"512":0.1,"1024":0.3333333333333333}',
        "validation": 0.8125,
        "in_distribution": 1.0,
        "train_seconds": 12.5,
        "score_seconds": 0.1,
        "device": "a processor",
        "fingerprint": "abcdef012345",
        "mixed_numerics": False,
        "backends": "torch.lstm torch.sdpa",
        "torch": "2.11.0",
        "commit": "c0ffee",
        "dirty": True,
        "error": "",
    }


def test_a_diverged_and_a_failed_run_are_records_without_scores(tmp_path: Path) -> None:
    found = collect(filled(tmp_path)).set_index("run_id")
    done, diverged, failed, under_way = (run.run_id for run in runs())
    assert set(found.index) == {done, diverged, failed} and under_way not in found.index
    assert found["status"].to_dict() == {done: "done", diverged: "diverged", failed: "failed"}
    assert found["steps"].to_dict() == {done: 20_000, diverged: 7, failed: 0}
    assert found.loc[[diverged, failed], list(SCORES)].isna().all(axis=None)
    assert found.loc[failed, "error"] == 'RuntimeError: a "quote", a comma\nand a line'


def test_a_result_outweighs_an_old_failure(tmp_path: Path) -> None:
    run = runs()[0]
    folder = folder_of(tmp_path, run)
    folder.fail(failure_of(run))
    folder.finish(result_of(run))
    assert collect(tmp_path)["status"].tolist() == ["done"]


@pytest.mark.parametrize("change", ["version", "protocol", "task", "not even JSON"])
def test_a_record_needs_nothing_of_a_runs_config(change: str, tmp_path: Path) -> None:
    """Of an older version, an unknown protocol or a plugin that is not here: its labels are in its result."""
    run = runs()[0]
    folder_of(tmp_path, run).finish(result_of(run))
    tree = run.plain()
    if change == "protocol":
        tree["protocol"] = "of_old"
    else:
        tree["task"] |= {"version": 0} if change == "version" else {"name": "of_old"}
    old = RunFolder(tmp_path, "parity-of-old")
    old.path.mkdir()
    (old.path / "config.json").write_text("{" if change == "not even JSON" else json.dumps(tree))
    old.finish(result_of(run, run_id="parity-of-old", protocol="of_old", task="of old"))
    found = collect(tmp_path).set_index("run_id")
    assert set(found.index) == {run.run_id, "parity-of-old"}
    assert found.loc["parity-of-old", ["protocol", "task", "test"]].tolist() == ["of_old", "of old", 0.875]


def test_a_result_in_another_runs_folder_is_refused(tmp_path: Path) -> None:
    run, other = runs()[:2]
    folder = folder_of(tmp_path, run)
    folder.finish(result_of(other))
    with pytest.raises(ValueError, match=f"{run.run_id} holds the result of another run, {other.run_id}"):
        Record.of(folder)


def test_a_failure_is_gone_once_a_retry_opens_the_folder(tmp_path: Path) -> None:
    run = runs()[0]
    folder = folder_of(tmp_path, run)
    assert folder.failure() is None
    folder.fail(failure_of(run))
    assert folder.failure() == failure_of(run)
    found = Record.of(folder)
    assert found is not None
    assert (found.status, found.error, found.commit, found.dirty) == ("failed", "RuntimeError: once", "c0ffee", True)
    folder.open(run)
    assert folder.failure() is None and Record.of(folder) is None


def test_collecting_twice_changes_no_byte(tmp_path: Path) -> None:
    first = collect(filled(tmp_path))
    before = (tmp_path / "records.csv").read_bytes()
    again = collect(tmp_path)
    assert (tmp_path / "records.csv").read_bytes() == before
    pd.testing.assert_frame_equal(first, again)
    assert first["run_id"].tolist() == sorted(first["run_id"])


def test_records_outlive_their_runs(tmp_path: Path) -> None:
    """What another machine collected and committed stays, to the byte, and joins what is here."""
    collect(filled(tmp_path / "there"))
    before = (tmp_path / "there" / "records.csv").read_bytes()
    here = tmp_path / "here"
    here.mkdir()
    (here / "records.csv").write_bytes(before)
    assert len(collect(here)) == 3
    assert (here / "records.csv").read_bytes() == before
    run = replace(runs()[0], seed=10)  # between the others by its name
    folder_of(here, run).finish(result_of(run))
    merged = collect(here)
    assert merged["run_id"].tolist() == sorted([run.run_id, *(done.run_id for done in runs()[:3])])
    pd.testing.assert_frame_equal(stored(here / "records.csv"), merged)
    pd.testing.assert_frame_equal(collect(here), merged)


def test_a_run_here_replaces_its_record(tmp_path: Path) -> None:
    run = runs()[0]
    folder = folder_of(tmp_path, run)
    folder.fail(failure_of(run))
    assert collect(tmp_path)["status"].tolist() == ["failed"]
    folder.finish(result_of(run))
    assert collect(tmp_path)["status"].tolist() == ["done"]


def test_numbers_survive_records_csv_to_the_last_bit(tmp_path: Path) -> None:
    rows = [record(seed=seed, test=1 / (3 + seed), lr=10 ** (-seed / 3), parameters=2**40 + seed) for seed in range(9)]
    frame(*rows).to_csv(tmp_path / "records.csv", index=False)
    collect(tmp_path)
    found = collect(tmp_path).set_index("seed")
    for seed in range(9):
        assert found.loc[seed, "test"] == 1 / (3 + seed) and found.loc[seed, "lr"] == 10 ** (-seed / 3)
        assert found.loc[seed, "parameters"] == 2**40 + seed


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("colour", "blue"),
        ("seed", "first"),
        ("seed", "1.5"),
        ("lr", "high"),
        ("test", "0.9 or so"),
        ("stopped_early", "perhaps"),
        ("parameters", "many"),
        ("status", ""),
    ],
)
def test_records_of_an_unknown_column_or_a_wrong_type_are_refused(column: str, value: str, tmp_path: Path) -> None:
    rows = pd.DataFrame([record(seed=seed) for seed in (0, 1)]).astype(object)
    rows[column] = [rows[column][0] if column in rows else value, value]
    rows.to_csv(tmp_path / "records.csv", index=False)
    before = (tmp_path / "records.csv").read_bytes()
    with pytest.raises(ValueError, match=column):
        collect(tmp_path)
    assert (tmp_path / "records.csv").read_bytes() == before


def test_records_without_a_required_column_are_refused(tmp_path: Path) -> None:
    frame(record()).drop(columns="task").to_csv(tmp_path / "records.csv", index=False)
    with pytest.raises(ValueError, match="task"):
        collect(tmp_path)


def test_writing_leaves_the_same_files_twice(tmp_path: Path) -> None:
    text = write(filled(tmp_path))
    files = {path.name: path.read_bytes() for path in (tmp_path / "tables").iterdir()}
    assert set(files) == {"accuracy.csv", "accuracy.md"}
    assert files["accuracy.md"].decode() == text
    assert "0.75 (1, 1 diverged, 1 failed)" in text
    assert write(tmp_path) == text
    assert {path.name: path.read_bytes() for path in (tmp_path / "tables").iterdir()} == files
    table = pd.read_csv(tmp_path / "tables" / "accuracy.csv")
    assert table["mean"].tolist() == [0.75] and table["validation"].tolist() == [0.8125]


@pytest.mark.parametrize("name", ["records.csv", "accuracy.csv", "accuracy.md"])
def test_an_interrupted_write_leaves_the_old_table(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(filled(tmp_path))
    path = next(tmp_path.rglob(name))
    before, rename = path.read_bytes(), Path.rename
    run = replace(runs()[0], seed=10)
    folder_of(tmp_path, run).finish(result_of(run))

    def interrupted(self: Path, target: Path) -> Path:
        if target == path:
            raise KeyboardInterrupt
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", interrupted)
        with pytest.raises(KeyboardInterrupt):
            write(tmp_path)
    assert path.read_bytes() == before
    write(tmp_path)
    assert path.read_bytes() != before


def test_an_empty_folder_has_no_table(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no finished runs under"):
        write(tmp_path)
