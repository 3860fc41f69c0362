"""PD-SSM in Triton equals its loop: interpreted on a CPU, compiled for a GPU, and run on one if there is one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.choose import named
from chomsky_ladder.models.operations.one_hot.reference import one_hot_loop
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

from chomsky_ladder.models.operations.one_hot import gpu as _triton_one_hot
from chomsky_ladder.models.operations.one_hot import gpu_programs as _programs
from chomsky_ladder.models.operations.one_hot.gpu import triton_one_hot

torch.set_num_threads(1)

Form = Literal["gather", "scatter"]


class Case(NamedTuple):
    form: Form
    batch: int
    length: int
    places: int
    maps: int
    axes: tuple[int | None, ...] = ()  # of the replicas in the inputs, for vmap; empty: no replicas
    programs: int = 1  # at least, of a launch

    def __str__(self) -> str:
        return "-".join(str(part).replace(" ", "") for part in self)


CASES = [
    *(Case(form, 2, 1, 3, 2) for form in ("gather", "scatter")),
    *(Case(form, 3, 7, 5, 3) for form in ("gather", "scatter")),
    *(Case(form, 2, 9, 16, 8, programs=64) for form in ("gather", "scatter")),
    *(Case(form, 2, 5, 3, 2, axes=(0, 0, 0, 0, 0)) for form in ("gather", "scatter")),
    Case("gather", 2, 5, 3, 2, axes=(1, None, 2, 0, None)),
    Case("scatter", 1, 20, 1, 1, programs=64),
    Case("gather", 1, 3, 33, 1),
]
LARGE = [Case("gather", 256, 39, 128, 8, axes=(0, 0, 0, 0, 0)), Case("scatter", 64, 100, 200, 5)]


def inputs_of(case: Case, device: str) -> list[Tensor]:
    """Shares, maps, d, b and a state, which want gradients, with an axis of two replicas where the case has one.

    Scores of them are exact in fp32, and not in TF32: of millions, the two largest of a few differ by less than a
    rounding otherwise, and fp32 takes another map than fp64.
    """
    generator = torch.Generator().manual_seed(0)
    long = case.batch, case.length
    shapes = (*long, case.maps), (case.maps, *[case.places] * 2), *[(*long, case.places, 2)] * 2
    inputs = []
    shapes, parts = (*shapes, (case.batch, case.places, 2)), (64, 2048, 0, 0, 0)  # of 1; 0 for any number
    for shape, axis, part in zip(shapes, case.axes or [None] * 5, parts, strict=True):
        x = torch.randn([*shape] if axis is None else [*shape[:axis], 2, *shape[axis:]], generator=generator)
        x = (x * part).round() / part if part else x
        inputs.append(x.to(device).requires_grad_())
    return inputs


@contextmanager
def programs(least: int) -> Iterator[None]:
    """Of a launch: the interpreter takes its time for each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_triton_one_hot, "PROGRAMS", least)
        yield


def compare(case: Case, device: str) -> None:
    """Outputs and all gradients against the loop's in fp64 on the same numbers."""
    inputs = inputs_of(case, device)
    exact = [x.detach().double().requires_grad_() for x in inputs]
    with programs(case.programs), walled_rooms(_triton_one_hot):
        results = [_results(triton_one_hot, inputs, case)]
    results.append(_results(one_hot_loop, exact, case))
    for name, one, other in zip(("h", "shares", "maps", "d", "b", "first"), *results, strict=True):
        assert one.shape == other.shape, name
        error, scale = (one - other).abs().max().item(), max(1.0, other.abs().max().item())
        assert error <= 1e-5 * scale, f"{name}: {error:.1e} of {scale:.1e}"  # not so for NaN either


def _results(scan: Callable[..., Tensor], given: list[Tensor], case: Case) -> list[Tensor]:
    def of_form(*each: Tensor) -> Tensor:
        return scan(*each, case.form)

    h = (torch.vmap(of_form, in_dims=case.axes) if case.axes else of_form)(*given)
    return [h.detach(), *torch.autograd.grad(weighted([h]), given)]


