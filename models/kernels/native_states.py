"""Loops in C over states that hold a matrix a row and head, whose way back finds the states again from the first.

What is asked and written is [B, L, H, ..], the third of it as wide as what is read; the last input is the state.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from chomsky_ladder.models.kernels.native import integers, kernel
from chomsky_ladder.models.scans.function import Function
from chomsky_ladder.models.scans.replicas import fold_replicas, unfold_replicas


class OverStates(Function):
    """`apply(loop, *inputs)`: y and the last state by `loop`_forward, all gradients by `loop`_backward."""

    @staticmethod
    def forward(loop: str, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        given = [x.contiguous() for x in inputs]
        y_BLHV, last = torch.empty_like(given[2]), torch.empty_like(given[-1])
        kernel(f"{loop}_forward", y_BLHV.dtype)(*given, y_BLHV, last, sizes=sizes_of(given[0], y_BLHV))
        return y_BLHV, last

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.loop, *given = inputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*given)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y_BLHV: Tensor | None, d_last: Tensor | None) -> tuple[Tensor | None, ...]:
        *given, state = (x.contiguous() for x in ctx.saved_tensors)
        d_y_BLHV, d_state = gradients_of(given[2], state, d_y_BLHV, d_last)
        written = [*map(torch.empty_like, given), d_state]
        sizes = sizes_of(given[0], d_y_BLHV)
        kernel(f"{ctx.loop}_backward", d_y_BLHV.dtype)(*given, state, d_y_BLHV, *written, sizes=sizes)
        return None, *written

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], loop: str, *inputs: Tensor
    ) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        """Replicas are so many more rows."""
        folded = fold_replicas(inputs, in_dims[1:], info.batch_size)
        return unfold_replicas(OverStates.apply(loop, *folded), info.batch_size)


def gradients_of(y: Tensor, state: Tensor, d_y: Tensor | None, d_last: Tensor | None) -> tuple[Tensor, Tensor]:
    """Zeros for what has none; the state's is new, to be written over."""
    d_state = torch.zeros_like(state)
    if d_last is not None:
        d_state += d_last
    return torch.zeros_like(y) if d_y is None else d_y.contiguous(), d_state


def sizes_of(q_BLHK: Tensor, y_BLHV: Tensor) -> Any:
    return integers(*q_BLHK.shape, y_BLHV.shape[-1])
