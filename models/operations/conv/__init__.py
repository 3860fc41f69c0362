"""A short causal convolution from the start, one filter a channel, with or without a SiLU behind it.

    y_BLE = convolved(ctx, x_BLE, weight_EW, bias_E, silu=True)

A kernel with the SiLU in it is taken first, unless one without has a higher rank. In C it is one pass each way for all
taps and a SiLU. In Triton it takes the place of a padded copy, and in the backward pass of a pass for every tap.
Without a SiLU the plain form fuses with what is around it: a step of Hyena and minGRU moves more with a kernel, not
less. What kernels return has the precision of x: under autocast the products behind it need no more.
"""

from functools import partial

import torch
from torch import Tensor, nn

from chomsky_ladder.models.block import Context, require
from chomsky_ladder.models.kernels.kernel import cuda_module, member
from chomsky_ladder.models.operations.conv.reference import from_start, padded_sum, silu_padded_sum
from chomsky_ladder.models.operations.in_c import Loops
from chomsky_ladder.models.operations.operation import Operation

WITH_SILU = (
    *("xlstm", "mamba", "mamba2", "path_attention", "mesa_net", "log_linear_attention", "m2rnn", "titans"),
    *("delta_net", "gated_delta_net", "gated_delta_product", "gated_delta_net2", "kda", "comba"),
    *("momentum_deltanet", "preconditioned_delta_net"),
)
CONVOLVING = ("min_gru", "min_lstm", "hyena", "rg_lru", *WITH_SILU)

_LOOPS = Loops(
    "conv",
    "x y: R B L E, weight: R W E, bias: R E",
    forward="x weight bias -> y",
    backward="d_y x weight bias -> d_x +d_weight +d_bias",
    sizes="R B L E W row_x silu",
    settings="silu",
    rows={"x": 1},
)


def _in_c(x_BLE: Tensor, weight_EW: Tensor, bias_E: Tensor | None, *, silu: bool = False) -> Tensor:
    """C version of a convolution from the start. Each replica has weights of its own."""
    weight_EW = weight_EW.to(x_BLE.dtype)
    bias_E = torch.zeros_like(weight_EW[:, 0]) if bias_E is None else bias_E.to(x_BLE.dtype)
    return _LOOPS(x_BLE[None], weight_EW.mT[None], bias_E[None], int(silu))[0].squeeze(0)


def _by_causal_conv1d(x_BLE: Tensor, weight_EW: Tensor, bias_E: Tensor | None) -> Tensor:
    """Call the CUDA kernel of Mamba's authors. By name alone: ours is fused with what is around it."""
    width = weight_EW.shape[1]
    require(2 <= width <= 4, f"the backend causal_conv1d takes a convolution of 2 to 4 positions, not {width}")
    convolve = member("causal_conv1d", "causal_conv1d_fn")
    bias_E = None if bias_E is None else bias_E.to(x_BLE.dtype)
    return convolve(x_BLE.mT, weight_EW.to(x_BLE.dtype), bias_E).mT


short = Operation(
    padded_sum, name="short_convolution", fused=from_start, serves=CONVOLVING, shown=lambda x, weight, bias: x
)
short.in_c(_in_c, name="native_conv", rank=21)
short.register(
    _by_causal_conv1d,
    name="causal_conv1d",
    rank=35,
    device="cuda",
    dtypes=(torch.float32, torch.bfloat16),
    takes=lambda x_BLE, ctx: x_BLE.shape[-1] % 8 == 0,
    missing=cuda_module("causal_conv1d", needs="causal_conv1d_fn"),
    stacks=False,
    when="named",
)

with_silu = Operation(
    silu_padded_sum,
    name="silu_convolution",
    serves=WITH_SILU,
    shown=lambda x, weight, bias: x,
    inside=("short_convolution",),
)
with_silu.in_c(partial(_in_c, silu=True), name="native_silu_conv", rank=21)
with_silu.in_triton(
    f"{__name__}.gpu",
    "triton_silu_convolution",
    name="triton_silu_conv",
    rank=42,
    dtypes=(torch.float32, torch.bfloat16),
)


def convolved(ctx: Context, x_BLE: Tensor, weight_EW: Tensor, bias_E: Tensor | None, *, silu: bool) -> Tensor:
    """Convolve from the start, with the SiLU in one kernel where there is one."""
    both = with_silu.chosen(x_BLE, ctx) if silu else None
    if both:
        return both(x_BLE, weight_EW, bias_E)
    y_BLE = short(ctx, x_BLE, weight_EW, bias_E)
    return nn.functional.silu(y_BLE) if silu else y_BLE
