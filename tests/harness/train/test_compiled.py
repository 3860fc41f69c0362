"""Steps under torch.compile: what is refused, what is recorded, and that a compiled step equals the plain one."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch._inductor.config
from torch import Tensor

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.protocols import preset_run
from chomsky_ladder.harness.config.registry import all_models
from chomsky_ladder.harness.train import compiled
from chomsky_ladder.harness.train.pack import Pack
from chomsky_ladder.harness.train.steps import PlainSteps, stepper
from support.cases import LOOPS, full, some
from support.small_runs import cannot_be_captured, small

CPU = torch.device("cpu")
WHOLE = {"losses", "in_rows", "update"}
UPDATE = WHOLE - {"losses"}
COMPILED = {
    **{(model, seeds): WHOLE for model in ("lstm", "mamba2", "transformer") for seeds in (1, 2)},
    ("mamba", 1): WHOLE,
    ("mamba", 2): UPDATE,  # the scan by hand under vmap; on a GPU it is a kernel's
    ("moe", 1): UPDATE,  # on a CPU tokens are sorted by expert, as many as there happen to be
    ("moe", 2): WHOLE,
    ("xlstm", 1): UPDATE,  # its rows by hand; on a GPU they are not taken
    ("xlstm", 2): UPDATE,
}
"""Parts of a step that torch.compile takes on a CPU, of a model alone and stacked."""
NOT_TRACED = {
    *("comba", "gated_delta_net", "gated_delta_net2", "gated_delta_product", "kda", "m2rnn", "mamba", "xlstm"),
    "fp_mamba",  # Mamba's scan
    "moe",  # tokens sorted by expert, as many as there happen to be
}
"""On a CPU: under vmap most have a pass by hand that writes in place. On a GPU kernels or loops are taken."""
TRACED = sorted(set(all_models()) - NOT_TRACED - set(LOOPS))


def fake_compiler(monkeypatch: pytest.MonkeyPatch, *, refuses: str = "") -> list[str]:
    """torch.compile replaced by something that counts its calls, and refuses one part."""
    calls: list[str] = []

    def compiled(function: Callable[..., Any], *, fullgraph: bool, dynamic: bool, options: Any) -> Callable[..., Any]:
        assert fullgraph and not dynamic and options is None

        def traced(*arguments: Any) -> Any:
            calls.append(function.__name__)
            if function.__name__ == refuses:
                raise RuntimeError("cannot trace this")
            return function(*arguments)

        return traced

    monkeypatch.setattr(torch, "compile", compiled)
    return calls


@pytest.mark.parametrize("refuses", ["", "losses", "in_rows", "update"])
def test_what_cannot_be_compiled_stays_plain(refuses: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = fake_compiler(monkeypatch, refuses=refuses)
    pack, expected = (Pack(small(seeds=2), device=CPU, backend="auto") for _ in range(2))
    steps = stepper(pack, Exec(device="cpu", compile="on"))
    steps.advance(0, 6, lambda done: None)
    stepper(expected, Exec(device="cpu")).advance(0, 6, lambda done: None)
    assert pack.seen() == expected.seen()
    assert steps.refused == ({f"compiled.{refuses}": "RuntimeError: cannot trace this"} if refuses else {})
    noted = {name.removeprefix("compiled.") for name in pack.backends if name.startswith("compiled.")}
    assert noted == WHOLE - {refuses}
    assert all(calls.count(part) == (1 if part == refuses else 5) for part in WHOLE)  # the first step is plain


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")  # of the tracer, as where steps are compiled
@pytest.mark.parametrize("seeds", [1, 2])
def test_a_part_is_compiled_once(seeds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The condition of compilation stays the same. Once, compiling other parts had the losses compiled again."""
    torch._dynamo.reset()
    made, real = [], torch.compile

    def compiled(function: Callable[..., Any], **asked: Any) -> Callable[..., Any]:
        def noted(graph: torch.fx.GraphModule, inputs: Sequence[Tensor]) -> Callable[..., Any]:
            made.append(function.__name__)
            return graph.forward

        return real(function, backend=noted, **asked)

    monkeypatch.setattr(torch, "compile", compiled)
    pack = Pack(small(seeds=seeds), device=CPU, backend="auto")
    steps = stepper(pack, Exec(device="cpu", compile="on"))
    steps.advance(0, 6, lambda done: None)
    assert not steps.refused
    assert sorted(made) == sorted(WHOLE)


