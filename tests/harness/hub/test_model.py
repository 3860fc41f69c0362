"""Weights for other programs: what is loaded back answers as the run did."""

import importlib.util
import json
from pathlib import Path

import pytest
import torch

from chomsky_ladder.harness.cli.main import main
from chomsky_ladder.harness.store.folder import find_run
from chomsky_ladder.harness.train.build import restored
from chomsky_ladder.models.block import Context

pytest.importorskip("safetensors")
TINY = ["--train.steps", "2", "--eval.test", "8", "--eval.validation", "8", "--eval.extrapolation", "2", "--quiet"]


@pytest.mark.parametrize("model", ["lstm", "transformer"])
def test_what_is_loaded_answers_as_the_run_does(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = tmp_path / "results"
    assert main(["run", "parity", model, "--protocol", "quick", "--exec.results", str(results), *TINY]) == 0
    capsys.readouterr()
    words = ["export-model", f"parity-{model}", str(tmp_path / "weights"), "--results", str(results), "--json"]
    assert main(words) == 0
    said = json.loads(capsys.readouterr().out)
    assert sorted(path.name for path in (tmp_path / "weights").iterdir()) == [
        "config.json",
        "load.py",
        "model.safetensors",
    ]
    spec = importlib.util.spec_from_file_location("their_loader", tmp_path / "weights" / "load.py")
    assert spec and spec.loader
    loader = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loader)
    loaded, task = loader.load()
    run, own, step = restored(find_run(results, said["run_id"]))
    assert (task, said["step"], said["tensors"]) == (run.task, step, len(own.state_dict()))
    tokens_BL = torch.randint(1, len(task.vocab), (3, 9), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.equal(loaded(tokens_BL, Context()), own(tokens_BL, Context()))
    assert main(words) == 2
    assert "is there already and not empty" in capsys.readouterr().err


def test_refusals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export-model"]) == 2
    assert "needs a RUN_ID" in capsys.readouterr().err
    assert main(["export-model", "nothing", str(tmp_path / "to"), "--results", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
