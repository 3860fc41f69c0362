"""Folders of finished runs to merge, and the one to merge them into."""

from pathlib import Path
from typing import Any

import pytest
import torch

from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.store import checkpoint
from support.records_by_hand import folder_of, record, result_of, runs

RUN, OTHER, THIRD = runs()[:3]


def finished(results: Path, run: Run, **changes: Any) -> Path:
    """A run as the loop leaves it when it is done."""
    folder = folder_of(results, run)
    folder.log(step=1, loss=0.5)
    folder.log_time(event="trained", seconds=1.0)
    content = {"run_id": run.run_id, "weights": torch.arange(5.0)}
    checkpoint.write(checkpoint.path_of(folder.path, 20_000), content)
    (folder.path / "lock").touch()
    folder.finish(result_of(run, **changes))
    return folder.path


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def row_of(run: Run, **changes: Any) -> dict[str, Any]:
    """A line of records.csv that fits a run's id."""
    place = {"protocol": "xlstm_20k", "lr": run.train.lr, "seed": run.seed}
    return record(**place, run_id=run.run_id, **changes)


@pytest.fixture
def there(tmp_path: Path) -> Path:
    finished(tmp_path / "there", RUN)
    return tmp_path / "there"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return tmp_path / "here"
