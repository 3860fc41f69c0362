"""A finite training set: every row once an epoch, in another order each time, whatever batch, pack or kill."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.protocols import grid, identity_of
from chomsky_ladder.harness.config.registry import find_model, find_task
from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.harness.store import checkpoint
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.sweep.plan import packs
from chomsky_ladder.harness.train import distributed
from chomsky_ladder.harness.train.data import TrainingStream
from chomsky_ladder.harness.train.epochs import Epochs
from chomsky_ladder.harness.train.loop import Loop, execute, execute_together
from chomsky_ladder.harness.train.pack import Pack, pack_key
from chomsky_ladder.harness.train.progress import Progress
from chomsky_ladder.models.lstm import LSTMConfig
from chomsky_ladder.tasks.base import Batch
from support.cases import full, some

CPU = torch.device("cpu")
RESUMED = [((10, 37), (17,)), full((10, 37), range(1, 24)), full((10,), (1, 16, 17))]
SCORE = Eval(lengths=(10, 24), test=32, validation=16, every=10, bins=(10, 16, 24), extrapolate=(), batch=16)


def run_of(examples: int, *, seed: int = 3, task: str = "parity", **train: Any) -> Run:
    settings = Train(**{"batch": 6, "steps": 40, "lengths": (3, 30), "examples": examples, **train})
    return Run(task=find_task(task)(), model=LSTMConfig(d_model=8), train=settings, eval=SCORE, seed=seed)


def strings(batch: Batch) -> list[tuple[int, ...]]:
    lengths = batch.length_B.tolist()
    return [tuple(tokens[:length]) for tokens, length in zip(batch.tokens_BL.tolist(), lengths, strict=True)]


def seen_by(run: Run, steps: int) -> list[tuple[int, ...]]:
    stream = TrainingStream([run], CPU)
    return [string for step in range(steps) for string in strings(stream.batch(step, longest=run.train.longest(step)))]


def rows_seen(size: int, batch: int, steps: int, *, seed: int = 3) -> list[int]:
    epochs = Epochs([size], torch.tensor([seed]), batch=batch)
    places = torch.arange(batch)
    return [
        row for step in range(steps) for row in epochs.rows(places + step * batch, before=torch.tensor(step * batch))
    ]


@pytest.mark.parametrize(("size", "batch"), [(1, 1), (1, 7), (2, 3), (5, 2), (6, 6), (7, 64), (64, 7), (1000, 32)])
def test_an_epoch_has_every_row_once(size: int, batch: int) -> None:
    steps = 3 * size // batch + 2
    rows = list(map(int, rows_seen(size, batch, steps)))
    whole = len(rows) // size
    assert whole >= 3
    epochs = [rows[start : start + size] for start in range(0, whole * size, size)]
    assert all(sorted(epoch) == list(range(size)) for epoch in epochs)
    if size >= 64:
        assert len(set(map(tuple, epochs))) == whole  # no two orders alike
        assert epochs[0] != list(range(size))


def test_the_strings_of_an_epoch_are_the_first_rows_of_the_endless_stream() -> None:
    """Each as it is there, its length too; so sets of more strings hold those of fewer."""
    endless = Counter(seen_by(run_of(0), 10))
    for epoch in range(3):
        drawn = seen_by(run_of(60), 30)[60 * epoch : 60 * epoch + 60]
        assert Counter(drawn) == endless and drawn != seen_by(run_of(0), 10)
    assert Counter(seen_by(run_of(24), 4)) <= endless


def test_a_set_smaller_than_a_batch_repeats_within_it() -> None:
    drawn = Counter(seen_by(run_of(4, batch=32, lengths=(20, 30)), 3))
    assert len(drawn) == 4 and set(drawn.values()) == {24}


def test_batches_of_any_size_see_one_sequence() -> None:
    small, large = seen_by(run_of(25, batch=5), 20), seen_by(run_of(25, batch=50), 2)
    assert small == large


def test_sets_and_orders_are_the_seeds_own() -> None:
    one, other = (seen_by(run_of(16, seed=seed, batch=16, lengths=(30, 30)), 1) for seed in (3, 4))
    assert not set(one) & set(other)
    assert rows_seen(64, 64, 1) != rows_seen(64, 64, 1, seed=4)


def test_every_stage_of_a_curriculum_has_its_own_strings_of_the_rows() -> None:
    run = run_of(12, curriculum=(6, 20), steps=20)
    drawn = seen_by(run, 20)
    early, late = Counter(drawn[:60]), Counter(drawn[60:])
    assert max(map(len, early)) <= 6 < max(map(len, late))
    for stage, longest in ((early, 6), (late, 20)):
        rows = Counter(seen_by(run_of(0, lengths=(3, longest)), 2))
        assert stage == Counter({string: 5 * count for string, count in rows.items()})


@pytest.mark.parametrize("examples", [(16, 16, 16), (4, 100, 37)])
def test_a_pack_draws_what_each_run_draws_alone(examples: tuple[int, ...]) -> None:
    runs = [run_of(size, seed=seed) for seed, size in enumerate(examples)]
    together = TrainingStream(runs, CPU)
    for step in (0, 1, 2, 7, 30):
        batch = together.batch(torch.tensor(step), longest=30)
        for row, run in enumerate(runs):
            alone = TrainingStream([run], CPU).batch(step, longest=30)
            assert all(torch.equal(ours[row], theirs) for ours, theirs in zip(batch, alone, strict=True))


def test_processes_share_the_rows_of_a_set(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = [TrainingStream([run_of(7)], CPU).batch(step, longest=30).tokens_BL for step in range(4)]
    parts = []
    for rank in range(2):
        monkeypatch.setattr(distributed, "processes", lambda: 2)
        monkeypatch.setattr(distributed.dist, "get_rank", lambda rank=rank: rank)
        shard = distributed.ShardedStream(run_of(7), CPU)
        parts.append([shard.batch(torch.tensor(step), longest=30).tokens_BL for step in range(4)])
    assert all(torch.equal(torch.cat(halves), step) for *halves, step in zip(*parts, whole, strict=True))


def test_sets_of_any_size_make_a_pack_and_endless_strings_another() -> None:
    listed = [run_of(size, seed=seed) for size in (10, 20, 0) for seed in (0, 1)]
    assert len({pack_key(run) for run in listed}) == 2
    assert [len(group) for group in packs(listed, size=len)] == [4, 2]
    with pytest.raises(AssertionError):
        Pack([listed[0], listed[-1]], device=CPU, backend="auto")


@pytest.mark.parametrize("model", some(("lstm", "transformer", "mamba"), always=("lstm",)))
def test_a_pack_of_several_sizes_takes_the_steps_of_each_alone(model: str) -> None:
    train = Train(batch=6, steps=30, lengths=(3, 12), precision="fp64", lr=1e-2)
    base = Run(task=find_task("cycle_nav")(), model=find_model(model).tiny(), train=train, eval=SCORE)
    runs = [replace(base, seed=seed, train=replace(train, examples=n)) for seed, n in enumerate((4, 20, 1000))]
    together = Pack(runs, device=CPU, backend="auto")
    for _ in range(8):
        together.advance(12)
    for run, seen in zip(runs, together.seen(), strict=True):
        alone = Pack([run], device=CPU, backend="auto")
        for _ in range(8):
            alone.advance(12)
        assert seen.loss == pytest.approx(alone.seen()[0].loss, rel=1e-9)


@pytest.mark.parametrize(("sizes", "stops"), RESUMED)
def test_resumed_at_any_step_is_undisturbed(
    sizes: tuple[int, ...], stops: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [run_of(size, steps=24, curriculum=(9, 20)) for size in sizes]
    whole = Exec(results=tmp_path / "whole", log_every=5, checkpoint_every=1)
    execute_together(runs, whole, quiet=True)
    visit = Loop._visit
    for stop in stops:
        parts = replace(whole, results=tmp_path / f"stopped at {stop}")

        def stopping(self: Loop, last: int, progress: Progress, stop: int = stop) -> None:
            visit(self, last, progress)
            if self.step >= stop:
                raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(Loop, "_visit", stopping)
            with pytest.raises(KeyboardInterrupt):
                execute_together(runs, parts, quiet=True)
        execute_together(runs, parts, quiet=True)
        for run in runs:
            one, other = (RunFolder(settings.results, run.run_id) for settings in (whole, parts))
            assert one.metrics.read_bytes() == other.metrics.read_bytes()
            ours, theirs = (checkpoint.newest(folder.path)["model"] for folder in (one, other))
            assert all(torch.equal(value, theirs[name]) for name, value in ours.items())


@pytest.mark.full
def test_strings_of_a_set_compile_whole_and_stay_the_same() -> None:
    torch._dynamo.reset()
    runs = [run_of(10), run_of(37, seed=4)]
    stream = TrainingStream(runs, CPU)
    stream.batch(torch.tensor(0), longest=30)
    compiled = torch.compile(
        lambda step: stream.batch(step, longest=30), fullgraph=True, dynamic=False, backend="aot_eager"
    )
    for step in (torch.tensor(1), torch.tensor(1 << 30)):
        drawn = stream.batch(step, longest=30)
        assert all(torch.equal(a, b) for a, b in zip(compiled(step), drawn, strict=True))


def test_a_label_says_the_size_and_the_id_keeps_it() -> None:
    (endless,), (finite,) = (
        grid("parity", "lstm", protocol="xlstm_cpu", overrides={"train.lr": 1e-2, "train.examples": n}, seeds=1)
        for n in (0, 1000)
    )
    assert endless.run_id == grid("parity", "lstm", protocol="xlstm_cpu", seeds=1)[0].run_id != finite.run_id
    assert "examples" not in endless.identity()["train"]
    assert identity_of(finite).protocol == "xlstm_cpu (train.examples=1000)"


@pytest.mark.full
def test_an_lstm_learns_its_set_by_heart(tmp_path: Path) -> None:
    """Eight strings, 200 times: the loss of training ends near nothing, which endless strings do not allow by then."""
    run = run_of(8, batch=8, steps=200, lengths=(12, 12), lr=3e-2)
    execute(run, Exec(results=tmp_path, log_every=100), quiet=True)
    *_, last = [line for line in RunFolder(tmp_path, run.run_id).history() if "loss" in line]
    assert last["loss"] < 0.02
