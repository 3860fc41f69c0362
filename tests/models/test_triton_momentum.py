"""Titans' Triton rule equals its definition: interpreted on a CPU, compiled for a GPU, run on one if there is one."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.choose import named
from chomsky_ladder.models.operations.momentum.reference import momentum_delta_rule
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
from chomsky_ladder.models.operations.momentum import gpu as _triton_momentum
from chomsky_ladder.models.operations.momentum.gpu import CHUNK, plan, triton_momentum

torch.set_num_threads(1)

NAMES = ("q", "k", "v", "rate", "log decay", "log momentum", "M", "S")


class Case(NamedTuple):
    length: int
    keys: int = 4
    values: int = 5
    axes: tuple[int | None, ...] = ()  # of the replicas in the inputs, for vmap; empty: no replicas
    lies: str = "alone"  # or "token by token", "in a product"
    bf16: str = ""  # the inputs of 16 bits

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self._asdict().items() if value != _plain[name])


_plain: dict[str, Any] = {"length": None} | Case._field_defaults
IN_FRONT = (0,) * 8
CASES = [
    Case(1),
    Case(2, 1, 1),
    Case(CHUNK - 1, 15, 17),
    Case(CHUNK, 16, 16),
    Case(CHUNK + 1, 33, 3),
    Case(2 * CHUNK + 3),
    Case(3, 64, 40),  # three tiles, of which the last holds eight values
    Case(CHUNK + 1, 32, 33),
    Case(CHUNK + 2, axes=IN_FRONT),
    Case(3, 64, 20, axes=IN_FRONT),
    Case(4, axes=(2, 0, 1, None, 3, None, None, 4)),
    Case(CHUNK + 1, lies="token by token"),
    Case(5, 32, 20, lies="in a product"),
    Case(5, lies="token by token", axes=(1, 0, 2, 0, 0, None, 0, 0)),
    Case(6, bf16="qkv"),
    Case(3, 64, 40, bf16="qkv", axes=IN_FRONT),
]
LARGE = [Case(256, 32, 32), Case(100, 64, 64, axes=IN_FRONT), Case(1000, 16, 32)]


def laid(x: Tensor, place: int, lies: str) -> Tensor:
    """The same numbers, as heads lie where they are a part of something else."""
    if place > 5 or lies == "alone":
        return x
    by_token = x.transpose(1, 2)
    if lies == "in a product" and place < 3:
        by_token = torch.cat([by_token, torch.full_like(by_token, torch.nan)], -1)[..., : x.shape[-1]]
    return (by_token if lies == "in a product" else by_token.contiguous()).transpose(1, 2)


def inputs_of(case: Case, device: str) -> list[Tensor]:
    """Two rows of three heads, with an axis of two replicas where the case has one; all want gradients."""
    generator = torch.Generator().manual_seed(0)
    length, keys, values = case[:3]
    of_keys, state = (2, 3, length, keys), (2, 3, keys, values)
    shapes = [of_keys, of_keys, (2, 3, length, values), *[(2, 3, length)] * 3, state, state]
    inputs = []
    for place, (shape, axis) in enumerate(zip(shapes, case.axes or [None] * 8, strict=True)):
        shape = list(shape)
        if axis is not None:
            shape.insert(axis, 2)
        x = torch.randn(shape, generator=generator)
        x = x / keys**0.5 if place < 2 else x.sigmoid() if place == 3 else -x.exp() if place in (4, 5) else x
        x = x if axis is not None else laid(x, place, case.lies)
        x = x.bfloat16() if NAMES[place] in case.bf16 else x
        inputs.append(x.to(device).requires_grad_())
    return inputs


def called(rule: Any, *given: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    y, state = rule(*given[:6], given[6:])
    return y, *state


def compare(case: Case, device: str, parts: slice = slice(None), changed: tuple[int, float] | None = None) -> None:
    """Outputs, and all gradients from some of them, against the definition's in fp64 on the same numbers."""
    inputs = inputs_of(case, device)
    if changed:
        place, value = changed
        inputs[place] = torch.full_like(inputs[place], value).requires_grad_()
    exact = [x.detach().double().requires_grad_() for x in inputs]
    results = []
    for rule, given in ((triton_momentum, inputs), (momentum_delta_rule, exact)):
        with walled_rooms(in_triton) if rule is triton_momentum else nullcontext():
            outputs = (
                torch.vmap(lambda *given, rule=rule: called(rule, *given), in_dims=case.axes)(*given)
                if case.axes
                else called(rule, *given)
            )
            gradients = torch.autograd.grad(weighted(outputs[parts]), given, materialize_grads=True)
        results.append([x.detach() for x in (*outputs, *gradients)])
    found, expected = results
    assert [x.dtype for x in found] == [torch.float32] * 3 + [x.dtype for x in inputs]
    for name, one, other in zip(("y", "last M", "last S", *NAMES), found, expected, strict=True):
        assert one.shape == other.shape, name
        error, scale = (one - other).abs().max().item(), max(1.0, other.abs().max().item())
        tolerance = 2e-6 if one.dtype == torch.float32 else 1e-2
        assert error <= tolerance * scale, f"{name}: {error:.1e} of {scale:.1e}"  # not so for NaN either


