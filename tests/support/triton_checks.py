"""The checks of a kernel in Triton: every size, replicas, layouts, inputs of 16 bits, one output alone, models.

    InTriton(kernel="triton_slots", table=SLOTS, sizes=({"L": 1}, ..), bf16=("q k s decay", "k s"), ..)

`checks_of` makes the checks of one, each a function with its arguments; it is called with these and the device. The
kernels and their tables are in triton_tables.py.
"""

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.kernels.choose import named
from support.operation_tables import Case as Drawn
from support.operation_tables import Draw, Table, drawn, flat
from support.triton_kernels import in_a_model, walled_rooms, weighted

REPLICAS = 2
Sizes = Mapping[str, int]
Check = tuple[Any, ...]


class Case(NamedTuple):
    sizes: Sizes
    call: int = 0
    part: int | None = None  # the output whose gradients are taken; None: all
    replicas: str = ""  # or "in front", "anywhere"
    lies: str = "in one piece"  # or "turned", "in a product"
    bf16: str = ""  # the inputs of 16 bits
    changed: tuple[str, float] | None = None

    def __str__(self) -> str:
        plain = {"sizes": None} | Case._field_defaults
        parts = {name: value for name, value in self._asdict().items() if value != plain[name]}
        sizes = " ".join(f"{name}={value}" for name, value in parts.pop("sizes").items())
        return ", ".join([sizes, *(f"{name}={value}" for name, value in parts.items())])


@dataclass(frozen=True, kw_only=True, eq=False)
class InTriton:
    kernel: str
    table: Table
    module: str
    """The file that asks its `_room` for all memory."""
    sizes: tuple[Sizes, ...]
    """The second has all that is compared otherwise, too."""
    large: tuple[Sizes, ...] = ()
    """Sizes for a GPU alone."""
    bf16: tuple[str, ...] = ()
    """Inputs that may be of 16 bits together."""
    rounds_all: bool = False
    """True if 16-bit inputs leave every result, also one in fp32, as far off as a 16-bit number may be."""
    like: Mapping[int, str] = field(default_factory=dict)
    """Outputs in the precision of an input; others are in fp32."""
    lies: tuple[str, ...] = ("turned", "in a product")
    tolerance: float = 1e-5
    without: tuple[str, ...] = ()
    """Inputs that get no gradient."""
    draws: Mapping[str, Draw] = field(default_factory=dict)
    models: tuple[str, ...] = ()
    limits: tuple[tuple[tuple[int, ...], bool], ...] = ()
    """Shapes of what is shown, and whether the kernel takes them."""
    lean: bool = False
    """True if the kernel writes nothing but its outputs when no gradient is asked for."""
    constants: Mapping[str, int] = field(default_factory=dict)
    """The module's constants, as they are set for small sizes."""


def cases_of(it: InTriton) -> Iterator[Case]:
    first, second, calls = it.sizes[0], it.sizes[1], len(it.table.calls)
    outputs = len(flat(it.table.calls[0](it.table.operation.reference, *drawn(it.table, Drawn({**second})))))
    for call in range(calls):
        yield from (Case(sizes, call) for sizes in (it.sizes if call == 0 else it.sizes[1:4]))
        yield from (Case(second, call, replicas=where) for where in ("in front", "anywhere"))
    yield Case(it.sizes[-1], replicas="in front")
    yield Case(first, replicas="anywhere")
    yield from (Case(second, lies=lies) for lies in it.lies)
    yield from (Case(second, lies=lies, replicas="anywhere") for lies in it.lies[:1])
    yield from (Case(second, bf16=names) for names in it.bf16)
    yield from (Case(it.sizes[-1], bf16=names, replicas="in front") for names in it.bf16[:1])
    yield from (Case(second, part=part) for part in range(outputs) if outputs > 1)
    yield from (Case(second, changed=changed) for changed in it.table.changed)


def checks_of(it: InTriton) -> dict[str, Check]:
    checks: dict[str, Check] = {f"{it.kernel} {case}": (compare, it, case) for case in cases_of(it)}
    checks[f"{it.kernel} without gradients"] = (without_gradients, it)
    for model in it.models:
        for replicas in (1, 3):
            checks[f"{it.kernel} in {model} x{replicas}"] = (in_model, it, model, replicas)
    return checks


def large_of(it: InTriton) -> dict[str, Check]:
    return {f"{it.kernel} {Case(sizes)} large": (compare, it, Case(sizes)) for sizes in it.large}


