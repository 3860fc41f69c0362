"""The loop: the same losses whatever was built before, divergence before the step, early stop, and what it records."""

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from chomsky_ladder.harness.cli.describe import outcome
from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.protocols import preset_run
from chomsky_ladder.harness.config.registry import all_models, find_model, find_task
from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.harness.store.folder import Busy, RunFolder
from chomsky_ladder.harness.sweep.sweep import sweep
from chomsky_ladder.harness.train.build import build_model, load
from chomsky_ladder.harness.train.evaluate import Evaluator
from chomsky_ladder.harness.train.loop import Loop, execute
from chomsky_ladder.harness.train.pack import Pack
from chomsky_ladder.harness.train.progress import Progress
from chomsky_ladder.harness.train.score import Score
from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.native import missing
from chomsky_ladder.models.lstm import LSTMBlock, LSTMConfig
from support.cases import KINDS, full

CPU = torch.device("cpu")
SMALL = Train(steps=20, batch=8, lengths=(3, 12), lr=1e-2)
SHORT = Eval(lengths=(10, 24), test=32, validation=16, every=10, bins=(10, 16, 24), extrapolate=(32,), extrapolation=8)


def small_run(model: str = "lstm", task: str = "parity", *, seed: int = 0, train: Train = SMALL) -> Run:
    return Run(task=find_task(task)(), model=find_model(model).tiny(), train=train, eval=SHORT, seed=seed)


def losses(run: Run) -> list[float]:
    pack, found = Pack([run], device=CPU, backend="auto"), []
    for step in range(run.train.steps):
        pack.advance(run.train.longest(step))
        found.append(pack.seen()[0].loss)
    return found


@pytest.mark.parametrize("names", [KINDS, full(sorted(all_models()))], ids=["kinds", "all"])
def test_twenty_steps_are_the_same_in_any_order_and_company(names: list[str]) -> None:
    forwards = {name: losses(small_run(name)) for name in names}
    torch.manual_seed(99)
    backwards = {name: losses(small_run(name)) for name in reversed(names)}
    assert forwards == backwards
    assert all(len(set(values)) > 10 for values in forwards.values())


def test_the_seed_keys_weights_and_strings() -> None:
    assert losses(small_run(seed=0)) != losses(small_run(seed=1))


def test_building_a_model_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    build_model(small_run(), CPU)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_run_leaves_its_record(tmp_path: Path) -> None:
    run = small_run()
    result = execute(run, Exec(results=tmp_path, log_every=5), quiet=True)
    folder = RunFolder(tmp_path, run.run_id)
    assert result == folder.result()
    assert result["status"] == "done"
    assert result["steps"] == 20
    assert folder.config() == run.plain()
    history = folder.history()
    assert [line["step"] for line in history if "loss" in line] == [5, 10, 15, 20]
    assert [line["step"] for line in history if "validation" in line] == [10, 20]
    assert history[-1]["validation"] == result["validation"]["accuracy"]
    assert result["test"]["counts"]["strings"] == [c for c in result["test"]["counts"]["strings"] if c]
    assert sum(result["test"]["counts"]["strings"]) == 32
    assert set(result["test"]["bins"]) == {"10..16", "17..24"}
    assert list(result["extrapolation"]) == ["32"]
    assert result["floors"]["s_rand"] == 0.5
    assert result["backends"] == [*([] if missing() else ["native_adamw"]), "torch.lstm"]
    assert result["numerics"]["threads"] == 1
    assert {"commit", "dirty", "packages", "machine", "command"} <= set(result["provenance"])
    assert [path.name for path in folder.path.glob("*.ckpt")] == ["step_00000020.ckpt"]


def test_a_done_run_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = small_run()
    first = execute(run, Exec(results=tmp_path, log_every=5), quiet=True)
    monkeypatch.setattr(Loop, "go", lambda self, progress: pytest.fail("ran again"))
    assert execute(run, Exec(results=tmp_path, log_every=5), quiet=True) == first


