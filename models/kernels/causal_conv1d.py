"""The short convolution of the authors of Mamba, in CUDA. By name alone: ours is fused with what is around it."""

import torch
from torch import Tensor

from chomsky_ladder.models.block import require
from chomsky_ladder.models.kernels.kernel import Kernel, cuda_module, member, register
from chomsky_ladder.models.kernels.native_conv import CONVOLVING


def short_convolution(x_BLE: Tensor, weight_EW: Tensor, bias_E: Tensor | None) -> Tensor:
    """`ShortConvolution` from the start, through the CUDA kernel of causal-conv1d."""
    width = weight_EW.shape[1]
    require(2 <= width <= 4, f"the backend causal_conv1d takes a convolution of 2 to 4 positions, not {width}")
    convolve = member("causal_conv1d", "causal_conv1d_fn")
    bias_E = None if bias_E is None else bias_E.to(x_BLE.dtype)
    return convolve(x_BLE.mT, weight_EW.to(x_BLE.dtype), bias_E).mT


register(
    Kernel(
        name="causal_conv1d",
        computes="short_convolution",
        reference="chomsky_ladder.models.layers.convolution.ShortConvolution",
        call=short_convolution,
        serves=CONVOLVING,
        dtypes=(torch.float32, torch.bfloat16),
        takes=lambda x_BLE, ctx: x_BLE.shape[-1] % 8 == 0,
        missing=cuda_module("causal_conv1d", needs="causal_conv1d_fn"),
        when="named",
        rank=35,
    )
)
