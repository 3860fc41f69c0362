"""The mesa layer in Triton equals its definition: interpreted on a CPU, compiled for a GPU, and run on one."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.choose import named
from chomsky_ladder.models.operations.mesa.reference import mesa
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

from chomsky_ladder.models.operations.mesa import gpu as _triton_mesa
from chomsky_ladder.models.operations.mesa.gpu import CHUNK, constants, triton_mesa

torch.set_num_threads(1)

NAMES = ("q", "k", "v", "beta", "log decay", "H", "G")


class Case(NamedTuple):
    length: int
    keys: int = 4
    values: int = 5
    axes: tuple[int | None, ...] = ()  # of the replicas in the inputs, for vmap; empty: no replicas
    long: float = 1.0  # keys
    by_token: bool = False
    bf16: str = ""  # the inputs of 16 bits

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self._asdict().items() if value != _plain[name])


_plain: dict[str, Any] = {"length": None} | Case._field_defaults
IN_FRONT = (0,) * 7
CASES = [
    Case(1),
    Case(CHUNK - 1, 1, 1),
    Case(CHUNK, 16, 16),
    Case(CHUNK + 1, 17, 3),
    Case(2 * CHUNK + 3, long=4.0),
    Case(7, 33, 20),
    Case(CHUNK + 2, axes=IN_FRONT),
    Case(4, axes=(2, 0, 1, None, 3, None, 4)),
    Case(CHUNK + 1, by_token=True),
    Case(5, axes=(1, 0, 2, 0, 0, None, 0), by_token=True),
    Case(6, bf16="kv"),
]
LARGE = [Case(256, 32, 32), Case(100, 64, 64, axes=IN_FRONT), Case(1000, 16, 32)]


def inputs_of(case: Case, device: str) -> list[Tensor]:
    """Two rows of two heads, with an axis of two replicas where the case has one; all want gradients."""
    generator = torch.Generator().manual_seed(0)
    length, keys, values = case[:3]
    of_keys, of_head = (2, 2, length, keys), (2, 2, length)
    shapes = [of_keys, of_keys, (2, 2, length, values), of_head, of_head, (2, 2, keys, keys), (2, 2, keys, values)]
    inputs = []
    for place, (shape, axis) in enumerate(zip(shapes, case.axes or [None] * 7, strict=True)):
        x = torch.randn(shape if axis is None else [2, *shape], generator=generator)
        x = case.long * torch.nn.functional.normalize(x, dim=-1) if place == 1 else x
        x = x.sigmoid() if place == 3 else -x.exp() if place == 4 else x @ x.mT / keys if place == 5 else x
        if case.by_token and place < 3:
            x = x.transpose(-3, -2).contiguous().transpose(-3, -2)
        x = x if axis is None else x.movedim(0, axis)
        x = x.bfloat16() if NAMES[place] in case.bf16 else x
        inputs.append(x.to(device).requires_grad_())
    return inputs


def called(rule: Any, *given: Tensor, steps: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    y, state = rule(*given[:5], given[5:], steps=steps)
    return y, *state


def compare(case: Case, device: str, parts: slice = slice(None), changed: tuple[int, float] | None = None) -> None:
    """Outputs, and all gradients from some of them, against the definition's in fp64 on the same numbers."""
    inputs = inputs_of(case, device)
    if changed:
        place, value = changed
        inputs[place] = torch.full_like(inputs[place], value).requires_grad_()
    exact = [x.detach().double().requires_grad_() for x in inputs]
    results = []
    for rule, given in ((triton_mesa, inputs), (mesa, exact)):
        with walled_rooms(_triton_mesa) if rule is triton_mesa else nullcontext():
            outputs = (
                torch.vmap(lambda *given, rule=rule: called(rule, *given), in_dims=case.axes)(*given)
                if case.axes
                else called(rule, *given)
            )
            gradients = torch.autograd.grad(weighted(outputs[parts]), given, materialize_grads=True)
        results.append([x.detach() for x in (*outputs, *gradients)])
    found, expected = results
    assert [x.dtype for x in found] == [torch.float32] * 3 + [x.dtype for x in inputs]
    for name, one, other in zip(("y", "last H", "last G", *NAMES), found, expected, strict=True):
        assert one.shape == other.shape, name
        error, scale = (one - other).abs().max().item(), max(1.0, other.abs().max().item())
        tolerance = 1e-5 if one.dtype == torch.float32 else 1e-2
        assert error <= tolerance * scale, f"{name}: {error:.1e} of {scale:.1e}"  # not so for NaN either


