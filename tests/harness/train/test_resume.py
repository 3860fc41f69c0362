"""A run killed with SIGKILL at any moment and started again ends as one that was never killed, bit for bit."""

import random
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
from support.cases import full, some
from support.faults import kill_and_restart

MODELS = sorted(all_models())
KILLED = ("moe", "mamba", "xlstm", "lstm", "transformer", "hybrid")  # the others are interrupted at every checkpoint
STEPS = 60


def the_run(model: str, *, steps: int = STEPS) -> Run:
    train = Train(steps=steps, batch=16, lengths=(3, 20), lr=1e-2)
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
    """The folder of runs that were never interrupted, filled by `outcome_of`."""
    return tmp_path_factory.mktemp("untouched")


def outcome_of(untouched: Path, run: Run) -> tuple[bytes, dict, dict[str, torch.Tensor]]:
    execute(run, Exec(results=untouched, checkpoint_every=7, log_every=5), quiet=True)
    return outcome(untouched, run)


@pytest.mark.full
def test_killed_at_random_moments(tmp_path: Path, untouched: Path) -> None:
    """One process trains models of every kind in turn and is killed again and again, wherever it is.

    Every day test_faults_kills.py kills a run and a pack.
    """
    runs, kills, start = [the_run(model) for model in KILLED], 5, time.monotonic()
    wanted = [outcome_of(untouched, run) for run in runs]
    seconds = time.monotonic() - start
    settings = Exec(results=tmp_path, checkpoint_every=7, log_every=5)
    kill_and_restart(
        runs, settings, tmp_path / "notes", kills=kills, seconds=1.5 * seconds / kills, rng=random.Random(0)
    )
    for run, (wanted_metrics, wanted_scores, wanted_weights) in zip(runs, wanted, strict=True):
        metrics, scores, weights = outcome(tmp_path, run)
        assert metrics == wanted_metrics
        assert scores == wanted_scores
        assert weights.keys() == wanted_weights.keys()
        assert all(torch.equal(weights[name], wanted_weights[name]) for name in weights)


@pytest.mark.parametrize(("steps", "every"), [(24, 10), full(STEPS, 7)])
@pytest.mark.parametrize("model", some(MODELS, always=("lstm", "mamba", "xlstm", "hyena", "moe")))
def test_interrupted_at_every_checkpoint(
    model: str, steps: int, every: int, tmp_path: Path, untouched: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each model, stopped in the middle of a checkpoint write and, on the way, after every one of them."""
    run, settings = the_run(model, steps=steps), Exec(results=tmp_path, checkpoint_every=every, log_every=5)
    wanted = outcome_of(untouched, run)
    write, writes = checkpoint.write, []

    def dies(path: Path, content: dict) -> None:
        writes.append(path)
        if len(writes) % 2:
            path.with_name(path.name + ".part").write_bytes(b"ladder-checkpoint 1 half of it")
            raise KeyboardInterrupt
        write(path, content)

    monkeypatch.setattr(checkpoint, "write", dies)
    for _ in range(2 * steps):
        try:
            execute(run, settings, quiet=True)
            break
        except KeyboardInterrupt:
            continue
    assert len(writes) >= 2 * (steps // every)
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
