"""All tokens of `ntm` and `dnc` in Triton equal their loops in torch: interpreted, compiled, run on a GPU if any."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.operations.linked import reference as linked_memory
from chomsky_ladder.models.operations.turing import reference as turing_memory
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

from chomsky_ladder.models.operations.linked import gpu_machine as _linked
from chomsky_ladder.models.operations.turing import gpu_machine as _turing

torch.set_num_threads(1)

SHIFTS = 3
ROOMS = {"turing": _turing, "linked": _linked}
WHOLE = {"write": 0.8, "precedence": 0.9, "link": 0.7, "weight": 1.0}  # the sum of a row

Machine = Callable[..., tuple[Tensor, tuple[Tensor, ...]]]


class Case(NamedTuple):
    kind: str
    length: int
    width: int = 6
    heads: int = 1
    rows: int = 5
    row_width: int = 3
    axes: str = ""  # of the replicas, for vmap: "all" have them, "weights" alone do, or "tokens"

    def __str__(self) -> str:
        return "-".join(map(str, self))


CASES = [
    Case("turing", 3),
    Case("linked", 3),
    Case("turing", 1, 16, 2, 7, 5),
    Case("linked", 1, 16, 2, 7, 5),
    Case("turing", 4, 5, 2, axes="all"),
    Case("linked", 4, 5, 2, axes="all"),
    Case("turing", 2, axes="weights"),
    Case("linked", 2, axes="weights"),
    Case("turing", 2, axes="tokens"),
    Case("linked", 2, axes="tokens"),
]
LARGE = [
    Case("turing", 40, 128, 4, 128, 20),
    Case("linked", 40, 128, 1, 64, 16),
    Case("turing", 9, 128, 4, 128, 20, axes="all"),
    Case("linked", 9, 128, 1, 64, 16, axes="all"),
]


def asked_of(case: Case) -> int:
    sizes = case.heads, case.row_width
    return sum(turing_memory.asked_of(*sizes, SHIFTS) if case.kind == "turing" else linked_memory.asked_of(*sizes))


def shapes_of(case: Case) -> dict[str, tuple[int, ...]]:
    _, length, width, heads, rows, row_width, _ = case
    asked, read = asked_of(case), (heads, row_width)
    shapes = {
        "gates": (2, length, 4 * width),
        "weight_hh": (4 * width, width),
        "weight_rh": (4 * width, read[0] * read[1]),
    }
    shapes |= {
        "ask": (asked, width),
        "bias": (asked,),
        "h": (2, width),
        "c": (2, width),
        "memory": (2, row_width, rows),
    }
    if case.kind == "linked":
        shapes |= dict.fromkeys(("usage", "write", "precedence"), (2, rows)) | {"link": (2, rows, rows)}
    return shapes | {"weight": (2, heads if case.kind == "linked" else 2 * heads, rows), "read": (2, *read)}


def inputs_of(case: Case, device: str) -> tuple[list[Tensor], list[int | None]]:
    """Of two rows, with an axis of two replicas in front where the case has one, and those axes; all want gradients."""
    generator = torch.Generator().manual_seed(0)
    inputs, axes = [], []
    for place, (name, shape) in enumerate(shapes_of(case).items()):
        stacked = {"": False, "all": True, "weights": 1 <= place <= 4, "tokens": not 1 <= place <= 4}[case.axes]
        x = torch.randn((2, *shape) if stacked else shape, generator=generator)
        x = x / shape[1] ** 0.5 if name in ("weight_hh", "weight_rh", "ask") else x
        x = torch.sigmoid(x) if name == "usage" else WHOLE[name] * torch.softmax(2 * x, -1) if name in WHOLE else x
        inputs.append(x.to(device).requires_grad_())
        axes.append(0 if stacked else None)
    return inputs, axes


def flat(machine: Machine, kind: str) -> Callable[..., tuple[Tensor, ...]]:
    """Of all tensors, one behind the other."""

    def called(*given: Tensor) -> tuple[Tensor, ...]:
        y, state = machine(given[0], given[1:5], given[5:], **({"shifts": SHIFTS} if kind == "turing" else {}))
        return y, *state

    return called


def machines_of(kind: str) -> tuple[Machine, Machine]:
    if kind == "turing":
        return _turing.triton_turing_machine, turing_memory.turing_machine
    return _linked.triton_linked_machine, linked_memory.linked_machine


def compare(case: Case, device: str, parts: slice = slice(None)) -> None:
    """Outputs, and all gradients from some of them, against the loop's in fp64 on the same numbers."""
    inputs, axes = inputs_of(case, device)
    exact = [x.detach().double().requires_grad_() for x in inputs]
    results = []
    for place, given in enumerate((inputs, exact)):
        form = flat(machines_of(case.kind)[place], case.kind)
        with nullcontext() if place else walled_rooms(ROOMS[case.kind]):
            outputs = (torch.vmap(form, in_dims=tuple(axes)) if case.axes else form)(*given)
            gradients = torch.autograd.grad(weighted(outputs[parts]), given, materialize_grads=True)
        results.append([x.detach() for x in (*outputs, *gradients)])
    names = [*shapes_of(case)]
    for name, one, other in zip(["y", *names[5:], *names], *results, strict=True):
        assert one.shape == other.shape and one.dtype == torch.float32, name
        error, scale = (one - other).abs().max().item(), max(1.0, other.abs().max().item())
        most = 1e-5 if device == "cpu" else 2e-5  # a GPU's exponentials and quotients are off by two units each
        assert error <= most * scale, f"{name}: {error:.1e} of {scale:.1e}"  # not so for NaN either


