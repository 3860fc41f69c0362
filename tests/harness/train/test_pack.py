"""Runs trained as one are the runs trained alone: losses, weights, records; each with its own fate."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.registry import all_models, find_model, find_task
from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.harness.store import checkpoint
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.train.loop import Busy, Loop, RunFailed, execute, execute_together
from chomsky_ladder.harness.train.pack import Pack, pack_key
from chomsky_ladder.harness.train.progress import Progress
from chomsky_ladder.models.block import Context
from chomsky_ladder.models.lstm import LSTMBlock, LSTMConfig
from support.cases import KINDS, full, some

CPU = torch.device("cpu")
EXACT = Train(steps=30, batch=6, lengths=(3, 12), lr=1e-2, precision="fp64", warmup=0.1)
SCORE = Eval(lengths=(10, 24), test=32, validation=16, every=10, bins=(10, 16, 24), extrapolate=(), batch=16)
STACKABLE = [name for name, classes in sorted(all_models().items()) if classes[0].tiny().stackable]


def three_runs(model: str, *, train: Train = EXACT, task: str = "cycle_nav") -> list[Run]:
    """Unlike in every scalar that may differ."""
    base = Run(task=find_task(task)(), model=find_model(model).tiny(), train=train, eval=SCORE)
    return [
        base,
        replace(base, seed=1, train=replace(train, lr=3e-3, weight_decay=0.3, clip=0.5, betas=(0.8, 0.95))),
        replace(base, seed=2, train=replace(train, lr=8e-3, lr_final=1e-3, warmup=0.0, clip=0.0, eps=1e-4)),
    ]


def advanced(runs: list[Run], steps: int) -> Pack:
    pack = Pack(runs, device=CPU, backend="auto")
    for step in range(steps):
        pack.advance(runs[0].train.longest(step))
    return pack


@pytest.mark.parametrize("steps", [6, full(50)])
@pytest.mark.parametrize("model", some(STACKABLE, always=KINDS))
def test_steps_together_are_steps_alone(model: str, steps: int) -> None:
    runs = three_runs(model, train=replace(EXACT, steps=50))
    together = advanced(runs, steps)
    for row, (run, seen) in enumerate(zip(runs, together.seen(), strict=True)):
        alone = advanced([run], steps)
        (expected,) = alone.seen()
        assert (seen.live, seen.done) == (True, steps)
        assert seen.loss == pytest.approx(expected.loss, rel=1e-9)
        assert seen.loss_sum == pytest.approx(expected.loss_sum, rel=1e-9)
        assert seen.metrics == pytest.approx(expected.metrics, rel=1e-6)
        for name, weight in together.models[row].state_dict().items():
            torch.testing.assert_close(weight, alone.models[0].state_dict()[name], rtol=1e-7, atol=1e-9)


def test_only_the_state_space_of_scalars_may_differ() -> None:
    first, *others = three_runs("lstm")
    assert all(pack_key(other) == pack_key(first) for other in others)
    for other in (
        replace(first, train=replace(first.train, steps=60)),
        replace(first, train=replace(first.train, lengths=(3, 13))),
        replace(first, model=replace(first.model, d_model=24)),
        replace(first, eval=replace(first.eval, every=5)),
    ):
        assert pack_key(other) != pack_key(first)
        with pytest.raises(AssertionError, match="scalars of training"):
            Pack([first, other], device=CPU, backend="auto")


def test_replicas_have_dropout_of_their_own() -> None:
    runs = [replace(run, model=replace(run.model, dropout=0.3)) for run in three_runs("transformer")]
    together = advanced(runs, 5)
    for run, seen in zip(runs, together.seen(), strict=True):
        assert seen.loss == pytest.approx(advanced([run], 5).seen()[0].loss, rel=1e-9)


def test_a_shared_length_is_each_runs_own() -> None:
    train = replace(EXACT, lengths_per="batch", curriculum=(5, 9), steps=8)
    runs = three_runs("lstm", train=train)
    together = advanced(runs, 8)
    for run, seen in zip(runs, together.seen(), strict=True):
        assert seen.loss == pytest.approx(advanced([run], 8).seen()[0].loss, rel=1e-9)


@dataclass(frozen=True, kw_only=True)
class BrittleConfig(LSTMConfig):
    """A model whose loss is NaN once its weights have moved far, as with a high learning rate."""

    name = "brittle"

    def block(self, layer: int) -> LSTMBlock:
        return _Brittle(self)


class _Brittle(LSTMBlock):
    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        far = self.cell.weight_hh.abs().max() > 0.9
        return super().forward(x_BLD, ctx) + torch.where(far, math.nan, 0.0)


def brittle_runs() -> list[Run]:
    base = Run(task=find_task("parity")(), model=BrittleConfig(d_model=8), train=EXACT, eval=SCORE)
    return [replace(base, seed=seed, train=replace(EXACT, lr=lr)) for seed, lr in enumerate((1e-3, 0.5, 2e-3))]


def test_a_replica_diverges_alone() -> None:
    runs = brittle_runs()
    pack, frozen = Pack(runs, device=CPU, backend="auto"), []
    for _ in range(EXACT.steps):
        pack.advance(12)
        if not pack.seen()[1].live:
            frozen.append({name: value.clone() for name, value in pack.models[1].state_dict().items()})
    first, second, third = pack.seen()
    assert not second.live and math.isnan(second.loss) and 0 < second.done < EXACT.steps
    assert len(frozen) == EXACT.steps - second.done
    assert all(torch.equal(frozen[0][name], value) for name, value in frozen[-1].items())
    assert bool(pack.weight_RP.isfinite().all())
    for run, seen in ((runs[0], first), (runs[2], third)):
        (expected,) = advanced([run], EXACT.steps).seen()
        assert seen.live and seen.loss == pytest.approx(expected.loss, rel=1e-9)
    (alone,) = advanced([runs[1]], EXACT.steps).seen()
    assert alone.done == second.done


def scores(result: dict) -> dict:
    return {key: result[key] for key in ("status", "steps", "parameters")} | {
        key: result[key]["accuracy"] for key in ("test", "validation", "in_distribution") if key in result
    }


def test_every_run_of_a_pack_has_its_own_record(tmp_path: Path) -> None:
    runs = brittle_runs()
    together = execute_together(runs, Exec(results=tmp_path / "a", log_every=5, checkpoint_every=20), quiet=True)
    assert [result["status"] for result in together] == ["done", "diverged", "done"]
    for run, result in zip(runs, together, strict=True):
        alone = execute(run, Exec(results=tmp_path / "b", log_every=5, checkpoint_every=20), quiet=True)
        assert scores(result) == scores(alone)
        assert (result["numerics"]["pack"], alone["numerics"]["pack"]) == (3, 1)
        one, other = (RunFolder(tmp_path / name, run.run_id) for name in "ab")
        assert [sorted(line) for line in one.history()] == [sorted(line) for line in other.history()]
        for line, expected in zip(one.history(), other.history(), strict=True):
            assert line == pytest.approx(expected, rel=1e-8)
        if result["status"] == "done":
            ours, theirs = (checkpoint.newest(folder.path) for folder in (one, other))
            assert ours["model"].keys() == theirs["model"].keys()
            assert all(value.untyped_storage().nbytes() == value.nbytes for value in ours["model"].values())
            assert ours["counters"] == pytest.approx(theirs["counters"])


def stopped_after(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    visit = Loop._visit

    def stopping(self: Loop, last: int, progress: Progress) -> None:
        visit(self, last, progress)
        if self.step >= steps:
            raise KeyboardInterrupt

    monkeypatch.setattr(Loop, "_visit", stopping)


def interrupted(runs: list[Run], settings: Exec, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        stopped_after(steps, patched)
        with pytest.raises(KeyboardInterrupt):
            execute_together(runs, settings, quiet=True)


def test_a_pack_with_unchanged_members_goes_on_bit_for_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = three_runs("lstm_block", train=replace(EXACT, precision="fp32"))
    whole, parts = (Exec(results=tmp_path / name, log_every=5, checkpoint_every=7) for name in ("whole", "parts"))
    expected = execute_together(runs, whole, quiet=True)
    interrupted(runs, parts, 16, monkeypatch)
    # One member's checkpoint was still to be written when the process died.
    (RunFolder(parts.results, runs[1].run_id).path / "step_00000014.ckpt").unlink()
    found = execute_together(runs, parts, quiet=True)
    assert [scores(result) for result in found] == [scores(result) for result in expected]
    assert not any(result["mixed_numerics"] for result in found)
    for run in runs:
        one, other = (RunFolder(settings.results, run.run_id) for settings in (whole, parts))
        assert one.metrics.read_bytes() == other.metrics.read_bytes()
        ours, theirs = (checkpoint.newest(folder.path)["model"] for folder in (one, other))
        assert all(torch.equal(value, theirs[name]) for name, value in ours.items())


def test_a_member_goes_on_alone_and_the_others_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = three_runs("lstm")
    settings = Exec(results=tmp_path, log_every=5, checkpoint_every=7)
    interrupted(runs, settings, 14, monkeypatch)
    alone = execute(runs[1], settings, quiet=True)
    others = execute_together([runs[0], runs[2]], settings, quiet=True)
    for run, result in zip(runs, (others[0], alone, others[1]), strict=True):
        expected = execute(run, replace(settings, results=tmp_path / "alone"), quiet=True)
        assert scores(result) == scores(expected)
        assert result["mixed_numerics"] and not expected["mixed_numerics"]
        one, other = (checkpoint.newest(RunFolder(f, run.run_id).path)["model"] for f in (tmp_path, tmp_path / "alone"))
        assert all(torch.allclose(value, other[name], rtol=1e-7, atol=1e-9) for name, value in one.items())


def test_members_far_apart_go_on_in_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = three_runs("lstm")
    settings = Exec(results=tmp_path, log_every=5, checkpoint_every=7)
    interrupted(runs[:1], settings, 28, monkeypatch)
    starts: list[tuple[int, int]] = []
    go = Loop.go
    monkeypatch.setattr(Loop, "go", lambda self, p: (starts.append((self.step, len(self.members))), go(self, p)))
    assert all(result["status"] == "done" for result in execute_together(runs, settings, quiet=True))
    assert starts == [(0, 2), (28, 1)]


@pytest.mark.full
def test_some_stop_early_and_the_rest_form_a_smaller_pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train = Train(steps=300, batch=32, lengths=(3, 8), lr=1e-2, precision="fp64", stop_after=2)
    base = Run(
        task=find_task("even_pairs")(),
        model=LSTMConfig(d_model=16),
        train=train,
        eval=replace(SCORE, lengths=(3, 8), bins=(3, 8), validation=32, every=20),
    )
    slow = replace(base, train=replace(train, lr=1e-5))
    runs = [replace(base, seed=1), replace(base, seed=2), slow]
    sizes: list[int] = []
    go = Loop.go
    monkeypatch.setattr(Loop, "go", lambda self, p: (sizes.append(len(self.members)), go(self, p)))
    settings = Exec(results=tmp_path, checkpoint_every=50)
    found = execute_together(runs, settings, quiet=True)
    assert sizes == [3, 1]
    assert [result["stopped_early"] for result in found] == [True, True, False]
    for run, result in zip(runs, found, strict=True):
        assert scores(result) == scores(execute(run, replace(settings, results=tmp_path / "alone"), quiet=True))


def test_a_run_that_is_done_or_held_is_left_out(tmp_path: Path) -> None:
    runs, settings = three_runs("lstm", train=replace(EXACT, steps=10)), Exec(results=tmp_path)
    done = execute(runs[0], settings, quiet=True)
    with RunFolder(tmp_path, runs[1].run_id).locked():
        first, second, third = execute_together(runs, settings, quiet=True)
    assert first == done
    assert isinstance(second, Busy)
    assert third["status"] == "done" and third["numerics"]["pack"] == 1


def failing(condition: Callable[[Pack], bool], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Packs of which the condition holds run out of memory at their third step; the sizes of all that started."""
    advance, sizes = Pack.advance, []

    def limited(pack: Pack, longest: int) -> None:
        if int(pack.step_number) == 0:
            sizes.append(pack.count)
        if condition(pack) and int(pack.step_number) == 2:
            raise torch.OutOfMemoryError("out of memory")
        advance(pack, longest)

    monkeypatch.setattr(Pack, "advance", limited)
    return sizes


def test_a_pack_that_does_not_fit_is_tried_in_halves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = three_runs("lstm", train=replace(EXACT, steps=10))
    sizes = failing(lambda pack: pack.count > 1, monkeypatch)
    found = execute_together(runs, Exec(results=tmp_path), quiet=True, label="three")
    assert [result["status"] for result in found] == ["done"] * 3
    assert sizes == [3, 2, 1, 1, 1]
    assert "three: OutOfMemoryError: out of memory; its runs are tried in smaller packs" in capsys.readouterr().err


def test_one_broken_run_costs_the_others_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = three_runs("lstm", train=replace(EXACT, steps=10))
    failing(lambda pack: 1 in pack.stream.seed_R.tolist(), monkeypatch)
    found = execute_together(runs, Exec(results=tmp_path), quiet=True)
    assert [isinstance(result, RunFailed) for result in found] == [False, True, False]
    assert RunFolder(tmp_path, runs[1].run_id).failure()["error"] == "OutOfMemoryError: out of memory"