@pytest.mark.parametrize(
    ("device", "expected"), [("cpu", None), ("cuda", {"combo_kernels": True, "comprehensive_padding": False})]
)
def test_a_gpu_launches_together_what_it_can_and_lengthens_no_strides(
    device: str, expected: dict[str, bool] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(torch, "compile", lambda function, **options: asked.append(options["options"]))
    pack: Any = SimpleNamespace(device=torch.device(device), compiled=set(), parts=SimpleNamespace(update=None))
    compiled.Compiled(pack, "update", {})
    assert asked == [expected]
    assert all(hasattr(torch._inductor.config, name) for name in expected or {})  # one it has not would refuse all


def test_what_is_thousands_of_operations_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = fake_compiler(monkeypatch)
    monkeypatch.setattr(compiled, "MOST_OPERATIONS", 60)
    pack, expected = (Pack(small("gru"), device=CPU, backend="reference") for _ in range(2))
    steps = stepper(pack, Exec(device="cpu", compile="on"))
    steps.advance(0, 3, lambda done: None)
    PlainSteps(expected, compiling=False).advance(0, 3, lambda done: None)
    assert pack.seen() == expected.seen()
    assert re.fullmatch(r"\d+ operations, of which no more than 60 are compiled", steps.refused["compiled.losses"])
    assert "losses" not in calls


def test_losses_whose_way_back_does_not_compile_stay_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = fake_compiler(monkeypatch)
    pack, expected = (Pack(small(seeds=2), device=CPU, backend="auto") for _ in range(2))
    losses, broke = pack.parts.losses, []

    def broken(*arguments: Any) -> Any:
        loss_R, metrics = losses(*arguments)
        if calls[-1:] == ["broken"] and not broke:
            broke.append(True)
            loss_R.register_hook(cannot_be_captured)
        return loss_R, metrics

    pack.instead = pack.parts._replace(losses=broken)
    steps = stepper(pack, Exec(device="cpu", compile="on"))
    steps.advance(0, 6, lambda done: None)
    PlainSteps(expected, compiling=False).advance(0, 6, lambda done: None)
    assert pack.seen() == expected.seen()
    assert "compiled.losses" not in pack.backends and "compiled.update" in pack.backends
    assert steps.refused == {"compiled.losses": "RuntimeError: not while capturing"}


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(("by", "refused"), [(1.0, False), (1.5, True), (float("nan"), True)])
def test_losses_that_a_compiler_makes_others_stay_plain(
    by: float, refused: bool, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One weight's gradient of all is another; no loss shows it."""
    real = fake_compiler(monkeypatch)
    pack, expected = (Pack(small(seeds=2, precision=precision), device=CPU, backend="auto") for _ in range(2))
    losses = pack.parts.losses

    def others(leaves: Sequence[Tensor], *given: Any) -> Any:
        if real[-1:] == ["others"]:
            first = leaves[1]
            leaves = [leaves[0], first * by + (first - first * by).detach(), *leaves[2:]]
        return losses(leaves, *given)

    pack.instead = pack.parts._replace(losses=others)
    steps = stepper(pack, Exec(device="cpu", compile="on"))
    steps.advance(0, 6, lambda done: None)
    PlainSteps(expected, compiling=False).advance(0, 6, lambda done: None)
    assert ("compiled.losses" in pack.backends) != refused
    assert list(steps.refused) == ["compiled.losses"] * refused
    assert not refused or "% off the plain gradient" in steps.refused["compiled.losses"]
    assert pack.seen() == expected.seen()


@pytest.mark.slow
@pytest.mark.parametrize(("model", "seeds"), sorted(COMPILED))
def test_compiled_steps_are_plain_steps(model: str, seeds: int) -> None:
    torch._dynamo.reset()
    pack, expected = (Pack(small(model, seeds=seeds), device=CPU, backend="auto") for _ in range(2))
    steps = stepper(pack, Exec(device="cpu", compile="on"))
    steps.advance(0, 12, lambda done: None)
    stepper(expected, Exec(device="cpu")).advance(0, 12, lambda done: None)
    noted = {name.removeprefix("compiled.") for name in pack.backends if name.startswith("compiled.")}
    assert noted == COMPILED[model, seeds], steps.refused
    assert {f"compiled.{part}" for part in WHOLE - noted} == set(steps.refused)
    for one, other in zip(pack.seen(), expected.seen(), strict=True):
        assert one.loss == pytest.approx(other.loss, rel=1e-9)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")  # of the tracer, as where steps are compiled
@pytest.mark.parametrize("seeds", [1, full(2)])
@pytest.mark.parametrize("model", some(TRACED, always=("min_gru", "pd_ssm")))
def test_losses_are_traced_whole(model: str, seeds: int) -> None:
    """Without a compiler's machine code: what torch.compile follows on a CPU, there and back."""
    torch._dynamo.reset()
    pack = Pack(small(model, seeds=seeds), device=CPU, backend="auto")
    batch = pack.draw(pack.step_number, 8)
    expected_RP, expected_R, _ = pack.gradients(pack.step_number, batch)  # the first is plain
    traced = torch.compile(pack.losses, fullgraph=True, dynamic=False, backend="aot_eager")
    pack.instead = pack.parts._replace(losses=traced)
    gradient_RP, loss_R, _ = pack.gradients(pack.step_number, batch)
    torch.testing.assert_close(loss_R, expected_R, rtol=1e-12, atol=0)
    torch.testing.assert_close(gradient_RP, expected_RP, rtol=1e-9, atol=1e-12)


@pytest.mark.full
@pytest.mark.parametrize("model", ["hyena", full("s4"), full("xlstm")])
def test_compiled_gradients_are_in_the_precision_of_plain_ones(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts kept in fp32 stay in it in the backward pass, when autocast is over. By default torch would not do so."""
    torch._dynamo.reset()
    real = torch.compile
    monkeypatch.setattr(torch, "compile", lambda act, **asked: real(act, **asked | {"backend": "aot_eager"}))
    pack = Pack(small(model, precision="bf16"), device=CPU, backend="reference")
    pack.instead = pack.parts._replace(losses=compiled.Compiled(pack, "losses", {}))
    batch = pack.draw(pack.step_number, 8)
    plain_RP, again_RP = (pack.gradients(pack.step_number, batch)[0] for _ in range(2))  # the first is plain
    assert pack.compiled == {"compiled.losses"}
    assert (again_RP - plain_RP).norm() < 1e-6 * plain_RP.norm()  # in bf16 it would be 1e-3


@pytest.mark.slow
def test_compiled_steps_of_the_usual_size(tmp_path: Path) -> None:
    """It runs in its own process: strings of such a batch, compiled to C++, once crashed it."""
    command = ["run", "parity", "lstm", "--train.steps", "3", "--train.lengths", "3", "40", "--train.batch", "64"]
    command += ["--eval.lengths", "40", "41", "--eval.test", "8", "--eval.validation", "8", "--eval.extrapolate"]
    command += ["--exec.compile", "on", "--exec.device", "cpu", "--exec.results", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "chomsky_ladder", *command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (result,) = tmp_path.glob("runs/*/result.json")
    assert "compiled.update" in json.loads(result.read_text())["backends"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("model", ["encoder", "mamba", "transformer", "xlstm"])
def test_compiled_gradients_of_a_published_size_are_plain_ones(model: str) -> None:
    """A compiler may choose other strides for large tensors, and read some with their old strides."""
    run = preset_run("parity", model, protocol="xlstm_20k")
    pack = Pack([replace(run, seed=seed) for seed in range(3)], device=torch.device("cuda"), backend="auto")
    steps = stepper(pack, Exec(compile="on"))
    batch = pack.draw(pack.step_number, run.train.longest(0))
    plain_RP, found_RP = (pack.parts.gradients(pack.step_number, batch)[0] for _ in range(2))  # the first is plain
    assert pack.compiled >= {"compiled.losses"} and not steps.refused
    assert compiled.apart(pack, found_RP, plain_RP) < 0.05
