"""scripts/decoding.py: from nothing to the table, and the numbers of `ladder generate` in it."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import chomsky_ladder
from chomsky_ladder.harness.store.record import stored
from chomsky_ladder.harness.tables.formats import markdown

ROOT = Path(__file__).parents[1]


@pytest.fixture
def decoding() -> Any:
    spec = importlib.util.spec_from_file_location("decoding", ROOT / "scripts" / "decoding.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_published_table_is_that_of_its_numbers(decoding: Any) -> None:
    published = ROOT / "results" / "decoding"
    data, records = pd.read_csv(published / "cpu.csv"), stored(published / "records.csv")
    assert set(data["run_id"]) == set(records["run_id"])
    sheet = decoding.sheet_of(data, records)
    assert markdown([sheet]) == (published / "cpu.md").read_text()
    assert len(sheet.lines) == len(decoding.TASKS) * len(decoding.MODELS) * len(decoding.LENGTHS)


def test_each_way_of_each_model_stands_in_the_table(
    decoding: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(decoding, "MODELS", ("lstm",))
    monkeypatch.setattr(decoding, "TASKS", {name: decoding.TASKS[name] for name in ("reverse_string", "text")})
    monkeypatch.setattr(sys, "argv", ["decoding.py", "--budget", "smoke", "--results", str(tmp_path)])
    assert decoding.main() == 0
    said = capsys.readouterr().out
    assert said == (tmp_path / "smoke.md").read_text() and "| reverse_string 39, LSTM |" in said
    data = pd.read_csv(tmp_path / "smoke.csv")
    assert list(zip(data["task"], data["length"], data["way"], strict=True)) == [
        (task, length, way)
        for task, lengths in (("reverse_string", (39, 63)), ("text", (40, 64)))
        for length in lengths
        for way in ("greedy", "beam of 4", "temperature 0.5", "temperature 1")
    ]
    beam = data[data["way"] == "beam of 4"].iloc[0]
    found = chomsky_ladder.generate(beam["run_id"], count=4, length=39, beam=4, results=tmp_path)
    assert beam["symbols"] == pytest.approx(found["right_symbols"] / found["symbols"], abs=1e-6)
    assert beam["exact"] == found["right"] / 4
