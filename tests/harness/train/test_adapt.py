"""Adaptations: what is frozen stays to the bit, the sum is the definition's, and they are runs like any other."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from chomsky_ladder.harness.cli.main import main
from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.registry import all_models, find_model, find_task
from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.harness.store import checkpoint
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.store.record import collect
from chomsky_ladder.harness.train.adapt import Adapted, adapting, begin, fits
from chomsky_ladder.harness.train.build import build_model, load, restored, untrained
from chomsky_ladder.harness.train.evaluate import Evaluator
from chomsky_ladder.harness.train.loop import Loop, RunFailed, execute, execute_together
from chomsky_ladder.harness.train.pack import Pack
from chomsky_ladder.harness.train.quantise import is_matrix
from chomsky_ladder.models.block import Context
from support.cases import LOOPS, some

CPU = torch.device("cpu")
EXACT = Train(steps=8, batch=6, lengths=(3, 12), lr=1e-2, precision="fp64", warmup=0.1)
SCORE = Eval(lengths=(10, 24), test=32, validation=16, every=4, bins=(10, 16, 24), extrapolate=(), batch=16)


def base_run(model: str = "lstm", task: str = "parity") -> Run:
    return Run(task=find_task(task)(), model=find_model(model).tiny(), train=EXACT, eval=SCORE)


def adaptation_of(base: Run, task: str = "cycle_nav", *, rank: int = 2, layers: str = "*") -> Run:
    return adapting(base, replace(base, task=find_task(task)()), rank=rank, layers=layers)


def trained_by(base: Run) -> torch.nn.Module:
    """Other weights than those an adaptation is built with."""
    return build_model(replace(base, seed=9), CPU)


def begun(run: Run, base: Run) -> Adapted:
    model = build_model(run, CPU)
    begin(model, run, base, trained_by(base))
    return model


def test_an_untrained_network_has_nothing_of_the_base() -> None:
    base = base_run()
    found = untrained(adaptation_of(base), CPU, seed=7)
    wanted = build_model(replace(base, seed=7, task=find_task("cycle_nav")()), CPU)
    assert all(map(torch.equal, found.parameters(), wanted.parameters()))


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run]:
    results = tmp_path_factory.mktemp("results")
    execute(base_run(), Exec(results=results), quiet=True)
    return results, base_run()


@pytest.mark.parametrize("name", some(sorted(all_models()), always=all_models().keys() - LOOPS))
def test_every_model_starts_as_its_base_and_learns_beside_it(name: str) -> None:
    """The same task, so the ends are kept: before the first step the answers are the base run's to the bit."""
    base = base_run(name)
    run = adaptation_of(base, "parity")
    model, trained = begun(run, base), trained_by(base)
    assert run.train.lora_ends == "keep"
    batch = Pack([run], device=CPU, backend="auto").draw(torch.tensor(0), 12)
    valid_BL = torch.arange(batch.tokens_BL.shape[1]) < batch.length_B[:, None]

    def said(of: torch.nn.Module) -> torch.Tensor:
        return of(batch.tokens_BL, Context(valid_BL=valid_BL, prompt_B=batch.prompt_B))

    assert torch.equal(said(model), said(trained))
    said(model).square().sum().backward()
    moved = {name for name, value in model.named_parameters() if value.grad is not None and value.grad.any()}
    assert moved and all(name.startswith("up.") for name in moved)
    assert {key.replace("/", ".") for key in model.up} == {
        name for (name, _), matrix in zip(trained.named_parameters(), is_matrix(trained), strict=True) if matrix
    }


