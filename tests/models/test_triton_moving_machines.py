"""All tokens of `stack_rnn` and `tape_rnn` in Triton equal their loops in torch: interpreted, compiled, on a GPU."""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.operations.moves import machines as moving_machines
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

from chomsky_ladder.models.operations.moves import gpu_machine as _triton_machine
from chomsky_ladder.models.operations.moves.gpu_machine import _Plan

torch.set_num_threads(1)


class Case(NamedTuple):
    kind: str
    core: str
    length: int
    width: int = 6
    heads: int = 1
    cells: int = 5
    cell: int = 3
    hidden: int = 4
    jump: int | tuple[int, int] = 0  # or of each row its own
    grows: bool = True
    axes: str = ""  # of the replicas, for vmap: "all" have them, "weights" alone do, or "tokens"

    def __str__(self) -> str:
        return "-".join(str(part).replace(" ", "") for part in self)


CASES = [
    Case("stack", "relu", 4),
    Case("stack", "tanh", 3, 16, 2, 9, 5),
    Case("stack", "lstm", 4, 5, 2, 3, 2),
    Case("stack", "relu", 3, cells=1, cell=1),
    Case("stack", "relu", 1, heads=3),
    Case("stack", "lstm", 3, axes="all"),
    Case("stack", "relu", 2, axes="weights"),
    Case("stack", "tanh", 2, axes="tokens"),
    Case("tape", "relu", 4),
    Case("tape", "tanh", 3, 16, 2, 9, 5, 20),
    Case("tape", "lstm", 7, 5, 2, 3, 2),
    Case("tape", "relu", 3, cells=1, cell=1, hidden=1),
    Case("tape", "relu", 3, jump=12, grows=False),
    Case("tape", "relu", 3, jump=(2, 7)),
    Case("tape", "relu", 3, jump=(-1, 4), grows=False),
    Case("tape", "lstm", 3, jump=(0, 3), axes="all"),
    Case("tape", "relu", 2, axes="weights"),
    Case("tape", "tanh", 2, axes="tokens"),
]
LARGE = [
    Case("stack", "relu", 256, 256, 1, 129, 8),
    Case("stack", "lstm", 40, 128, 3, 21, 8, axes="all"),
    Case("tape", "relu", 256, 256, 1, 256, 8, 64),
    Case("tape", "lstm", 40, 128, 2, 256, 8, 64, axes="all"),
]


def shapes_of(case: Case) -> dict[str, tuple[int, ...]]:
    kind, core, length, width, heads, cells, cell, hidden, *_ = case
    gates, reads = (4 if core == "lstm" else 1) * width, heads * cell
    shapes = {"gates": (2, length, gates), "weight_hh": (gates, width), "weight_rh": (gates, reads)}
    layers = {"ask": (heads * (3 + cell), width)}
    if kind == "tape":
        layers = {"ask": (heads * 5, width), "first": (hidden, width), "second": (hidden, hidden)}
        layers["third"] = (reads, hidden)
    for name, shape in layers.items():
        shapes |= {name: shape, f"{name}_bias": shape[:1]}
    return shapes | dict.fromkeys(("h", "c")[: 1 + (core == "lstm")], (2, width)) | {"cells": (2, heads, cells, cell)}


def inputs_of(case: Case, device: str) -> tuple[list[Tensor], list[int | None]]:
    """Of two rows, with an axis of two replicas in front where the case has one, and those axes; all want gradients."""
    generator = torch.Generator().manual_seed(0)
    inputs, axes = [], []
    for name, shape in shapes_of(case).items():
        tokens = name in ("gates", "h", "c", "cells")
        stacked = {"": False, "all": True, "weights": not tokens, "tokens": tokens}[case.axes]
        x = torch.randn((2, *shape) if stacked else shape, generator=generator)
        x = x if tokens or len(shape) == 1 else x / max(1, shape[1]) ** 0.5
        inputs.append(x.to(device).requires_grad_())
        axes.append(0 if stacked else None)
    return inputs, axes


def flat(module: object, case: Case, device: str) -> Callable[..., tuple[Tensor, ...]]:
    """Of all tensors, one behind the other."""
    weights = [*shapes_of(case)].index("h")
    machine = getattr(module, f"{'triton_' if module is _triton_machine else ''}{case.kind}_machine")
    if case.kind == "tape":
        jump = case.jump if isinstance(case.jump, int) else torch.tensor(case.jump, device=device)
        machine = partial(machine, jump=jump, grows=case.grows)

    def called(*given: Tensor) -> tuple[Tensor, ...]:
        y, state = machine(given[0], given[1:weights], given[weights:], core=case.core)
        return y, *state

    return called


