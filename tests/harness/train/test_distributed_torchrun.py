"""Several processes from the command line: what torchrun starts is one run, and what they cannot do is refused."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chomsky_ladder.harness.train.loop import execute
from support.pair_of_processes import EXACT, cells, settings_in

ROOT = Path(__file__).parents[3]


@pytest.mark.full
def test_torchrun_trains_one_run(tmp_path: Path) -> None:
    words = "run bucket_sort moe --model.d-model 16 --train.steps 4 --train.batch 6 --train.lengths 3 12 --eval.test 16"
    words += " --eval.validation 16 --eval.lengths 5 12 --eval.extrapolate --exec.device cpu --json"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]
    environment = os.environ | {"LADDER_RESULTS": str(tmp_path), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, "chomsky_ladder", *words.split()], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)  # of one process: two would be no JSON
    assert (result["status"], result["steps"], result["numerics"]["processes"]) == ("done", 4, 2)


@pytest.mark.parametrize(
    ("train", "settings", "message"),
    [
        ({"batch": 7}, {}, "train.batch=7 does not divide among 2 processes"),
        ({}, {"compile": "on"}, "exec.compile=on is for one process, not for 2"),
        ({}, {"capture": "on"}, "exec.capture=on is for one process, not for 2"),
    ],
)
def test_what_several_processes_cannot_do_is_refused(
    train: dict[str, Any], settings: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    run = replace(cells()["lstm"], train=replace(EXACT, **train))
    with pytest.raises(ValueError, match=message):
        execute(run, replace(settings_in(tmp_path / "results"), **settings), quiet=True)
    assert not (tmp_path / "results").exists()
