"""SLiCE's Triton recurrence equals its loop: interpreted on a CPU, compiled for a GPU, and run on one if there is."""

from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.choose import named
from chomsky_ladder.models.operations.block_steps.reference import block_steps
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

from chomsky_ladder.models.operations.block_steps import gpu as _triton_block_steps
from chomsky_ladder.models.operations.block_steps.gpu import CHUNK, NUMBERS, WARPS, triton_block_steps

torch.set_num_threads(1)


class Case(NamedTuple):
    rows: int
    length: int
    heads: int
    block: int
    precision: Literal["fp32", "bf16", "mixed"] = "fp32"
    axes: tuple[int | None, ...] = ()  # of the replicas in the inputs, for vmap; empty: no replicas
    lies: str = "alone"  # or "in a product"
    steps: int = 40

    def __str__(self) -> str:
        return "-".join(str(part).replace(" ", "") for part in self)


CASES = [
    Case(2, 1, 3, 4),
    Case(3, CHUNK - 1, 1, 1),
    Case(2, CHUNK, NUMBERS // 16, 4, steps=2),
    Case(2, CHUNK + 1, NUMBERS // 16 + 3, 4),
    Case(2, 2 * CHUNK + 3, 5, 3),
    Case(1, 5, 3, 16),
    Case(1, 40, 7, 2, steps=3),
    Case(2, 3, 9, 9),
    Case(2, 5, 4, 4, axes=(0, 0, 0)),
    Case(2, CHUNK + 1, 4, 2, axes=(2, None, 1)),
    Case(3, 5, 4, 4, axes=(None, 0, None)),
    Case(2, 9, 5, 4, precision="bf16"),
    Case(2, 9, 5, 3, precision="mixed", axes=(0, 0, 0)),
    Case(2, 9, 5, 4, lies="in a product"),
]
LARGE = [Case(256, 1024, 32, 4), Case(64, 257, 20, 8, axes=(0, 0, 0))]


def inputs_of(case: Case, device: str) -> list[Tensor]:
    """c, b and h, which want gradients, with an axis of two replicas where the case has one."""
    generator = torch.Generator().manual_seed(0)
    width = case.heads * case.block
    shapes = (
        (case.rows, case.length, width * case.block),
        (case.rows, case.length, width),
        (case.rows, case.heads, case.block),
    )
    bf16 = {"fp32": (), "bf16": (0, 1, 2), "mixed": (0, 1)}[case.precision]
    inputs = []
    for place, (sizes, axis) in enumerate(zip(shapes, case.axes or [None] * 3, strict=True)):
        shape = list(sizes)
        if axis is not None:
            shape.insert(axis, 2)
        x = torch.randn(shape, generator=generator)
        if case.lies == "in a product" and place < 2:
            x = torch.cat([x, torch.full_like(x, torch.nan)], -1)[..., : shape[-1]]
        inputs.append(x.to(device, torch.bfloat16 if place in bf16 else torch.float32).requires_grad_())
    return inputs


def compare(case: Case, device: str, parts: slice = slice(None)) -> None:
    """Outputs, and all gradients from some of them, against the loop's in fp64 on the same numbers."""
    inputs = inputs_of(case, device)
    exact = [x.detach().double().requires_grad_() for x in inputs]
    results = []
    for form, given in ((triton_block_steps, inputs), (block_steps, exact)):
        scan = partial(form, steps=case.steps)
        with walled_rooms(_triton_block_steps) if form is triton_block_steps else nullcontext():
            outputs = (torch.vmap(scan, in_dims=case.axes) if case.axes else scan)(*given)
            gradients = torch.autograd.grad(weighted(outputs[parts]), given, materialize_grads=True)
        results.append([x.detach() for x in (*outputs, *gradients)])
    found, expected = results
    assert [x.dtype for x in found] == [torch.float32] * 2 + [x.dtype for x in inputs]
    for name, one, other in zip(("all h", "last", "c", "b", "h"), found, expected, strict=True):
        assert one.shape == other.shape, name
        error, scale = (one - other).abs().max().item(), max(1.0, other.abs().max().item())
        tolerance = 2e-6 if one.dtype == torch.float32 else 1e-2
        assert error <= tolerance * scale, f"{name}: {error:.1e} of {scale:.1e}"  # not so for NaN either


def compare_part(parts: slice, device: str) -> None:
    compare(CASES[4], device, parts)


CHECKS = {str(case): (compare, case) for case in CASES} | {
    "through all h alone": (compare_part, slice(0, 1)),
    "through the last state alone": (compare_part, slice(1, 2)),
    "slice x1": (in_a_model, "triton_block_steps", "slice", 1),
    "slice x3": (in_a_model, "triton_block_steps", "slice", 3),
}
ON_A_GPU = CHECKS | {str(case): (compare, case) for case in LARGE}


@pytest.mark.each_time(1)
@pytest.mark.parametrize("name", some(CHECKS, always=[*map(str, CASES[1::4]), "through the last state alone"]))
def test_interpreted_on_a_cpu(failures: dict[str, str], name: str) -> None:
    assert failures.get(name, "") == ""


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", ON_A_GPU)
def test_on_a_gpu(name: str) -> None:
    check, *arguments = ON_A_GPU[name]
    check(*arguments, "cuda")


@pytest.mark.full
@pytest.mark.parametrize("block", [1, 4, full(3), full(16)])
@pytest.mark.parametrize("way", ["there", "back"])
def test_kernels_compile_for_an_h100(tmp_path: Path, way: str, block: int) -> None:
    kernel = {"there": _triton_block_steps.forward_kernel, "back": _triton_block_steps.backward_kernel}[way]
    heads, block, whole, tile = _triton_block_steps._shape(torch.empty(1, 1, 32, block))
    constants = {"H": heads, "K": block, "WHOLE": whole, "TILE": tile, "CHUNK": CHUNK, "STEPS": 40}
    compiled = compiled_for_an_h100(kernel, constants, axes=3, warps=WARPS)
    registers, spilled = registers_and_spilled(compiled.asm["cubin"], tmp_path)
    assert registers <= 255 and spilled == 0


def test_what_is_left_to_the_levels() -> None:
    takes = named("triton_block_steps").takes
    assert takes(torch.zeros(1, 2048, 1, 16, 16), Context()) and not takes(torch.zeros(1, 2049, 1, 1, 1), Context())
    assert not takes(torch.zeros(1, 2, 1, 17, 17), Context())


def test_double_precision_is_refused() -> None:
    with pytest.raises(AssertionError, match="fp32 and bf16 alone"):
        triton_block_steps(*(x.detach().double() for x in inputs_of(CASES[0], "cpu")), steps=40)


if __name__ == "__main__":
    print_failures(CHECKS)
