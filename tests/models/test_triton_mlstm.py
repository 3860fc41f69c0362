"""Short mLSTM heads in Triton equal the plain form: interpreted on a CPU, compiled for a GPU, and run on one."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.choose import named
from chomsky_ladder.models.operations.mlstm.reference import mlstm_heads
from support.cases import some
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

from chomsky_ladder.models.operations.mlstm import gpu as _triton_mlstm
from chomsky_ladder.models.operations.mlstm.gpu import tiles, triton_mlstm

torch.set_num_threads(1)


class Case(NamedTuple):
    batch: int
    length: int
    heads: int
    width: int  # of a head
    axes: tuple[int | None, ...] = ()  # of the replicas in the inputs, for vmap; empty: no replicas
    spread: float = 1.0  # of what the gates read

    def __str__(self) -> str:
        return "-".join(str(part).replace(" ", "") for part in self)


CASES = [
    Case(2, 9, 2, 16),
    Case(1, 1, 1, 4),
    Case(1, 33, 3, 20),
    Case(2, 17, 1, 72),
    Case(1, 40, 2, 8, spread=10.0),
    Case(2, 5, 2, 8, axes=(0, 0, 0, 0, 0, 0, 0)),
    Case(2, 5, 2, 8, axes=(1, None, 2, 0, None, 1, 3)),
    Case(2, 5, 1, 8, axes=(None, 2, None, 3, 1, None, 0)),
]
LARGE = [Case(256, 39, 4, 64, axes=(0,) * 7), Case(8, 64, 2, 128)]
NAMES = ("h", "c", "u", "query", "key", "value", "i", "f")


def inputs_of(case: Case, device: str) -> list[Tensor]:
    """c, u, three maps and the gates, which want gradients, with an axis of two replicas where the case has one."""
    generator = torch.Generator().manual_seed(0)
    long, maps = (case.batch, case.length, case.heads * case.width), (case.heads * case.width // 4, 4, 4)
    shapes = [long, long, maps, maps, maps, (*long[:2], case.heads), (*long[:2], case.heads)]
    inputs = []
    for place, (shape, axis) in enumerate(zip(shapes, case.axes or [None] * 7, strict=True)):
        x = torch.randn([*shape] if axis is None else [*shape[:axis], 2, *shape[axis:]], generator=generator)
        x = case.spread * x if place >= 5 else x
        inputs.append(x.to(device).requires_grad_())
    return inputs


def compare(case: Case, device: str) -> None:
    """The outputs, and all gradients, against the plain form's in fp64 on the same numbers."""
    inputs = inputs_of(case, device)
    with walled_rooms(_triton_mlstm):
        found = _results(triton_mlstm, inputs, case)
    exact = [x.detach().double().requires_grad_() for x in inputs]
    for name, one, other in zip(NAMES, found, _results(mlstm_heads, exact, case), strict=True):
        assert one.shape == other.shape, name
        error, scale = (one - other).abs().max().item(), max(1.0, other.abs().max().item())
        most = 1e-5 if device == "cpu" else 2e-5  # a GPU's exponentials and quotients are off by two units each
        assert error <= most * scale, f"{name}: {error:.1e} of {scale:.1e}"  # not so for NaN either


def _results(scan: Callable[..., Tensor], given: list[Tensor], case: Case) -> list[Tensor]:
    h = (torch.vmap(scan, in_dims=case.axes) if case.axes else scan)(*given)
    gradients = torch.autograd.grad(weighted([h]), given, materialize_grads=True, allow_unused=True)
    return [x.detach() for x in (h, *gradients)]


def parts_of_bf16(strided: bool, device: str) -> None:
    """Where q, k and v need no rounding the gates' gradients are fp32's, and all else is off by its own rounding alone.

    Maps turn channels about, so that what they make has 8 bits where c and u do.
    """
    case = Case(2, 37, 2, 20)
    inputs = [x.detach() for x in inputs_of(case, device)]
    turn = torch.eye(4, device=device)[[2, 0, 3, 1]] * torch.tensor([1.0, -1.0, 0.5, -2.0], device=device)
    inputs[2:5] = (power * turn.expand_as(x) for power, x in zip((1.0, 0.5, 2.0), inputs[2:5], strict=True))
    if strided:  # as where c and u are parts of what one product made
        both = torch.cat(inputs[:2], -1).bfloat16()
        inputs[:2] = both.chunk(2, -1)
    inputs[:2] = [x.to(torch.bfloat16) for x in inputs[:2]]
    inputs = [x.requires_grad_() for x in inputs]
    with walled_rooms(_triton_mlstm):
        found = _results_of_16_bits(triton_mlstm, inputs)
    wanted = _results_of_16_bits(mlstm_heads, [x.detach().double().requires_grad_() for x in inputs])
    for name, one, other in zip(NAMES, found, wanted, strict=True):
        error, scale = (one - other).norm().item(), other.norm().item()
        assert error <= {"i": 2e-5, "f": 2e-5, "h": 4e-3}.get(name, 1e-2) * scale, f"{name}: {error:.1e} of {scale:.1e}"


