"""M2RNN in Triton equals its loop: interpreted on a CPU, compiled for a GPU, and run on one if there is one."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.choose import named
from chomsky_ladder.models.operations.matrix_rnn.reference import matrix_rnn_loop
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

from chomsky_ladder.models.operations.matrix_rnn import gpu as _triton_matrix_rnn
from chomsky_ladder.models.operations.matrix_rnn.gpu import WARPS, triton_matrix_rnn

torch.set_num_threads(1)


class Case(NamedTuple):
    batch: int
    length: int
    heads: int
    keys: int
    values: int
    axes: tuple[int | None, ...] = ()  # of the replicas in the inputs, for vmap; empty: no replicas

    def __str__(self) -> str:
        return "-".join(str(part).replace(" ", "") for part in self)


CASES = [
    Case(2, 1, 1, 3, 5),
    Case(2, 9, 2, 16, 16),
    Case(1, 33, 3, 17, 4),
    Case(3, 5, 2, 20, 33),
    Case(2, 3, 2, 4, 5, axes=(0, 0, 0, 0, 0, 0)),
    Case(2, 3, 2, 4, 5, axes=(1, None, 2, 0, None, 1)),
    Case(2, 3, 1, 4, 5, axes=(None, 0, None, 3, 1, None)),
]
LARGE = [Case(256, 39, 4, 32, 32, axes=(0, 0, 0, 0, 0, 0)), Case(8, 100, 2, 20, 32)]
NAMES = ("y", "last", "q", "k", "v", "f", "W", "first")


def inputs_of(case: Case, device: str) -> list[Tensor]:
    """q, k, v, f, W and a state, which want gradients, with an axis of two replicas where the case has one."""
    generator = torch.Generator().manual_seed(0)
    long, state = (case.batch, case.length, case.heads), (case.batch, case.heads, case.keys, case.values)
    shapes = [
        (*long, case.keys),
        (*long, case.keys),
        (*long, case.values),
        long,
        (case.heads, *[case.values] * 2),
        state,
    ]
    inputs = []
    for place, (shape, axis) in enumerate(zip(shapes, case.axes or [None] * 6, strict=True)):
        x = torch.randn([*shape] if axis is None else [*shape[:axis], 2, *shape[axis:]], generator=generator)
        x = torch.sigmoid(x) if place == 3 else x / case.values**0.5 if place == 4 else x
        inputs.append(x.to(device).requires_grad_())
    return inputs


def compare(case: Case, device: str, parts: slice = slice(None)) -> None:
    """Outputs, and all gradients from some of them, against the loop's in fp64 on the same numbers."""
    inputs = inputs_of(case, device)
    with walled_rooms(_triton_matrix_rnn):
        found = _results(triton_matrix_rnn, inputs, case, parts)
    exact = [x.detach().double().requires_grad_() for x in inputs]
    for name, one, other in zip(NAMES, found, _results(matrix_rnn_loop, exact, case, parts), strict=True):
        assert one.shape == other.shape, name
        error, scale = (one - other).abs().max().item(), max(1.0, other.abs().max().item())
        assert error <= 1e-5 * scale, f"{name}: {error:.1e} of {scale:.1e}"  # not so for NaN either


def _results(scan: Callable[..., tuple[Tensor, Tensor]], given: list[Tensor], case: Case, parts: slice) -> list[Tensor]:
    outputs = (torch.vmap(scan, in_dims=case.axes) if case.axes else scan)(*given)
    gradients = torch.autograd.grad(weighted(outputs[parts]), given, materialize_grads=True, allow_unused=True)
    return [x.detach() for x in (*outputs, *gradients)]


def compare_part(parts: slice, device: str) -> None:
    compare(CASES[1], device, parts)


def without_gradients(device: str) -> None:
    """The outputs are the same, and of all states the last is written."""
    inputs = inputs_of(CASES[3], device)
    with walled_rooms(_triton_matrix_rnn) as rooms, torch.no_grad():
        plain = triton_matrix_rnn(*inputs)
    assert sum(x.numel() for x in rooms) == plain[0].numel() + plain[1].numel()
    assert all(torch.equal(one, other) for one, other in zip(plain, triton_matrix_rnn(*inputs), strict=True))


CHECKS = {str(case): (compare, case) for case in CASES} | {
    "through all y alone": (compare_part, slice(0, 1)),
    "through the last state alone": (compare_part, slice(1, 2)),
    "without gradients": (without_gradients,),
    "m2rnn x3": (in_a_model, "triton_matrix_rnn", "m2rnn", 3),
    "m2rnn x1": (in_a_model, "triton_matrix_rnn", "m2rnn", 1),
}
ON_A_GPU = CHECKS | {str(case): (compare, case) for case in LARGE}


@pytest.mark.each_time(1)
@pytest.mark.parametrize("name", some(CHECKS, always=[*map(str, CASES[3::2]), "through the last state alone"]))
def test_interpreted_on_a_cpu(failures: dict[str, str], name: str) -> None:
    assert failures.get(name, "") == ""


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", ON_A_GPU)
def test_on_a_gpu(name: str) -> None:
    check, *arguments = ON_A_GPU[name]
    check(*arguments, "cuda")


@pytest.mark.full
@pytest.mark.parametrize("way", ["forward", "backward"])
def test_kernels_compile_for_an_h100(tmp_path: Path, way: str) -> None:
    kernel = getattr(_triton_matrix_rnn, f"{way}_kernel")
    constants = {**dict.fromkeys(("K", "V", "KP", "VP"), 32), "KEPT": True}
    compiled = compiled_for_an_h100(kernel, constants, warps=WARPS)
    registers, spilled = registers_and_spilled(compiled.asm["cubin"], tmp_path)
    assert registers <= 255 and spilled == 0


def test_large_heads_are_left_to_the_loop() -> None:
    takes = named("triton_matrix_rnn").takes
    assert takes(torch.zeros(1, 1, 32, 32), Context()) and not takes(torch.zeros(1, 1, 32, 33), Context())


def test_double_precision_is_refused() -> None:
    with pytest.raises(AssertionError, match="fp32 alone"):
        triton_matrix_rnn(*(x.detach().double() for x in inputs_of(CASES[0], "cpu")))


if __name__ == "__main__":
    print_failures(CHECKS)
