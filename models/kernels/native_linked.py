"""`linked_turn` (models/scans/linked_memory.py) on a CPU in C: a machine's memory and links stay in the nearest cache.

In torch a turn is some sixty passes over memories and links of all strings, and as many again on the way back. Here a
turn is taken again there: kept are what came in and what was asked for.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from chomsky_ladder.models.kernels.kernel import Kernel, register
from chomsky_ladder.models.kernels.native import REAL, integers, kernel, missing, untraced
from chomsky_ladder.models.scans.function import Function
from chomsky_ladder.models.scans.replicas import fold_replicas, unfold_replicas


def native_linked_turn(asked_BX: Tensor, memory_BWN: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
    """As `linked_turn`; it stacks under vmap."""
    return _Turn.apply(asked_BX, memory_BWN, *others)


class _Turn(Function):
    """Every machine is by itself, so that replicas are more of them."""

    @staticmethod
    def forward(asked: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        given, memory, weight = [x.contiguous() for x in (asked, *state)], state[0], state[-1]
        read = memory.new_empty(*weight.shape[:2], memory.shape[1])
        written = *(torch.empty_like(x) for x in given[1:]), read
        kernel("linked_forward", memory.dtype)(*given, *written, sizes=_sizes(memory, weight))
        return written

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *d_outputs: Tensor) -> tuple[Tensor, ...]:
        given = [x.contiguous() for x in ctx.saved_tensors]
        d_given, written = (x.contiguous() for x in d_outputs), tuple(torch.empty_like(x) for x in given)
        sizes = _sizes(given[1], given[-1])
        kernel("linked_backward", given[1].dtype)(*d_given, *given, *written, sizes=sizes)
        return written

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        return unfold_replicas(_Turn.apply(*fold_replicas(inputs, in_dims, info.batch_size)), info.batch_size)


def _sizes(memory: Tensor, weight: Tensor) -> object:
    batch, width, cells = memory.shape
    return integers(batch, weight.shape[1], cells, width)


register(
    Kernel(
        name="native_linked",
        computes="linked_turn",
        reference="chomsky_ladder.models.scans.linked_memory.linked_turn",
        call=native_linked_turn,
        serves=("dnc",),
        device="cpu",
        dtypes=tuple(REAL),
        stacks=True,
        takes=untraced,
        missing=missing,
        rank=8,
    )
)
