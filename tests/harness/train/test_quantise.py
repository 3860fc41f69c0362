"""Weights of few bits: rounded as the definition says, learnt straight through, read by every score, kept whole."""

import fractions
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.protocols import columns_of
from chomsky_ladder.harness.config.registry import all_models, find_model, find_task
from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.harness.inside import probe, worldmodel
from chomsky_ladder.harness.inside.settings import ProbeSettings
from chomsky_ladder.harness.inside.streams import Strings, Trained
from chomsky_ladder.harness.store import checkpoint
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.train.build import build_model, load, restored, untrained
from chomsky_ladder.harness.train.evaluate import Evaluator
from chomsky_ladder.harness.train.forward import loss_of
from chomsky_ladder.harness.train.loop import Loop, execute, execute_together
from chomsky_ladder.harness.train.optim import declared
from chomsky_ladder.harness.train.pack import Pack
from chomsky_ladder.harness.train.quantise import is_matrix, read_rounded, rounded
from chomsky_ladder.harness.train.signals import Preempted
from chomsky_ladder.tasks.base import Batch
from support.cases import some

CPU = torch.device("cpu")
EXACT = Train(steps=12, batch=6, lengths=(3, 12), lr=1e-2, precision="fp64", warmup=0.1, qat=4)
SCORE = Eval(lengths=(10, 24), test=32, validation=16, every=6, bins=(10, 16, 24), extrapolate=(), batch=16)
MODELS = sorted(all_models())
PACKED = ("lstm", "transformer", "moe", "mamba", "delta_net")  # by parameters alone, so a few shapes stand for all


def run_of(model: str, *, train: Train = EXACT, seed: int = 0) -> Run:
    return Run(task=find_task("cycle_nav")(), model=find_model(model).tiny(), train=train, eval=SCORE, seed=seed)


def three_runs(model: str, *, train: Train = EXACT) -> list[Run]:
    first = run_of(model, train=train)
    others = (replace(train, lr=3e-3, weight_decay=0.3), replace(train, lr=8e-3, clip=0.0))
    return [first, *(replace(first, seed=seed, train=other) for seed, other in enumerate(others, start=1))]


def advanced(runs: list[Run], steps: int) -> Pack:
    pack = Pack(runs, device=CPU, backend="auto")
    for _ in range(steps):
        pack.advance(runs[0].train.lengths[1])
    return pack


def by_definition(channel: np.ndarray, bits: int) -> list[float]:
    """One channel, level by level: the nearest of the multiples of its scale, in exact arithmetic; of two, the even."""
    exact = [fractions.Fraction(float(value)) for value in channel]
    levels = 2 ** (bits - 1) - 1
    scale = max(map(abs, exact)) / levels
    if scale == 0:
        return [0.0] * len(exact)
    nearest = (min(range(-levels, levels + 1), key=lambda k: (abs(value / scale - k), k % 2)) for value in exact)
    return [float(k * scale) for k in nearest]


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_rounding_is_to_the_nearest_level_of_each_channel(bits: int) -> None:
    weight = np.random.default_rng(bits).normal(size=(5, 9)) * np.logspace(-3, 3, 5)[:, None]
    weight[2] = 0.0
    found = rounded(torch.from_numpy(weight), bits)
    np.testing.assert_allclose(found, [by_definition(row, bits) for row in weight], rtol=1e-12)
    experts = np.random.default_rng(9).normal(size=(2, 7, 4))  # of shape [E, in, out]
    found = rounded(torch.from_numpy(experts), bits).numpy()
    for expert, column in np.ndindex(2, 4):
        wanted = by_definition(experts[expert, :, column], bits)
        np.testing.assert_allclose(found[expert, :, column], wanted, rtol=1e-12)


def test_the_example_and_a_half() -> None:
    weight = torch.tensor([[0.7, -0.31, 0.04], [7.0, 2.5, -3.5]], dtype=torch.float64)
    wanted = torch.tensor([[0.7, -0.3, 0.0], [7.0, 2.0, -4.0]], dtype=torch.float64)
    torch.testing.assert_close(rounded(weight, 4), wanted)
    assert torch.equal(rounded(rounded(weight, 4), 4), rounded(weight, 4))


