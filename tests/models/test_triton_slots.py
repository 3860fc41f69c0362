"""Writing into slots in Triton equals the chunks: interpreted on a CPU, compiled for a GPU, run on one if there is."""

from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.choose import named
from chomsky_ladder.models.operations.slots.reference import decayed_slots
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
from chomsky_ladder.models.operations.slots import gpu as _triton_slots
from chomsky_ladder.models.operations.slots.gpu import CHUNK, READ, plan, triton_slots

torch.set_num_threads(1)

NAMES = ("q", "k", "s", "decay", "state")


class Case(NamedTuple):
    length: int
    keys: int = 4
    slots: int = 5
    decay: float | None = None  # of all; None: any
    axes: tuple[int | None, ...] = ()  # of the replicas in the inputs, for vmap; empty: no replicas
    lies: str = "alone"  # or "token by token", "in a product"
    bf16: tuple[str, ...] = ()  # the inputs of 16 bits

    def __str__(self) -> str:
        return "-".join(str(part).replace(" ", "") for part in self)


CASES = [
    Case(1),
    Case(READ - 1, 1, 1),
    Case(CHUNK - 1, 16, 16),
    Case(CHUNK, 15, 17),
    Case(CHUNK + 1, 3, 70),
    Case(2 * CHUNK + READ + 1),
    Case(3, 64, 40),  # three tiles, of which the last holds eight slots
    Case(2 * READ - 1, 33, 64),  # of which fewer states are held
    Case(2, 128, 9),
    Case(CHUNK + 2, decay=0.0),
    Case(CHUNK + 2, decay=1.0),
    Case(CHUNK + 2, decay=1e-30),
    Case(READ + 1, axes=(0,) * 5),
    Case(5, 64, 20, axes=(0,) * 5),
    Case(5, axes=(2, 0, 1, 4, None)),
    Case(6, axes=(None, 3, None, 0, 2)),
    Case(CHUNK + 1, lies="token by token"),
    Case(9, lies="in a product"),
    Case(5, lies="token by token", axes=(1, 0, 0, 2, 0)),
    Case(CHUNK + 1, bf16=NAMES[:4]),
    Case(3, 64, 40, bf16=NAMES[:2]),
    Case(6, bf16=("k", "s"), axes=(0,) * 5),
]
LARGE = [Case(256, 64, 64), Case(100, 32, 32, axes=(0,) * 5), Case(1000, 16, 16, bf16=NAMES[:2]), Case(40, 128, 128)]


def laid(x: Tensor, lies: str) -> Tensor:
    """The same numbers, as heads lie where they are a part of something else."""
    if lies == "alone":
        return x
    by_token = x.transpose(1, 2)
    if lies == "in a product":
        by_token = torch.cat([by_token, torch.full_like(by_token, torch.nan)], -1)[..., : x.shape[-1]]
    return (by_token if lies == "in a product" else by_token.contiguous()).transpose(1, 2)


def inputs_of(case: Case, device: str) -> list[Tensor]:
    """Two rows of three heads, which want gradients, with an axis of two replicas where the case has one."""
    generator = torch.Generator().manual_seed(0)
    of_keys, of_slots = (2, 3, case.length, case.keys), (2, 3, case.length, case.slots)
    shapes = (of_keys, of_keys, of_slots, of_slots, (2, 3, case.keys, case.slots))
    inputs = []
    for name, sizes, axis in zip(NAMES, shapes, case.axes or [None] * 5, strict=True):
        shape = list(sizes)
        if axis is not None:
            shape.insert(axis, 2)
        x = torch.rand(shape, generator=generator) if name == "decay" else torch.randn(shape, generator=generator)
        x = torch.full_like(x, case.decay) if name == "decay" and case.decay is not None else x
        x = x / case.keys**0.5 if name == "q" else x
        x = laid(x, case.lies) if axis is None and name != "state" else x
        inputs.append(x.to(device, torch.bfloat16 if name in case.bf16 else torch.float32).requires_grad_())
    return inputs


def compare(case: Case, device: str, parts: slice = slice(None)) -> None:
    """Outputs, and all gradients from some of them, against the chunks' in fp64 on the same numbers."""
    inputs = inputs_of(case, device)
    exact = [x.detach().double().requires_grad_() for x in inputs]
    results = []
    for form, given in ((triton_slots, inputs), (decayed_slots, exact)):
        with walled_rooms(in_triton) if form is triton_slots else nullcontext():
            outputs = (torch.vmap(form, in_dims=case.axes) if case.axes else form)(*given)
            gradients = torch.autograd.grad(weighted(outputs[parts]), given, materialize_grads=True)
        results.append([x.detach() for x in (*outputs, *gradients)])
    found, expected = results
    assert [x.dtype for x in found] == [torch.float32] * 2 + [x.dtype for x in inputs]
    for name, one, other in zip(("y", "last", *NAMES), found, expected, strict=True):
        assert one.shape == other.shape, name
        error, scale = (one - other).abs().max().item(), max(1.0, other.abs().max().item())
        tolerance = 2e-6 if one.dtype == torch.float32 else 1e-2
        assert error <= tolerance * scale, f"{name}: {error:.1e} of {scale:.1e}"  # not so for NaN either


