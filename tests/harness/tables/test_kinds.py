"""Each kind of table from hand-made records: what stands in it, what is a dash, and what may be bold."""

import random
from typing import Any

import pandas as pd
import pytest

from chomsky_ladder.harness.config.presets import PROTOCOLS
from chomsky_ladder.harness.stats.cells import cells
from chomsky_ladder.harness.store.labels import TRAITS
from chomsky_ladder.harness.tables.kind import all_kinds
from chomsky_ladder.harness.tables.sheets import OVERFLOWED, Sheet
from chomsky_ladder.harness.tables.write import csv, table, text
from chomsky_ladder.tasks.base import TASKS
from support.records_by_hand import OF_SOME_SUITES, frame, record

KINDS = [kind.name for kind in all_kinds() if kind.name not in OF_SOME_SUITES]
HIGH, LOW = (0.9, 0.91, 0.92, 0.93, 0.94), (0.1, 0.2, 0.3, 0.4, 0.5)
CURVE = {
    "test_bins": '{"40..64":0.9,"65..96":0.7}',
    "content_free_bins": '{"40..64":0.55,"65..96":0.5}',
    "extrapolation": '{"512":0.6}',
    "in_distribution": 1.0,
}


def seeds(model: str, scores: tuple[float, ...], **changes: Any) -> list[dict[str, Any]]:
    return [record(model=model, seed=seed, test_scaled=score, **changes) for seed, score in enumerate(scores)]


def sheets_of(rows: list[dict[str, Any]], kind: str, **options: Any) -> tuple[Sheet, ...]:
    return table(frame(*rows), kind, **options).sheets


def shown(sheet: Sheet) -> dict[str, list[str]]:
    """The lines of a sheet by their first entry, the header first."""
    header = {sheet.corner: [column.name for column in sheet.columns]}
    return header | {line.name: ["|".join(entry.lines) for entry in line.entries] for line in sheet.lines}


def bold(sheet: Sheet) -> set[tuple[str, str]]:
    return {
        (sheet.columns[place].name, line.name)
        for line in sheet.lines
        for place, entry in enumerate(line.entries)
        if entry.bold
    }


def many_rows() -> list[dict[str, Any]]:
    noise = random.Random(0)
    rows = []
    for protocol in ("xlstm", "quick"):
        for task, level in (("parity", "regular"), ("reverse_string", "context_free"), ("set", "context_sensitive")):
            for model in ("lstm", "mamba", "transformer"):
                for seed in range(5):
                    status = "diverged" if noise.random() < 0.2 else "done"
                    scores = {name: noise.random() for name in ("test", "test_scaled", "validation")}
                    place = {"protocol": protocol, "task": task, "level": level, "model": model}
                    rows.append(record(**place, seed=seed, status=status, **({**CURVE, **scores})))
    return rows


@pytest.mark.parametrize("kind", ["accuracy", "hard", "state_tracking"])
def test_bold_is_what_the_test_over_seeds_allows(kind: str) -> None:
    task = "reverse_string" if kind == "hard" else "parity"
    rows = seeds("a", HIGH, task=task) + seeds("b", LOW, task=task) + seeds("c", HIGH[::-1], task=task)
    (sheet,) = sheets_of(rows, kind)
    assert bold(sheet) == {(task, "a"), (task, "c")}
    assert len(sheet.notes) == 1 and sheet.notes[0].startswith("Bold: ")


def test_nothing_is_bold_under_five_seeds_and_the_reason_stands_once() -> None:
    rows = [row for task in ("parity", "cycle_nav") for row in seeds("a", HIGH[:4], task=task)]
    rows += [row for task in ("parity", "cycle_nav") for row in seeds("b", LOW, task=task)]
    (sheet,) = sheets_of(rows, "accuracy")
    assert bold(sheet) == set()
    assert sheet.notes == ("Nothing may be bold: a leads: n = 4, and a claim needs 5 (cycle_nav, parity).",)


