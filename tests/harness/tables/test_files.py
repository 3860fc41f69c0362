"""Tables as files: the same bytes every time, numbers to the last bit, and nothing half written or misread."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from chomsky_ladder.harness.stats.cells import cells
from chomsky_ladder.harness.store.record import collect
from chomsky_ladder.harness.tables.write import markdown, write
from support.records_by_hand import filled, folder_of, frame, record, result_of, runs


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
    assert "0.75 0/3, 1 diverged, 1 failed" in text
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
