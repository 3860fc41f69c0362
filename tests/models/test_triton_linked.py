"""A turn of `dnc`'s memory in Triton equals torch's: interpreted on a CPU, compiled for a GPU, run if there is one."""

from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.choose import named
from chomsky_ladder.models.operations.linked.reference import asked_of, linked_turn
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

from chomsky_ladder.models.operations.linked import gpu as _triton_linked
from chomsky_ladder.models.operations.linked.gpu import Plan, triton_linked

torch.set_num_threads(1)

NAMES = ("asked", "memory", "usage", "write", "precedence", "links", "weightings")
WHOLE = {"write": 0.8, "precedence": 0.9, "links": 0.7, "weightings": 1.0}  # the sum of a row


class Case(NamedTuple):
    heads: int
    rows: int
    width: int
    axes: tuple[int | None, ...] = ()  # of the replicas in the inputs, for vmap; empty: no replicas

    def __str__(self) -> str:
        return "-".join(str(part).replace(" ", "") for part in self)


CASES = [
    Case(1, 7, 5),
    Case(2, 16, 4),
    Case(3, 4, 3),
    Case(1, 3, 20),
    Case(2, 1, 3),
    Case(1, 33, 17),
    Case(2, 5, 3, axes=(0,) * 7),
    Case(1, 5, 3, axes=(1, 2, None, 0, 1, 3, None)),
]
LARGE = [Case(1, 64, 16), Case(4, 64, 16), Case(1, 64, 32), Case(1, 64, 16, axes=(0,) * 7)]


def inputs_of(case: Case, device: str) -> list[Tensor]:
    """Of two machines, with an axis of two replicas where the case has one; all want gradients."""
    generator = torch.Generator().manual_seed(0)
    heads, rows, width, axes = case
    asked = sum(asked_of(heads, width))
    shapes = [(asked,), (width, rows), (rows,), (rows,), (rows,), (rows, rows), (heads, rows)]
    inputs = []
    for name, shape, axis in zip(NAMES, shapes, axes or [None] * 7, strict=True):
        x = torch.randn([2, *shape, 1 if axis is None else 2], generator=generator)
        x = torch.sigmoid(x) if name == "usage" else WHOLE[name] * torch.softmax(2 * x, -2) if name in WHOLE else x
        x = x[..., 0] if axis is None else x.movedim(-1, axis)
        inputs.append(x.to(device).requires_grad_())
    return inputs


def held(inputs: list[Tensor], axes: tuple[int | None, ...] = (), parts: slice = slice(None)) -> None:
    """Outputs, and all gradients from some of them, against the definition's in fp64 on the same numbers."""
    inputs = [x.detach().requires_grad_() for x in inputs]
    exact = [x.detach().double().requires_grad_() for x in inputs]
    results = []
    for turn, given in ((triton_linked, inputs), (linked_turn, exact)):
        with walled_rooms(_triton_linked) if turn is triton_linked else nullcontext():
            outputs = (torch.vmap(turn, in_dims=axes) if axes else turn)(*given)
            gradients = torch.autograd.grad(weighted(outputs[parts]), given, materialize_grads=True)
        results.append([x.detach() for x in (*outputs, *gradients)])
    found, expected = results
    for name, one, other in zip((*NAMES[1:], "reads", *NAMES), found, expected, strict=True):
        assert one.shape == other.shape and one.dtype == torch.float32, name
        error, scale = (one - other).abs().max().item(), max(1.0, other.abs().max().item())
        assert error <= 2e-6 * scale, f"{name}: {error:.1e} of {scale:.1e}"  # not so for NaN either


def compare(case: Case, device: str) -> None:
    held(inputs_of(case, device), case.axes)


def compare_part(parts: slice, device: str) -> None:
    held(inputs_of(CASES[0], device), parts=parts)


def used(usage: tuple[float, ...], rows: int, device: str) -> None:
    """Rows used alike are filled in their own order; and what is a product of 0 has a gradient."""
    inputs = [x.detach() for x in inputs_of(Case(1, rows, 3), device)]
    inputs[0][:, 4] = -1e3  # nothing is set free
    inputs[2] = torch.tensor(usage, device=device).repeat(rows)[:rows].repeat(2, 1)
    inputs[2][1, rows // 2 :] = 0.25
    inputs[3].zero_()
    held(inputs)


def first_turn(device: str) -> None:
    """As strings begin: of nothing."""
    asked, *state = inputs_of(Case(2, 9, 5), device)
    held([asked, *map(torch.zeros_like, state)])


CHECKS = {str(case): (compare, case) for case in CASES} | {
    f"through output {part} alone": (compare_part, slice(part, part + 1)) for part in range(7)
}
CHECKS |= {
    "nothing used": (used, (0.0,), 5),
    "all used alike": (used, (0.5,), 16),
    "all used up": (used, (1.0,), 7),
    "one row free": (used, (0.5, 0.3, 0.0, 0.5, 0.7), 5),
    "two rows free": (used, (0.5, 0.0, 0.7, 0.0, 0.5), 5),
    "rows all but free": (used, (0.5, 1e-30, 0.7, 1e-12, 0.5, 1e-25), 6),
    "first turn": (first_turn,),
    "dnc x1": (in_a_model, "triton_linked", "dnc", 1),
    "dnc x3": (in_a_model, "triton_linked", "dnc", 3),
}
ALWAYS = [str(CASES[0]), str(CASES[-1]), "all used alike", "rows all but free", "first turn"]
ON_A_GPU = CHECKS | {str(case): (compare, case) for case in LARGE}


@pytest.mark.each_time(1)
@pytest.mark.parametrize("name", some(CHECKS, always=ALWAYS))
def test_interpreted_on_a_cpu(failures: dict[str, str], name: str) -> None:
    assert failures.get(name, "") == ""


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", ON_A_GPU)
def test_on_a_gpu(name: str) -> None:
    check, *arguments = ON_A_GPU[name]
    check(*arguments, "cuda")


SIZES = [(1, 64, 16), full(4, 64, 16), full(2, 7, 5), full(1, 30, 32), full(1, 64, 32)]


@pytest.mark.full
@pytest.mark.parametrize(("heads", "rows", "width"), SIZES)
@pytest.mark.parametrize("way", [full("there"), "back"])
def test_kernels_compile_for_an_h100(tmp_path: Path, way: str, heads: int, rows: int, width: int) -> None:
    kernel = {"there": _triton_linked.forward_kernel, "back": _triton_linked.backward_kernel}[way]
    plan = Plan.of(torch.empty(1, width, rows), torch.empty(1, heads, rows))
    constants = dict(zip(("W", "N", "HEADS", "WIDTH", "ROWS"), plan.sizes, strict=True))
    compiled = compiled_for_an_h100(kernel, constants, warps=plan.warps)
    registers, spilled = registers_and_spilled(compiled.asm["cubin"], tmp_path)
    assert registers <= 255 and spilled == 0


def test_larger_memories_are_left_to_torch() -> None:
    takes = named("triton_linked").takes
    assert takes(torch.zeros(1, 32, 64), Context())
    assert not takes(torch.zeros(1, 16, 65), Context()) and not takes(torch.zeros(1, 33, 16), Context())


def test_double_precision_is_refused() -> None:
    given = [x.detach().double() for x in inputs_of(CASES[0], "cpu")]
    with pytest.raises(AssertionError, match="fp32 alone"):
        triton_linked(*given)


if __name__ == "__main__":
    print_failures(CHECKS)