def test_the_sum_is_the_definitions() -> None:
    base = base_run("moe")
    model = begun(adaptation_of(base, rank=6), base)
    generator = torch.Generator().manual_seed(5)
    for up in model.up.values():
        up.data.normal_(generator=generator)
    read, frozen = model.weights(), dict(model.inner.named_parameters())
    for name, weight in frozen.items():
        key, wanted = name.replace(".", "/"), weight.detach().numpy().copy()
        if key in model.up:
            up, down = model.up[key].detach().numpy(), model.down[key].detach().numpy()
            assert up.shape[-1] == min(6, *weight.shape[-2:])
            for place in np.ndindex(*wanted.shape[:-2]):
                for i, j in np.ndindex(*wanted.shape[-2:]):
                    wanted[(*place, i, j)] += sum(
                        up[(*place, i, k)] * down[(*place, k, j)] for k in range(up.shape[-1])
                    )
        np.testing.assert_allclose(read[name].detach(), wanted, rtol=1e-10, atol=1e-12)
    assert any(up.ndim == 3 for up in model.up.values())  # the experts
    assert {up.shape[-1] for up in model.up.values()} == {4, 6}  # four rows of the router have no rank of six


@pytest.mark.parametrize("name", ["lstm", "transformer", "mamba"])
def test_a_step_is_the_forward_pass(name: str) -> None:
    base = base_run(name)
    model = begun(adaptation_of(base), base)
    for up in model.up.values():
        up.data.normal_(generator=torch.Generator().manual_seed(1))
    tokens_BL = torch.randint(1, 5, (2, 9), generator=torch.Generator().manual_seed(2))
    whole_BLV = model(tokens_BL, Context())
    state = model.init_state(2, max_length=9, device=CPU, dtype=torch.float64)
    for place in range(5):
        said_BV, state = model.step(tokens_BL[:, place], state, Context())
        torch.testing.assert_close(said_BV, whole_BLV[:, place])
    rest_BLV, _ = model.extend(tokens_BL[:, 5:], state, Context())
    torch.testing.assert_close(rest_BLV, whole_BLV[:, 5:])


@pytest.mark.parametrize("name", ["lstm", "transformer", "moe", "delta_net"])
def test_together_is_alone_and_the_base_stays(name: str) -> None:
    base = base_run(name)
    first = adaptation_of(base)
    runs = [first, replace(first, seed=1, train=replace(first.train, lr=3e-3, weight_decay=0.3))]

    def advanced(listed: list[Run]) -> Pack:
        pack = Pack(listed, device=CPU, backend="auto")
        for run, model in zip(listed, pack.models, strict=True):
            begin(model, run, base, trained_by(base))
        for _ in range(8):
            pack.advance(12)
        return pack

    together, trained = advanced(runs), dict(trained_by(base).named_parameters())
    for row, run in enumerate(runs):
        alone = advanced([run])
        assert together.seen()[row].loss == pytest.approx(alone.seen()[0].loss, rel=1e-9)
        model = together.models[row]
        for name, weight in model.state_dict().items():
            torch.testing.assert_close(weight, alone.models[0].state_dict()[name], rtol=1e-7, atol=1e-9)
        for name, weight in model.inner.named_parameters():
            if name in ("embedding.weight", "head.weight"):
                assert weight.requires_grad and weight.shape[0] == len(run.task.vocab)
            else:
                assert not weight.requires_grad and torch.equal(weight, trained[name]), name
        assert all(bool(up.any()) for up in model.up.values())


def test_an_adaptation_is_a_run_with_its_record(done: tuple[Path, Run]) -> None:
    results, base = done
    run = adaptation_of(base, layers="blocks.*.weight_hh,head.weight")
    result = execute(run, Exec(results=results), quiet=True)
    width, vocab, made = base.model.d_model, len(run.task.vocab), result["adaptation"]
    assert made["base"] == base.run_id and (made["rank"], made["ends"]) == (2, "new")
    assert made["layers"] == ["blocks.0.cell.weight_hh", "blocks.1.cell.weight_hh"]  # not the head, which is new
    assert made["learnt"] == 2 * 2 * (4 * width + width) + 2 * vocab * width
    assert made["learnt"] + made["frozen"] == result["parameters"]
    assert "adaptation" not in RunFolder(results, base.run_id).result()
    model, task, _ = load(run.run_id, results=results)
    kept = checkpoint.newest(RunFolder(results, base.run_id).path)["model"]
    assert torch.equal(model.inner.get_parameter("blocks.0.cell.weight_hh"), kept["blocks.0.cell.weight_hh"])
    assert not torch.equal(model.weights()["blocks.0.cell.weight_hh"], kept["blocks.0.cell.weight_hh"])
    score = Evaluator(run, model, device=CPU, backend="auto").test()
    assert score.loss() == result["test"]["loss"] and task == run.task
    assert f"train.base={base.run_id}" in result["protocol"] and run.run_id in set(collect(results)["run_id"])
    again = replace(run, task=base.task, train=replace(run.train, base=run.run_id, lora_layers="*"))
    execute(again, Exec(results=results), quiet=True)  # of an adaptation
    found = load(again.run_id, results=results)[0].inner.get_parameter("blocks.0.cell.weight_hh")
    assert torch.equal(found, model.weights()["blocks.0.cell.weight_hh"])


