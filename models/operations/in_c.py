"""A pair of loops in C as a differentiable function that supports vmap, made of one declaration.

    SLOTS = Loops(
        "slots",
        "q k: B L H K, s decay y: B L H M, first last: B H K M",
        forward="q k s decay first -> y last",
        backward="q k s decay first d_y -> d_q d_k d_s d_decay d_first=d_last",
        sizes="B L H K M",
    )
    y_BLHM, last_BHKM = SLOTS(q_BLHK, k_BLHK, s_BLHM, decay_BLHM, first_BHKM)

Each tensor has a name and axes: letters, whose sizes are read off the inputs, or numbers. `forward` and `backward` are
the arguments of the C functions `slots_forward` and `slots_backward` in their order: what C reads, then what it writes.
Behind them C takes a struct of the integers that `sizes` names. Every tensor lies in one piece, all in one precision.

    d_x        the gradient of x; zeros where an output has none. An input without d_x on the right has no gradient
    +d_x       starts from zeros: C adds to it
    d_x=d_y    starts from the gradient of the output y: what is carried from token to token
    an output whose gradient is not read is kept for the backward pass, and not returned
"""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from chomsky_ladder.models.kernels import native
from chomsky_ladder.models.scans.function import Function
from chomsky_ladder.models.scans.replicas import fold_replicas

Sizes = dict[str, Any]  # integers, and settings that `derived` makes integers of
Shape = tuple[int, ...]
Axes = dict[str, tuple[str, ...]]
_MOST_PLANS = 1024  # of one operation


@dataclass(frozen=True, eq=False)
class Plan:
    """Sizes and integers that follow from the shapes of a call, worked out once for all calls with these shapes."""

    settings: tuple[Any, ...]
    keeps: bool
    inputs: tuple[Shape | None, ...]
    outputs: list[Shape]
    numbers: list[int]
    integers: ctypes.Array