def _results_of_16_bits(scan: Callable[..., Tensor], given: list[Tensor]) -> list[Tensor]:
    """From a gradient of h that has 8 bits itself."""
    h_BLE = scan(*given)
    gh_BLE = torch.randn(h_BLE.shape, generator=torch.Generator().manual_seed(1)).bfloat16().to(h_BLE)
    return [x.detach() for x in (h_BLE, *torch.autograd.grad(h_BLE, given, gh_BLE))]


def closed_gates(device: str) -> None:
    """Behind gates that are as good as shut all is finite, as in the plain form."""
    inputs = [x.detach() for x in inputs_of(CASES[0], device)]
    inputs[5] = inputs[5] - 200
    inputs[6] = inputs[6] - 1000
    compared = [x.requires_grad_() for x in inputs]
    found = _results(triton_mlstm, compared, CASES[0])
    wanted = _results(mlstm_heads, [x.detach().double().requires_grad_() for x in compared], CASES[0])
    for name, one, other in zip(NAMES, found, wanted, strict=True):
        assert torch.allclose(one.double(), other, rtol=1e-4, atol=1e-30), name


CHECKS = {str(case): (compare, case) for case in CASES} | {
    "bf16": (parts_of_bf16, False),
    "bf16 of one product": (parts_of_bf16, True),
    "closed gates": (closed_gates,),
    "xlstm x3": (in_a_model, "triton_mlstm", "xlstm", 3),
    "xlstm x1": (in_a_model, "triton_mlstm", "xlstm", 1),
}
ON_A_GPU = CHECKS | {str(case): (compare, case) for case in LARGE}


@pytest.mark.each_time(1)
@pytest.mark.parametrize("name", some(CHECKS, always=[*map(str, CASES[1::3]), "bf16", "closed gates"]))
def test_interpreted_on_a_cpu(failures: dict[str, str], name: str) -> None:
    assert failures.get(name, "") == ""


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", ON_A_GPU)
def test_on_a_gpu(name: str) -> None:
    check, *arguments = ON_A_GPU[name]
    check(*arguments, "cuda")


@pytest.mark.full  # tests/instruments/machine_code.py reads what it compiles
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize("way", ["forward", "backward"])
def test_kernels_compile_for_an_h100(tmp_path: Path, way: str, width: int, dtype: torch.dtype) -> None:
    kernel, constants = getattr(_triton_mlstm, f"{way}_kernel"), tiles(width, 40, dtype)
    fp32, of = ("query", "key", "value", "i", "f", "gmaps", "gi", "gf"), "bf16" if dtype == torch.bfloat16 else "fp32"
    compiled = compiled_for_an_h100(kernel, constants, axes=4, warps=constants["num_warps"], of=of, fp32=fp32)
    registers, spilled = registers_and_spilled(compiled.asm["cubin"], tmp_path)
    assert registers <= 255 and spilled <= (64 if (way, of) == ("backward", "bf16") else 0)


def test_long_strings_are_left_to_others() -> None:
    takes = named("triton_mlstm").takes
    assert takes(torch.zeros(1, 64, 8), Context()) and not takes(torch.zeros(1, 65, 8), Context())


def test_what_it_cannot_take_is_refused() -> None:
    inputs = [x.detach() for x in inputs_of(CASES[0], "cpu")]
    with pytest.raises(AssertionError, match="fp32 and bf16 alone"):
        triton_mlstm(*(x.double() for x in inputs))
    with pytest.raises(AssertionError, match="gates are in fp32"):
        triton_mlstm(*(x.bfloat16() for x in inputs))


if __name__ == "__main__":
    print_failures(CHECKS)
