"""`turing_turn` (models/scans/turing_memory.py) on a CPU in C: for a turn a memory stays in the nearest cache.

In torch a turn is some forty passes over memories of all strings, and as many again on the way back. Here what heads
found is found again there: kept are what came in and what was asked for.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from chomsky_ladder.models.kernels.kernel import Kernel, register
from chomsky_ladder.models.kernels.native import REAL, integers, kernel, missing, untraced
from chomsky_ladder.models.scans.function import Function
from chomsky_ladder.models.scans.replicas import fold_replicas, unfold_replicas


def native_turing_turn(
    asked_BX: Tensor, weight_BHN: Tensor, memory_BWN: Tensor, *, shifts: int
) -> tuple[Tensor, Tensor, Tensor]:
    """As `turing_turn`; it stacks under vmap."""
    return _Turn.apply(asked_BX, weight_BHN, memory_BWN, shifts)


class _Turn(Function):
    """Every machine is by itself, so that replicas are more of them."""

    @staticmethod
    def forward(asked: Tensor, weight: Tensor, memory: Tensor, shifts: int) -> tuple[Tensor, Tensor, Tensor]:
        given, (batch, heads) = [x.contiguous() for x in (asked, weight, memory)], weight.shape[:2]
        read = memory.new_empty(batch, heads // 2, memory.shape[1])
        written = torch.empty_like(given[1]), torch.empty_like(given[2]), read
        kernel("turing_forward", memory.dtype)(*given, *written, sizes=_sizes(weight, memory, shifts))
        return written

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        *tensors, ctx.shifts = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *d_outputs: Tensor) -> tuple[Tensor | None, ...]:
        _, weight, memory = given = [x.contiguous() for x in ctx.saved_tensors]
        d_given, written = (x.contiguous() for x in d_outputs), [torch.empty_like(x) for x in given]
        kernel("turing_backward", memory.dtype)(*d_given, *given, *written, sizes=_sizes(weight, memory, ctx.shifts))
        return *written, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        *tensors, shifts = inputs
        outputs = _Turn.apply(*fold_replicas(tensors, in_dims[:3], info.batch_size), shifts)
        return unfold_replicas(outputs, info.batch_size)


def _sizes(weight: Tensor, memory: Tensor, shifts: int) -> object:
    (batch, width, cells), heads = memory.shape, weight.shape[1] // 2
    return integers(batch, heads, cells, width, shifts)


register(
    Kernel(
        name="native_turing",
        computes="turing_turn",
        reference="chomsky_ladder.models.scans.turing_memory.turing_turn",
        call=native_turing_turn,
        serves=("ntm",),
        device="cpu",
        dtypes=tuple(REAL),
        stacks=True,
        takes=untraced,
        missing=missing,
        rank=8,
    )
)