@pytest.mark.parametrize("kind", ["accuracy", "hard", "state_tracking", "lengths"])
def test_floors_are_rows_of_every_table_of_accuracy(kind: str) -> None:
    for sheet in sheets_of(many_rows(), kind):
        assert [line.name for line in sheet.lines if line.is_floor] == ["floor: best constant", "floor: content free"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_sheet_holds_one_protocol_and_every_one_has_a_sheet(kind: str) -> None:
    rows = seeds("only_xlstm", (0.1, 0.1), task="set", **CURVE) + seeds(
        "only_quick", (0.2, 0.2), protocol="quick", task="set", **CURVE
    )
    rows += seeds("only_xlstm", (0.1,), **CURVE) + seeds("only_quick", (0.2,), protocol="quick", **CURVE)
    if kind == "suite":  # of two models or more
        rows += [row | {"model": f"{row['model']}_2", "run_id": f"{row['run_id']}_2"} for row in rows]
    sheets = sheets_of(rows, kind)
    of_protocol = {sheet.title.split(":")[0]: set() for sheet in sheets}
    for sheet in sheets:
        of_protocol[sheet.title.split(":")[0]] |= {line.name for line in sheet.lines if not line.is_floor}
        assert bool(sheet.warning) == sheet.title.startswith("quick")
    assert {name: {model.removesuffix("_2") for model in models} for name, models in of_protocol.items()} == {
        "quick": {"only_quick"},
        "xlstm": {"only_xlstm"},
    }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("against", [None, "xlstm"])
def test_the_order_of_records_changes_no_byte(kind: str, against: str | None) -> None:
    if against and kind in ("lengths", "learning", "cost", "suite"):
        return
    rows = many_rows()
    made = [table(frame(*random.Random(key).sample(rows, len(rows))), kind, against=against) for key in range(3)]
    for form in ("markdown", "csv", "latex", "html"):
        assert len({text(one, form) for one in made}) == 1


def test_a_protocol_without_a_cell_of_the_papers_is_named_below_the_others() -> None:
    rows = [record(protocol="xlstm", model="transformer"), record(protocol="grazzi v2", task="set")]
    (sheet,) = table(frame(*rows), "accuracy", against="grazzi").sheets
    assert sheet.title == "xlstm" and "No cell of the paper's: grazzi v2." in sheet.notes
    (alone,) = table(frame(*rows[1:]), "accuracy", against="grazzi").sheets  # nothing else to show
    assert alone.title == "grazzi v2"


def test_the_numbers_of_accuracy_are_those_of_its_file() -> None:
    rows = many_rows()
    assert text(table(frame(*rows), "accuracy"), "csv") == csv(cells(frame(*rows)))


def test_the_hard_tasks_are_those_alone() -> None:
    tasks = ("parity", "set", "reverse_string (num_symbols=2)", "odds_first v2", "setting")
    (sheet,) = sheets_of([record(task=task) for task in tasks], "hard")
    assert shown(sheet)["model"] == ["odds_first v2", "reverse_string (num_symbols=2)", "set", "s a run"]
    hard = {cls.name for cls in TASKS if cls.hard}
    assert hard < set(PROTOCOLS["xlstm"].table) and len(hard) == 5
    assert hard == {name for name, trait in TRAITS.items() if trait == "hard"}  # of records of before


def test_state_tracking_counts_the_runs_that_solve() -> None:
    rows = [*seeds("lstm", (1.0, -0.2, 0.9)), record(seed=3, status="diverged"), record(task="dyck")]
    made = table(frame(*rows), "state_tracking")
    (sheet,) = made.sheets
    assert shown(sheet)["LSTM"] == ["0.90 [-0.20, 1.00] 2/4, 1 diverged", "4.0"]
    assert made.data[["solved", "runs"]].to_numpy().tolist() == [[2, 4]]
    assert {cls.level for cls in TASKS if cls.tracks_state} == {"regular"}
    assert {cls.name for cls in TASKS if cls.tracks_state} > {n for n, trait in TRAITS.items() if trait != "hard"}


def test_lengths_by_hand() -> None:
    rows = [record(seed=0, test=0.8, test_scaled=0.6, **CURVE)]
    rows += [record(seed=1, test=0.7, test_scaled=0.4, **(CURVE | {"extrapolation": '{"512":0.5}'}))]
    rows += [record(model="mamba", status="failed"), record(model="hyena", **(CURVE | {"extrapolation": "{}"}))]
    made = table(frame(*rows), "lengths")
    (sheet,) = made.sheets
    assert sheet.title == "xlstm: parity"
    assert shown(sheet) == {
        "model": ["3..40", "40..64", "65..96", "40..96", "512"],
        "Hyena": ["1.00", "0.80", "0.40", "0.80 0/1", "-"],
        "LSTM": ["1.00", "0.80", "0.40", "0.50 [0.40, 0.60] 0/2", "0.10 [0.00, 0.20]"],
        "Mamba": ["-", "-", "-", "1 failed", "-"],
        "floor: best constant": ["-", "-", "-", "0.10", "-"],
        "floor: content free": ["-", "0.10", "0.00", "0.20", "-"],
    }
    assert [column.group for column in sheet.columns] == ["training", "test", "test", "test", "further"]
    assert bold(sheet) == set() and "bold" in sheet.notes[0]
    data = made.data.set_index(["model", "floor", "kind", "lengths"])
    assert data.loc[("lstm", "", "further", "512"), ["mean", "n"]].tolist() == [pytest.approx(0.1), 2]
    assert data.loc[("", "content_free", "test", "40..64"), ["mean", "n"]].tolist() == [pytest.approx(0.1), 0]
    assert len(data) == 5 + 4 + 1 + 3


def test_lengths_of_a_task_with_several_answers_are_raw() -> None:
    (sheet,) = sheets_of([record(test_scaled=None, test=0.8, **CURVE)], "lengths")
    assert shown(sheet)["LSTM"] == ["1.00", "0.90", "0.70", "0.80 0/1", "0.60"]
    assert sheet.lead[0].startswith("Accuracy (raw)")


def test_cost_by_hand() -> None:
    tokens = {"tokens_per_step": 80.0}  # 4,000 a second, and 2,000
    rows = [record(parameters=1_234_567, state_bytes=512, train_seconds=2.0, score_seconds=0.5, device="one", **tokens)]
    rows += [
        record(
            task="dyck",
            parameters=1_234_000,
            state_bytes=512,
            train_seconds=4.0,
            score_seconds=0.5,
            device="one",
            **tokens,
        )
    ]
    unknown = {"tokens_per_step": None}
    rows += [
        record(
            seed=1, parameters=1_234_567, state_bytes=512, train_seconds=9.0, score_seconds=1.0, device="two", **unknown
        )
    ]
    rows += [record(model="mamba", status="failed", device="one"), record(model="hyena", parameters=7, **unknown)]
    made = table(frame(*rows), "cost")
    (sheet,) = made.sheets
    assert [(line.name, *("|".join(entry.lines) for entry in line.entries)) for line in sheet.lines] == [
        ("Hyena", "unknown", "1", "1", "7", "-", "-", "-", "-", "3.0", "1.0"),
        ("LSTM", "one", "2", "2", "1,234,000..1,234,567", "512", "-", "3,000.0", "-", "3.0", "0.5"),
        ("LSTM", "two", "1", "1", "1,234,567", "512", "-", "-", "-", "9.0", "1.0"),
    ]
    assert "\nxlstm,lstm,one,2,2,1234000,1234567,512,512,,,3000,,3,0.5\n" in text(made, "csv")
    assert text(made, "csv").splitlines()[1] == "xlstm,hyena,unknown,1,1,7,7,,,,,,,3,1"


def test_cost_takes_up_columns_that_records_may_have_one_day() -> None:
    rows = pd.DataFrame([record(), record(seed=1)]).assign(flops_per_token=[5e6, 5e6], peak_memory_bytes=[1e6, 3e6])
    entries = table(rows, "cost").sheets[0].lines[0].entries
    assert [entry.lines[0] for entry in (entries[5], entries[7])] == ["5,000,000", "3,000,000"]


@pytest.mark.parametrize("kind", ["hard", "state_tracking"])
def test_a_kind_without_records_is_refused_in_one_line(kind: str) -> None:
    with pytest.raises(ValueError, match=f"nothing to show in a table of {kind}: no record is of [^\n]*$"):
        table(frame(record(task="dyck")), kind)


@pytest.mark.parametrize("kind", ["lengths", "learning", "cost"])
def test_a_kind_that_needs_a_finished_run_is_refused_without(kind: str) -> None:
    with pytest.raises(ValueError, match=f"nothing to show in a table of {kind}: no (finished )?run "):
        table(frame(record(status="failed"), record(seed=1, status="diverged")), kind)


def test_of_which_nothing_finished_the_accuracy_says_so() -> None:
    (sheet,) = sheets_of([record(status="failed")], "accuracy")
    assert shown(sheet)["LSTM"] == ["1 failed", "-"]
    assert sheet.notes == ("Nothing may be bold: no run has a result (parity).",)


def test_answers_that_are_no_numbers_are_marked() -> None:
    rows = [record(seed=seed, test_loss=None if seed else 0.25) for seed in range(3)]
    (sheet,) = sheets_of(rows, "accuracy")
    assert shown(sheet)["LSTM"][0].endswith(", 2 overflowed") and OVERFLOWED in sheet.notes
    (sheet,) = sheets_of(rows[:1], "accuracy")
    assert "overflowed" not in shown(sheet)["LSTM"][0] and OVERFLOWED not in sheet.notes


def test_ours_beside_the_papers() -> None:
    rows = seeds("lstm", (0.97, 1.0, 0.99), steps=300) + seeds("mamba", (0.5, 0.6)) + seeds("mine", (0.5, 0.6))
    rows += seeds("lstm", (0.99, 0.99), task="dyck") + seeds("lstm", (0.94,), task="bucket_sort")
    rows += seeds("transformer", (0.02, 0.03, 0.01), content_free=0.5)
    rows += [record(model="hyena", status="failed")]
    rows += seeds("lstm", (1.0,), protocol="climb-v1")
    made = table(frame(*rows), "accuracy", against="xlstm")
    (sheet,) = made.sheets
    lines = shown(sheet)
    assert lines["model"] == ["bucket_sort", "dyck", "parity", "s a run"]
    assert lines["LSTM"][:3] == [
        "0.94 1/1 ●|paper 0.94 ± 0.01|mean +0.00",
        "0.99 2/2 ●|paper -",
        "0.99 [0.97, 1.00] 3/3 ●|paper 1.00 ± 0.00|mean -0.01",
    ]
    assert lines["Mamba"][:3] == [
        "-|paper 0.69 ± 0.00",
        "-|paper -",
        "0.55 [0.50, 0.60] 0/2 ○|paper 0.13 ± 0.02|mean +0.42",
    ]
    assert lines["Hyena"][2] == "1 failed|paper 0.04 ± 0.00"
    assert lines["mine"][2] == "0.55 [0.50, 0.60] 0/2 ○|paper -"
    marks = {line.name: [entry.mark for entry in line.entries[:3]] for line in sheet.lines}
    assert marks["LSTM"] == ["undecided", "", "agrees"] and marks["Mamba"] == ["", "", "undecided"]
    assert marks["Transformer"][2] == "floor"
    assert "steps 100 to 300 (100,000), batch 256 (256), seeds 1 to 3 (2), rates 1 (3)" in sheet.lead[2]
    assert "width 128 (not published), blocks 2 (2), parameters 1,234 (not published)" in sheet.lead[2]
    assert "arXiv:2405.04517" in sheet.lead[1]
    assert sheet.notes[0] == "Not in the paper: models mine; tasks dyck."
    assert sheet.notes[1].startswith("In the paper and not here: models lstm_block, retention, rwkv4, ")
    assert sheet.notes[-1] == "Not compared: climb-v1, which is not of its family."
    data = made.data.set_index(["task", "model"])
    found = data.loc[("parity", "mamba")]
    assert found[["paper_model", "paper_value", "paper_spread", "agreement"]].tolist() == [
        "mamba",
        0.13,
        0.02,
        "undecided",
    ]
    assert found["difference"] == pytest.approx(0.42)
    assert data.loc[("dyck", "lstm"), ["paper_value", "difference", "agreement"]].isna().all()


def test_a_paper_of_raw_accuracies_and_best_seeds_is_met_in_its_own_measure() -> None:
    rows = seeds("rnn", (0.1, 0.0), protocol="deepmind", task="duplicate_string", test=0.55)
    rows = [row | {"settings": '{"protocol.version":2}', **names_of(row)} for row in rows]
    (sheet,) = sheets_of(rows, "accuracy", against="deltaformer")
    assert shown(sheet)["RNN"][0] == "0.53 [0.50, 0.55] 0/2 ○|paper 0.50|best +0.05"  # chance is .5
    assert "raw on both sides" in sheet.lead[1] and "is the best of our seeds" in sheet.lead[1]
    old = [record(protocol="deepmind", model="rnn")]
    with pytest.raises(
        ValueError, match="deltaformer stands beside deepmind v2 alone: deepmind v1, of which v2 alone is like it"
    ):
        table(frame(*old), "accuracy", against="deltaformer")


def test_a_raw_paper_beside_a_scaled_protocol_has_all_of_its_sheet_raw() -> None:
    rows = seeds("lstm", (1.0, 0.8), protocol="xlstm_cpu", task="parity")
    (own,) = sheets_of(rows, "accuracy")
    assert own.lead[0].startswith("Scaled test accuracy") and own.lead[0].endswith("reached 0.9.")
    (sheet,) = sheets_of(rows, "accuracy", against="slice")
    assert sheet.lead[0].startswith("Test accuracy, raw as in the paper") and sheet.lead[0].endswith(
        "reached 0.9 scaled."
    )
    assert "raw on both sides" in sheet.lead[1]
    assert shown(sheet)["LSTM"][0].startswith("0.95 [0.90, 1.00] 1/2 ○|paper 1.00")  # chance is .5
    by_floor = {line.name: line.entries[0].lines for line in sheet.lines if line.is_floor}
    scaled = {line.name: line.entries[0].lines for line in own.lines if line.is_floor}
    assert (scaled["floor: best constant"], by_floor["floor: best constant"]) == (("0.10",), ("0.55",))


def names_of(row: dict[str, Any]) -> dict[str, str]:
    return {f"{part}_name": row[part] for part in ("protocol", "task", "model")}


@pytest.mark.parametrize("setting", ["task.supervision=dense", "train.curriculum=40..80", "task.query=token"])
def test_another_grammar_or_supervision_is_not_compared(setting: str) -> None:
    with pytest.raises(ValueError, match=f"xlstm with another {setting.partition('=')[0]}"):
        table(frame(record(protocol=f"xlstm ({setting})")), "accuracy", against="xlstm")
    assert table(frame(record(protocol="xlstm (train.steps=9)")), "accuracy", against="xlstm").sheets


def test_the_hard_tables_values_without_a_spread_are_compared() -> None:
    rows = seeds("lstm_block", (0.50, 0.51, 0.52), task="set") + seeds("xlstm", (0.24, 0.26, 0.25), task="set")
    (sheet,) = sheets_of(rows, "hard", against="xlstm")
    assert [line.entries[0].mark for line in sheet.lines[:2]] == ["differs", "differs"]
    assert shown(sheet)["LSTM (Block)"][0] == "0.51 [0.50, 0.52] 0/3 ○|paper 0.18|mean +0.33"
    assert sheet.notes[0].endswith("tasks odds_first, repetition, reverse_string, stack_manipulation.")


def test_the_budget_is_of_the_label_where_that_says_so() -> None:
    rows = [record(protocol="xlstm (train.batch=64, train.steps=9)"), record(protocol="quick", model="x (d_model=7)")]
    rows += [
        record(protocol="quick"),
        record(protocol="xlstm_cpu"),
        record(protocol="xlstm_cpu", task="mod_arithmetic", model="lstm (d_model=9)"),
    ]
    quick, xlstm, cpu = sheets_of(rows, "accuracy", against="xlstm")
    assert "width 7 to 64 (" in quick.lead[2]
    assert "batch 64 (256)" in xlstm.lead[2] and "width 128 (" in xlstm.lead[2]
    assert "width 9 to 64 (not published), blocks 2 (2)" in cpu.lead[2]


def test_raw_accuracy_is_not_compared() -> None:
    (sheet,) = sheets_of([record(test_scaled=None)], "accuracy", against="xlstm")
    assert shown(sheet)["LSTM"][0] == "0.90 1/1 ●|paper 1.00 ± 0.00"
    assert sheet.lines[0].entries[0].mark == ""


@pytest.mark.parametrize("kind", ["lengths", "learning", "cost", "suite"])
def test_what_the_paper_has_no_values_for_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match=f"no published values for a table of {kind}"):
        table(frame(record()), kind, against="xlstm")


