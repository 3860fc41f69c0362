"""The benchmark of decoding: loops by hand that say what the models say, and a mistake in a line."""

import importlib.util
import json
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]
_spec = importlib.util.spec_from_file_location("decode_benchmark", ROOT / "scripts" / "benchmarks" / "decode.py")
decode_benchmark = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(decode_benchmark)

SMALL = ["--context", "5", "--tokens", "4", "--batch", "3", "--parameters", "3000", "--repeats", "2"]


def test_a_row_a_loop(capsys: pytest.CaptureFixture[str]) -> None:
    assert decode_benchmark.main([*SMALL, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["model"] for row in rows] == list(decode_benchmark.BY_HAND)
    assert all(min(row["by_steps"], row["by_hand"], row["ratio"]) > 0 for row in rows)


def test_a_loop_that_says_something_else_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(model: object, state: object, tokens_TB: torch.Tensor) -> torch.Tensor:
        return decode_benchmark.by_steps(model, state, tokens_TB.flip(0))

    monkeypatch.setitem(decode_benchmark.BY_HAND, "lstm", wrong)
    with pytest.raises(AssertionError, match="lstm: the loop by hand says something else"):
        decode_benchmark.main(SMALL)


def test_a_mistake_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        decode_benchmark.main(["--tokens", "0"])
    assert ended.value.code == 2 and "all numbers are at least 1" in capsys.readouterr().err
