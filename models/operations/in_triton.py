"""A pair of Triton kernels as one operation of torch each way, with gradient, vmap, fake tensors and allocation.

    SLOTS = Programs(
        "slots",
        (forward_kernel, backward_kernel),
        inputs="q k: B H L K, s decay: B H L M, first: B H K M",
        outputs="y: B H L M, last: B H K M",
        kept="starts: B H N K M",
        parts="d_q d_k: T R B H L K",
        plan=plan,
    )
    y_BHLM, last_BHKM = SLOTS(q_BHLK, k_BHLK, s_BHLM, decay_BHLM, first_BHKM)

A kernel's arguments have the names of tensors (d_x is the gradient of x), then `of_x` for strides of x, then numbers:
`batch`, `heads`, `length`, KEEP, the letters of axes, and what the plan adds. All tensors have an axis R of replicas in
front, which vmap folds into.

    of_x     the strides of the axes up to L, the tokens, where only channels lie side by side; or that of R alone,
             where all else does. A tensor without them lies in one piece
    kept     outputs for the backward pass alone
    parts    gradients that a kernel writes with more axes than the input has, of which they are summed here
Outputs are in fp32. What has heads and tokens is written token by token, as blocks put heads together again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from chomsky_ladder.models.kernels.triton.memory import each_together, together
from chomsky_ladder.models.operations.in_c import Axes, Sizes, axes_of
from chomsky_ladder.models.scans.replicas import fold_replicas, unfold_replicas


@dataclass(frozen=True)
class Plan:
    programs: int
    warps: int
    constants: dict[str, Any]
    sizes: Sizes = field(default_factory=dict)  # of axes that no input has


def _room(shape: Sequence[int], like: Tensor, dtype: torch.dtype) -> Tensor:
    """All memory that kernels write."""
    return like.new_empty(shape, dtype=dtype)


class _Side:
    """One of the two kernels: the order of its tensors and strides, and what its launch is given."""

    def __init__(self, kernel: Any, axes: Axes, read: list[str], plan: Callable[[Sizes], Plan]) -> None:
        self.kernel, self.axes, self.read, self.plan_of = kernel, axes, read, plan
        names = kernel.arg_names
        self.strided = [name[3:] for name in names if name.startswith("of_")]
        self.written = [name for name in names if name in axes and name not in read]
        tensors = [name for name in names if name in axes]
        self.order = [[*read, *self.written].index(name) for name in tensors]
        self.numbers = names[len(tensors) + len(self.strided) :]
        assert names[: len(tensors)] == tensors, "tensors come first, then strides, then numbers"

    def sizes(self, tensors: Sequence[Tensor], keep: bool) -> tuple[Sizes, Plan]:
        sizes: Sizes = {"KEEP": keep}
        for name, x in zip(self.read, tensors, strict=True):
            sizes.update((a, n) for a, n in zip(self.axes[name], x.shape, strict=True) if not a.isdigit())
        plan = self.plan_of(sizes)
        sizes |= {"batch": sizes["B"], "heads": sizes["H"], "length": sizes["L"], **plan.sizes, **plan.constants}
        return sizes, plan

    def rooms(self, sizes: Sizes, like: Tensor, dtypes: Sequence[torch.dtype]) -> tuple[Tensor, ...]:
        return tuple(
            [self._room_of(self.axes[x], sizes, like, dtype) for x, dtype in zip(self.written, dtypes, strict=True)]
        )

    @staticmethod
    def _room_of(axes: tuple[str, ...], sizes: Sizes, like: Tensor, dtype: torch.dtype) -> Tensor:
        shape = [int(a) if a.isdigit() else sizes[a] for a in axes]
        if "L" not in axes:
            return _room(shape, like, dtype)
        head = axes.index("H")  # the tokens are behind it
        shape[head], shape[head + 1] = shape[head + 1], shape[head]
        return _room(shape, like, dtype).transpose(head, head + 1)

    def ready(self, tensors: Sequence[Tensor]) -> list[Any]:
        found = []
        for name, x in zip(self.read, tensors, strict=True):
            axes = self.axes[name]
            lies = each_together if "L" not in axes else together if axes[-1] != "L" else None
            found.append(x.contiguous() if name not in self.strided else lies(x) if lies else x)
        return found

    def launch(self, given: Sequence[Tensor], written: Sequence[Tensor], sizes: Sizes, plan: Plan) -> None:
        by_name = dict(zip(self.read, given, strict=True))
        strides = [
            by_name[x].stride()[: self.axes[x].index("L") + 1 if "L" in self.axes[x] else 1] for x in self.strided
        ]
        every = (*given, *written)
        with torch.cuda.device_of(every[0]):
            self.kernel[(plan.programs,)](
                *[every[i] for i in self.order], *strides, *[sizes[x] for x in self.numbers], num_warps=plan.warps
            )


class Programs:
    """A pair of Triton kernels, called with the inputs without their axis of replicas."""

    def __init__(
        self,
        name: str,
        kernels: tuple[Any, Any],
        *,
        inputs: str,
        outputs: str,
        kept: str = "",
        parts: str = "",
        plan: Callable[[Sizes], Plan],
    ) -> None:
        read, given, more = ({x: ("R", *a) for x, a in axes_of(part).items()} for part in (inputs, outputs, kept))
        axes = read | given | more
        gradients = {f"d_{x}": a for x, a in axes.items()} | axes_of(parts)
        self.count = len(given)
        there = _Side(kernels[0], axes, [*read], plan)
        saved = [x for x in kernels[1].arg_names if x in axes]
        back = _Side(kernels[1], axes | gradients, [*saved, *(f"d_{x}" for x in given)], plan)
        wide = [torch.float32] * len(there.written)
        of_inputs = [back.written.index(f"d_{x}") for x in read]
        extra = [[i for i, a in enumerate(gradients[f"d_{x}"]) if a not in axes[x]] for x in read]
        kinds = [saved.index(x[2:]) if x[2:] in saved else None for x in back.written]

        def rooms_back(tensors: Sequence[Tensor], sizes: Sizes) -> tuple[Tensor, ...]:
            """Gradients in the precision of their inputs, unless they are written in parts."""
            dtypes = []
            for name, i in zip(back.written, kinds, strict=True):
                parted = any(sizes[a] > 1 for a in gradients[name] if a not in axes[name[2:]])
                dtypes.append(torch.float32 if parted or i is None else tensors[i].dtype)
            return back.rooms(sizes, tensors[0], dtypes)

        def forward(*arguments: Any) -> tuple[Tensor, ...]:
            *tensors, keep = arguments
            sizes, plan = there.sizes(tensors, keep)
            written = there.rooms(sizes, tensors[0], wide)
            there.launch(there.ready(tensors), written, sizes, plan)
            return written

        def fake(*arguments: Any) -> tuple[Tensor, ...]:
            *tensors, keep = arguments
            return there.rooms(there.sizes(tensors, keep)[0], tensors[0], wide)

        def backward(*tensors: Tensor) -> tuple[Tensor, ...]:
            sizes, plan = back.sizes(tensors, True)
            written = rooms_back(tensors, sizes)
            back.launch(back.ready(tensors), written, sizes, plan)
            return written

        def fake_back(*tensors: Tensor) -> tuple[Tensor, ...]:
            return rooms_back(tensors, back.sizes(tensors, True)[0])

        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
            ctx.mark_non_differentiable(*output[self.count :])
            ctx.set_materialize_grads(False)
            by_name = dict(zip((*read, *there.written), (*inputs[:-1], *output), strict=True))
            ctx.shapes = [x.shape for x in output[: self.count]]
            ctx.save_for_backward(*[by_name[x] for x in saved])

        def gradients_of(ctx: Any, *d: Tensor | None) -> tuple[Tensor | None, ...]:
            tensors = ctx.saved_tensors
            like, came = tensors[0], zip(d[: self.count], ctx.shapes, strict=True)
            d_outputs = [like.new_zeros(shape, dtype=torch.float32) if x is None else x for x, shape in came]
            written, found = self._back(*tensors, *d_outputs), []
            for i, over in zip(of_inputs, extra, strict=True):
                x = written[i]
                if over:
                    x = x[0] if over == [0] and len(x) == 1 else x.sum(over)
                kind = kinds[i]
                found.append(x if kind is None else x.to(tensors[kind].dtype))
            return *found, None

        def vmap(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> tuple[tuple[Tensor, ...], tuple]:
            *tensors, keep = arguments
            folded = fold_replicas(tensors, in_dims[:-1], info.batch_size)
            return unfold_replicas(self._op(*folded, keep), info.batch_size)

        self._op = _operation(name, forward, fake, [*read], "bool keep", len(there.written))
        self._back = _operation(f"{name}_back", backward, fake_back, back.read, "", len(back.written))
        self._op.register_autograd(gradients_of, setup_context=setup_context)
        self._op.register_vmap(vmap)

    def __call__(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        outputs = self._op(*[x[None] for x in tensors], torch.is_grad_enabled())
        return tuple([x[0] for x in outputs[: self.count]])


def _operation(name: str, act: Any, fake: Any, tensors: Sequence[str], flag: str, count: int) -> Any:
    arguments = ", ".join([*(f"Tensor {x}" for x in tensors), *([flag] if flag else [])])
    schema = f"({arguments}) -> ({', '.join(['Tensor'] * count)})"
    made = torch.library.custom_op(f"chomsky_ladder::{name}", act, mutates_args=(), schema=schema)
    made.register_fake(fake)
    return made
