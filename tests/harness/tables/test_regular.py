"""The table of regular languages: each stands under its class, by its automaton."""

from pathlib import Path

import pytest

from chomsky_ladder.harness.tables.write import table, write_all
from support.records_by_hand import frame, record


def of(pattern: str, **own: object) -> dict[str, object]:
    return record(task=f"regular (pattern={pattern})" if pattern else "regular", **own)  # pyright: ignore[reportArgumentType]


ROWS = [
    of("(aa)*b*", test_scaled=0.1),
    of("(a|b)*b", test_scaled=0.2),
    of("(ab)*", test_scaled=0.95),
    of("(ab)*", test_scaled=0.5, seed=1),
    of("(ab)*", test_scaled=0.9, model="gru"),
    of("", test_scaled=0.8),  # the default, (ab|ba)*
    record(task="parity", test_scaled=1.0),
    record(task="regular (file_sha256=0123456789abcdef)", test_scaled=1.0),
]


def test_languages_stand_under_their_class() -> None:
    made = table(frame(*ROWS), "regular")
    (sheet,) = made.sheets
    assert [(column.group, column.name) for column in sheet.columns] == [
        ("in C-RASP", "(ab|ba)*"),
        ("in C-RASP", "(ab)*"),
        ("star-free", "(a|b)*b"),
        ("groups", "(aa)*b*"),
    ]
    assert {line.name: [entry.lines[0] for entry in line.entries] for line in sheet.lines} == {
        "GRU": ["-", "0.90 1/1", "-", "-"],
        "LSTM": ["0.80 0/1", "0.72 [0.50, 0.95] 1/2", "0.20 0/1", "0.10 0/1"],
    }
    assert made.data.groupby("class")["mean"].max().round(2).to_dict() == {
        "groups": 0.1,
        "in C-RASP": 0.9,
        "star-free": 0.2,
    }


def test_it_is_written_where_there_is_a_language(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no run is of the task regular with a pattern or a table"):
        table(frame(*ROWS[-2:]), "regular")
    assert "regular.md" not in {path.name for path in write_all(tmp_path / "other", frame(*ROWS[-2:]))[0]}
    assert "regular.md" in {path.name for path in write_all(tmp_path, frame(*ROWS))[0]}
