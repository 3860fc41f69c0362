"""A convolution as long as the sequence (models/scans/long_convolution.py) on a CPU in C: the plain sum over all taps.

Where the channels stand side by side a tap meets sixteen of them at once, in the layout they have, with neither a
transform of twice the length nor complex numbers.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.kernel import Kernel, register
from chomsky_ladder.models.kernels.native import REAL, in_rows, integers, kernel, missing, untraced
from chomsky_ladder.models.scans.function import Function
from chomsky_ladder.models.scans.replicas import fold_replicas

LONGEST = 1024
"""Tokens up to which transforms are no faster: of 2,048 they take three quarters of its time."""


def native_long_convolution(z_BND: Tensor, taps_TD: Tensor) -> Tensor:
    """`convolved`, all outputs; it stacks under vmap."""
    return _Convolution.apply(z_BND[None], taps_TD[None].to(z_BND.dtype)).squeeze(0)


class _Convolution(Function):
    """With an axis R in front, of replicas whose taps differ: what vmap adds folds into it."""

    @staticmethod
    def forward(z_RBND: Tensor, taps_RTD: Tensor) -> Tensor:
        (z_RBND, apart), y_RBND = in_rows(z_RBND), z_RBND.new_empty(z_RBND.shape)
        sizes = integers(*z_RBND.shape, taps_RTD.shape[1], apart)
        kernel("long_conv_forward", z_RBND.dtype)(z_RBND, taps_RTD.contiguous(), y_RBND, sizes=sizes)
        return y_RBND

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y_RBND: Tensor) -> tuple[Tensor, Tensor]:
        z_RBND, taps_RTD = ctx.saved_tensors
        (z_RBND, apart), d_y_RBND = in_rows(z_RBND), d_y_RBND.contiguous()
        d_z_RBND, d_taps_RTD = torch.empty_like(d_y_RBND), taps_RTD.new_empty(taps_RTD.shape)
        sizes = integers(*z_RBND.shape, taps_RTD.shape[1], apart)
        given = d_y_RBND, z_RBND, taps_RTD.contiguous()
        kernel("long_conv_backward", z_RBND.dtype)(*given, d_z_RBND, d_taps_RTD, sizes=sizes)
        return d_z_RBND, d_taps_RTD

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[Tensor, int]:
        folded = fold_replicas(inputs, in_dims, info.batch_size)
        return _Convolution.apply(*folded).unflatten(0, (info.batch_size, -1)), 0


def takes(z_BND: Tensor, ctx: Context) -> bool:
    return untraced(z_BND, ctx) and z_BND.shape[-2] <= LONGEST


register(
    Kernel(
        name="native_long_conv",
        computes="long_convolution",
        reference="chomsky_ladder.models.scans.long_convolution.convolved",
        call=native_long_convolution,
        serves=("hyena", "h3", "s4"),
        device="cpu",
        dtypes=tuple(REAL),
        stacks=True,
        takes=takes,
        missing=missing,
        rank=9,
    )
)