@contextmanager
def small(it: InTriton) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in it.constants.items():
            patch.setattr(importlib.import_module(it.module), name, value)
        yield


def inputs_of(it: InTriton, case: Case, device: str) -> tuple[list[Tensor], tuple[int | None, ...]]:
    """Return the inputs, which want gradients, and the axes of replicas in them."""
    names = [*it.table.axes]
    small_case = Drawn({**case.sizes}, lies=case.lies, changed=case.changed)
    many = [drawn(it.table, small_case, draws=it.draws, seed=seed) for seed in range(REPLICAS)]
    apart: list[int | None] = [None] * len(names)
    if case.replicas:
        places = range(len(names))
        anywhere = [None if i % 4 == 3 else i % (many[0][i].ndim + 1) for i in places]
        apart = [0] * len(names) if case.replicas == "in front" else anywhere
    made = []
    for name, axis, x in zip(names, apart, zip(*many, strict=True), strict=True):
        given = x[0] if axis is None else torch.stack(x, axis)
        dtype = torch.bfloat16 if name in case.bf16.split() else torch.float32
        made.append(given.detach().to(device, dtype).requires_grad_(name not in it.without))
    return made, tuple(apart)


def results(
    it: InTriton, form: Callable[..., Any], case: Case, given: list[Tensor], axes: tuple[int | None, ...]
) -> list[Tensor]:
    def act(*tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(flat(it.table.calls[case.call](form, *tensors)))

    outputs = (torch.vmap(act, in_dims=axes) if case.replicas else act)(*given)
    wanted = outputs if case.part is None else [outputs[case.part]]
    leaves = [x for x in given if x.requires_grad]
    gradients = torch.autograd.grad(weighted(wanted), leaves, materialize_grads=True, allow_unused=True)
    return [x.detach() for x in (*outputs, *gradients)]


def compare(it: InTriton, case: Case, device: str) -> None:
    given, axes = inputs_of(it, case, device)
    with small(it):
        agree(it, given, case, axes)


def agree(
    it: InTriton,
    given: list[Tensor],
    case: Case,
    axes: tuple[int | None, ...] = (),
    *,
    tolerance: float | None = None,
) -> None:
    """Outputs and all gradients against the plain form's in fp64 on the same numbers."""
    exact = [x.detach().double().requires_grad_(x.requires_grad) for x in given]
    with walled_rooms(importlib.import_module(it.module)):
        found = results(it, named(it.kernel).call, case, given, axes)
    expected = results(it, it.table.operation.reference, case, exact, axes)
    by_name = dict(zip(it.table.axes, given, strict=True))
    count = len(expected) - sum(x.requires_grad for x in given)
    dtypes = [by_name[it.like[i]].dtype if i in it.like else torch.float32 for i in range(count)]
    dtypes += [x.dtype for x in given if x.requires_grad]
    names = [f"output {i}" for i in range(count)] + [name for name, x in by_name.items() if x.requires_grad]
    for name, dtype, one, other in zip(names, dtypes, found, expected, strict=True):
        assert one.shape == other.shape and one.dtype == dtype, f"{name}: {one.shape} {one.dtype}"
        error, scale = (one - other).abs().max().item(), max(1.0, other.abs().max().item())
        narrow = dtype == torch.bfloat16 or (it.rounds_all and case.bf16)
        allowed = 1e-2 if narrow else tolerance or it.tolerance
        assert error <= allowed * scale, f"{name}: {error:.1e} of {scale:.1e}"  # not so for NaN either


def without_gradients(it: InTriton, device: str) -> None:
    """Check that the numbers are the same without gradients, and that no more is written; for a lean kernel, less."""
    given, _ = inputs_of(it, Case(it.sizes[1]), device)
    module = importlib.import_module(it.module)
    with small(it), walled_rooms(module) as kept:
        outputs = flat(it.table.calls[0](named(it.kernel).call, *given))
    with small(it), walled_rooms(module) as rooms, torch.no_grad():
        again = flat(it.table.calls[0](named(it.kernel).call, *given))
    assert all(torch.equal(one, other) for one, other in zip(outputs, again, strict=True))
    written, before = (sum(x.numel() for x in each) for each in (rooms, kept))
    assert written <= before
    assert not it.lean or written == sum(x.numel() for x in outputs) < before


def in_model(it: InTriton, model: str, replicas: int, device: str) -> None:
    with small(it):
        in_a_model(it.kernel, model, replicas, device)