def test_learning_shows_medians_how_many_got_there_and_never() -> None:
    def run(seed: int, steps: int | None, **changes: Any) -> dict[str, Any]:
        known = {"steps": 400, "train_seconds": 100.0, "tokens_per_step": 1000.0, "steps_to_95": steps}
        return record(seed=seed, **(known | changes))

    rows = [run(0, 100), run(1, 300), run(2, None), *(run(s, None, model="mamba") for s in range(2))]
    rows.append(run(2, 50, model="mamba") | {"status": "diverged"})
    made = table(frame(*rows), "learning")
    titles = [sheet.title for sheet in made.sheets]
    assert titles == [f"xlstm: {unit} to 95 %" for unit in ("steps", "thousand tokens", "seconds of training")] + [
        "xlstm: steps to 99 %"
    ]
    shown = {sheet.title: [line.entries[0].lines[0] for line in sheet.lines] for sheet in made.sheets}
    assert shown["xlstm: steps to 95 %"] == ["300 (2/3)", "never (0/3)"]
    assert shown["xlstm: thousand tokens to 95 %"] == ["300 (2/3)", "never (0/3)"]
    assert shown["xlstm: seconds of training to 95 %"] == ["75.0 (2/3)", "never (0/3)"]
    assert shown["xlstm: steps to 99 %"] == ["never (0/3)", "never (0/3)"]
    first = made.data.iloc[0]
    assert (first["model"], first["accuracy"], first["steps"], first["not_by_step"]) == ("lstm", 0.95, 300, 400)
