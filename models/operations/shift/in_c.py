"""`token_shifts` and `squared_relu` in C: one pass each way."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from chomsky_ladder.models.kernels.native import integers, kernel
from chomsky_ladder.models.scans.function import Function
from chomsky_ladder.models.scans.replicas import fold_replicas, unfold_replicas


def native_token_shifts(x_BLD: Tensor, last_BD: Tensor, mixes: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """As `token_shifts`; it stacks under vmap."""
    assert last_BD.shape == (len(x_BLD), x_BLD.shape[-1])
    last_BD = last_BD.to(x_BLD.dtype)
    mixes = [mix.to(x_BLD.dtype).expand(x_BLD.shape[-1:] if mix.ndim == 1 else x_BLD.shape) for mix in mixes]
    return tuple(
        y_1BLD.squeeze(0) for y_1BLD in _Shifts.apply(x_BLD[None], last_BD[None], *(mix[None] for mix in mixes))
    )


class _Shifts(Function):
    """With an axis R in front, of replicas whose shares differ: what vmap adds folds into it."""

    @staticmethod
    def forward(x_RBLD: Tensor, last_RBD: Tensor, *mixes: Tensor) -> tuple[Tensor, ...]:
        x_RBLD, last_RBD = x_RBLD.contiguous(), last_RBD.contiguous()
        shifted = tuple(torch.empty_like(x_RBLD) for _ in mixes)
        for mix, y_RBLD in zip(mixes, shifted, strict=True):
            sizes = integers(*x_RBLD.shape, mix.ndim > 2, 0)
            kernel("shift_forward", x_RBLD.dtype)(x_RBLD, last_RBD, mix.contiguous(), y_RBLD, sizes=sizes)
        return shifted

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *d_shifted: Tensor) -> tuple[Tensor, ...]:
        x_RBLD, last_RBD, *mixes = (z.contiguous() for z in ctx.saved_tensors)
        d_x_RBLD, d_last_RBD = torch.empty_like(x_RBLD), torch.empty_like(last_RBD)
        d_mixes = [torch.zeros_like(mix) for mix in mixes]
        for adds, (mix, d_mix, d_y) in enumerate(zip(mixes, d_mixes, d_shifted, strict=True)):
            given = (x_RBLD, last_RBD, mix, d_y.contiguous())
            sizes = integers(*x_RBLD.shape, mix.ndim > 2, adds > 0)
            kernel("shift_backward", x_RBLD.dtype)(*given, d_x_RBLD, d_last_RBD, d_mix, sizes=sizes)
        return d_x_RBLD, d_last_RBD, *d_mixes

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        return unfold_replicas(_Shifts.apply(*fold_replicas(inputs, in_dims, info.batch_size)), info.batch_size)


class SquaredRelu(Function):
    @staticmethod
    def forward(x: Tensor) -> Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        kernel("square_forward", x.dtype)(x, y, sizes=integers(x.numel()))
        return y

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y: Tensor) -> Tensor:
        x = ctx.saved_tensors[0].contiguous()
        d_x = torch.empty_like(x)
        kernel("square_backward", x.dtype)(x, d_y.contiguous(), d_x, sizes=integers(x.numel()))
        return d_x

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], x: Tensor) -> tuple[Tensor, int]:
        return SquaredRelu.apply(x.movedim(in_dims[0] or 0, 0)), 0