def test_it_goes_on_bit_for_bit(done: tuple[Path, Run], monkeypatch: pytest.MonkeyPatch) -> None:
    results, base = done
    run = adaptation_of(base, "even_pairs", rank=1)
    settings = Exec(results=results, log_every=2, checkpoint_every=3)
    visit, stops = Loop._visit, [True]

    def stopping(self: Loop, *arguments: object) -> None:
        visit(self, *arguments)
        if stops and self.step >= 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(Loop, "_visit", stopping)
    with pytest.raises(KeyboardInterrupt):
        execute(run, settings, quiet=True)
    stops.clear()
    execute(run, settings, quiet=True)
    folder = RunFolder(results, run.run_id)
    lines, weights = folder.metrics.read_bytes(), restored(folder)[1].state_dict()
    for path in folder.path.iterdir():
        path.unlink()
    execute(run, settings, quiet=True)
    assert folder.metrics.read_bytes() == lines
    assert all(torch.equal(value, weights[name]) for name, value in restored(folder)[1].state_dict().items())


def test_the_command(done: tuple[Path, Run], capsys: pytest.CaptureFixture[str]) -> None:
    results, base = done
    words = ["adapt", base.run_id[-10:], "even_pairs", "--exec.results", str(results), "--train.steps", "3", "--quiet"]
    assert main([*words, "--rank", "3", "--layers", "blocks.0.*"]) == 0
    said = capsys.readouterr().out
    assert f"adapted          {base.run_id}: rank 3, 2 matrices" in said
    for wrong, why in (
        (["adapt", base.run_id, *words[3:]], "give a RUN_ID and a TASK"),
        ([*words, "--layers", "nothing*"], "fits no matrix of lstm; there are blocks.0.cell.weight_ih"),
        ([*words, "--rank", "0"], "--rank must be a whole number of at least 1, not '0'"),
        ([*words, "--rank", "two"], "--rank must be a whole number of at least 1, not 'two'"),
        (["adapt", "gone", *words[2:]], "no run 'gone'"),
        (
            [*words[:2], "cycle_nav", *words[3:], "--train.lora-ends", "keep"],
            "have different tokens: add --train.lora-ends new",
        ),
        ([*words, "--train.qat", "4"], "train.qat rounds no adapted weights"),
    ):
        assert main(wrong) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert why in line, line


def test_what_is_no_base_is_refused(done: tuple[Path, Run]) -> None:
    results, base = done
    run = adaptation_of(base)
    for changes, why in (
        ({"model": replace(base.model, d_model=8)}, "other settings than this run's"),
        ({"train": replace(run.train, base=base.run_id[:-2])}, "is not the whole id of a run"),
        ({"train": replace(run.train, lora_ends="keep")}, "parity and cycle_nav have other tokens"),
    ):
        (failed,) = execute_together([replace(run, **changes)], Exec(results=results), quiet=True)
        assert isinstance(failed, RunFailed) and why in str(failed)
    for wrong in ({"base": ""}, {"lora_rank": 0}, {"lora_rank": -1}, {"qat": 4}):
        with pytest.raises(ValueError, match=r"train\.(base|lora_rank|qat) "):
            replace(run.train, **wrong)


def test_patterns() -> None:
    assert fits("blocks.0.cell.weight_hh", "*") and fits("blocks.0.cell.weight_hh", "head*, *.weight_hh")
    assert not fits("blocks.1.cell.weight_hh", "blocks.0.*") and not fits("head.weight", "blocks.*")
