"""A run killed with SIGKILL at any moment and started again ends as one that was never killed, bit for bit."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.registry import all_models, find_model, find_task
from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.harness.store import checkpoint
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.train.loop import execute
from chomsky_ladder.harness.train.pack import Pack
from support.cases import KINDS, full, some

MODELS = sorted(all_models())
KILLED = ("moe", "mamba", "xlstm", "lstm", "transformer", "hybrid")  # the others are interrupted at every checkpoint
STEPS = 60
PROGRAM = """
import sys
from pathlib import Path
from chomsky_ladder import Exec, Run, execute
import json
for line in Path(sys.argv[1]).read_text().splitlines():
    settings = Exec(results=Path(sys.argv[2]), checkpoint_every=7, log_every=5)
    execute(Run.from_plain(json.loads(line)), settings, quiet=True)
"""


def the_run(model: str) -> Run:
    train = Train(steps=STEPS, batch=16, lengths=(3, 20), lr=1e-2)
    score = Eval(lengths=(10, 24), test=32, validation=32, every=20, extrapolate=(), bins=(10, 24))
    return Run(task=find_task("cycle_nav")(), model=find_model(model).tiny(), train=train, eval=score)


def outcome(results: Path, run: Run) -> tuple[bytes, dict, dict[str, torch.Tensor]]:
    """The bytes of the metrics, the scores and the weights."""
    folder = RunFolder(results, run.run_id)
    result = folder.result()
    assert result is not None
    scores = {
        key: result[key] for key in ("status", "steps", "test", "validation", "in_distribution", "mixed_numerics")
    }
    content = checkpoint.newest(folder.path)
    return folder.metrics.read_bytes(), scores, content["model"] | _moments(content["optimizer"])


def _moments(optimizer: dict) -> dict[str, torch.Tensor]:
    return {f"{kind} of {name}": value for kind, values in optimizer.items() for name, value in values.items()}


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where runs that were never interrupted are, once `outcome_of` has asked for them."""
    return tmp_path_factory.mktemp("untouched")


def outcome_of(untouched: Path, run: Run) -> tuple[bytes, dict, dict[str, torch.Tensor]]:
    execute(run, Exec(results=untouched, checkpoint_every=7, log_every=5), quiet=True)
    return outcome(untouched, run)


@pytest.mark.parametrize("models", [KILLED[:3], full(KILLED)], ids=len)
def test_killed_at_random_moments(models: tuple[str, ...], tmp_path: Path, untouched: Path) -> None:
    """One process trains models of every kind in turn and is killed again and again, wherever it is."""
    rng = random.Random(0)
    runs = [the_run(model) for model in models]
    listed = tmp_path / "list.jsonl"
    listed.write_text("\n".join(json.dumps(run.plain()) for run in runs))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    kills, times = 0, 5 if models == KILLED else 2
    for attempt in range(60):
        process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(listed), str(tmp_path)], env=environment)
        if attempt >= times:
            assert process.wait(timeout=300) == 0
            break
        _wait_for_progress(tmp_path, process)
        time.sleep(rng.random() * 0.3)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += process.wait() == -signal.SIGKILL
    assert kills >= times // 2 + 1
    for run in runs:
        metrics, scores, weights = outcome(tmp_path, run)
        wanted_metrics, wanted_scores, wanted_weights = outcome_of(untouched, run)
        assert metrics == wanted_metrics
        assert scores == wanted_scores
        assert weights.keys() == wanted_weights.keys()
        assert all(torch.equal(weights[name], wanted_weights[name]) for name in weights)


def _wait_for_progress(results: Path, process: subprocess.Popen) -> None:
    """Until some run's metrics have grown by a line."""

    def size() -> int:
        return sum(path.stat().st_size for path in results.glob("runs/*/metrics.jsonl"))

    before, deadline = size(), time.monotonic() + 60
    while size() <= before and process.poll() is None:
        assert time.monotonic() < deadline, "no progress in a minute"
        before = min(before, size())
        time.sleep(0.002)


@pytest.mark.parametrize("every", [20, full(7)])
@pytest.mark.parametrize("model", some(MODELS, always=KINDS))
def test_interrupted_at_every_checkpoint(
    model: str, every: int, tmp_path: Path, untouched: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each model, stopped in the middle of a checkpoint write and, on the way, after every one of them."""
    run, settings = the_run(model), Exec(results=tmp_path, checkpoint_every=every, log_every=5)
    wanted = outcome_of(untouched, run)
    write, writes = checkpoint.write, []

    def dies(path: Path, content: dict) -> None:
        writes.append(path)
        if len(writes) % 2:
            path.with_name(path.name + ".part").write_bytes(b"ladder-checkpoint 1 half of it")
            raise KeyboardInterrupt
        write(path, content)

    monkeypatch.setattr(checkpoint, "write", dies)
    for _ in range(2 * STEPS):
        try:
            execute(run, settings, quiet=True)
            break
        except KeyboardInterrupt:
            continue
    assert len(writes) >= 2 * (STEPS // every)
    found = outcome(tmp_path, run)
    assert found[:2] == wanted[:2]
    assert all(torch.equal(found[2][name], value) for name, value in wanted[2].items())
    assert not list((tmp_path / "runs" / run.run_id).glob("*.part"))


@pytest.mark.parametrize("damage", ["truncated", "flipped"])
def test_a_damaged_checkpoint_is_passed_by(
    damage: str, tmp_path: Path, untouched: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = the_run("lstm")
    folder = RunFolder(tmp_path, run.run_id)
    stop_at, advance, steps = 31, Pack.advance, iter(range(STEPS))

    def interrupted(pack: Pack, longest: int) -> None:
        if next(steps) == stop_at:
            raise KeyboardInterrupt
        advance(pack, longest)

    monkeypatch.setattr(Pack, "advance", interrupted)
    with pytest.raises(KeyboardInterrupt):
        execute(run, Exec(results=tmp_path, checkpoint_every=7, log_every=5), quiet=True)
    monkeypatch.undo()
    newest = folder.path / "step_00000028.ckpt"
    content = bytearray(newest.read_bytes())
    if damage == "truncated":
        del content[len(content) // 2 :]
    else:
        content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    with pytest.warns(UserWarning, match="step_00000028.ckpt does not match its digest; an older checkpoint is used"):
        execute(run, Exec(results=tmp_path, checkpoint_every=7, log_every=5), quiet=True)
    found, wanted = outcome(tmp_path, run), outcome_of(untouched, run)
    assert found[:2] == wanted[:2]
    assert all(torch.equal(found[2][name], value) for name, value in wanted[2].items())
