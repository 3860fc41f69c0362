"""The table of held-out pairs: which cells stand side by side, and which answers are counted."""

import json
from pathlib import Path
from typing import Any

import pytest

from chomsky_ladder.harness.tables.write import table, write_all
from support.records_by_hand import frame, record


def of(share: int, *, seen: float = 0.0, first: float = 0.0, group: str = "S3", **own: Any) -> dict[str, Any]:
    settings = f"group={group}, asks=every" + (f", held_pairs={share}" if share else "")
    metrics = {"prefix": 0.5} | ({"seen_pairs": seen, "first_held_pair": first} if share else {})
    return record(task=f"word_problem ({settings})", **own) | {"metrics": json.dumps(metrics)}


ROWS = [
    of(0, test=0.99),
    of(10, seen=0.97, first=0.4, test=0.5, seed=0),
    of(10, seen=0.95, first=0.6, test=0.7, seed=1),
    of(25, seen=0.9, first=0.2, test=0.3),
    of(10, seen=0.8, first=0.7, test=0.6, model="gru"),
    of(0, test=0.1, group="A5"),  # nothing was held out of it
    record(task="parity"),
]


def test_seen_and_held_out_pairs_stand_side_by_side() -> None:
    made = table(frame(*ROWS), "held_pairs")
    (sheet,) = made.sheets
    assert sheet.title == "xlstm: held-out pairs of word_problem (group=S3, asks=every)"
    assert [(column.group, column.name) for column in sheet.columns] == [
        ("none", "all"),
        *[(share, kind) for share in ("10 %", "25 %") for kind in ("seen", "held out", "all")],
    ]
    assert {line.name: [entry.lines[0] for entry in line.entries] for line in sheet.lines} == {
        "GRU": ["-", "0.80", "0.70", "0.60", "-", "-", "-"],
        "LSTM": ["0.99", "0.96 [0.95, 0.97]", "0.50 [0.40, 0.60]", "0.60 [0.50, 0.70]", "0.90", "0.20", "0.30"],
    }
    lstm = made.data[made.data["model"] == "lstm"].set_index(["held_pairs", "answers"])["mean"]
    assert lstm[25, "held out"] == 0.2 and lstm[0, "all"] == 0.99 and lstm[10, "seen"] == pytest.approx(0.96)


def test_it_is_written_where_pairs_were_held_out(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no run held pairs out"):
        table(frame(*ROWS[-2:]), "held_pairs")
    assert "held_pairs.md" in {path.name for path in write_all(tmp_path, frame(*ROWS))[0]}