def compare_part(parts: slice, device: str) -> None:
    compare(CASES[3], device, parts)


def compare_with(place: int, value: float, device: str) -> None:
    compare(CASES[3], device, changed=(place, value))


def few_steps(device: str) -> None:
    """As many as are asked for, and no more than there is something left to find."""
    given = [x.detach() for x in inputs_of(CASES[3], device)]
    exact = [x.double() for x in given]
    errors = []
    for steps in (1, 2, 3, 0, 500):
        y, wanted = (called(rule, *tensors, steps=steps)[0] for rule, tensors in ((triton_mesa, given), (mesa, exact)))
        assert (y - wanted).abs().max() <= 1e-5 * wanted.abs().max()
        errors.append((y - called(mesa, *exact)[0]).abs().max().item())
    assert errors[0] > errors[1] > errors[2] > 100 * errors[3] and errors[4] < 1e-5


def nothing_asked(device: str) -> None:
    """Queries of 0 have solutions of 0."""
    q, *rest = (x.detach() for x in inputs_of(CASES[1], device))
    assert not called(triton_mesa, torch.zeros_like(q), *rest)[0].any()


def no_numbers(device: str) -> None:
    """Of a query that is none, or of a gradient that is none, nothing is taken for a solution of 0."""
    inputs = inputs_of(CASES[2], device)
    for bad in (torch.nan, torch.inf, 1e25):
        q, *rest = (x.detach().clone() for x in inputs)
        q[..., 3, :] = bad
        y = called(triton_mesa, q, *rest)[0]
        assert not y[..., 3, :].isfinite().any() and y[..., 4:, :].isfinite().all()
    y = called(triton_mesa, *inputs)[0]
    d_y = torch.zeros_like(y)
    d_y[..., 3, :] = torch.nan
    assert torch.autograd.grad(y, inputs[0], d_y)[0][..., 3, :].isnan().all()


CHECKS = {str(case): (compare, case) for case in CASES} | {
    "through all y alone": (compare_part, slice(0, 1)),
    "through the last H alone": (compare_part, slice(1, 2)),
    "through the last G alone": (compare_part, slice(2, 3)),
    "nothing forgotten": (compare_with, 4, 0.0),
    "all forgotten": (compare_with, 4, -2000.0),
    "nothing written": (compare_with, 3, 0.0),
    "few steps": (few_steps,),
    "nothing asked": (nothing_asked,),
    "no numbers": (no_numbers,),
    "mesa_net x1": (in_a_model, "triton_mesa", "mesa_net", 1),
    "mesa_net x3": (in_a_model, "triton_mesa", "mesa_net", 3),
}
ON_A_GPU = CHECKS | {str(case): (compare, case) for case in LARGE}


@pytest.mark.each_time(1)
@pytest.mark.parametrize("name", some(CHECKS, always=[*map(str, CASES[1::3]), "through all y alone", "nothing asked"]))
def test_interpreted_on_a_cpu(failures: dict[str, str], name: str) -> None:
    assert failures.get(name, "") == ""


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", ON_A_GPU)
def test_on_a_gpu(name: str) -> None:
    check, *arguments = ON_A_GPU[name]
    check(*arguments, "cuda")


@pytest.mark.full
@pytest.mark.parametrize(("width", "most"), [(32, 176), full(16, 0), full(64, 80)])
@pytest.mark.parametrize("kernel", ["states", "read", "solve_back", "read_back", "write_back"])
def test_kernels_compile_for_an_h100(tmp_path: Path, kernel: str, width: int, most: int) -> None:
    given = constants(width, width) | {"STEPS": width + 4}
    warps = given.pop("num_warps")
    compiled = compiled_for_an_h100(getattr(_triton_mesa, f"{kernel}_kernel"), given, axes=4, warps=warps)
    registers, spilled = registers_and_spilled(compiled.asm["cubin"], tmp_path)
    assert registers <= 255 and spilled <= most


def test_what_it_leaves_to_others() -> None:
    takes = named("triton_mesa").takes
    assert takes(torch.zeros(1, 1, 65, 64), Context()) and not takes(torch.zeros(1, 1, 64, 65), Context())
    with pytest.raises(AssertionError, match="fp32 and bf16 alone"):
        called(triton_mesa, *(x.detach().double() for x in inputs_of(CASES[0], "cpu")))


if __name__ == "__main__":
    print_failures(CHECKS)
