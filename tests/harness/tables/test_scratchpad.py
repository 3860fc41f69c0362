"""The table of scratchpads: which cells stand side by side, and what is counted of each."""

import json
from typing import Any

import pytest

from chomsky_ladder.harness.tables.write import table
from support.records_by_hand import frame, record


def of(kind: str, *, seed: int = 0, answer: float = 0.0, exact: float) -> dict[str, Any]:
    """A record of one kind; with steps the answer is a metric, and exact strings have no slip."""
    is_default = kind == "steps"
    kept = {"prefix": 0.5} | ({"last_answer": answer} if is_default else {})
    row = record(
        protocol="xlstm" if is_default else "xlstm (task.decode=parallel)",
        task="scratchpad" if is_default else f"scratchpad (scratchpad={kind})",
        seed=seed,
        test_exact=exact,
    )
    return row | {"metrics": json.dumps(kept)}


def test_an_answer_stands_under_what_is_written_before_it() -> None:
    rows = [of("steps", seed=seed, answer=answer, exact=0.5) for seed, answer in enumerate((0.9, 1.0, 0.98))]
    rows += [of("none", exact=0.52), of("padding", exact=0.51), record(task="parity")]
    made = table(frame(*rows), "scratchpad")
    (sheet,) = made.sheets
    assert sheet.title.startswith("xlstm: steps before the answer")
    assert [column.name for column in sheet.columns] == ["nothing", "fillers", "steps"]
    assert [(line.name, [entry.lines[0] for entry in line.entries]) for line in sheet.lines] == [
        ("scratchpad", ["0.52", "0.51", "0.98 [0.90, 1.00]"])
    ]
    assert dict(made.data[["before", "n"]].to_numpy().tolist()) == {"steps": 3, "none": 1, "padding": 1}


def test_what_was_not_run_is_a_dash_and_other_tasks_have_no_place() -> None:
    made = table(frame(of("steps", answer=1.0, exact=1.0), record()), "scratchpad")
    assert [[entry.lines[0] for entry in line.entries] for line in made.sheets[0].lines] == [["-", "-", "1.00"]]
    with pytest.raises(ValueError, match="a task with a scratchpad"):
        table(frame(record()), "scratchpad")