@pytest.mark.parametrize("model", MODELS)
def test_matrices_are_of_few_values_and_the_rest_is_whole(model: str) -> None:
    """Two bits: each channel is zero or a scale, of either sign; what is not rounded is as it was, to the bit."""
    whole, few = (build_model(run_of(model), CPU) for _ in range(2))
    read_rounded(few, 2)
    count = 0
    for (name, weight), before, matrix in zip(
        few.named_parameters(), whole.parameters(), is_matrix(whole), strict=True
    ):
        if not matrix:
            assert torch.equal(weight, before), name
            continue
        count += 1
        channels = weight.detach().transpose(-1, 1).flatten(0, -2) if weight.ndim > 2 else weight.detach()
        assert all(len(set(channel.tolist())) <= 3 for channel in channels), name
        assert weight.ndim >= 2 and name != "embedding.weight", name
    assert count >= 2


def test_an_untrained_network_is_read_as_the_trained_one_is() -> None:
    run = run_of("lstm", train=replace(EXACT, qat=2))
    found, wanted = untrained(run, CPU, seed=7), build_model(replace(run, seed=7), CPU)
    read_rounded(wanted, 2)
    assert all(map(torch.equal, found.parameters(), wanted.parameters()))


def test_the_baselines_of_a_rounded_run_are_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The random networks of probes and world-model metrics have few bits, like the run's own model."""
    run = replace(run_of("lstm", train=replace(EXACT, qat=2)), task=find_task("parity")())
    trained, wanted = Trained(run, build_model(run, CPU).eval(), 0), untrained(run, CPU, seed=1)
    asked: list[nn.Module] = []
    read = probe.stream_positions

    def noted(run: Run, model: nn.Module, strings: Strings) -> object:
        asked.append(model)
        return read(run, model, strings)

    monkeypatch.setattr(probe, "stream_positions", noted)
    probe.probe(trained, ProbeSettings(games_train=8, games_validation=4, games_test=4, epochs=1, hidden=2))
    monkeypatch.setattr(worldmodel, "metrics", lambda run, model, settings: asked.append(model))
    worldmodel.world_model(trained)
    others = [model for model in asked if model is not trained.model]
    assert len(others) == 4  # of three splits, and of the metrics
    assert all(map(torch.equal, others[0].parameters(), wanted.parameters()))
    assert all(map(torch.equal, others[-1].parameters(), wanted.parameters()))


def test_what_is_not_a_matrix() -> None:
    model = build_model(run_of("mamba"), CPU)
    names = {parameter: name for name, parameter in model.named_parameters()}
    matrices = {names[p] for (p, _, _), matrix in zip(declared(model), is_matrix(model), strict=True) if matrix}
    assert {"head.weight", "blocks.0.parts.1.select.weight"} <= matrices
    assert not {"embedding.weight", "blocks.0.parts.1.A_log", "norm.weight"} & matrices


@pytest.mark.parametrize("count", [1, 2])
def test_the_gradient_is_that_of_the_rounded_weights(count: int) -> None:
    """Taken by a model of its own, whose weights are the rounded ones, and handed on unchanged."""
    runs = three_runs("lstm")[:count]
    pack = advanced(runs, 3)
    batch = pack.draw(pack.step_number, 12)
    gradient_RP, loss_R, _ = pack.gradients(pack.step_number, batch)
    for row, run in enumerate(runs):
        other = build_model(run, CPU)
        other.load_state_dict(pack.saved(row)["model"])
        read_rounded(other, 4)
        own = Batch(*(field if count == 1 else field[row] for field in batch))
        ctx = pack.context(own)
        loss = loss_of(other(own.tokens_BL, ctx), own, ctx)
        assert float(loss_R[row]) == pytest.approx(loss.item(), rel=1e-12)
        named = zip(pack._names, pack._spans, torch.autograd.grad(loss, list(other.parameters())), strict=True)
        for name, span, wanted in named:
            torch.testing.assert_close(
                gradient_RP[row, span], wanted.flatten(), rtol=1e-9, atol=1e-12, msg=lambda said, n=name: f"{n}: {said}"
            )