def compare_part(parts: slice, device: str) -> None:
    compare(CASES[4], device, parts)


def forgets_exactly(device: str) -> None:
    """Behind a decay of 0 nothing is left of a state as large as there are."""
    inputs = [x.detach() for x in inputs_of(Case(CHUNK + 4), device)]
    inputs[3][:, :, CHUNK - 1] = 0
    (y, last), (other, large) = (triton_slots(*inputs[:4], scale * inputs[4]) for scale in (0.0, 1e30))
    assert torch.equal(last, large) and torch.equal(y[:, :, CHUNK - 1 :], other[:, :, CHUNK - 1 :])


def without_gradients(device: str) -> None:
    """The same numbers, and no states kept: otherwise one before each chunk."""
    inputs = inputs_of(CASES[5], device)
    with walled_rooms(in_triton) as kept:
        outputs = triton_slots(*inputs)
    with walled_rooms(in_triton) as rooms, torch.no_grad():
        again = triton_slots(*inputs)
    assert all(torch.equal(one, other) for one, other in zip(outputs, again, strict=True))
    needed = sum(x.numel() for x in outputs)
    assert sum(x.numel() for x in rooms) == needed
    assert sum(x.numel() for x in kept) == needed + outputs[1].numel() * 3


CHECKS = {str(case): (compare, case) for case in CASES} | {
    "through y alone": (compare_part, slice(0, 1)),
    "through the last state alone": (compare_part, slice(1, 2)),
    "forgets exactly": (forgets_exactly,),
    "without gradients": (without_gradients,),
    "gated_slot_attention x1": (in_a_model, "triton_slots", "gated_slot_attention", 1),
    "gated_slot_attention x3": (in_a_model, "triton_slots", "gated_slot_attention", 3),
}
ON_A_GPU = CHECKS | {str(case): (compare, case) for case in LARGE}


@pytest.mark.each_time(1)
@pytest.mark.parametrize("name", some(CHECKS, always=[*map(str, CASES[12::9]), "forgets exactly"]))
def test_interpreted_on_a_cpu(failures: dict[str, str], name: str) -> None:
    assert failures.get(name, "") == ""


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", ON_A_GPU)
def test_on_a_gpu(name: str) -> None:
    check, *arguments = ON_A_GPU[name]
    check(*arguments, "cuda")


ALWAYS_IN_FP32 = ("first", "y", "last", "starts", "d_y", "d_last", "d_first")
SIZES = [(64, "fp32"), (64, "bf16"), full(16, "fp32"), full(32, "fp32"), full(128, "fp32"), full(128, "bf16")]


@pytest.mark.full
@pytest.mark.parametrize(("width", "of"), SIZES)
@pytest.mark.parametrize("way", ["there", "back"])
def test_kernels_compile_for_an_h100(tmp_path: Path, way: str, width: int, of: str) -> None:
    kernel = {"there": _triton_slots.forward_kernel, "back": _triton_slots.backward_kernel}[way]
    sizes = {"R": 1, "B": 1, "H": 1, "L": 40, "K": width, "M": width, "KEEP": True}
    planned = plan(sizes)
    fp32 = (*ALWAYS_IN_FP32, *(("d_q", "d_k") if planned.sizes["T"] > 1 else ()))
    constants = sizes | planned.constants
    compiled = compiled_for_an_h100(kernel, constants, axes=4, warps=planned.warps, of=of, fp32=fp32)
    assert compiled.metadata.shared <= 1024
    registers, spilled = registers_and_spilled(compiled.asm["cubin"], tmp_path)
    assert registers <= 255 and spilled == 0


def test_what_is_left_to_the_chunks() -> None:
    takes = named("triton_slots").takes
    assert takes(torch.zeros(1, 1, 2, 128), Context()) and not takes(torch.zeros(1, 1, 2, 129), Context())
    assert takes(torch.zeros(1, 1, 2048, 1), Context()) and not takes(torch.zeros(1, 1, 2049, 1), Context())
    assert not takes(torch.zeros(1, 1, 1, 16), Context())


def test_double_precision_is_refused() -> None:
    inputs = [x.detach() for x in inputs_of(CASES[0], "cpu")]
    with pytest.raises(AssertionError, match="fp32 and bf16 alone"):
        triton_slots(*(x.double() for x in inputs))
    with pytest.raises(AssertionError, match="the state is in fp32"):
        triton_slots(*(x.bfloat16() for x in inputs))


if __name__ == "__main__":
    print_failures(CHECKS)
