"""TTT-Linear's mini-batches in Triton equal the plain ones: interpreted on a CPU, compiled and run for a GPU."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.choose import named
from chomsky_ladder.models.operations.fast_weights.reference import Norm, fast_weights_from
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

from chomsky_ladder.models.operations.fast_weights import gpu as _triton_fast_weights
from chomsky_ladder.models.operations.fast_weights.gpu import BLOCK, _Plan, triton_fast_weights

torch.set_num_threads(1)

NAMES = ("q", "k", "v", "rate", "place rate", "scale", "shift", "M")


class Case(NamedTuple):
    length: int
    keys: int = 4
    size: int = 3  # of a mini-batch
    axes: tuple[int | None, ...] = ()  # of the replicas in the inputs, for vmap; empty: no replicas
    lies: str = "alone"  # or "token by token", "in a product"
    bf16: str = ""  # the inputs of 16 bits

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self._asdict().items() if value != _plain[name])


_plain: dict[str, Any] = {"length": None} | Case._field_defaults
IN_FRONT = (0,) * 8
CASES = [
    Case(7),
    Case(3, 17, axes=IN_FRONT),  # two blocks, of which the second holds one key
    Case(6, 5, bf16="qkv"),
    Case(1),
    Case(2),
    Case(5, 6, 1),
    Case(19, 16, 16, bf16="qkv"),
    Case(33, 32, 16),
    Case(40, 5, 20),
    Case(35, 33, 16, axes=IN_FRONT),
    Case(15, 64, 16),
    Case(7, axes=(3, 0, 1, None, 1, 2, None, 4)),
    Case(4, axes=(None, 2, None, 0, None, None, 0, None)),
    Case(7, lies="token by token"),
    Case(5, 20, lies="in a product"),
    Case(5, lies="token by token", axes=(1, 0, 2, 0, 0, None, 0, None)),
    Case(4, 18, bf16="qv"),
    Case(7, 6, bf16="qkv", axes=IN_FRONT),
]
LARGE = [Case(40, 32, 16, bf16="qkv", axes=IN_FRONT), Case(256, 64, 16), Case(1000, 16, 64), Case(100, 32, 32)]


def laid(x: Tensor, place: int, lies: str) -> Tensor:
    """The same numbers, as heads lie where they are a part of something else; M as one for all rows."""
    if lies == "alone" or place in (4, 5, 6):
        return x
    if place == 7:
        return x[:1].expand_as(x)
    by_token = x.transpose(1, 2)
    if lies == "in a product" and place < 3:
        by_token = torch.cat([by_token, torch.full_like(by_token, torch.nan)], -1)[..., : x.shape[-1]]
    return (by_token if lies == "in a product" else by_token.contiguous()).transpose(1, 2)


def inputs_of(case: Case, device: str) -> list[Tensor]:
    """Two rows of two heads, with an axis of two replicas where the case has one; all want gradients."""
    generator = torch.Generator().manual_seed(0)
    length, keys, size = case[:3]
    of_head = (2, 1, keys)
    shapes = [*[(2, 2, length, keys)] * 3, (2, 2, length), (size,), of_head, of_head, (2, 2, keys + 1, keys)]
    inputs = []
    for place, (shape, axis) in enumerate(zip(shapes, case.axes or [None] * 8, strict=True)):
        shape = list(shape)
        if axis is not None:
            shape.insert(axis, 2)
        x = torch.randn(shape, generator=generator)
        x = x / keys**0.5 if place < 2 else x.sigmoid() / keys if place == 3 else x.sigmoid() if place == 4 else x
        x = 1 + x / 3 if place == 5 else x
        x = x if axis is not None else laid(x, place, case.lies)
        x = x.bfloat16() if NAMES[place] in case.bf16 else x
        inputs.append(x.to(device).requires_grad_())
    return inputs


def called(form: Any, *given: Tensor) -> Tensor:
    return form(*given[:5], Norm(*given[5:7]), given[7])


def compare(case: Case, device: str) -> None:
    """Outputs, and all gradients, against the plain form's in fp64 on the same numbers."""
    inputs = inputs_of(case, device)
    exact = [x.detach().double().requires_grad_() for x in inputs]
    results = []
    for form, given in ((triton_fast_weights, inputs), (fast_weights_from, exact)):
        with walled_rooms(_triton_fast_weights) if form is triton_fast_weights else nullcontext():
            z = (
                torch.vmap(lambda *given, form=form: called(form, *given), in_dims=case.axes)(*given)
                if case.axes
                else called(form, *given)
            )
            gradients = torch.autograd.grad(weighted([z]), given)
        results.append([x.detach() for x in (z, *gradients)])
    found, expected = results
    assert [x.dtype for x in found] == [torch.float32] + [x.dtype for x in inputs]
    for name, one, other in zip(("z", *NAMES), found, expected, strict=True):
        assert one.shape == other.shape, name
        error, scale = (one - other).abs().max().item(), max(1.0, other.abs().max().item())
        tolerance = 4e-6 if one.dtype == torch.float32 else 1e-2
        assert error <= tolerance * scale, f"{name}: {error:.1e} of {scale:.1e}"  # not so for NaN either


