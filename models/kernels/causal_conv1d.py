"""The short convolution of the authors of Mamba, in CUDA."""

import importlib

from torch import Tensor

from chomsky_ladder.models.kernels.kernel import Kernel, cuda_module, register
from chomsky_ladder.models.kernels.native_conv import CONVOLVING


def short_convolution(x_BLE: Tensor, weight_EW: Tensor, bias_E: Tensor | None) -> Tensor:
    """`ShortConvolution` from the start, through the CUDA kernel of causal-conv1d."""
    convolve = importlib.import_module("causal_conv1d").causal_conv1d_fn
    bias_E = None if bias_E is None else bias_E.to(x_BLE.dtype)
    return convolve(x_BLE.mT, weight_EW.to(x_BLE.dtype), bias_E).mT


register(
    Kernel(
        name="causal_conv1d",
        computes="short_convolution",
        reference="chomsky_ladder.models.layers.convolution.ShortConvolution",
        call=short_convolution,
        serves=CONVOLVING,
        missing=cuda_module("causal_conv1d"),
        rank=35,
    )
)
