"""The benchmark of scoring: its share of a run of one model, and the mistakes it refuses."""

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_spec = importlib.util.spec_from_file_location("scoring_share", ROOT / "scripts" / "benchmarks" / "scoring.py")
assert _spec is not None and _spec.loader is not None
scoring_share = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(scoring_share)


def called(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["scoring.py", *words])
    return scoring_share.main()


@pytest.mark.parametrize(("limit", "code"), [(1e9, 0), (0.0, 1)])
def test_a_share_is_of_all_validations_and_the_last_scores(
    limit: float, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setattr(scoring_share, "LIMIT", limit)
    words = ("--models", "gru", "--protocol", "quick", "--steps", "2", "--json", "--out", str(tmp_path / "kept.json"))
    assert called(monkeypatch, *words) == code
    told = json.loads(capsys.readouterr().out)
    kept = json.loads((tmp_path / "kept.json").read_text())
    (row,), run = told["rows"], scoring_share.run_of("gru", "quick")
    scored = run.train.steps // run.eval.every * row["validation_ms"] + row["last_ms"]
    assert row["share"] == pytest.approx(scored / (run.train.steps * row["step_ms"]), rel=0.2)
    assert kept["rows"] == told["rows"] and kept["provenance"]["command"][0] == "scoring.py"


def test_a_climb_has_its_own_sizes() -> None:
    run = scoring_share.run_of("gru", "climb-v1")
    assert run.task.name == "parity" and run.train.steps == 2000


@pytest.mark.parametrize(
    "words",
    [("--models", "no-such"), ("--protocol", "no-such"), ("--steps", "0"), ("--out", "no/such/folder/kept.json")],
)
def test_mistakes_are_told_before_any_work(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    with pytest.raises(SystemExit) as left:
        called(monkeypatch, *words)
    assert left.value.code == 2 and "error:" in capsys.readouterr().err