@pytest.mark.parametrize(("steps", "asked"), [(20, 2), (25, 3)])
def test_the_last_validation_is_not_asked_twice(
    steps: int, asked: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A validation at the last step is reused for the record. Its scores are those of the final weights."""
    scores, validate = [], Evaluator.validation

    def counted(evaluator: Evaluator) -> Score:
        scores.append(validate(evaluator))
        return scores[-1]

    monkeypatch.setattr(Evaluator, "validation", counted)
    run = small_run(train=replace(SMALL, steps=steps))
    result = execute(run, Exec(results=tmp_path), quiet=True)
    assert len(scores) == asked
    model, *_ = load(run.run_id, results=tmp_path)
    again = validate(Evaluator(run, model, device=CPU, backend="auto"))
    assert result["validation"]["counts"] == json.loads(json.dumps(again.plain()))


def test_load_gives_the_trained_model(tmp_path: Path) -> None:
    run = small_run()
    execute(run, Exec(results=tmp_path, log_every=5), quiet=True)
    model, task, history = load(run.run_id[:12], results=tmp_path)
    again, *_ = load(run.run_id, results=tmp_path)
    tokens = torch.tensor([[1, 2, 2, 1]])
    assert task == run.task
    assert history[-1]["step"] == 20
    assert not model.training
    assert torch.equal(model(tokens, Context()), again(tokens, Context()))
    assert not torch.equal(model(tokens, Context()), build_model(run, CPU)(tokens, Context()))


def test_early_stop_is_recorded(tmp_path: Path) -> None:
    train = Train(steps=2000, batch=32, lengths=(3, 8), lr=1e-2, stop_after=2)
    short = Eval(lengths=(3, 8), test=32, validation=32, every=20, extrapolate=())
    run = Run(task=find_task("even_pairs")(), model=LSTMConfig(d_model=16), train=train, eval=short)
    result = execute(run, Exec(results=tmp_path, log_every=5), quiet=True)
    validations = [line["validation"] for line in RunFolder(tmp_path, run.run_id).history() if "validation" in line]
    assert result["stopped_early"]
    assert result["steps"] < 2000
    assert validations[-2:] == [1.0, 1.0]
    assert [1.0, 1.0] not in [validations[i : i + 2] for i in range(len(validations) - 2)]


@dataclass(frozen=True, kw_only=True)
class ExplodingConfig(LSTMConfig):
    """A model whose output is NaN for the batch of one step, in the forward or only in the backward pass."""

    name = "exploding"
    where: str = "forward"

    def block(self, layer: int) -> LSTMBlock:
        return _Exploding(self)


class _Exploding(LSTMBlock):
    def __init__(self, config: ExplodingConfig) -> None:
        super().__init__(config)
        self.where, self.calls = config.where, 0

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        y_BLD = super().forward(x_BLD, ctx)
        self.calls += self.training
        if self.calls == 13 and self.training:
            # sqrt has an infinite slope at 0: a finite loss with a gradient that is not.
            return y_BLD * float("nan") if self.where == "forward" else y_BLD + (y_BLD * 0).abs().sqrt()
        return y_BLD


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_a_run_diverges_before_the_optimiser_steps(tmp_path: Path, where: str) -> None:
    run = Run(task=find_task("parity")(), model=ExplodingConfig(d_model=8, where=where), train=SMALL, eval=SHORT)
    pack = Pack([run], device=CPU, backend="auto")
    for _ in range(12):
        pack.advance(12)
    before = {name: value.clone() for name, value in pack.models[0].state_dict().items()}
    for _ in range(3):  # the step that breaks it, and steps it does not take
        pack.advance(12)
        (seen,) = pack.seen()
        assert not seen.live and seen.done == 12
        assert not (math.isfinite(seen.loss) and math.isfinite(seen.norm))
        assert math.isnan(seen.loss) == (where == "forward")
        assert all(torch.equal(value, before[name]) for name, value in pack.models[0].state_dict().items())

    result = execute(run, Exec(results=tmp_path, log_every=5), quiet=True)
    assert result["status"] == "diverged"
    assert result["steps"] == 12
    assert "test" not in result


def test_weights_that_the_last_step_left_without_numbers_are_no_result(tmp_path: Path) -> None:
    run = small_run(train=replace(SMALL, steps=1, lr=1e38, warmup=0, schedule="constant"))
    result = execute(run, Exec(results=tmp_path), quiet=True)
    assert (result["status"], result["steps"], result["loss"]) == ("diverged", 1, "nan")


class _Overflowing(LSTMBlock):
    """No number behind position 12, which no training string has."""

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        y_BLD = super().forward(x_BLD, ctx)
        is_far_L = torch.arange(y_BLD.shape[1]) > 12
        return torch.where(is_far_L[:, None], float("nan"), y_BLD)


@dataclass(frozen=True, kw_only=True)
class OverflowingConfig(LSTMConfig):
    name = "overflowing"

    def block(self, layer: int) -> LSTMBlock:
        return _Overflowing(self)


def test_answers_that_are_no_numbers_are_said_to_be_such(tmp_path: Path) -> None:
    run = replace(small_run(), model=OverflowingConfig(d_model=8))
    result = execute(run, Exec(results=tmp_path), quiet=True)
    assert result["status"] == "done" and math.isnan(result["test"]["loss"])
    assert "logits of some test strings are not numbers: their answers count as wrong" in outcome(result, tmp_path)


def test_a_failed_run_is_a_record_stops_no_other_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [small_run(seed=seed) for seed in range(3)]
    go = Loop.go

    def fails_once(self: Loop, progress: Progress) -> None:
        if self.members[0].run.seed == 1:
            raise RuntimeError("out of memory")
        go(self, progress)

    monkeypatch.setattr(Loop, "go", fails_once)
    results = sweep(runs, Exec(results=tmp_path, log_every=5), quiet=True)
    assert [result and result["status"] for result in results] == ["done", None, "done"]
    assert "RuntimeError: out of memory" in capsys.readouterr().err
    failure = RunFolder(tmp_path, runs[1].run_id).path / "failure.json"
    assert json.loads(failure.read_text())["error"] == "RuntimeError: out of memory"
    monkeypatch.setattr(Loop, "go", go)
    assert all(result["status"] == "done" for result in sweep(runs, Exec(results=tmp_path, log_every=5), quiet=True))
    assert not failure.exists()


def test_a_run_that_is_being_written_is_busy(tmp_path: Path) -> None:
    run = small_run()
    folder = RunFolder(tmp_path, run.run_id)
    with folder.locked(), pytest.raises(Busy, match="is being written by process"):
        execute(run, Exec(results=tmp_path, log_every=5), quiet=True)


def interrupt_after(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop whatever trains behind a step, once what is due there has been done."""
    visit = Loop._visit

    def stopping(self: Loop, last: int, progress: Progress) -> None:
        visit(self, last, progress)
        if self.step >= steps:
            raise KeyboardInterrupt

    monkeypatch.setattr(Loop, "_visit", stopping)


def test_a_resume_under_other_numerics_is_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = small_run()
    settings = Exec(results=tmp_path, checkpoint_every=10)
    interrupt_after(10, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        execute(run, settings, quiet=True)
    monkeypatch.undo()
    result = execute(run, replace(settings, backend="reference"), quiet=True)
    assert result["mixed_numerics"]
    assert not execute(small_run(seed=1), Exec(results=tmp_path, log_every=5), quiet=True)["mixed_numerics"]


def test_dropout_changes_training_alone() -> None:
    plain, dropped = (
        replace(small_run("transformer"), model=replace(find_model("transformer").tiny(), dropout=rate))
        for rate in (0.0, 0.5)
    )
    assert losses(plain)[0] != losses(dropped)[0]
    assert losses(dropped) == losses(dropped)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp64"])
@pytest.mark.parametrize("model", ["lstm", "lstm_block", "transformer", "moe", "encoder"])
def test_every_precision_trains(model: str, precision: str) -> None:
    run = small_run(model, train=replace(SMALL, steps=3, precision=precision))
    exact = losses(replace(run, train=replace(run.train, precision="fp64")))
    tolerance = {"fp32": 1e-4, "bf16": 3e-2, "fp64": 1e-12}[precision]
    assert losses(run) == pytest.approx(exact, rel=tolerance)


def test_moe_records_its_balance(tmp_path: Path) -> None:
    run = small_run("moe")
    execute(run, Exec(results=tmp_path, log_every=5), quiet=True)
    line = RunFolder(tmp_path, run.run_id).history()[0]
    assert 0 < line["balance"] < 1
    assert 0 <= line["expert_load_min"] <= 1 <= line["expert_load_max"] <= 4


@pytest.mark.slow  # scripts/quick shows it, too
def test_the_science(tmp_path: Path) -> None:
    """One pair known to solve and one known to fail: the LSTM holds parity at 40..256, the Transformer does not."""
    held = [
        execute(preset_run("parity", "lstm", protocol="quick", seed=s), Exec(results=tmp_path, log_every=5))
        for s in range(2)
    ]
    assert all(result["test"]["scaled"] >= 0.99 for result in held)
    run = preset_run("parity", "transformer", protocol="quick")
    run = replace(run, train=replace(run.train, lr=1e-3))
    assert execute(run, Exec(results=tmp_path, log_every=5))["test"]["scaled"] < 0.5
