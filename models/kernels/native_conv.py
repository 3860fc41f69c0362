"""The convolution of models/scans/convolution.py on a CPU in C: one pass for all taps and a silu, there and back."""

import functools
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from chomsky_ladder.models.kernels.kernel import Kernel, register
from chomsky_ladder.models.kernels.native import REAL, in_rows, integers, kernel, missing, untraced
from chomsky_ladder.models.scans.function import Function
from chomsky_ladder.models.scans.replicas import fold_replicas

WITH_SILU = (
    *("xlstm", "mamba", "mamba2", "path_attention", "mesa_net", "log_linear_attention", "m2rnn", "titans"),
    *("delta_net", "gated_delta_net", "gated_delta_product", "gated_delta_net2", "kda", "comba"),
)
CONVOLVING = ("min_gru", "min_lstm", "hyena", *WITH_SILU)


def native_convolution(x_BLE: Tensor, weight_EW: Tensor, bias_E: Tensor | None, *, silu: bool = False) -> Tensor:
    """`ShortConvolution` from the start, in the precision of x; it stacks under vmap."""
    weight_EW = weight_EW.to(x_BLE.dtype)
    bias_E = torch.zeros_like(weight_EW[:, 0]) if bias_E is None else bias_E.to(x_BLE.dtype)
    return NativeConvolution.apply(x_BLE[None], weight_EW.mT[None], bias_E[None], silu).squeeze(0)


class NativeConvolution(Function):
    """With an axis R in front, of replicas whose weights differ: what vmap adds folds into it."""

    @staticmethod
    def forward(x_RBLE: Tensor, weight_RWE: Tensor, bias_RE: Tensor, silu: bool) -> Tensor:
        given, sizes = _for_c(x_RBLE, weight_RWE, bias_RE, silu)
        y_RBLE = x_RBLE.new_empty(x_RBLE.shape)
        kernel("conv_forward", x_RBLE.dtype)(*given, y_RBLE, sizes=sizes)
        return y_RBLE

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, bool], output: Tensor) -> None:
        *tensors, ctx.silu = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y_RBLE: Tensor) -> tuple[Tensor | None, ...]:
        x_RBLE, weight_RWE, bias_RE = ctx.saved_tensors
        given, sizes = _for_c(x_RBLE, weight_RWE, bias_RE, ctx.silu)
        d_y_RBLE = d_y_RBLE.contiguous()
        written = torch.empty_like(d_y_RBLE), torch.zeros_like(given[1]), torch.zeros_like(given[2])
        kernel("conv_backward", d_y_RBLE.dtype)(d_y_RBLE, *given, *written, sizes=sizes)
        return *written, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Tensor, int]:
        *tensors, silu = inputs
        folded = fold_replicas(tensors, in_dims[:3], info.batch_size)
        return NativeConvolution.apply(*folded, silu).unflatten(0, (info.batch_size, -1)), 0


def _for_c(x_RBLE: Tensor, weight_RWE: Tensor, bias_RE: Tensor, silu: bool) -> tuple[tuple[Tensor, ...], object]:
    x_RBLE, apart = in_rows(x_RBLE)
    sizes = integers(*x_RBLE.shape, weight_RWE.shape[1], apart, int(silu))
    return (x_RBLE, weight_RWE.contiguous(), bias_RE.contiguous()), sizes


for name, operation, call, serves in (
    ("native_conv", "short_convolution", native_convolution, CONVOLVING),
    ("native_silu_conv", "silu_convolution", functools.partial(native_convolution, silu=True), WITH_SILU),
):
    register(
        Kernel(
            name=name,
            computes=operation,
            reference="chomsky_ladder.models.layers.convolution.ShortConvolution",
            call=call,
            serves=serves,
            device="cpu",
            dtypes=tuple(REAL),
            stacks=True,
            takes=untraced,
            missing=missing,
            rank=21,
        )
    )
