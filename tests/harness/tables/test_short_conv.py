"""The table of short convolutions: which cells are the two halves of a line, and which half is which."""

from pathlib import Path

import pytest

from chomsky_ladder.harness.tables.write import table, write_all
from support.records_by_hand import frame, record

ROWS = [
    record(model="gla", seed=0, test_scaled=0.1),
    record(model="gla", seed=1, test_scaled=0.2),
    record(model="gla (short_conv=4)", test_scaled=0.9),
    record(model="gla (short_conv=4, conv_places=A)", test_scaled=0.8),
    record(model="delta_net (eigenvalues=signed)", test_scaled=0.95),
    record(model="delta_net (conv_width=1, eigenvalues=signed)", test_scaled=0.3),
    record(model="delta_net (conv_width=1, eigenvalues=signed)", test_scaled=0.4, task="even_pairs"),
    record(model="delta_net (short_conv=4, conv_width=1, eigenvalues=signed)", test_scaled=0.6),
    record(model="delta_net (conv_width=2)", test_scaled=0.5),  # neither added nor taken away
    record(model="lstm", test_scaled=1.0),  # never changed
]


def test_a_line_is_a_model_without_a_convolution_and_with_one() -> None:
    made = table(frame(*ROWS), "short_conv")
    (sheet,) = made.sheets
    assert [(column.group, column.name) for column in sheet.columns] == [
        (task, conv) for task in ("even_pairs", "parity") for conv in ("without", "with")
    ]
    assert {line.name: [entry.lines[0] for entry in line.entries] for line in sheet.lines} == {
        "DeltaNet [-1,1]: conv_width=1": ["0.40 0/1", "-", "0.30 0/1", "0.95 1/1"],
        "DeltaNet [-1,1] (conv_width=1): short_conv=4": ["0.40 0/1", "-", "0.30 0/1", "0.60 0/1"],
        "GLA: short_conv=4": ["-", "-", "0.15 [0.10, 0.20] 0/2", "0.90 1/1"],
        "GLA: short_conv=4, conv_places=A": ["-", "-", "0.15 [0.10, 0.20] 0/2", "0.80 0/1"],
    }
    assert made.data.groupby("conv")["mean"].max().to_dict() == {"with": 0.95, "without": 0.4}


def test_it_is_written_where_a_convolution_was_changed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no run has another short convolution than its model"):
        table(frame(*ROWS[-2:]), "short_conv")
    written = {path.name for path in write_all(tmp_path / "other", frame(*ROWS[-2:]))[0]}
    assert "short_conv.md" not in written
    assert "short_conv.md" in {path.name for path in write_all(tmp_path, frame(*ROWS))[0]}
