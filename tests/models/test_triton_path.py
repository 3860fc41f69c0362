"""PaTH by Triton equals its definition: interpreted on a CPU, compiled for a GPU, run on one if there is one."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.choose import named
from chomsky_ladder.models.operations.path.reference import attended
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

from chomsky_ladder.models.operations import in_triton
from chomsky_ladder.models.operations.path import gpu as _triton_path
from chomsky_ladder.models.operations.path import in_triton as triton_path
from chomsky_ladder.models.operations.path.gpu import SPAN, TILE, plan

torch.set_num_threads(1)

NAMES = ("q", "k", "v", "w", "beta", "total")


class Case(NamedTuple):
    length: int
    width: int = 4
    gated: bool = False
    axes: tuple[int | None, ...] = ()  # of the replicas in the inputs, for vmap; empty: no replicas
    by_token: bool = False

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self._asdict().items() if value != _plain[name])


_plain: dict[str, Any] = {"length": None} | Case._field_defaults
CASES = [
    Case(1),
    Case(TILE - 1, 1),
    Case(TILE, 5, gated=True),
    Case(TILE + 1, 33),
    Case(2 * TILE + 3),
    Case(2 * TILE, 32),
    Case(35, 64),
    Case(SPAN + 3, 20),
    Case(35, 32, gated=True, axes=(0,) * 6),
    Case(TILE // 2, axes=(2, 0, 1, None, 3)),
    Case(5, by_token=True),
    Case(18, 40, gated=True, axes=(1, 0, 2, 0, 0, None), by_token=True),
]
LARGE = [Case(256, 32), Case(100, 64, True, (0,) * 6), Case(1000, 16, True)]


def inputs_of(case: Case, device: str) -> list[Tensor]:
    """Two rows of three heads, with an axis of two replicas where the case has one; all want gradients."""
    generator = torch.Generator().manual_seed(0)
    of_tokens, of_head = (2, 3, case.length, case.width), (2, 3, case.length)
    shapes, inputs = [*[of_tokens] * 4, of_head, *[of_head] * case.gated], []
    for place, (shape, axis) in enumerate(zip(shapes, case.axes or [None] * len(shapes), strict=True)):
        x = torch.randn(shape if axis is None else [*shape[:axis], 2, *shape[axis:]], generator=generator)
        x = 2 * x.sigmoid() if place == 4 else -x.exp() if place == 5 else x
        if case.by_token and axis is None and place < 4:
            x = x.transpose(1, 2).contiguous().transpose(1, 2)
        inputs.append(x.to(device))
    inputs[3] = inputs[3] / inputs[3].norm(dim=-1, keepdim=True)
    return [x.requires_grad_() for x in inputs]


def called(rule: Any, *given: Tensor) -> Tensor:
    return rule(*given, *[None] * (6 - len(given)))


def compare(case: Case, device: str, beta: float | None = None) -> None:
    """The output and all gradients against the definition's in fp64 on the same numbers."""
    inputs = inputs_of(case, device)
    if beta is not None:
        inputs[4] = torch.full_like(inputs[4], beta).requires_grad_()
    exact = [x.detach().double().requires_grad_() for x in inputs]
    results = []
    for rule, given in ((triton_path, inputs), (attended, exact)):
        with walled_rooms(in_triton) if rule is triton_path else nullcontext():
            y = (
                torch.vmap(lambda *given, rule=rule: called(rule, *given), in_dims=case.axes)(*given)
                if case.axes
                else called(rule, *given)
            )
            gradients = torch.autograd.grad(weighted([y]), given, materialize_grads=True)
        results.append([x.detach() for x in (y, *gradients)])
    found, expected = results
    assert all(x.dtype == torch.float32 for x in found)
    for name, one, other in zip(("y", *NAMES), found, expected, strict=False):
        assert one.shape == other.shape, name
        error, scale = (one - other).abs().max().item(), max(1.0, other.abs().max().item())
        assert error <= 2e-6 * scale, f"{name}: {error:.1e} of {scale:.1e}"  # not so for NaN either


def compare_with(beta: float, device: str) -> None:
    compare(CASES[5], device, beta)


CHECKS = {str(case): (compare, case) for case in CASES} | {
    "nothing turned": (compare_with, 0.0),
    "projected": (compare_with, 1.0),
    "mirrored": (compare_with, 2.0),
    "path_attention x1": (in_a_model, "triton_path", "path_attention", 1),
    "path_attention x3": (in_a_model, "triton_path", "path_attention", 3),
}
ON_A_GPU = CHECKS | {str(case): (compare, case) for case in LARGE}


@pytest.mark.each_time(1)
@pytest.mark.parametrize("name", some(CHECKS, always=[*map(str, CASES[1::8])]))
def test_interpreted_on_a_cpu(failures: dict[str, str], name: str) -> None:
    assert failures.get(name, "") == ""


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", ON_A_GPU)
def test_on_a_gpu(name: str) -> None:
    check, *arguments = ON_A_GPU[name]
    check(*arguments, "cuda")


@pytest.mark.full
@pytest.mark.parametrize("width", [32, 64, full(16), full(33)])
@pytest.mark.parametrize("way", ["there", "back"])
def test_kernels_compile_for_an_h100(tmp_path: Path, way: str, width: int) -> None:
    kernel = {"there": _triton_path.forward_kernel, "back": _triton_path.backward_kernel}[way]
    sizes = {"R": 1, "B": 1, "H": 4, "L": 40, "K": width, "KEEP": True}
    planned = plan(sizes)
    constants = sizes | planned.constants
    compiled = compiled_for_an_h100(kernel, constants, axes=4, warps=planned.warps)
    registers, spilled = registers_and_spilled(compiled.asm["cubin"], tmp_path)
    assert registers <= 255 and spilled == 0


def test_heads_with_more_channels_are_left_to_the_chunks() -> None:
    takes = named("triton_path").takes
    assert takes(torch.zeros(1, 1, 65, 64), Context()) and not takes(torch.zeros(1, 1, 64, 65), Context())


def test_double_precision_is_refused() -> None:
    given = [x.detach().double() for x in inputs_of(CASES[0], "cpu")]
    with pytest.raises(AssertionError, match="fp32 alone"):
        called(triton_path, *given)


if __name__ == "__main__":
    print_failures(CHECKS)
