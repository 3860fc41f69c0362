"""The table of captured steps, as far as it goes without a CUDA device."""

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

ROOT = Path(__file__).parents[1]


@pytest.fixture
def captured_steps() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "scripts")
        import captured_steps

        yield captured_steps


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_device_it_says_what_it_takes(
    captured_steps: ModuleType, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit) as ended:
        captured_steps.main(["--out", str(tmp_path / "tables")])
    assert ended.value.code == 2 and "CUDA device, or scripts/null_gpu" in capsys.readouterr().err
    assert not list(tmp_path.iterdir()) and not captured_steps.is_null_gpu()


def test_a_model_that_breaks_costs_its_own_rows(captured_steps: ModuleType) -> None:
    late, broken = (
        row
        for name, minutes in (("lstm", 0.001), ("no_such_model", 1.0))
        for row in captured_steps.rows_in_processes([name], [], minutes=minutes)
    )
    assert late == {"model": "lstm", "error": "over its 0.001 minutes"}
    assert broken["model"] == "no_such_model" and broken["error"].startswith("exit ")


def test_the_table_says_what_was_refused(captured_steps: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captured_steps, "is_null_gpu", lambda: True)
    row = {"model": "lstm", "replicas": 9, "compile": "on", "nodes": 151, "gb": 3.6, "compiled": "draw losses"}
    text = captured_steps.table([row, {"model": "dnc", "error": "a | b"}], [{"model": "lstm", "held_mib": 14}])
    assert "| lstm | 9 | on | 151 | 3.6 | draw losses |" in text
    assert "a \\| b" in text and "runs no kernel" in text and "| lstm |  |  | 14 |" in text
