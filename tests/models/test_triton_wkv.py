"""RWKV-4's average in Triton equals the plain form: interpreted on a CPU, compiled for a GPU, and run on one."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.choose import named
from chomsky_ladder.models.operations.wkv import wkv
from chomsky_ladder.models.operations.wkv.reference import NOTHING_YET
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

from chomsky_ladder.models.operations.wkv import gpu as _triton_wkv
from chomsky_ladder.models.operations.wkv.gpu import CHUNK, TILE, triton_wkv

torch.set_num_threads(1)


class Case(NamedTuple):
    batch: int
    length: int
    channels: int
    axes: tuple[int | None, ...] = ()  # of the replicas in the inputs, for vmap; empty: no replicas
    precision: str = "fp32"
    keys: float = 1.0  # how far they reach
    fresh: bool = False  # from nothing

    def __str__(self) -> str:
        return "-".join(str(part).replace(" ", "") for part in self)


CASES = [
    Case(2, 1, 3),
    Case(3, CHUNK - 1, 1, fresh=True),
    Case(2, CHUNK, TILE),
    Case(1, CHUNK + 1, TILE + 5, keys=30.0),
    Case(2, 3 * CHUNK + 2, 5, fresh=True, keys=300.0),
    Case(2, 5, 4, axes=(0, 0, 0, 0, 0, 0)),
    Case(2, 6, 4, axes=(1, None, 1, 0, None, 2)),
    Case(1, 5, 4, axes=(None, 3, None, 1, 2, None)),
    Case(2, 9, 5, precision="bf16"),
]
LARGE = [Case(256, 39, 128, axes=(0,) * 6), Case(4, 1000, 300)]
NAMES = ("y", "last", "top", "k", "v", "rate", "bonus", "first")


def inputs_of(case: Case, device: str) -> list[Tensor]:
    """k, v, rates, bonus, n with d, and m: all but the last want gradients; with an axis of two replicas if asked."""
    generator = torch.Generator().manual_seed(0)
    long, channels = (case.batch, case.length, case.channels), (case.channels,)
    shapes = [long, long, channels, channels, (case.batch, 2, *channels), (case.batch, *channels)]
    inputs = []
    for place, (shape, axis) in enumerate(zip(shapes, case.axes or [None] * 6, strict=True)):
        x = torch.randn([*shape] if axis is None else [*shape[:axis], 2, *shape[axis:]], generator=generator)
        x = case.keys * x if place == 0 else torch.exp(x) if place in (2, 4) else x
        if case.fresh and place >= 4:
            x = torch.zeros_like(x) if place == 4 else torch.full_like(x, NOTHING_YET)
        x = x.bfloat16() if case.precision == "bf16" and place < 2 else x
        inputs.append(x.to(device).requires_grad_(place < 5))
    return inputs


def compare(case: Case, device: str, parts: slice = slice(2)) -> None:
    """Outputs, and all gradients from some of them, against the plain form's in fp64 on the same numbers."""
    inputs = inputs_of(case, device)
    with walled_rooms(_triton_wkv):
        found = _results(triton_wkv, inputs, case, parts)
    exact = [x.detach().double().requires_grad_(x.requires_grad) for x in inputs]
    wanted = _results(lambda *given: wkv(*given, Context(backend="reference")), exact, case, parts)
    assert [x.dtype for x in found] == [inputs[0].dtype, *[torch.float32] * 2, *(x.dtype for x in inputs[:5])]
    for name, one, other in zip(NAMES, found, wanted, strict=True):
        assert one.shape == other.shape, name
        error, scale = (one - other).abs().max().item(), max(1.0, other.abs().max().item())
        assert error <= (1e-5 if case.precision == "fp32" else 1e-2) * scale, f"{name}: {error:.1e} of {scale:.1e}"


def _results(average: Callable[..., tuple], given: list[Tensor], case: Case, parts: slice) -> list[Tensor]:
    def flat(*inputs: Tensor) -> tuple[Tensor, ...]:
        y, (sums, top) = average(*inputs[:4], inputs[4:])
        return y, sums, top

    outputs = (torch.vmap(flat, in_dims=case.axes) if case.axes else flat)(*given)
    gradients = torch.autograd.grad(weighted(outputs[parts]), given[:5], materialize_grads=True, allow_unused=True)
    return [x.detach() for x in (*outputs, *gradients)]


def compare_part(parts: slice, device: str) -> None:
    compare(CASES[3], device, parts)


def without_gradients(device: str) -> None:
    """The outputs are the same, and no chunk's start is kept."""
    *given, sums, top = inputs_of(CASES[3], device)
    with walled_rooms(_triton_wkv) as rooms, torch.no_grad():
        y, state = triton_wkv(*given, (sums, top))
    assert sum(x.numel() for x in rooms) == y.numel() + sum(x.numel() for x in state)
    assert torch.equal(y, triton_wkv(*given, (sums, top))[0])


CHECKS = {str(case): (compare, case) for case in CASES} | {
    "through all y alone": (compare_part, slice(0, 1)),
    "through the last state alone": (compare_part, slice(1, 2)),
    "without gradients": (without_gradients,),
    "rwkv4 x3": (in_a_model, "triton_wkv", "rwkv4", 3),
    "rwkv4 x1": (in_a_model, "triton_wkv", "rwkv4", 1),
}
ON_A_GPU = CHECKS | {str(case): (compare, case) for case in LARGE}


@pytest.mark.each_time(1)
@pytest.mark.parametrize("name", some(CHECKS, always=[*map(str, CASES[1::3]), "without gradients"]))
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
def test_kernels_compile_for_an_h100(tmp_path: Path, way: str) -> None:
    kernel = getattr(_triton_wkv, f"{way}_kernel")
    fp32 = ("rate", "bonus", "sums", "top", "last", "last_top", "starts", "glast", "gboth", "gfirst")
    constants = {"D": 128, "KEEP": True, "TILE": TILE, "CHUNK": CHUNK}
    compiled = compiled_for_an_h100(kernel, constants, axes=3, warps=1, of="bf16", fp32=fp32)
    registers, spilled = registers_and_spilled(compiled.asm["cubin"], tmp_path)
    assert registers <= 168 and spilled == 0


def test_long_strings_are_left_to_the_plain_form() -> None:
    takes = named("triton_wkv").takes
    assert takes(torch.zeros(1, 2048, 1), Context()) and not takes(torch.zeros(1, 2049, 1), Context())


def test_what_it_cannot_take_is_refused() -> None:
    *given, sums, top = (x.detach() for x in inputs_of(CASES[0], "cpu"))
    with pytest.raises(AssertionError, match="fp32 and bf16 alone"):
        triton_wkv(*(x.double() for x in given), (sums, top))
    with pytest.raises(AssertionError, match="state are in fp32"):
        triton_wkv(*given, (sums.double(), top))


if __name__ == "__main__":
    print_failures(CHECKS)
