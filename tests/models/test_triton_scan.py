"""The Triton scan equals the plain one: interpreted on a CPU, compiled for a GPU, and run on one, if there is one."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Literal, NamedTuple

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.operations.scan.reference import gated_scan
from support.cases import full, some
from support.triton_kernels import (
    MISSING,
    compiled_for_an_h100,
    in_a_model,
    print_failures,
    registers_and_spilled,
    walled_rooms,
    weighted,
)

if MISSING:
    pytest.skip("triton cannot be imported", allow_module_level=True)

from chomsky_ladder.models.operations.scan import gpu as _triton_scan
from chomsky_ladder.models.operations.scan.gpu import _Tiling, triton_gated_scan

torch.set_num_threads(1)


class Case(NamedTuple):
    batch: int
    length: int
    channels: int
    states: int
    signed: bool = False
    precision: Literal["fp32", "bf16", "mixed"] = "fp32"
    axes: tuple[int | None, ...] = ()  # of the replicas in the inputs, for vmap; empty: no replicas
    parts: bool = False  # v, B, C and z are parts of products

    def __str__(self) -> str:
        return "-".join(str(part).replace(" ", "") for part in self)


NAMES = ("v", "dt", "bias", "A", "B", "C", "D", "z", "h")
IN_FRONT = (0,) * 9
CASES = [
    Case(2, 1, 16, 4),
    Case(1, 2, 20, 16, signed=True),
    Case(1, 7, 72, 16),  # three tiles, of which the last holds eight channels
    Case(3, 8, 1, 1, signed=True),
    Case(2, 9, 5, 3),
    Case(2, 16, 20, 4, signed=True),
    Case(1, 17, 40, 16, signed=True),
    Case(1, 9, 130, 4),
    Case(1, 9, 20, 64),  # two warps
    Case(1, 33, 16, 16),
    Case(1, 10, 40, 16, axes=IN_FRONT),
    Case(2, 7, 20, 4, signed=True, axes=IN_FRONT),
    Case(2, 9, 5, 3, signed=True, axes=(2, 0, 1, 1, None, 1, 1, 0, 3)),
    Case(1, 3, 5, 3, axes=(0, 0, None, None, 3, 0, 0, 2, None)),
    Case(1, 7, 40, 16, precision="bf16"),
    Case(2, 7, 20, 4, signed=True, precision="mixed", axes=IN_FRONT),
    Case(3, 9, 20, 4, parts=True),
    Case(3, 9, 5, 3, parts=True, axes=(0, 0, None, None, None, 0, 0, None, None)),
]
LARGE = [Case(4, 256, 256, 16), Case(4, 100, 256, 16, signed=True, axes=IN_FRONT), Case(300, 40, 64, 16)]


def inputs_of(case: Case, device: str) -> list[Tensor]:
    """Of `NAMES`, which want gradients, with an axis of two replicas where the case has one."""
    generator = torch.Generator().manual_seed(0)
    batch, length, channels, states, *_ = case
    rows, of_states, width = (batch, length, channels), (batch, length, states), (channels,)
    shapes = [rows, rows, width, (states, channels), of_states, of_states, width, rows, (batch, states, channels)]
    bf16 = {"fp32": (), "bf16": range(9), "mixed": (1, 4, 5, 7)}[case.precision]
    inputs = []
    for place, (shape, axis) in enumerate(zip(shapes, case.axes or [None] * 9, strict=True)):
        shape = list(shape)
        if axis is not None:
            shape.insert(axis, 2)
        x = torch.randn(shape, generator=generator)
        x = -4 * x.abs() if place == 3 else x - 1 if place == 1 else x
        if case.parts and place in (0, 4, 5, 7):
            x = torch.cat([x, torch.full_like(x, torch.nan)], -1)[..., : shape[-1]]
        inputs.append(x.to(device, torch.bfloat16 if place in bf16 else torch.float32).requires_grad_())
    return inputs


def compare(case: Case, device: str, parts: slice = slice(None)) -> None:
    """Outputs, and all gradients from some of them, against those of the plain scan in fp64, on the same numbers."""
    inputs = inputs_of(case, device)
    exact = [z.detach().double().requires_grad_() for z in inputs]
    results = []
    for scan, given in ((triton_gated_scan, inputs), (gated_scan, exact)):

        def call(*z: Tensor, scan: Callable = scan) -> tuple[Tensor, Tensor]:
            return scan(*z, case.signed)

        with walled_rooms(_triton_scan) if scan is triton_gated_scan else nullcontext():
            outputs = (torch.vmap(call, in_dims=case.axes) if case.axes else call)(*given)
            gradients = torch.autograd.grad(weighted(outputs[parts]), given, materialize_grads=True)
        results.append([z.detach() for z in (*outputs, *gradients)])
    found, expected = results
    assert [z.dtype for z in found] == [inputs[7].dtype, inputs[8].dtype, *(z.dtype for z in inputs)]
    tolerance = 1e-5 if case.precision == "fp32" else 1e-2
    for name, one, other in zip(("y", "last", *NAMES), found, expected, strict=True):
        error, scale = (one - other).abs().max().item(), max(1.0, other.abs().max().item())
        assert error <= tolerance * scale, f"{name}: {error:.1e} of {scale:.1e}"  # not so for NaN either


def compare_part(parts: slice, device: str) -> None:
    compare(CASES[4], device, parts)


def without_gradients(device: str) -> None:
    """The same numbers, and no states kept: otherwise one before each chunk."""
    case = CASES[4]
    inputs = inputs_of(case, device)
    with walled_rooms(_triton_scan) as kept:
        outputs = triton_gated_scan(*inputs, False)
    with walled_rooms(_triton_scan) as rooms, torch.no_grad():
        again = triton_gated_scan(*inputs, False)
    assert all(torch.equal(one, other) for one, other in zip(outputs, again, strict=True))
    needed, chunks = sum(z.numel() for z in outputs), -(-case.length // _triton_scan.CHUNK)
    assert sum(z.numel() for z in rooms) == needed
    assert sum(z.numel() for z in kept) == needed + case.batch * chunks * case.states * case.channels


def extremes(device: str) -> None:
    """Steps of nothing and beyond fp32's exponent stay finite."""
    for dt in (-1e4, -50.0, 1e4):
        v, dt_BLE, *others = inputs_of(CASES[4], device)
        inputs = [v, torch.full_like(dt_BLE, dt, requires_grad=True), *others]
        with walled_rooms(_triton_scan):
            outputs = triton_gated_scan(*inputs, True)
            gradients = torch.autograd.grad(weighted(outputs), inputs)
        assert all(bool(torch.isfinite(z).all()) for z in (*outputs, *gradients))