def compare_part(kind: str, parts: slice, device: str) -> None:
    compare(Case(kind, 2), device, parts)


def without_gradients(kind: str, device: str) -> None:
    """The same numbers, and nothing kept of each token but y."""
    case = Case(kind, 3)
    inputs, _ = inputs_of(case, device)
    form = flat(machines_of(kind)[0], kind)
    with walled_rooms(ROOMS[kind]) as kept:
        outputs = form(*inputs)
    with walled_rooms(ROOMS[kind]) as rooms, torch.no_grad():
        again = form(*inputs)
    assert all(torch.equal(one, other) for one, other in zip(outputs, again, strict=True))
    assert sum(x.numel() for x in rooms) < 0.7 * sum(x.numel() for x in kept)


CHECKS = {str(case): (compare, case) for case in CASES} | {
    f"{kind}, {name}": (compare_part, kind, parts)
    for kind in ROOMS
    for name, parts in {"through y alone": slice(0, 1), "through the state alone": slice(1, None)}.items()
}
CHECKS |= {f"{kind}, without gradients": (without_gradients, kind) for kind in ROOMS}
CHECKS |= {
    f"{model} x{replicas}": (in_a_model, f"triton_{kind}_machine", model, replicas)
    for model, kind in (("ntm", "turing"), ("dnc", "linked"))
    for replicas in (1, 3)
}
ALWAYS = [str(CASES[6]), str(CASES[9])]
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


SIZES = [Case("turing", 1, 128, 4, 128, 20), full(Case("linked", 1, 128, 1, 64, 16))]
SIZES = [*SIZES, full(Case("turing", 1, 16, 2, 7, 5)), full(Case("linked", 1, 64, 4, 64, 16))]


@pytest.mark.full
@pytest.mark.parametrize("case", SIZES)
@pytest.mark.parametrize("way", [full("there"), "back"])
def test_kernels_compile_for_an_h100(tmp_path: Path, way: str, case: Case) -> None:
    """Most spill: of a program with fewer warps more are at work at once, and an H200 was faster so, by a third."""
    _, _, width, heads, rows, row_width, _ = case
    ask, memory = torch.empty(1, asked_of(case), width), torch.empty(1, 1, row_width, rows)
    names = ["D", "W", "N", "HEADS", "SHIFTS", "WIDTH", "ROWS", "DS", "KS", "BLOCK_D", "BLOCK_K"]
    if case.kind == "turing":
        plan = _turing._Plan.of(ask, memory, torch.empty(1, 1, 2 * heads, rows), SHIFTS)
        warps = {"there": plan.warps_there, "back": plan.warps_back}[way]
    else:
        plan = _linked._Plan.of(ask, memory, torch.empty(1, 1, heads, rows))
        names.remove("SHIFTS")
        warps = plan.warps
    kernel = {"there": ROOMS[case.kind].forward_kernel, "back": ROOMS[case.kind].backward_kernel}[way]
    constants = dict(zip(names, plan.sizes, strict=True)) | {"KEEP": True}
    compiled = compiled_for_an_h100(kernel, constants, axes=3, warps=warps)
    registers, spilled = registers_and_spilled(compiled.asm["cubin"], tmp_path)
    assert registers <= 255 and spilled <= (1000 if case.kind == "linked" and way == "back" else 512)


def test_double_precision_is_refused() -> None:
    for kind in ROOMS:
        given = [x.detach().double() for x in inputs_of(Case(kind, 1), "cpu")[0]]
        with pytest.raises(AssertionError, match="fp32 alone"):
            flat(machines_of(kind)[0], kind)(*given)


if __name__ == "__main__":
    print_failures(CHECKS)
