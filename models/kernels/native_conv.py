"""The convolution of models/scans/convolution.py on a CPU in C: one pass for all taps, there and back."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from chomsky_ladder.models.kernels.native import integers, kernel
from chomsky_ladder.models.scans.replicas import fold_replicas


class NativeConvolution(torch.autograd.Function):
    """With an axis R in front, of replicas whose weights differ: what vmap adds folds into it."""

    @staticmethod
    def forward(x_RBLE: Tensor, weight_RWE: Tensor, bias_RE: Tensor) -> Tensor:
        inputs = [z.contiguous() for z in (x_RBLE, weight_RWE, bias_RE)]
        y_RBLE = torch.empty_like(inputs[0])
        kernel("conv_forward", x_RBLE.dtype)(*inputs, y_RBLE, sizes=_sizes(x_RBLE, weight_RWE))
        return y_RBLE

    @staticmethod
    def setup_context(ctx: FunctionCtx, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, d_y_RBLE: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        d_y_RBLE, x_RBLE, weight_RWE = (z.contiguous() for z in (d_y_RBLE, *ctx.saved_tensors))
        d_x_RBLE, d_weight_RWE = torch.empty_like(x_RBLE), torch.zeros_like(weight_RWE)
        d_bias_RE = torch.zeros_like(weight_RWE[:, 0], memory_format=torch.contiguous_format)
        written, sizes = (d_x_RBLE, d_weight_RWE, d_bias_RE), _sizes(x_RBLE, weight_RWE)
        kernel("conv_backward", x_RBLE.dtype)(d_y_RBLE, x_RBLE, weight_RWE, *written, sizes=sizes)
        return written

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[Tensor, int]:
        folded = fold_replicas(inputs, in_dims, info.batch_size)
        return NativeConvolution.apply(*folded).unflatten(0, (info.batch_size, -1)), 0


def _sizes(x_RBLE: Tensor, weight_RWE: Tensor) -> object:
    return integers(*x_RBLE.shape, weight_RWE.shape[1])
