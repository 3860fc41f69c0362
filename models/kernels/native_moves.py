"""`moved` (models/scans/moves.py) on a CPU in C: a pass for every move, of cells that stay in the nearest cache.

In torch a memory is written down once for every action, there and back, before the shares are taken.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from chomsky_ladder.models.kernels.kernel import Kernel, register
from chomsky_ladder.models.kernels.native import REAL, integers, kernel, missing, untraced
from chomsky_ladder.models.scans.function import Function
from chomsky_ladder.models.scans.moves import Move
from chomsky_ladder.models.scans.replicas import fold_replicas


def native_moved(
    new_BHW: Tensor, memory_BHNW: Tensor, share_BHA: Tensor, moves: Sequence[Move], *, replaces: bool
) -> Tensor:
    """As `moved`; it stacks under vmap."""
    return _Moved.apply(new_BHW, memory_BHNW, share_BHA, moves, replaces)


class _Moved(Function):
    """Every row is by itself, so that replicas are more of them."""

    @staticmethod
    def forward(new: Tensor, memory: Tensor, share: Tensor, moves: Sequence[Move], replaces: bool) -> Tensor:
        moved = memory.new_empty(memory.shape)
        given = (x.contiguous() for x in (new, memory, share))
        kernel("moves_forward", memory.dtype)(*given, moved, sizes=_sizes(memory, share, moves, replaces))
        return moved

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *tensors, ctx.moves, ctx.replaces = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_moved: Tensor) -> tuple[Tensor | None, ...]:
        _, memory, share = given = [x.contiguous() for x in ctx.saved_tensors]
        written, sizes = [torch.empty_like(x) for x in given], _sizes(memory, share, ctx.moves, ctx.replaces)
        kernel("moves_backward", d_moved.dtype)(d_moved.contiguous(), *given, *written, sizes=sizes)
        return *written, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Tensor, int]:
        *tensors, moves, replaces = inputs
        folded = fold_replicas(tensors, in_dims[:3], info.batch_size)
        return _Moved.apply(*folded, moves, replaces).unflatten(0, (info.batch_size, -1)), 0


def _sizes(memory: Tensor, share: Tensor, moves: Sequence[Move], replaces: bool) -> object:
    *rows, cells, width = memory.shape
    shape = rows[0] * rows[1], cells, width, share.shape[-1]
    return integers(*shape, int(replaces), len(moves), *chain.from_iterable(moves))


register(
    Kernel(
        name="native_moves",
        computes="moves",
        reference="chomsky_ladder.models.scans.moves.moved",
        call=native_moved,
        serves=("stack_rnn", "tape_rnn"),
        device="cpu",
        dtypes=tuple(REAL),
        stacks=True,
        takes=untraced,
        missing=missing,
        rank=8,
    )
)
