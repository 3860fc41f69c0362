"""The mesa layer's systems in Triton are solved as in the plain form: interpreted, compiled for a GPU, and on one."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.choose import named
from chomsky_ladder.models.scans.mesa import mesa, solved
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

from chomsky_ladder.models.kernels.triton import mesa as _triton_mesa
from chomsky_ladder.models.kernels.triton.mesa import WARPS, constants, triton_solved

torch.set_num_threads(1)


class Case(NamedTuple):
    rows: tuple[int, int, int]  # strings, heads, chunks
    tokens: int
    keys: int
    axes: tuple[int | None, ...] = ()  # of the replicas in the inputs, for vmap; empty: no replicas
    long: float = 1.0  # keys

    def __str__(self) -> str:
        return "-".join(str(part).replace(" ", "") for part in self)


CASES = [
    Case((2, 1, 1), 1, 3),
    Case((1, 2, 2), 9, 16),
    Case((2, 2, 1), 20, 17),
    Case((1, 1, 1), 33, 5, long=4.0),
    Case((1, 2, 1), 5, 4, axes=(0, 0, 0, 0, 0)),
    Case((2, 1, 1), 5, 4, axes=(1, None, 4, 0, None)),
    Case((1, 1, 2), 3, 4, axes=(None, 2, None, None, 1)),
]
LARGE = [Case((64, 4, 1), 39, 32, axes=(0,) * 5), Case((8, 2, 8), 32, 64)]
NAMES = ("x", "q", "k", "share", "from the start", "H")


def inputs_of(case: Case, device: str) -> list[Tensor]:
    """q, k, shares, what decays leave of H, and H, which want gradients; with an axis of two replicas if asked."""
    generator = torch.Generator().manual_seed(0)
    keys = (*case.rows, case.tokens, case.keys)
    shapes = [keys, keys, (*keys[:4], case.tokens), (*keys[:4], 1), (*case.rows, case.keys, case.keys)]
    inputs = []
    for place, (shape, axis) in enumerate(zip(shapes, case.axes or [None] * 5, strict=True)):
        x = torch.randn([*shape] if axis is None else [*shape[:axis], 2, *shape[axis:]], generator=generator)
        x = x.movedim(axis, 0) if axis is not None else x
        x = case.long * torch.nn.functional.normalize(x, dim=-1) if place == 1 else x
        x = x.sigmoid().tril() if place == 2 else x.sigmoid() if place == 3 else x
        x = x @ x.mT / case.keys if place == 4 else x
        x = x.movedim(0, axis) if axis is not None else x
        inputs.append(x.to(device).requires_grad_())
    return inputs


def compare(case: Case, device: str) -> None:
    """The solutions, and all gradients, against the plain form's in fp64 on the same numbers."""
    inputs = inputs_of(case, device)
    with walled_rooms(_triton_mesa):
        found = _results(triton_solved, inputs, case)
    exact = [x.detach().double().requires_grad_() for x in inputs]
    for name, one, other in zip(NAMES, found, _results(solved, exact, case), strict=True):
        assert one.shape == other.shape, name
        error, scale = (one - other).abs().max().item(), max(1.0, other.abs().max().item())
        assert error <= 1e-5 * scale, f"{name}: {error:.1e} of {scale:.1e}"  # not so for NaN either


def _results(solve: Callable[..., Tensor], given: list[Tensor], case: Case) -> list[Tensor]:
    x = (torch.vmap(solve, in_dims=case.axes) if case.axes else solve)(*given)
    return [y.detach() for y in (x, *torch.autograd.grad(weighted([x]), given))]


def few_steps(device: str) -> None:
    """As many as are asked for, and no more than there is something left to find."""
    given = [x.detach() for x in inputs_of(CASES[2], device)]
    exact = [x.double() for x in given]
    (one, two, all_) = (triton_solved(*given, steps=steps) for steps in (1, 2, 0))
    first = exact[0].square().sum(-1, keepdim=True)
    of_way = exact[0] + (exact[0] @ exact[1].mT * exact[2]) @ exact[1] + exact[3] * (exact[0] @ exact[4])
    assert torch.allclose(one.double(), first / (exact[0] * of_way).sum(-1, keepdim=True) * exact[0], rtol=1e-5)
    errors = [(x - solved(*exact)).abs().max().item() for x in (one, two, all_, triton_solved(*given, steps=500))]
    assert errors[0] > errors[1] > 100 * errors[2] and errors[3] < 1e-5


