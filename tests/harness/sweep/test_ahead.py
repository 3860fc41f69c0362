"""The next pack compiled by another process: what the pack asks for lies there, and nothing else changes."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.registry import find_model, find_task
from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.harness.sweep.ahead import Ahead
from chomsky_ladder.harness.sweep.engines import serial
from chomsky_ladder.harness.sweep.engines.base import Ended, Job, Started

RUN = Run(
    task=find_task("parity")(),
    model=find_model("min_gru").tiny(),
    train=Train(steps=20, batch=4, lengths=(3, 12)),
    eval=Eval(lengths=(10, 24), test=8, validation=8, every=0, bins=(10, 24), extrapolate=()),
)


def job_of(number: int, *seeds: int) -> Job:
    return Job(number, tuple(replace(RUN, seed=seed) for seed in seeds))


def on(results: Path, **changes: Any) -> Exec:
    return Exec(results=results, **{"device": "cpu", "compile": "on", **changes})


def test_only_what_is_compiled_is_prepared_and_only_when_it_is_time(tmp_path: Path) -> None:
    with Ahead(on(tmp_path, compile="off"), wait=0.0) as ahead:
        ahead.prepare(job_of(1, 0))
        assert ahead.wait() is None
    with Ahead(on(tmp_path), wait=60.0) as ahead:
        ahead.prepare(job_of(1, 0))
        assert ahead._timer and not ahead._helper
    assert not ahead._timer and not ahead._helper


@pytest.mark.full
def test_a_helper_that_fails_or_is_in_the_way_is_forgotten(tmp_path: Path) -> None:
    broken = replace(RUN, eval=replace(RUN.eval, file=str(tmp_path / "none"), file_sha256="0" * 64))
    with Ahead(on(tmp_path), wait=0.0) as ahead:
        ahead.prepare(Job(1, (broken, job_of(1, 1).runs[0])))  # no pack
        assert ahead.wait() not in (None, 0)
        ahead.prepare(job_of(2, 0))
        assert ahead._timer
        ahead._timer.join()
        helper = ahead._helper
        assert helper
        ahead.prepare(job_of(3, 0))
        assert helper.returncode is not None, "it was killed"


def test_a_sweep_prepares_the_job_behind_the_one_it_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    class Noted:
        def __init__(self, settings: Exec) -> None:
            pass

        def __enter__(self) -> "Noted":
            return self

        def __exit__(self, *_: object) -> None:
            said.append("left")

        def prepare(self, job: Job) -> None:
            said.append(f"prepare {job.number}")

    monkeypatch.setattr(serial, "Ahead", Noted)
    monkeypatch.setattr(serial, "train", lambda job, settings: said.append(f"train {job.number}") or [])
    events = list(serial.SerialCrew(on(tmp_path)).events([job_of(number, number) for number in (1, 2, 3)]))
    assert said == ["prepare 2", "train 1", "prepare 3", "train 2", "train 3", "left"]
    assert [type(event) for event in events] == [Started, Ended] * 3


FIRST_STEPS = """
import json, sys
import torch
from torch._dynamo.utils import counters
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.train.pack import Pack
from chomsky_ladder.harness.train.steps import PlainSteps
torch.set_num_threads(1)
pack = Pack([Run.from_plain(tree) for tree in json.load(sys.stdin)], device=torch.device("cpu"), backend="auto")
PlainSteps(pack, compiling=True).advance(0, 3, lambda step: None)
assert {"compiled.losses", "compiled.update"} <= pack.backends
print(json.dumps(counters["inductor"]))
"""


@pytest.mark.full
def test_what_was_made_ahead_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that trains the pack finds the compiled code and compiles nothing."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    job = job_of(1, 0, 1)
    with Ahead(on(tmp_path), wait=0.0) as ahead:
        ahead.prepare(job)
        assert ahead.wait() == 0
    trees = json.dumps([run.plain() for run in job.runs])
    command = [sys.executable, "-c", FIRST_STEPS]
    said = subprocess.run(command, input=trees, capture_output=True, text=True, check=True).stdout
    found = json.loads(said.splitlines()[-1])
    assert found["fxgraph_cache_hit"] >= 2 and not found.get("fxgraph_cache_miss"), found


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("device", ["cuda", "cuda:0"])
def test_a_helper_on_a_gpu_ends_well(device: str, tmp_path: Path) -> None:
    with Ahead(on(tmp_path, device=device), wait=0.0) as ahead:
        ahead.prepare(job_of(1, 0, 1))
        assert ahead.wait() == 0