def without_gradients(device: str) -> None:
    """The same numbers, and room for one M of each head: otherwise those before each mini-batch are kept."""
    inputs = inputs_of(CASES[0], device)
    with walled_rooms(_triton_fast_weights) as kept:
        z = called(triton_fast_weights, *inputs)
    with walled_rooms(_triton_fast_weights) as rooms, torch.no_grad():
        again = called(triton_fast_weights, *inputs)
    assert torch.equal(z, again)
    assert sum(x.numel() for x in rooms) == z.numel() + inputs[7].numel()
    assert sum(x.numel() for x in kept) == z.numel() + inputs[7].numel() * 3


def no_number_stays_in_its_row(device: str) -> None:
    inputs = [x.detach() for x in inputs_of(CASES[0], device)]
    inputs[1][0, 1, 4] = torch.nan
    z = called(triton_fast_weights, *inputs)
    assert torch.isnan(z[0, 1, 6]).all() and torch.isfinite(z[0, 1, :3]).all()
    z[0, 1] = 0
    assert torch.isfinite(z).all()


CHECKS = {str(case): (compare, case) for case in CASES} | {
    "without gradients": (without_gradients,),
    "no number stays in its row": (no_number_stays_in_its_row,),
    "ttt_linear x1": (in_a_model, "triton_fast_weights", "ttt_linear", 1),
    "ttt_linear x3": (in_a_model, "triton_fast_weights", "ttt_linear", 3),
}
ALWAYS = [*map(str, CASES[:3]), "without gradients"]
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


SIZES = [(32, 16, "fp32"), *(full(*each) for each in [(64, 16, "fp32"), (16, 16, "fp32"), (32, 32, "fp32")])]
SIZES += [full(16, 64, "fp32"), full(33, 3, "fp32"), *(full(*each) for each in [(32, 16, "bf16"), (64, 16, "bf16")])]


@pytest.mark.full
@pytest.mark.parametrize(("keys", "size", "of"), SIZES)
@pytest.mark.parametrize("way", ["there", "back"])
def test_kernels_compile_for_an_h100(tmp_path: Path, way: str, keys: int, size: int, of: str) -> None:
    kernel = {"there": _triton_fast_weights.forward_kernel, "back": _triton_fast_weights.backward_kernel}[way]
    plan = _Plan.of(torch.empty(1, 1, 4, 40, keys), torch.empty(1, size))
    constants = dict(zip(("K", "SIZE", "KEYS", "TOKENS"), plan.sizes[3:], strict=True)) | {"KEEP": True, "BLOCK": BLOCK}
    fp32 = [name for name in kernel.arg_names if name not in ("q", "k", "v", "d_q", "d_k", "d_v")]
    compiled = compiled_for_an_h100(kernel, constants, axes=4, warps=plan.warps, of=of, fp32=fp32)
    registers, spilled = registers_and_spilled(compiled.asm["cubin"], tmp_path)
    assert registers <= 255 and spilled <= 24  # some of what a loop needs once, for one more program at a time


def test_more_tokens_of_more_keys_are_left_to_the_plain_form() -> None:
    takes = named("triton_fast_weights").takes
    for size, keys in [(16, 64), (1, 33), (32, 32), (64, 1)]:
        assert takes(torch.zeros(1, 1, size, keys + 1, keys), Context())
        assert not takes(torch.zeros(1, 1, size, 1, 2 * keys if keys > 16 else 17), Context())


def test_double_precision_is_refused() -> None:
    given = [x.detach().double() for x in inputs_of(CASES[0], "cpu")]
    with pytest.raises(AssertionError, match="fp32 and bf16 alone"):
        called(triton_fast_weights, *given)


if __name__ == "__main__":
    print_failures(CHECKS)
