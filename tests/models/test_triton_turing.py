"""A turn of `ntm`'s memory in Triton equals torch's: interpreted on a CPU, compiled for a GPU, run if there is one."""

from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.choose import named
from chomsky_ladder.models.operations.turing.reference import asked_of, turing_turn
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

from chomsky_ladder.models.operations.turing import gpu as _triton_turing
from chomsky_ladder.models.operations.turing.gpu import Plan, triton_turing

torch.set_num_threads(1)

NAMES = ("asked", "weightings", "memory")


class Case(NamedTuple):
    heads: int
    rows: int
    width: int
    shifts: int = 3
    axes: tuple[int | None, ...] = ()  # of the replicas in the inputs, for vmap; empty: no replicas

    def __str__(self) -> str:
        return "-".join(str(part).replace(" ", "") for part in self)


CASES = [
    Case(1, 7, 5),
    Case(2, 16, 4, 5),
    Case(3, 4, 3, 1),
    Case(1, 3, 20),
    Case(1, 33, 17),
    Case(2, 7, 5, 7),  # all round
    Case(1, 1, 1, 1),
    Case(2, 5, 3, axes=(0, 0, 0)),
    Case(1, 5, 3, axes=(1, 2, None)),
]
LARGE = [Case(4, 128, 20), Case(1, 128, 20, 5), Case(4, 128, 20, axes=(0, 0, 0)), Case(2, 100, 64)]


def inputs_of(case: Case, device: str) -> list[Tensor]:
    """Of two machines, with an axis of two replicas where the case has one; all want gradients."""
    generator = torch.Generator().manual_seed(0)
    heads, rows, width, shifts, axes = case
    shapes = [(2, sum(asked_of(heads, width, shifts))), (2, 2 * heads, rows), (2, width, rows)]
    inputs = []
    for name, sizes, axis in zip(NAMES, shapes, axes or [None] * 3, strict=True):
        shape = list(sizes)
        x = torch.randn([*shape, 1 if axis is None else 2], generator=generator)
        x = torch.softmax(2 * x, -2) if name == "weightings" else x
        x = x[..., 0] if axis is None else x.movedim(-1, axis)
        inputs.append(x.to(device).requires_grad_())
    return inputs


def held(
    inputs: list[Tensor],
    shifts: int,
    axes: tuple[int | None, ...] = (),
    parts: slice = slice(None),
    tolerance: float = 4e-6,
) -> None:
    """Outputs, and all gradients from some of them, against the definition's in fp64 on the same numbers."""
    exact = [x.detach().double().requires_grad_() for x in inputs]
    results = []
    for turn, given in ((triton_turing, inputs), (turing_turn, exact)):
        turned = partial(turn, shifts=shifts)
        with walled_rooms(_triton_turing) if turn is triton_turing else nullcontext():
            outputs = (torch.vmap(turned, in_dims=axes) if axes else turned)(*given)
            gradients = torch.autograd.grad(weighted(outputs[parts]), given, materialize_grads=True)
        results.append([x.detach() for x in (*outputs, *gradients)])
    found, expected = results
    for name, one, other in zip(("weights", "memories", "reads", *NAMES), found, expected, strict=True):
        assert one.shape == other.shape and one.dtype == torch.float32, name
        error, scale = (one - other).abs().max().item(), max(1.0, other.abs().max().item())
        assert error <= tolerance * scale, f"{name}: {error:.1e} of {scale:.1e}"  # not so for NaN either


def compare(case: Case, device: str) -> None:
    held(inputs_of(case, device), case.shifts, case.axes)


def compare_part(parts: slice, device: str) -> None:
    held(inputs_of(CASES[0], device), 3, parts=parts)


def sure_heads(place: int, asked: float, device: str) -> None:
    """Powers that are 0 in single precision, where torch's are no nearer, and gates that are."""
    inputs = inputs_of(CASES[0], device)
    inputs[0] = inputs[0].detach().index_fill(1, torch.tensor([place, place + 11], device=device), asked)
    held([inputs[0].requires_grad_(), *inputs[1:]], 3, tolerance=1e-4 if asked == 300 else 4e-6)


def first_turn(device: str) -> None:
    """As strings begin: rows of nearly nothing, heads at row 0."""
    inputs = inputs_of(Case(2, 9, 5), device)
    at_0 = torch.eye(9, device=device)[0].expand(2, 4, 9).clone().requires_grad_()
    held([inputs[0], at_0, torch.full_like(inputs[2], 1e-6).requires_grad_()], 3)


CHECKS = {str(case): (compare, case) for case in CASES} | {
    "through the weightings alone": (compare_part, slice(0, 1)),
    "through the memory alone": (compare_part, slice(1, 2)),
    "through what was read alone": (compare_part, slice(2, 3)),
    "no strength": (sure_heads, 5, -50.0),
    "all strength": (sure_heads, 5, 50.0),
    "sharp": (sure_heads, 6, 300.0),
    "blunt": (sure_heads, 6, -50.0),
    "gate open": (sure_heads, 7, 1e3),
    "gate shut": (sure_heads, 7, -1e3),
    "one shift": (sure_heads, 8, 300.0),
    "first turn": (first_turn,),
    "ntm x1": (in_a_model, "triton_turing", "ntm", 1),
    "ntm x3": (in_a_model, "triton_turing", "ntm", 3),
}
ALWAYS = [str(CASES[0]), str(CASES[-1]), "sharp", "first turn"]
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


SIZES = [(4, 128, 20), full(1, 128, 20), full(1, 7, 5), full(2, 128, 64)]


@pytest.mark.full
@pytest.mark.parametrize(("heads", "rows", "width"), SIZES)
@pytest.mark.parametrize("way", [full("there"), "back"])
def test_kernels_compile_for_an_h100(tmp_path: Path, way: str, heads: int, rows: int, width: int) -> None:
    kernel = {"there": _triton_turing.forward_kernel, "back": _triton_turing.backward_kernel}[way]
    plan = Plan.of(torch.empty(1, 2 * heads, rows), torch.empty(1, width, rows), 3)
    constants = dict(zip(("W", "N", "HEADS", "SHIFTS", "WIDTH", "ROWS"), plan.sizes, strict=True))
    compiled = compiled_for_an_h100(kernel, constants, warps=plan.warps)
    registers, spilled = registers_and_spilled(compiled.asm["cubin"], tmp_path)
    assert registers <= 255 and spilled == 0


def test_larger_memories_are_left_to_torch() -> None:
    takes = named("triton_turing").takes
    assert takes(torch.zeros(1, 64, 128), Context()) and not takes(torch.zeros(1, 65, 128), Context())


def test_double_precision_is_refused() -> None:
    given = [x.detach().double() for x in inputs_of(CASES[0], "cpu")]
    with pytest.raises(AssertionError, match="fp32 alone"):
        triton_turing(*given, shifts=3)


if __name__ == "__main__":
    print_failures(CHECKS)
