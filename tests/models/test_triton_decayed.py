"""Decayed attention in Triton equals the plain form: interpreted on a CPU, compiled for a GPU, and run on one."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.choose import named
from chomsky_ladder.models.scans.chunked import decayed_pairs
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

from chomsky_ladder.models.operations.decayed import gpu as _triton_decayed
from chomsky_ladder.models.operations.decayed.gpu import tiles, triton_decayed

torch.set_num_threads(1)


class Case(NamedTuple):
    batch: int
    length: int
    heads: int
    keys: int
    values: int
    axes: tuple[int | None, ...] = ()  # of the replicas in the inputs, for vmap; empty: no replicas
    decay: float = 1.0  # how strong
    shared: bool = False  # q and k by heads, and decays by rows
    bf16: bool = False

    def __str__(self) -> str:
        return "-".join(str(part).replace(" ", "") for part in self)


CASES = [
    Case(2, 1, 1, 3, 5),
    Case(2, 9, 2, 16, 32),
    Case(1, 33, 3, 17, 40),
    Case(2, 20, 1, 8, 4, decay=1e4),
    Case(2, 12, 2, 4, 8, shared=True),
    Case(2, 5, 2, 4, 8, axes=(0, 0, 0, 0)),
    Case(2, 5, 2, 4, 8, axes=(1, None, 4, 2)),
    Case(1, 5, 1, 8, 4, axes=(None, 2, 0, None)),
    Case(2, 17, 2, 16, 20, bf16=True),
]
LARGE = [Case(256, 39, 4, 32, 64, axes=(0,) * 4), Case(8, 64, 2, 100, 128), Case(8, 39, 4, 32, 64, bf16=True)]
NAMES = ("y", "q", "k", "v", "decay")


def inputs_of(case: Case, device: str) -> list[Tensor]:
    """q, k, v and decays, which want gradients, with an axis of two replicas where the case has one."""
    generator = torch.Generator().manual_seed(0)
    rows, of_qk = (case.batch, case.heads), (case.batch, 1 if case.shared else case.heads)
    of_decays = (1 if case.shared else case.batch, case.heads)
    keys = (*of_qk, case.length, case.keys)
    shapes = [keys, keys, (*rows, case.length, case.values), (*of_decays, case.length)]
    inputs = []
    for place, (shape, axis) in enumerate(zip(shapes, case.axes or [None] * 4, strict=True)):
        x = torch.randn([*shape] if axis is None else [*shape[:axis], 2, *shape[axis:]], generator=generator)
        x = -case.decay * torch.exp(x) if place == 3 else x
        x = x.bfloat16() if case.bf16 and place < 3 else x
        inputs.append(x.to(device).requires_grad_())
    return inputs


def compare(case: Case, device: str) -> None:
    """The outputs, and all gradients, against the plain form's in fp64 on the same numbers."""
    inputs = inputs_of(case, device)
    with walled_rooms(_triton_decayed):
        found = _results(triton_decayed, inputs, case)
    exact = [x.detach().double().requires_grad_() for x in inputs]
    assert [x.dtype for x in found] == [inputs[0].dtype, *(x.dtype for x in inputs)]
    for name, one, other in zip(NAMES, found, _results(decayed_pairs, exact, case), strict=True):
        assert one.shape == other.shape, name
        error, scale = (one - other).abs().max().item(), max(1.0, other.abs().max().item())
        assert error <= (1e-2 if case.bf16 else 1e-5) * scale, f"{name}: {error:.1e} of {scale:.1e}"


def _results(attend: Callable[..., Tensor], given: list[Tensor], case: Case) -> list[Tensor]:
    y = (torch.vmap(attend, in_dims=case.axes) if case.axes else attend)(*given)
    return [x.detach() for x in (y, *torch.autograd.grad(weighted([y]), given))]


def forgets_all(device: str) -> None:
    """A decay of 0 leaves the present alone, and is no NaN."""
    q, k, v, decay = inputs_of(CASES[1], device)
    nothing = torch.full_like(decay, -torch.inf)
    y = triton_decayed(q, k, v, nothing)
    assert torch.allclose(y, (q * k).sum(-1, keepdim=True) * v, atol=1e-5)
    assert all(x.isfinite().all() for x in torch.autograd.grad(y.sum(), (q, k, v)))


def no_numbers(device: str) -> None:
    """A decay that is none is not taken for one of 0."""
    q, k, v, decay = (x.detach() for x in inputs_of(CASES[1], device))
    decay[..., 3] = torch.nan
    assert triton_decayed(q, k, v, decay)[:, :, 3:].isnan().all()


CHECKS = {str(case): (compare, case) for case in CASES} | {
    "forgets all": (forgets_all,),
    "no numbers": (no_numbers,),
    "retention x3": (in_a_model, "triton_decayed", "retention", 3),
    "retention x1": (in_a_model, "triton_decayed", "retention", 1),
}
ON_A_GPU = CHECKS | {str(case): (compare, case) for case in LARGE}


@pytest.mark.each_time(1)
@pytest.mark.parametrize("name", some(CHECKS, always=[*map(str, CASES[2::3]), "forgets all"]))
def test_interpreted_on_a_cpu(failures: dict[str, str], name: str) -> None:
    assert failures.get(name, "") == ""


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", ON_A_GPU)
def test_on_a_gpu(name: str) -> None:
    check, *arguments = ON_A_GPU[name]
    check(*arguments, "cuda")


@pytest.mark.full  # tests/instruments/machine_code.py reads what it compiles
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("way", ["forward", "backward"])
def test_kernels_compile_for_an_h100(tmp_path: Path, way: str, dtype: torch.dtype) -> None:
    kernel, constants = getattr(_triton_decayed, f"{way}_kernel"), tiles(32, 64, 40, dtype)
    of = "bf16" if dtype == torch.bfloat16 else "fp32"
    given = {"axes": 4, "warps": constants["num_warps"], "of": of, "fp32": ("decay", "gdecay")}
    compiled = compiled_for_an_h100(kernel, constants, **given)
    registers, spilled = registers_and_spilled(compiled.asm["cubin"], tmp_path)
    assert registers <= 255 and spilled == 0


def test_what_it_leaves_to_others() -> None:
    takes = named("triton_decayed").takes
    assert takes(torch.zeros(1, 64, 8), Context()) and not takes(torch.zeros(1, 65, 8), Context())
    inputs = [x.detach() for x in inputs_of(CASES[0], "cpu")]
    with pytest.raises(AssertionError, match="fp32 and bf16 alone"):
        triton_decayed(*(x.double() for x in inputs))
    with pytest.raises(AssertionError, match="decays are in fp32"):
        triton_decayed(*(x.bfloat16() for x in inputs))


if __name__ == "__main__":
    print_failures(CHECKS)
