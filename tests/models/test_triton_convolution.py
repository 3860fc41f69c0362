"""The short convolution in Triton equals the plain one: interpreted on a CPU, compiled for a GPU, and run on one."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor
from torch.nn.functional import conv1d, silu

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

from chomsky_ladder.models.operations.conv import gpu as _triton_convolution
from chomsky_ladder.models.operations.conv.gpu import CHUNK, TILE, triton_silu_convolution

torch.set_num_threads(1)


class Case(NamedTuple):
    batch: int
    length: int
    channels: int
    taps: int
    axes: tuple[int | None, ...] = ()  # of the replicas in the inputs, for vmap; empty: no replicas
    precision: str = "fp32"
    lies: str = "alone"  # or "in a product"

    def __str__(self) -> str:
        return "-".join(str(part).replace(" ", "") for part in self)


CASES = [
    Case(2, 1, 3, 4),
    Case(3, CHUNK - 1, 1, 3),
    Case(2, CHUNK, TILE, 4),
    Case(1, CHUNK + 1, TILE + 5, 4),
    Case(2, 3 * CHUNK + 2, 5, 1),
    Case(1, 2, 3, 7),
    Case(2, 5, 4, 4, axes=(0, 0, 0)),
    Case(2, 6, 4, 2, axes=(2, None, 1)),
    Case(1, 5, 4, 3, axes=(None, 1, None)),
    Case(2, 9, 5, 4, precision="bf16"),
    Case(2, 9, 5, 4, lies="in a product"),
]
LARGE = [Case(256, 39, 256, 4, axes=(0, 0, 0)), Case(4, 1000, 300, 3)]
NAMES = ("c", "x", "weight", "bias")


def plain(x_BLE: Tensor, weight_EW: Tensor, bias_E: Tensor) -> Tensor:
    """By torch's own convolution."""
    channels, taps = weight_EW.shape
    padded_BEL = torch.nn.functional.pad(x_BLE.mT, (taps - 1, 0))
    return silu(conv1d(padded_BEL, weight_EW[:, None], bias_E, groups=channels).mT)


def inputs_of(case: Case, device: str) -> list[Tensor]:
    """x, taps and bias, which want gradients, with an axis of two replicas where the case has one."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((case.batch, case.length, case.channels), (case.channels, case.taps), (case.channels,))
    inputs = []
    for shape, axis in zip(shapes, case.axes or [None] * 3, strict=True):
        x = torch.randn([*shape] if axis is None else [*shape[:axis], 2, *shape[axis:]], generator=generator)
        if len(shape) == 3:
            x = torch.cat([x, torch.full_like(x, torch.nan)], -1)[..., : x.shape[-1]] if case.lies != "alone" else x
            x = x.bfloat16() if case.precision == "bf16" else x
        inputs.append(x.to(device).requires_grad_())
    return inputs


def compare(case: Case, device: str) -> None:
    """The output, and all gradients, against the plain one's in fp64 on the same numbers."""
    inputs = inputs_of(case, device)
    with walled_rooms(_triton_convolution):
        found = _results(triton_silu_convolution, inputs, case)
    exact = [x.detach().double().requires_grad_() for x in inputs]
    wanted = _results(plain, exact, case)
    assert [x.dtype for x in found] == [inputs[0].dtype, *(x.dtype for x in inputs)]
    for name, one, other in zip(NAMES, found, wanted, strict=True):
        assert one.shape == other.shape, name
        error, scale = (one - other).abs().max().item(), max(1.0, other.abs().max().item())
        assert error <= (2e-6 if case.precision == "fp32" else 1e-2) * scale, f"{name}: {error:.1e} of {scale:.1e}"


def _results(convolve: Callable[..., Tensor], given: list[Tensor], case: Case) -> list[Tensor]:
    c = (torch.vmap(convolve, in_dims=case.axes) if case.axes else convolve)(*given)
    return [x.detach() for x in (c, *torch.autograd.grad(weighted([c]), given))]


def without_bias(device: str) -> None:
    """As with one of 0, alone and stacked."""
    for case in (CASES[2], CASES[6]):
        x, weight, bias = inputs_of(case, device)
        zero = torch.zeros_like(bias)
        if case.axes:
            found = torch.vmap(triton_silu_convolution, in_dims=(0, 0, None))(x, weight, None)
            wanted = torch.vmap(triton_silu_convolution)(x, weight, zero)
        else:
            found, wanted = triton_silu_convolution(x, weight, None), triton_silu_convolution(x, weight, zero)
        assert torch.equal(found, wanted)
        for one, other in zip(*(torch.autograd.grad(weighted([c]), (x, weight)) for c in (found, wanted)), strict=True):
            assert torch.equal(one, other)


CHECKS = {str(case): (compare, case) for case in CASES} | {
    "without bias": (without_bias,),
    "mamba x3": (in_a_model, "triton_silu_conv", "mamba", 3),
    "gated_delta_net x1": (in_a_model, "triton_silu_conv", "gated_delta_net", 1),
    "titans x1": (in_a_model, "triton_silu_conv", "titans", 1),
}
ON_A_GPU = CHECKS | {str(case): (compare, case) for case in LARGE}


@pytest.mark.each_time(1)
@pytest.mark.parametrize("name", some(CHECKS, always=[*map(str, CASES[3::3]), "without bias"]))
def test_interpreted_on_a_cpu(failures: dict[str, str], name: str) -> None:
    assert failures.get(name, "") == ""


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", ON_A_GPU)
def test_on_a_gpu(name: str) -> None:
    check, *arguments = ON_A_GPU[name]
    check(*arguments, "cuda")


@pytest.mark.full
@pytest.mark.parametrize("way", ["forward", "backward"])
@pytest.mark.parametrize("of", ["bf16", full("fp32")])
def test_kernels_compile_for_an_h100(tmp_path: Path, way: str, of: str) -> None:
    kernel = getattr(_triton_convolution, f"{way}_kernel")
    constants = {"E": 256, "W": 4, "BIAS": True, "TILE": TILE, "CHUNK": CHUNK}
    compiled = compiled_for_an_h100(kernel, constants, axes=3, warps=1, of=of, fp32=("weight", "bias", "gtaps"))
    registers, spilled = registers_and_spilled(compiled.asm["cubin"], tmp_path)
    assert registers <= 128 and spilled == 0


def test_what_it_cannot_take_is_refused() -> None:
    x, weight, bias = (y.detach() for y in inputs_of(CASES[0], "cpu"))
    with pytest.raises(AssertionError, match="fp32 and bf16 alone"):
        triton_silu_convolution(x.double(), weight, bias)
    with pytest.raises(AssertionError, match="weights are in fp32"):
        triton_silu_convolution(x, weight.bfloat16(), bias)


if __name__ == "__main__":
    print_failures(CHECKS)