def first_of_equals(device: str) -> None:
    """Maps whose rows are flat move every number from place 0, or to it."""
    share, _, d, b, h = inputs_of(CASES[2], device)
    flat = torch.ones(3, 5, 5, device=device)
    for form in ("gather", "scatter"):
        one, other = (scan(share, flat, d, b, h, form) for scan in (triton_one_hot, one_hot_loop))
        assert (one - other).abs().max() < 1e-5 * other.abs().max()


def no_number_in_one_string(device: str) -> None:
    given = [x.detach() for x in inputs_of(CASES[2], device)]
    whole = triton_one_hot(*given, "gather")
    given[3][1, 2] = torch.nan
    broken = triton_one_hot(*given, "gather")
    assert torch.equal(broken[[0, 2]], whole[[0, 2]]) and torch.equal(broken[1, :2], whole[1, :2])
    assert broken[1, 2:].isnan().all()


def in_pd_ssm(replicas: int, device: str) -> None:
    with programs(1):
        in_a_model("triton_one_hot", "pd_ssm", replicas, device)


CHECKS = {str(case): (compare, case) for case in CASES} | {
    "the first of equals": (first_of_equals,),
    "no number": (no_number_in_one_string,),
    "pd_ssm x3": (in_pd_ssm, 3),
    "pd_ssm x1": (in_pd_ssm, 1),
}
ON_A_GPU = CHECKS | {str(case): (compare, case) for case in LARGE}


@pytest.mark.each_time(1)
@pytest.mark.parametrize("name", some(CHECKS, always=[*map(str, CASES[3:9:5]), "the first of equals", "no number"]))
def test_interpreted_on_a_cpu(failures: dict[str, str], name: str) -> None:
    assert failures.get(name, "") == ""


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", ON_A_GPU)
def test_on_a_gpu(name: str) -> None:
    check, *arguments = ON_A_GPU[name]
    check(*arguments, "cuda")


@pytest.mark.full
@pytest.mark.parametrize("gathers", [True, full(False)])
@pytest.mark.parametrize("kernel", ["places", "states", "back", "maps"])
def test_kernels_compile_for_an_h100(tmp_path: Path, kernel: str, gathers: bool) -> None:
    if kernel == "places" and not gathers:
        pytest.skip("it is the same for both")
    tiles = _triton_one_hot._tiles(torch.empty(1, 8, 128, 128))
    of_states = kernel in ("states", "back")
    warps = _triton_one_hot._warps_of_states(tiles) if of_states else _triton_one_hot._warps(tiles)
    program = getattr(_programs, f"{kernel}_kernel")
    compiled = compiled_for_an_h100(program, {**tiles, "GATHERS": gathers}, warps=warps, i32=("place",))
    registers, spilled = registers_and_spilled(compiled.asm["cubin"], tmp_path)
    # Programs of two warps spill, and more of them at work at once are faster than of eight, by a third on an H200.
    assert registers <= 255 and spilled <= (128 if of_states else 0)


@pytest.mark.full
@pytest.mark.parametrize(("maps", "places"), [(1, 64), full(2, 64), full(8, 32), (16, 256), full(32, 64)])
def test_a_row_of_maps_stays_in_registers(tmp_path: Path, maps: int, places: int) -> None:
    tiles = _triton_one_hot._tiles(torch.empty(1, maps, places, places))
    for gathers in (True, False):
        compiled = compiled_for_an_h100(
            _programs.maps_kernel, {**tiles, "GATHERS": gathers}, warps=_triton_one_hot._warps(tiles)
        )
        assert registers_and_spilled(compiled.asm["cubin"], tmp_path)[1] <= 8


def test_many_places_are_left_to_the_rounds() -> None:
    takes = named("triton_one_hot").takes
    assert takes(torch.zeros(1, 1, 256, 2), Context()) and not takes(torch.zeros(1, 1, 257, 2), Context())


def test_double_precision_is_refused() -> None:
    with pytest.raises(AssertionError, match="fp32 alone"):
        triton_one_hot(*(x.detach().double() for x in inputs_of(CASES[0], "cpu")), "gather")


if __name__ == "__main__":
    print_failures(CHECKS)
