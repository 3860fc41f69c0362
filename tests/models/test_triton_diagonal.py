"""The Triton recurrence equals its loop: interpreted on a CPU, compiled for a GPU, and run on one if there is one."""

from contextlib import nullcontext
from pathlib import Path
from typing import Literal, NamedTuple

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.choose import named
from chomsky_ladder.models.operations.diagonal.reference import scan_loop
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

from chomsky_ladder.models.operations.diagonal import gpu as _triton_diagonal
from chomsky_ladder.models.operations.diagonal.gpu import CHUNK, TILE, triton_diagonal

torch.set_num_threads(1)


class Case(NamedTuple):
    rows: tuple[int, ...]
    length: int
    channels: int
    precision: Literal["fp32", "bf16", "mixed"] = "fp32"
    axes: tuple[int | None, ...] = ()  # of the replicas in the inputs, for vmap; empty: no replicas
    lies: str = "alone"  # or "in a product", "once for two rows"

    def __str__(self) -> str:
        return "-".join(str(part).replace(" ", "") for part in self)


CASES = [
    Case((2,), 1, 3),
    Case((3,), CHUNK - 1, 1),
    Case((2, 3), CHUNK, TILE),
    Case((2,), CHUNK + 1, TILE + 5),
    Case((2, 2, 3), 2 * CHUNK + 3, 5),
    Case((1,), 40, 20),
    Case((2, 3), 5, 4, axes=(0, 0, 0)),
    Case((2,), CHUNK + 1, 4, axes=(2, None, 1)),
    Case((3,), 5, 4, axes=(None, 0, None)),
    Case((2,), 9, 5, precision="bf16"),
    Case((2, 2), 9, 5, precision="mixed", axes=(0, 0, 0)),
    Case((2, 3), 9, 5, lies="in a product"),
    Case((2, 2), 9, 5, lies="once for two rows"),
    Case((2, 2), 9, 5, lies="once for two rows", axes=(0, 0, 0)),
]
LARGE = [Case((256,), 1024, 300), Case((64, 2), 257, 128, axes=(0, 0, 0))]


def inputs_of(case: Case, device: str) -> list[Tensor]:
    """a, u and h, which want gradients, with an axis of two replicas where the case has one."""
    generator = torch.Generator().manual_seed(0)
    long, state = (*case.rows, case.length, case.channels), (*case.rows, case.channels)
    bf16 = {"fp32": (), "bf16": (0, 1, 2), "mixed": (1,)}[case.precision]
    inputs = []
    for place, (shape, axis) in enumerate(zip((long, long, state), case.axes or [None] * 3, strict=True)):
        shape = list(shape)
        if axis is not None:
            shape.insert(axis, 2)
        x = torch.randn(shape, generator=generator) if place else torch.rand(shape, generator=generator)
        if case.lies == "in a product" and place < 2:
            x = torch.cat([x, torch.full_like(x, torch.nan)], -1)[..., : shape[-1]]
        if case.lies == "once for two rows" and place == 0:
            x = x.narrow(-3, 0, 1).expand_as(x)
        inputs.append(x.to(device, torch.bfloat16 if place in bf16 else torch.float32).requires_grad_())
    return inputs


def compare(case: Case, device: str, parts: slice = slice(None)) -> None:
    """Outputs, and all gradients from some of them, against the loop's in fp64 on the same numbers."""
    inputs = inputs_of(case, device)
    exact = [x.detach().double().requires_grad_() for x in inputs]
    results = []
    for scan, given in ((triton_diagonal, inputs), (scan_loop, exact)):
        with walled_rooms(_triton_diagonal) if scan is triton_diagonal else nullcontext():
            outputs = (torch.vmap(scan, in_dims=case.axes) if case.axes else scan)(*given)
            gradients = torch.autograd.grad(weighted(outputs[parts]), given, materialize_grads=True)
        results.append([x.detach() for x in (*outputs, *gradients)])
    found, expected = results
    assert [x.dtype for x in found] == [torch.float32] * 2 + [x.dtype for x in inputs]
    for name, one, other in zip(("all h", "last", "a", "u", "h"), found, expected, strict=True):
        assert one.shape == other.shape, name
        error, scale = (one - other).abs().max().item(), max(1.0, other.abs().max().item())
        tolerance = 1e-6 if one.dtype == torch.float32 else 1e-2
        assert error <= tolerance * scale, f"{name}: {error:.1e} of {scale:.1e}"  # not so for NaN either


def compare_part(parts: slice, device: str) -> None:
    compare(CASES[4], device, parts)


def exact_decays(device: str) -> None:
    """After a decay of 0 there is what came in, after decays of 1 the sum."""
    u = torch.randn(2, 20, 3, device=device)
    h = torch.ones(2, 3, device=device)
    assert torch.equal(triton_diagonal(torch.zeros_like(u), u, h)[0], u)
    halves = (u * 8).round() / 8
    assert torch.equal(triton_diagonal(torch.ones_like(u), halves, h)[0], halves.cumsum(1) + 1)


CHECKS = {str(case): (compare, case) for case in CASES} | {
    "through all h alone": (compare_part, slice(0, 1)),
    "through the last state alone": (compare_part, slice(1, 2)),
    "exact decays": (exact_decays,),
    "min_gru x3": (in_a_model, "triton_diagonal", "min_gru", 3),
    "hgrn x3": (in_a_model, "triton_diagonal", "hgrn", 3),
    "rwkv4 x3": (in_a_model, "triton_diagonal", "rwkv4", 3),
    "min_lstm x1": (in_a_model, "triton_diagonal", "min_lstm", 1),
}
ON_A_GPU = CHECKS | {str(case): (compare, case) for case in LARGE}


@pytest.mark.each_time(1)
@pytest.mark.parametrize("name", some(CHECKS, always=[*map(str, CASES[3::4]), "exact decays"]))
def test_interpreted_on_a_cpu(failures: dict[str, str], name: str) -> None:
    assert failures.get(name, "") == ""


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", ON_A_GPU)
def test_on_a_gpu(name: str) -> None:
    check, *arguments = ON_A_GPU[name]
    check(*arguments, "cuda")


@pytest.mark.full
@pytest.mark.parametrize("way", ["there", "back"])
def test_kernels_compile_for_an_h100(tmp_path: Path, way: str) -> None:
    kernel = {"there": _triton_diagonal.forward_kernel, "back": _triton_diagonal.backward_kernel}[way]
    compiled = compiled_for_an_h100(kernel, {"D": 256, "TILE": TILE, "CHUNK": CHUNK}, axes=3, warps=1)
    registers, spilled = registers_and_spilled(compiled.asm["cubin"], tmp_path)
    assert registers <= 255 and spilled == 0


def test_long_strings_are_left_to_the_doublings() -> None:
    takes = named("triton_diagonal").takes
    assert takes(torch.zeros(1, 2048, 1), Context()) and not takes(torch.zeros(1, 2049, 1), Context())


def test_double_precision_is_refused() -> None:
    with pytest.raises(AssertionError, match="fp32 and bf16 alone"):
        triton_diagonal(*(x.detach().double() for x in inputs_of(CASES[0], "cpu")))


if __name__ == "__main__":
    print_failures(CHECKS)
