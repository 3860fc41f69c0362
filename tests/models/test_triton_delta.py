"""The Triton delta rule equals its definition: interpreted on a CPU, compiled for a GPU, run on one if there is one."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.choose import named
from chomsky_ladder.models.operations.delta.reference import delta_loop
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

from chomsky_ladder.models.operations.delta import gpu as _triton_delta
from chomsky_ladder.models.operations.delta.gpu import CHUNK, _Plan, triton_delta

torch.set_num_threads(1)

NAMES = ("r", "f", "g", "k", "v", "decay", "state")


class Case(NamedTuple):
    length: int
    keys: int = 4
    values: int = 5
    steps: int = 1  # of a token
    decays: int | None = None  # channels; None: as many as keys
    erases: bool = True
    reads_before: bool = False
    axes: tuple[int | None, ...] = ()  # of the replicas in the inputs, for vmap; empty: no replicas
    lies: str = "alone"  # or "token by token", "in a product", "once for all rows"
    bf16: str = ""  # the inputs of 16 bits

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self._asdict().items() if value != _plain[name])


_plain: dict[str, Any] = {"length": None} | Case._field_defaults
IN_FRONT = (0,) * 7
CASES = [
    Case(1),
    Case(2, 1, 1, reads_before=True),
    Case(CHUNK - 1, decays=1),
    Case(CHUNK, 15, 17, erases=False, reads_before=True),
    Case(CHUNK + 1, 16, 16),
    Case(2 * CHUNK + 3, decays=0),
    Case(5, 33, 3, reads_before=True),
    Case(3, 64, 40, decays=1),  # three tiles, of which the last holds eight values
    Case(CHUNK + 1, 64, 65, erases=False, decays=1),
    Case(2, 64, 33, reads_before=True),
    Case(5, steps=2, decays=1),
    Case(4, steps=3),
    Case(7, steps=2, reads_before=True, erases=False),
    Case(2, steps=CHUNK + 1),  # more than a chunk is meant to hold
    Case(6, erases=False, decays=0),
    Case(CHUNK + 2, axes=IN_FRONT),
    Case(3, 64, 20, decays=1, axes=IN_FRONT),
    Case(4, decays=0, axes=(2, 0, 1, 4, None, None, 3)),
    Case(3, erases=False, decays=1, axes=(0, None, None, 0, 2, None, None)),
    Case(CHUNK + 1, lies="token by token"),
    Case(5, lies="in a product", reads_before=True),
    Case(5, 16, 16, lies="once for all rows"),
    Case(5, decays=1, lies="token by token", axes=(1, 0, 0, 2, 0, 0, 0)),
    Case(6, erases=False, reads_before=True, bf16="rkv"),
    Case(3, 64, 40, bf16="rfgkv"),
    Case(4, steps=2, decays=1, axes=IN_FRONT, bf16="v"),
]
LARGE = [
    Case(256, 32, 32),
    Case(100, 64, 64, axes=IN_FRONT),
    Case(1000, 16, 32, decays=1, erases=False),
    Case(40, 32, 64, steps=2, decays=1, reads_before=True),
]


def laid(x: Tensor, place: int, lies: str) -> Tensor:
    """The same numbers, as heads lie where they are a part of something else."""
    if place == 6 or lies == "alone":
        return x
    if lies == "once for all rows":
        return x[:1, :, :1].expand_as(x) if place == 5 else x
    by_token = x.transpose(1, 2)
    if lies == "in a product":
        by_token = torch.cat([by_token, torch.full_like(by_token, torch.nan)], -1)[..., : x.shape[-1]]
    return (by_token if lies == "in a product" else by_token.contiguous()).transpose(1, 2)


def inputs_of(case: Case, device: str) -> list[Any]:
    """Two rows of three heads, with an axis of two replicas where the case has one; all want gradients."""
    generator = torch.Generator().manual_seed(0)
    length, keys, values, steps = case[:4]
    decays = keys if case.decays is None else case.decays
    of_keys, of_values = (2, 3, length * steps, keys), (2, 3, length * steps, values)
    shapes = [(2, 3, length, keys), of_keys, of_keys, of_keys, of_values, (2, 3, length, decays), (2, 3, keys, values)]
    inputs = []
    for place, (shape, axis) in enumerate(zip(shapes, case.axes or [None] * 7, strict=True)):
        shape = list(shape)
        if axis is not None:
            shape.insert(axis, 2)
        z = torch.rand(shape, generator=generator) if place == 5 else torch.randn(shape, generator=generator)
        z = z / keys**0.5 if place in (1, 2, 3) else z
        z = z if axis is not None else laid(z, place, case.lies)
        z = z.bfloat16() if NAMES[place] in case.bf16 else z
        there = decays > 0 if place == 5 else case.erases or place not in (1, 2)
        inputs.append(z.to(device).requires_grad_() if there else None)
    return inputs


def found_by(case: Case, inputs: list[Any], parts: slice, *, exact: bool) -> list[Tensor]:
    """Outputs, and the gradients of all inputs from some of them."""
    there = [x is not None for x in inputs]
    given = [x for x in inputs if x is not None]

    def call(*given: Tensor) -> tuple[Tensor, Tensor]:
        left = iter(given)
        every = [next(left) if each else None for each in there]
        return (delta_loop if exact else triton_delta)(*every, reads_before=case.reads_before)

    axes = tuple(axis for axis, each in zip(case.axes or [None] * 7, there, strict=True) if each)
    with nullcontext() if exact else walled_rooms(_triton_delta):
        outputs = (torch.vmap(call, in_dims=axes) if case.axes else call)(*given)
        gradients = torch.autograd.grad(weighted(outputs[parts]), given, materialize_grads=True)
    return [z.detach() for z in (*outputs, *gradients)]


def compare(case: Case, device: str, parts: slice = slice(None)) -> None:
    """Against the definition in fp64, on the same numbers."""
    inputs = inputs_of(case, device)
    exact = [None if z is None else z.detach().double().requires_grad_() for z in inputs]
    found, expected = found_by(case, inputs, parts, exact=False), found_by(case, exact, parts, exact=True)
    given = {name: z.dtype for name, z in zip(NAMES, inputs, strict=True) if z is not None}
    dtypes = {"y": torch.float32, "last": torch.float32} | given
    for (name, dtype), one, other in zip(dtypes.items(), found, expected, strict=True):
        assert one.shape == other.shape and one.dtype == dtype, name
        error, scale = (one - other).abs().max().item(), max(1.0, other.abs().max().item())
        tolerance = 1e-5 if dtype == torch.float32 else 1e-2
        assert error <= tolerance * scale, f"{name}: {error:.1e} of {scale:.1e}"  # not so for NaN either


def compare_part(parts: slice, device: str) -> None:
    for case in (CASES[6], CASES[10]):
        compare(case, device, parts)


def without_gradients(device: str) -> None:
    """The same numbers, and no states kept: otherwise one before each chunk."""
    case = CASES[5]
    inputs = inputs_of(case, device)
    with walled_rooms(_triton_delta) as kept:
        outputs = triton_delta(*inputs)
    with walled_rooms(_triton_delta) as rooms, torch.no_grad():
        again = triton_delta(*inputs)
    assert all(torch.equal(one, other) for one, other in zip(outputs, again, strict=True))
    needed = sum(z.numel() for z in outputs)
    assert sum(z.numel() for z in rooms) == needed
    assert sum(z.numel() for z in kept) == needed + outputs[1].numel() * 3


def forgets_all(device: str) -> None:
    """Decays of 0 and of 1 are what they say, there and back."""
    for decay in (0.0, 1.0):
        case = Case(3)
        inputs = inputs_of(case, device)
        inputs[5] = torch.full_like(inputs[5], decay).requires_grad_()
        exact = [z.detach().double().requires_grad_() for z in inputs]
        found, expected = (found_by(case, z, slice(None), exact=z is exact) for z in (inputs, exact))
        for one, other in zip(found, expected, strict=True):
            assert (one - other).abs().max() <= 1e-5 * max(1.0, other.abs().max().item())


def reflections(device: str) -> None:
    """Over 64 tokens that are hardly forgotten and mirrored each time, against float64."""
    case = Case(64, 16, 16)
    inputs = [z.detach() for z in inputs_of(case, device)]
    f = torch.nn.functional.normalize(inputs[1], dim=-1)
    inputs[1], inputs[2], inputs[5] = 0.999 * f, 2 * f, torch.full_like(inputs[5], 0.999)
    (y, _), (expected, _) = triton_delta(*inputs), delta_loop(*(z.double() for z in inputs))
    assert (y - expected).abs().max() <= 1e-5 * expected.abs().max()


# Both xLSTMs take strings as short as here by one product.
SERVED = sorted(set(named("triton_delta").serves) - {"xlstm", "xlstm_large"})

CHECKS = {str(case): (compare, case) for case in CASES} | {
    "through y alone": (compare_part, slice(0, 1)),
    "through the last state alone": (compare_part, slice(1, 2)),
    "without gradients": (without_gradients,),
    "forgets all": (forgets_all,),
    "reflections": (reflections,),
}
SIZES = [(model, replicas) for model in SERVED for replicas in (1, 3)]
IN_MODELS = {f"{model} x{replicas}": (in_a_model, "triton_delta", model, replicas) for model, replicas in SIZES}
CHECKS |= IN_MODELS
CHECKED = [*map(str, CASES[1::5]), "forgets all", "reflections"]
ON_A_GPU = CHECKS | {str(case): (compare, case) for case in LARGE}


@pytest.mark.each_time(1)
@pytest.mark.parametrize("name", some(CHECKS, always=CHECKED))
def test_interpreted_on_a_cpu(failures: dict[str, str], name: str) -> None:
    assert failures.get(name, "") == ""


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", ON_A_GPU)
def test_on_a_gpu(name: str) -> None:
    check, *arguments = ON_A_GPU[name]
    check(*arguments, "cuda")


ALWAYS_IN_FP32 = ("decay", "first", "y", "last", "starts", "d_y", "d_last", "d_decay", "d_first")
SPILLED = {  # bytes a thread, at the most
    Case(40, 32, 32): 136,
    Case(40, 32, 32, erases=False, bf16="rkv"): 128,  # as RWKV's and GLA's
    Case(40, 16, 16, decays=1): 0,
    Case(40, 64, 64, steps=2): 0,
    Case(40, 64, 65, decays=1, erases=False): 384,  # as xLSTM's: rows of an odd width are read in other layouts
}


@pytest.mark.full
@pytest.mark.parametrize("case", some(SPILLED, always=5))
@pytest.mark.parametrize("way", ["there", "back"])
def test_kernels_compile_for_an_h100(tmp_path: Path, way: str, case: Case) -> None:
    kernel = {"there": _triton_delta.forward_kernel, "back": _triton_delta.backward_kernel}[way]
    r, _, _, k, v, decay, _ = (x if x is None else x[None] for x in inputs_of(case, "cpu"))
    plan = _Plan.of(r, k, v, decay)
    names = kernel.arg_names[kernel.arg_names.index("batch") :]
    constants = dict(list(zip(names, plan.sizes, strict=False))[3:])
    constants |= {"ERASES": case.erases, "READS_BEFORE": False, "KEEP": True}
    half = {"of": "bf16", "fp32": ALWAYS_IN_FP32} if case.bf16 else {}
    compiled = compiled_for_an_h100(kernel, constants, axes=4, warps=plan.warps, **half)
    assert compiled.metadata.shared <= 1024
    registers, spilled = registers_and_spilled(compiled.asm["cubin"], tmp_path)
    assert spilled <= (0 if way == "there" else SPILLED[case]), registers


def test_what_it_leaves_to_others() -> None:
    kernel = named("triton_delta")
    assert kernel.takes(torch.zeros(1, 1, 8, 64), Context()) and not kernel.takes(torch.zeros(1, 1, 8, 65), Context())
    inputs = [z.detach() for z in inputs_of(CASES[0], "cpu")]
    with pytest.raises(AssertionError, match="fp32 and bf16 alone"):
        triton_delta(*(z.double() for z in inputs))
    with pytest.raises(AssertionError, match="state are in fp32"):
        triton_delta(*(z.bfloat16() for z in inputs))


if __name__ == "__main__":
    print_failures(CHECKS)
