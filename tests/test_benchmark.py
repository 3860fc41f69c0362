"""The benchmark of strings: any registered task is timed, at both lengths, and a name that is none is one line."""

import importlib.util
import json
from pathlib import Path

import pytest
import torch

from chomsky_ladder.harness.config.registry import all_tasks

ROOT = Path(__file__).resolve().parents[1]
_spec = importlib.util.spec_from_file_location("benchmark", ROOT / "scripts" / "benchmarks" / "harness.py")
assert _spec and _spec.loader
benchmark = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(benchmark)


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["harness.py", "--strings", *words])
    return benchmark.main()


def test_strings_of_the_named_tasks_are_timed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "parity", "memorization", "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["task"] for row in rows] == ["parity", "memorization"]
    assert all(0 < row["us_a_sample_to_40"] < row["us_a_sample_to_256"] for row in rows)


def test_without_a_name_all_tasks_are(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(benchmark, "_times", lambda function, count, device: [1.0])
    assert run(monkeypatch) == 0
    lines = capsys.readouterr().out.splitlines()[2:]
    assert [line.split() for line in lines] == [[name, "3.91", "3.91"] for name in sorted(all_tasks())]


def test_a_task_that_is_none_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "parity", "paritty") == 2
    assert capsys.readouterr().err.startswith("unknown task 'paritty'; did you mean parity?")


def test_a_slow_string_is_told_by_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark, "_times", lambda function, count, device: [2.0, 4.0, 99.0])
    row = benchmark.of_strings("parity", torch.device("cpu"))
    assert row == {
        "samples_a_second_to_40": 64_000,
        "us_a_sample_to_40": 15.62,
        "samples_a_second_to_256": 64_000,
        "us_a_sample_to_256": 15.62,
    }