def whole_vectors(sizes: Sizes, letter: str) -> int:
    """Return the numbers of a row that is filled up to whole vectors."""
    return -(-sizes[letter] // sizes["lanes"]) * sizes["lanes"]


class Loops:
    """A pair of loops in C, called with the tensors that `forward` reads and then the settings."""

    ALL: ClassVar[list["Loops"]] = []

    def __init__(
        self,
        name: str,
        tensors: str,
        *,
        forward: str,
        backward: str,
        sizes: str,
        settings: str = "",
        derived: Callable[[Sizes], Sizes] = lambda sizes: {},
        rows: Mapping[str, int] | None = None,
        scaled: Mapping[str, float] | None = None,
        integers: str = "",
        fold: str = "R B",
    ) -> None:
        """Declare loops; the module's docstring says in which words.

        settings: names of integers that follow the tensors in a call, for `sizes` and `derived`
        derived:  sizes that follow from others, from settings, from `keeps` (1: there will be a backward pass) and
                  from `lanes`, the numbers of a vector; a tuple stands for several integers
        rows:     inputs whose rows, of so many last axes, may lie apart; `sizes` may name the distance: row_x
        scaled:   inputs that C takes times a number, and whose gradients it returns without
        integers: outputs that hold integers of 32 bits
        fold:     the axes that replicas under vmap become more of: the first that a tensor has; one that has neither
                  is the same for all replicas
        """
        self.name, self.derived = name, derived
        self.scaled = scaled or {}
        self.axes = axes_of(tensors)
        self.signatures = {
            way: tuple(side.split() for side in arguments.split("->"))
            for way, arguments in (("forward", forward), ("backward", backward))
        }
        self.inputs, self.outputs = self.signatures["forward"]
        self.sizes, self.settings = sizes.split(), settings.split()
        self.rows = {x: (axes, self.sizes.index(f"row_{x}")) for x, axes in (rows or {}).items()}
        self.dtypes = [torch.int32 if x in integers.split() else None for x in self.outputs]
        self.folds = {
            x: next((axes.index(letter) for letter in fold.split() if letter in axes), None)
            for x, axes in self.axes.items()
        }
        self._plans: dict[Any, Plan] = {}
        self._function, self._returned = _function_of(self)
        self.ALL.append(self)

    def __call__(self, *arguments: Any) -> tuple[Tensor, ...]:
        count = len(self.inputs)
        plan = self.plan(arguments[:count], arguments[count:], torch.is_grad_enabled())
        return self._function.apply(*arguments[:count], plan)[: self._returned]

    def plan(self, tensors: Sequence[Tensor | None], settings: tuple[Any, ...], keeps: bool) -> Plan:
        shapes = tuple([None if x is None else x.shape for x in tensors])
        case = (shapes, settings, keeps, tensors[0].dtype)  # pyright: ignore[reportOptionalMemberAccess]
        plan = self._plans.get(case)
        if plan is None:
            if len(self._plans) == _MOST_PLANS:
                self._plans.clear()
            plan = self._plans[case] = self._planned(*case)
        return plan

    def _planned(
        self, shapes: tuple[Shape | None, ...], settings: tuple[Any, ...], keeps: bool, dtype: torch.dtype
    ) -> Plan:
        sizes: Sizes = {"keeps": int(keeps), "lanes": native.lanes(dtype), **{f"row_{x}": 0 for x in self.rows}}
        sizes.update(zip(self.settings, settings, strict=True))
        for name, shape in zip(self.inputs, shapes, strict=True):
            for axis, size in zip(self.axes[name], shape or (), strict=shape is not None):
                known = int(axis) if axis.isdigit() else sizes.setdefault(axis, size)
                assert known == size, f"{self.name}: {axis} of {name} is {size}, elsewhere {known}"
        sizes |= self.derived(sizes)
        outputs = [tuple(int(x) if x.isdigit() else sizes[x] for x in self.axes[name]) for name in self.outputs]
        numbers = []
        for x in self.sizes:
            size = int(x) if x.isdigit() else sizes[x]
            numbers += size if isinstance(size, tuple) else (size,)
        return Plan(settings, keeps, shapes, outputs, numbers, native.integers(*numbers))

    def as_c_takes(self, names: Sequence[str], tensors: Sequence[Any], plan: Plan) -> tuple[list[Any], ctypes.Array]:
        """Return the tensors in one piece, or in rows, and the integers behind them."""
        if not self.rows and not self.scaled:
            return [x if x is None else x.contiguous() for x in tensors], plan.integers
        ready, numbers = [], list(plan.numbers)
        for name, x in zip(names, tensors, strict=True):
            if name in self.rows:
                axes, place = self.rows[name]
                x, numbers[place] = native.in_rows(x if axes == 1 else x.flatten(-axes))
            elif x is not None:
                x = (x * self.scaled[name] if name in self.scaled else x).contiguous()
            ready.append(x)
        return ready, native.integers(*numbers)


def axes_of(tensors: str) -> Axes:
    """Read "q k: B L K, v: B L V" as {q: (B, L, K), k: (B, L, K), v: (B, L, V)}."""
    found: Axes = {}
    for part in tensors.split(","):
        names, _, axes = part.partition(":")
        found |= dict.fromkeys(names.split(), tuple(axes.split()))
    return found


def _function_of(loops: Loops) -> tuple[type[Function], int]:
    """Return the loops as a function of torch, and how many outputs it returns. Names are resolved here, once."""
    inputs, outputs = loops.inputs, loops.outputs
    read, written = loops.signatures["backward"]
    every = [*inputs, *outputs]
    saved = [x for x in read if not x.startswith("d_")]
    to_save = [every.index(x) for x in saved]
    came = [outputs.index(x[2:]) for x in read if x.startswith("d_")]
    order = [[*saved, *(f"d_{outputs[i]}" for i in came)].index(x) for x in read]
    starts = [x.lstrip("+").partition("=") for x in written]
    rooms = [  # an input, the output its gradient starts from, and whether that starts from zeros at all
        (inputs.index(x[2:]), outputs.index(y[2:]) if y else None, bool(y) or name.startswith("+"))
        for name, (x, _, y) in zip(written, starts, strict=True)
    ]
    graded = {*came, *(y for _, y, _ in rooms)}
    count = sum(i in graded for i in range(len(outputs)))
    assert graded - {None} == {*range(count)}, f"{loops.name}: outputs that are kept come last"
    places = [next((n for n, (i, _, _) in enumerate(rooms) if i == place), None) for place in range(len(inputs))]
    folds = [(i, loops.folds[x]) for i, x in enumerate(inputs)]
    unfolds = [loops.folds[x] or 0 for x in outputs[:count]]
    kept = count < len(outputs)
    names = f"{loops.name}_forward", f"{loops.name}_backward"
    # What has the axes of a tensor that lies in one piece is allocated like it, at half the cost.
    whole = {loops.axes[x]: i for i, x in reversed([*enumerate(inputs)]) if x not in loops.rows}
    alike = [None if y else whole.get(loops.axes[x]) for x, y in zip(outputs, loops.dtypes, strict=True)]
    whole_back = [x for x in saved if x not in loops.rows]
    alike_back = [saved.index(inputs[i]) if inputs[i] in whole_back else None for i, _, _ in rooms]

    class InC(Function):
        @staticmethod
        def forward(*arguments: Any) -> tuple[Tensor, ...]:
            *tensors, plan = arguments
            given, integers = loops.as_c_takes(inputs, tensors, plan)
            dtype = given[0].dtype
            found = [
                torch.empty(shape, dtype=other or dtype) if i is None else torch.empty_like(given[i])
                for i, shape, other in zip(alike, plan.outputs, loops.dtypes, strict=True)
            ]
            native.kernel(names[0], dtype)(*given, *found, sizes=integers)
            return tuple(found)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
            ctx.plan = inputs[-1]
            if kept:
                ctx.mark_non_differentiable(*output[count:])
            ctx.set_materialize_grads(False)
            every = inputs[:-1] + output
            ctx.save_for_backward(*[every[i] for i in to_save])

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, *d: Tensor | None) -> tuple[Tensor | None, ...]:
            plan: Plan = ctx.plan
            given, integers = loops.as_c_takes(saved, ctx.saved_tensors, plan)
            dtype = given[0].dtype
            given += [
                torch.zeros(plan.outputs[i], dtype=dtype) if (x := d[i]) is None else x.contiguous() for i in came
            ]
            found: list[Any] = []
            for (place, carried, from_zeros), i in zip(rooms, alike_back, strict=True):
                shape = plan.inputs[place]
                if i is None or given[i] is None:
                    room = None if shape is None else (torch.zeros if from_zeros else torch.empty)(shape, dtype=dtype)
                else:
                    room = (torch.zeros_like if from_zeros else torch.empty_like)(given[i])
                if carried is not None and room is not None and (x := d[carried]) is not None:
                    room += x
                found.append(room)
            native.kernel(names[1], dtype)(*[given[i] for i in order], *found, sizes=integers)
            return (*[None if n is None else found[n] for n in places], None)

        @staticmethod
        def vmap(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> tuple[tuple[Tensor, ...], tuple]:
            folded, size = list(arguments[:-1]), info.batch_size
            for i, place in folds:
                if folded[i] is not None and place is not None:
                    (folded[i],) = fold_replicas([folded[i]], [in_dims[i]], size, places=[place])
                assert place is not None or in_dims[i] is None, f"{loops.name}: all replicas share {inputs[i]}"
            plan = arguments[-1]
            found = InC.apply(*folded, loops.plan(folded, plan.settings, plan.keeps))
            apart = [x.unflatten(place, (size, -1)) for x, place in zip(found, unfolds, strict=False)]
            return (*apart, *found[count:]), (*unfolds, *[None] * len(found[count:]))

    InC.__name__ = InC.__qualname__ = loops.name
    return InC, count