def nothing_asked(device: str) -> None:
    """Queries of 0 have solutions of 0."""
    q, *system = (x.detach() for x in inputs_of(CASES[1], device))
    assert not triton_solved(torch.zeros_like(q), *system).any()


def no_numbers(device: str) -> None:
    """Of a query that is none, or of a gradient that is none, nothing is taken for a solution of 0."""
    inputs = inputs_of(CASES[1], device)
    for bad in (torch.nan, torch.inf, 1e25):
        q, *system = (x.detach().clone() for x in inputs)
        q[..., 3, :] = bad
        x = triton_solved(q, *system)
        assert not x[..., 3, :].isfinite().any() and x[..., 4:, :].isfinite().all()
    x = triton_solved(*inputs)
    gx = torch.zeros_like(x)
    gx[..., 3, :] = torch.nan
    assert torch.autograd.grad(x, inputs[0], gx)[0][..., 3, :].isnan().all()


def whole_layer(device: str) -> None:
    """Chunks after each other, from a state, as by the plain solver."""
    generator = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(1, 2, 70, width, generator=generator).to(device) for width in (8, 8, 5))
    beta, log_decay = (torch.rand(1, 2, 70, generator=generator).to(device) for _ in range(2))
    H, G = (torch.randn(1, 2, 8, width, generator=generator).to(device) for width in (8, 5))
    given = (q, torch.nn.functional.normalize(k, dim=-1), v, beta, -log_decay, (H @ H.mT, G))
    exact = [x.double() if isinstance(x, Tensor) else tuple(y.double() for y in x) for x in given]
    (y, held), (wanted, kept) = mesa(*given, solve=triton_solved), mesa(*exact)
    for one, other in zip((y, *held), (wanted, *kept), strict=True):
        assert (one - other).abs().max() <= 1e-5 * other.abs().max()


CHECKS = {str(case): (compare, case) for case in CASES} | {
    "few steps": (few_steps,),
    "nothing asked": (nothing_asked,),
    "no numbers": (no_numbers,),
    "whole layer": (whole_layer,),
    "mesa_net x3": (in_a_model, "triton_mesa", "mesa_net", 3),
    "mesa_net x1": (in_a_model, "triton_mesa", "mesa_net", 1),
}
ON_A_GPU = CHECKS | {str(case): (compare, case) for case in LARGE}


@pytest.mark.parametrize("name", some(CHECKS, always=[*map(str, CASES[::2]), *list(CHECKS)[len(CASES) : -1]]))
def test_interpreted_on_a_cpu(failures: dict[str, str], name: str) -> None:
    assert failures.get(name, "") == ""


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", ON_A_GPU)
def test_on_a_gpu(name: str) -> None:
    check, *arguments = ON_A_GPU[name]
    check(*arguments, "cuda")


@pytest.mark.parametrize(("tokens", "keys", "most"), [(40, 16, 0), (40, 32, 32), full(64, 64, 768)])
def test_the_kernel_compiles_for_an_h100(tmp_path: Path, tokens: int, keys: int, most: int) -> None:
    given = constants(tokens, keys) | {"STEPS": keys + 4}
    compiled = compiled_for_an_h100(_triton_mesa.solve_kernel, given, warps=WARPS)
    registers, spilled = registers_and_spilled(compiled.asm["cubin"], tmp_path)
    assert registers <= 255 and spilled <= most


def test_what_it_leaves_to_others() -> None:
    takes = named("triton_mesa").takes
    assert takes(torch.zeros(1, 1, 8, 64), Context()) and not takes(torch.zeros(1, 1, 8, 65), Context())
    with pytest.raises(AssertionError, match="fp32 alone"):
        triton_solved(*(x.detach().double() for x in inputs_of(CASES[0], "cpu")))


if __name__ == "__main__":
    print_failures(CHECKS)
