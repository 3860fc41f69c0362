"""The table of captured steps, as far as it goes without a CUDA device."""

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

FOLDER = Path(__file__).parent
pytestmark = pytest.mark.full


@pytest.fixture
def captured_steps() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        import captured_steps

        yield captured_steps


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_device_it_says_what_it_takes(
    captured_steps: ModuleType, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit) as ended:
        captured_steps.main(["--out", str(tmp_path / "tables")])
    assert ended.value.code == 2 and "CUDA device, or tests/instruments/null_gpu" in capsys.readouterr().err
    assert not list(tmp_path.iterdir()) and not captured_steps.is_null_gpu()


@pytest.mark.full
def test_a_model_that_breaks_costs_its_own_rows(captured_steps: ModuleType) -> None:
    late, broken = (
        row
        for name, minutes in (("lstm", 0.001), ("no_such_model", 1.0))
        for row in captured_steps.rows_in_processes([name], [], minutes=minutes)
    )
    assert late == {"model": "lstm", "error": "over its 0.001 minutes"}
    assert broken["model"] == "no_such_model" and broken["error"].startswith("exit ")


def test_the_table_says_what_was_refused_and_on_what_a_row_was_made(captured_steps: ModuleType) -> None:
    row = {"model": "lstm", "replicas": 9, "compile": "on", "nodes": 151, "gb": 3.6, "compiled": "draw losses"}
    row |= {"protocol": "xlstm_20k", "device": "a stand-in", "commit": "0123abc", "torch": "2.11"}
    packs = captured_steps.packs([{"model": "lstm", "held_mib": 14}])
    text = captured_steps.table([row, {"model": "dnc", "error": "a | b"}], packs)
    assert "| lstm | 9 | on | 151 | 3.6 | draw losses |" in text
    assert "a \\| b" in text and "| xlstm_20k | a stand-in | 0123abc | 2.11 |" in text and "| lstm |  |  | 14 |" in text


def test_rows_of_models_that_are_not_named_stay(captured_steps: ModuleType, tmp_path: Path) -> None:
    def row(model: str, nodes: int, commit: str, **others: object) -> dict[str, object]:
        return dict.fromkeys(captured_steps.COLUMNS) | {"model": model, "nodes": nodes, "commit": commit, **others}

    file = tmp_path / "captured_steps.csv"
    first = [row("lstm", 9, "a", gb=3.5), row("gru", 8, "a"), row("gru", 7, "a"), row("moe", 6, "a", error="none")]
    assert captured_steps.with_those_of_before(first, file) == first
    captured_steps.frame_of([*first, {"model": "dnc", "error": "late"}]).to_csv(file, index=False)
    assert "\nlstm,,,9,3.5," in file.read_text() and captured_steps.with_those_of_before([], file)[:-1] == first
    captured_steps.frame_of(first).to_csv(file, index=False)
    second = [row("mamba", 5, "b"), row("gru", 4, "b")]
    assert captured_steps.with_those_of_before(second, file) == [first[0], second[1], first[3], second[0]]
    assert captured_steps.with_those_of_before([], file) == first


def test_what_there_is_stands_in_the_tables_when_it_is_ended(
    captured_steps: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    packs = captured_steps.packs([{"model": "lstm", "held_mib": 14}])
    (tmp_path / "captured_steps.md").write_text(captured_steps.table([], packs))

    def ended(models: list[str], *given: object, **asked: object) -> Iterator[dict[str, object]]:
        yield {"model": "gru", "replicas": 1, "nodes": 7}
        raise KeyboardInterrupt

    monkeypatch.setattr(captured_steps, "rows_in_processes", ended)
    monkeypatch.setattr(captured_steps, "is_null_gpu", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(KeyboardInterrupt):
        captured_steps.main(["--models", "gru", "lstm", "--out", str(tmp_path)])
    text = (tmp_path / "captured_steps.md").read_text()
    assert "| gru | 1 |" in text and text.endswith("\n".join(packs) + "\n")
    assert "\ngru,1," in (tmp_path / "captured_steps.csv").read_text()
    assert captured_steps.packs_of_before(tmp_path / "captured_steps.md") == packs