def test_small_moves_add_up_to_a_level() -> None:
    """A move too small to change a rounded weight is not lost: the full-precision one still moves."""
    pack = Pack([run_of("lstm", train=replace(EXACT, lr=1e-5, lr_final=0.0, qat=2))], device=CPU, backend="auto")
    before, read = pack.weight_RP.clone(), pack.read_RP.clone()
    pack.advance(12)
    head = pack._spans[pack._names.index("head.weight")]
    assert not torch.equal(pack.weight_RP[0, head], before[0, head])
    assert torch.equal(pack.read_RP[0, head] == 0, read[0, head] == 0)
    assert not torch.equal(pack.read_RP[0, head], pack.weight_RP[0, head])


@pytest.mark.full
@pytest.mark.parametrize("model", some(PACKED, always=("lstm", "moe")))
def test_together_is_alone(model: str) -> None:
    runs = three_runs(model)
    together = advanced(runs, 12)
    for row, (run, seen) in enumerate(zip(runs, together.seen(), strict=True)):
        alone = advanced([run], 12)
        assert seen.loss == pytest.approx(alone.seen()[0].loss, rel=1e-9)
        for name, weight in together.models[row].state_dict().items():
            torch.testing.assert_close(weight, alone.models[0].state_dict()[name], rtol=1e-7, atol=1e-9)
        for name, weight in together.saved(row)["model"].items():
            torch.testing.assert_close(weight, alone.saved(0)["model"][name], rtol=1e-7, atol=1e-9)


def test_a_run_is_scored_with_the_rounded_weights_and_keeps_the_whole_ones(tmp_path: Path) -> None:
    run = run_of("lstm")
    result = execute(run, Exec(results=tmp_path, checkpoint_every=5), quiet=True)
    folder = RunFolder(tmp_path, run.run_id)
    kept = checkpoint.newest(folder.path)["model"]
    model, _, _ = load(run.run_id, results=tmp_path)
    read = model.state_dict()
    for name in ("head.weight", "blocks.0.cell.weight_hh"):
        assert len(set(read[name][0].tolist())) <= 15 < len(set(kept[name].flatten().tolist()))
        assert torch.equal(read[name], rounded(kept[name], 4))
        assert not torch.equal(read[name], kept[name])
    assert torch.equal(read["embedding.weight"], kept["embedding.weight"])

    def loss(weights: nn.Module) -> float:
        return Evaluator(run, weights, device=CPU, backend="auto").test().loss()

    assert result["test"]["loss"] == loss(model)
    model.load_state_dict(kept)
    assert result["test"]["loss"] != loss(model)


@pytest.mark.full
@pytest.mark.parametrize("count", [1, 3])
def test_a_run_goes_on_bit_for_bit(count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = three_runs("lstm_block", train=replace(EXACT, precision="fp32"))[:count]
    whole, parts = (Exec(results=tmp_path / name, log_every=2, checkpoint_every=5) for name in ("whole", "parts"))
    execute_together(runs, whole, quiet=True)
    visit = Loop._visit

    def stopping(self: Loop, *arguments: object) -> None:
        visit(self, *arguments)
        if self.step >= 8:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Loop, "_visit", stopping)
        with pytest.raises((KeyboardInterrupt, Preempted)):
            execute_together(runs, parts, quiet=True)
    execute_together(runs, parts, quiet=True)
    for run in runs:
        one, other = (RunFolder(settings.results, run.run_id) for settings in (whole, parts))
        assert one.metrics.read_bytes() == other.metrics.read_bytes()
        ours, theirs = (checkpoint.newest(folder.path)["model"] for folder in (one, other))
        assert all(torch.equal(value, theirs[name]) for name, value in ours.items())
        mine, yours = (restored(folder)[1].state_dict() for folder in (one, other))
        assert all(torch.equal(value, yours[name]) for name, value in mine.items())


def test_the_bits_are_part_of_the_run_and_of_its_label() -> None:
    plain, few = (run_of("lstm", train=replace(EXACT, qat=bits)) for bits in (0, 4))
    assert plain.run_id != few.run_id
    assert "train.qat=4" in columns_of(few)["protocol"] and "qat" not in columns_of(plain)["protocol"]
    assert "qat" not in plain.identity()["train"]
    with pytest.raises(ValueError, match=r"train\.qat: .*not 3"):
        replace(EXACT, qat=3)
    with pytest.raises(AssertionError, match="scalars of training"):
        Pack([plain, few], device=CPU, backend="auto")