def small_steps(device: str) -> None:
    """softplus(x) keeps its digits where it is as small as Mamba's steps are, and its slope too."""
    v, dt_BLE, bias_E, *others = inputs_of(Case(1, 9, 16, 4), device)
    dt_BLE = torch.linspace(-14, 14, dt_BLE.numel(), device=device).view_as(dt_BLE).requires_grad_()
    inputs = [v, dt_BLE, torch.zeros_like(bias_E), *others]
    exact = [x.detach().double().requires_grad_() for x in inputs]
    with walled_rooms(_triton_scan):
        found = torch.autograd.grad(triton_gated_scan(*inputs, False)[1].sum(), dt_BLE)[0]
    expected = torch.autograd.grad(gated_scan(*exact, False)[1].sum(), exact[1])[0]
    assert ((found - expected).abs() <= 1e-4 * expected.abs() + 1e-7 * expected.abs().max()).all()


CHECKS = {str(case): (compare, case) for case in CASES} | {
    "through y alone": (compare_part, slice(0, 1)),
    "through the last state alone": (compare_part, slice(1, 2)),
    "without gradients": (without_gradients,),
    "extremes": (extremes,),
    "small steps": (small_steps,),
    "mamba x1": (in_a_model, "triton_scan", "mamba", 1),
    "mamba x3": (in_a_model, "triton_scan", "mamba", 3),
}
ON_A_GPU = CHECKS | {str(case): (compare, case) for case in LARGE}


@pytest.mark.each_time(1)
@pytest.mark.parametrize("name", some(CHECKS, always=[*map(str, CASES[1::5]), "extremes"]))
def test_interpreted_on_a_cpu(failures: dict[str, str], name: str) -> None:
    assert failures.get(name, "") == ""


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", ON_A_GPU)
def test_on_a_gpu(name: str) -> None:
    check, *arguments = ON_A_GPU[name]
    check(*arguments, "cuda")


@pytest.mark.full
@pytest.mark.parametrize("precision", ["fp32", full("bf16")])
@pytest.mark.parametrize("way", ["there", "back"])
def test_kernels_compile_for_an_h100(tmp_path: Path, way: str, precision: str) -> None:
    kernel = {"there": _triton_scan.forward_kernel, "back": _triton_scan.backward_kernel}[way]
    tiling = _Tiling.of(16, 256)
    constants = {"N": 16, "E": 256, "STATES": tiling.states, "TILE": tiling.tile, "CHUNK": _triton_scan.CHUNK}
    constants |= {"SIGNED": precision == "bf16", "KEEP": True}
    fp32 = ("bias", "A", "D", "first", "last", "starts", "glast", "gfirst", "gbias", "gD", "gA", "gB", "gC")
    compiled = compiled_for_an_h100(kernel, constants, axes=3, warps=tiling.warps, of=precision, fp32=fp32)
    assert compiled.metadata.shared <= 1024
    registers, spilled = registers_and_spilled(compiled.asm["cubin"], tmp_path)
    assert (registers <= 128 and spilled == 0) if way == "there" else spilled <= 160  # bytes a thread


def test_other_precisions_are_refused() -> None:
    for dtype in (torch.float64, torch.float16):
        for place in range(9):
            inputs = [z.detach() for z in inputs_of(CASES[0], "cpu")]
            inputs[place] = inputs[place].to(dtype)
            with pytest.raises(AssertionError, match="fp32 and bf16"):
                triton_gated_scan(*inputs, False)


if __name__ == "__main__":
    print_failures(CHECKS)