def compare(case: Case, device: str, parts: slice = slice(None)) -> None:
    """Outputs, and all gradients from some of them, against the loop's in fp64 on the same numbers."""
    inputs, axes = inputs_of(case, device)
    exact = [x.detach().double().requires_grad_() for x in inputs]
    results = []
    for module, given in ((_triton_machine, inputs), (moving_machines, exact)):
        form = flat(module, case, device)
        with walled_rooms(_triton_machine) if module is _triton_machine else nullcontext():
            outputs = (torch.vmap(form, in_dims=tuple(axes)) if case.axes else form)(*given)
            gradients = torch.autograd.grad(weighted(outputs[parts]), given, materialize_grads=True)
        results.append([x.detach() for x in (*outputs, *gradients)])
    names = [*shapes_of(case)]
    for name, one, other in zip(["y", *names[names.index("h") :], *names], *results, strict=True):
        assert one.shape == other.shape and one.dtype == torch.float32, name
        error, scale = (one - other).abs().max().item(), max(1.0, other.abs().max().item())
        assert error <= 1e-5 * scale, f"{name}: {error:.1e} of {scale:.1e}"  # not so for NaN either


def compare_part(kind: str, core: str, parts: slice, device: str) -> None:
    compare(Case(kind, core, 3), device, parts)


def without_gradients(kind: str, core: str, device: str) -> None:
    """The same numbers, and nothing kept of each token but y."""
    case = Case(kind, core, 5)
    inputs, _ = inputs_of(case, device)
    form = flat(_triton_machine, case, device)
    with walled_rooms(_triton_machine) as kept:
        outputs = form(*inputs)
    with walled_rooms(_triton_machine) as rooms, torch.no_grad():
        again = form(*inputs)
    assert all(torch.equal(one, other) for one, other in zip(outputs, again, strict=True))
    assert sum(x.numel() for x in rooms) < 0.7 * sum(x.numel() for x in kept)


CHECKS = {str(case): (compare, case) for case in CASES} | {
    f"{kind}, {core}, through {name} alone": (compare_part, kind, core, parts)
    for kind in ("stack", "tape")
    for core in ("relu", "lstm")
    for name, parts in {"y": slice(0, 1), "the state": slice(1, None), "the memory": slice(-1, None)}.items()
}
CHECKS |= {
    f"{kind}, {core}, without gradients": (without_gradients, kind, core)
    for kind in ("stack", "tape")
    for core in ("relu", "lstm")
}
CHECKS |= {
    f"{kind}_rnn x{replicas}": (in_a_model, f"triton_{kind}_machine", f"{kind}_rnn", replicas)
    for kind in ("stack", "tape")
    for replicas in (1, 3)
}
ALWAYS = [str(CASES[5]), str(CASES[10]), str(CASES[13])]
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


SIZES = [Case("tape", "relu", 1, 256, 1, 256, 8, 64), *(full(case) for case in (*LARGE, Case("tape", "relu", 1)))]


@pytest.mark.full
@pytest.mark.parametrize("case", SIZES)
@pytest.mark.parametrize("way", [full("there"), "back"])
def test_kernels_compile_for_an_h100(tmp_path: Path, way: str, case: Case) -> None:
    shapes = shapes_of(case)
    given = [torch.empty(1, *shapes[name]) for name in ("ask", "cells")]
    plan = _Plan.of(given[0], torch.empty(1, *[case.hidden if case.kind == "tape" else 0] * 2), given[1])
    names = ["D", "HIDDEN", "N", "W", "HEADS", "ROWS", "WIDTH", "DS", "KS", "HS", "BLOCK_D", "BLOCK_K", "BLOCK_H"]
    constants = dict(zip(names, plan.sizes, strict=True)) | {"CORE": case.core, "GROWS": True, "KEEP": True}
    constants |= {"jumps": None}
    kernel = {"there": _triton_machine.forward_kernel, "back": _triton_machine.backward_kernel}[way]
    compiled = compiled_for_an_h100(kernel, constants, axes=3, warps=plan.warps)
    registers, spilled = registers_and_spilled(compiled.asm["cubin"], tmp_path)
    assert registers <= 255 and spilled <= 32


def test_double_precision_is_refused() -> None:
    for kind in ("stack", "tape"):
        case = Case(kind, "relu", 1)
        given = [x.detach().double() for x in inputs_of(case, "cpu")[0]]
        with pytest.raises(AssertionError, match="fp32 alone"):
            flat(_triton_machine, case, "cpu")(*given)


if __name__ == "__main__":
    print_failures(CHECKS)
