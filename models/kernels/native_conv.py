"""The convolution of models/scans/convolution.py on a CPU in C: one pass for all taps, there and back."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from chomsky_ladder.models.kernels.kernel import Kernel, register
from chomsky_ladder.models.kernels.native import REAL, integers, kernel, missing, untraced
from chomsky_ladder.models.scans.replicas import fold_replicas

CONVOLVING = (
    *("mamba", "mamba2", "xlstm", "min_gru", "min_lstm", "path_attention", "mesa_net", "log_linear_attention"),
    *("gated_delta_net", "gated_delta_product", "gated_delta_net2", "kda", "comba", "m2rnn", "titans"),
)


def native_convolution(x_BLE: Tensor, weight_EW: Tensor, bias_E: Tensor | None) -> Tensor:
    """`ShortConvolution` from the start, in the precision of x; it stacks under vmap."""
    weight_EW = weight_EW.to(x_BLE.dtype)
    bias_E = torch.zeros_like(weight_EW[:, 0]) if bias_E is None else bias_E.to(x_BLE.dtype)
    return NativeConvolution.apply(x_BLE[None], weight_EW.mT[None], bias_E[None])[0]


class NativeConvolution(torch.autograd.Function):
    """With an axis R in front, of replicas whose weights differ: what vmap adds folds into it."""

    @staticmethod
    def forward(x_RBLE: Tensor, weight_RWE: Tensor, bias_RE: Tensor) -> Tensor:
        inputs = [z.contiguous() for z in (x_RBLE, weight_RWE, bias_RE)]
        y_RBLE = torch.empty_like(inputs[0])
        kernel("conv_forward", x_RBLE.dtype)(*inputs, y_RBLE, sizes=_sizes(x_RBLE, weight_RWE))
        return y_RBLE

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y_RBLE: Tensor) -> tuple[Tensor, Tensor, Tensor]:
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


register(
    Kernel(
        name="native_conv",
        computes="short_convolution",
        reference="chomsky_ladder.models.layers.convolution.ShortConvolution",
        call=native_convolution,
        serves=CONVOLVING,
        device="cpu",
        dtypes=tuple(REAL),
        stacks=True,
        takes=untraced,
        missing=missing,
        rank=21,
    )
)
