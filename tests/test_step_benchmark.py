"""The benchmark of a training step: every row measured, and who is too slow told by the exit code."""

import importlib.util
import json
from pathlib import Path

import pytest

from chomsky_ladder.harness.config.registry import all_models

ROOT = Path(__file__).parents[1]
_spec = importlib.util.spec_from_file_location("step_benchmark", ROOT / "scripts" / "benchmarks" / "steps.py")
step_benchmark = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(step_benchmark)

SMALL = ["--length", "4", "--batch", "2", "--width", "8", "--repeats", "2"]


def said(words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict]:
    monkeypatch.setattr("sys.argv", ["steps.py", *SMALL, "--json", *words])
    code = step_benchmark.main()
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.full
def test_a_row_a_model_beside_the_block(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    _, told = said(["--models", "rnn", "stack_rnn"], monkeypatch, capsys)
    assert [(row["model"], row["loop"]) for row in told["rows"]] == [
        ("lstm_block", False),
        ("rnn", False),
        ("stack_rnn", True),
    ]
    assert told["rows"][0]["ratio"] == 1.0 and all(row["ms"] > 0 for row in told["rows"])


@pytest.mark.full
@pytest.mark.parametrize(("limit", "slow", "code"), [(1e9, [], 0), (0.0, ["lstm_block", "rnn"], 1)])
def test_only_what_is_no_loop_may_be_too_slow(
    limit: float, slow: list[str], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(step_benchmark, "LIMIT", limit)
    found, told = said(["--models", "rnn", "stack_rnn"], monkeypatch, capsys)
    assert (found, told["slow"]) == (code, slow)


def test_the_loops_are_models() -> None:
    assert set(step_benchmark.LOOPS) <= set(all_models())


@pytest.mark.full
def test_the_file_says_where_it_comes_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "steps.json"
    _, told = said(["--models", "rnn", "--out", str(file)], monkeypatch, capsys)
    kept = json.loads(file.read_text())
    assert kept["rows"] == told["rows"] and kept["provenance"]["command"][0] == "steps.py"
    with pytest.raises(SystemExit) as ended:
        said(["--models", "rnn", "--out", str(tmp_path / "no" / "steps.json")], monkeypatch, capsys)
    assert ended.value.code == 2 and "names a file in a folder that is there" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "wrong"), [(["--models", "lstn"], "did you mean lstm"), (["--repeats", "0"], "are at least 1")]
)
def test_mistakes_are_a_line(
    words: list[str], wrong: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        said(words, monkeypatch, capsys)
    assert ended.value.code == 2 and wrong in capsys.readouterr().err