def compare_part(parts: slice, device: str) -> None:
    compare(CASES[5], device, parts)


def compare_with(place: int, value: float, device: str) -> None:
    compare(CASES[5], device, changed=(place, value))


CHECKS = {str(case): (compare, case) for case in CASES} | {
    "through all y alone": (compare_part, slice(0, 1)),
    "through the last M alone": (compare_part, slice(1, 2)),
    "through the last S alone": (compare_part, slice(2, 3)),
    "nothing forgotten": (compare_with, 4, 0.0),
    "all forgotten": (compare_with, 4, -200.0),
    "no momentum": (compare_with, 5, -200.0),
    "all momentum": (compare_with, 5, 0.0),
    "titans x1": (in_a_model, "triton_momentum", "titans", 1),
    "titans x3": (in_a_model, "triton_momentum", "titans", 3),
}
ON_A_GPU = CHECKS | {str(case): (compare, case) for case in LARGE}


@pytest.mark.each_time(1)
@pytest.mark.parametrize("name", some(CHECKS, always=[*map(str, CASES[1::12]), "all momentum"]))
def test_interpreted_on_a_cpu(failures: dict[str, str], name: str) -> None:
    assert failures.get(name, "") == ""


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", ON_A_GPU)
def test_on_a_gpu(name: str) -> None:
    check, *arguments = ON_A_GPU[name]
    check(*arguments, "cuda")


@pytest.mark.full
@pytest.mark.parametrize(("keys", "values"), [(64, 64), full(32, 32), full(16, 16), full(33, 20)])
@pytest.mark.parametrize("of", ["fp32", full("bf16")])
@pytest.mark.parametrize("way", ["there", "back"])
def test_kernels_compile_for_an_h100(tmp_path: Path, way: str, of: str, keys: int, values: int) -> None:
    kernel = {"there": _triton_momentum.forward_kernel, "back": _triton_momentum.backward_kernel}[way]
    sizes = {"R": 1, "B": 1, "H": 4, "L": 40, "K": keys, "V": values, "KEEP": True}
    planned = plan(sizes)
    constants = sizes | planned.constants
    fp32 = [name for name in kernel.arg_names if name not in ("q", "k", "v", "d_v")]
    compiled = compiled_for_an_h100(kernel, constants, axes=4, warps=planned.warps, of=of, fp32=fp32)
    registers, spilled = registers_and_spilled(compiled.asm["cubin"], tmp_path)
    assert registers <= 255 and spilled == 0


def test_heads_with_more_keys_are_left_to_the_chunks() -> None:
    takes = named("triton_momentum").takes
    assert takes(torch.zeros(1, 1, 64, 65), Context()) and not takes(torch.zeros(1, 1, 65, 64), Context())


def test_double_precision_is_refused() -> None:
    given = [x.detach().double() for x in inputs_of(CASES[0], "cpu")]
    with pytest.raises(AssertionError, match="fp32 and bf16 alone"):
        called(triton_momentum, *given)


if __name__ == "__main__":
    print_failures(CHECKS)
