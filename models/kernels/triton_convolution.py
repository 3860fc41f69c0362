"""`ShortConvolution` with its silu through our own Triton kernels (models/kernels/triton/convolution.py).

What they stand in for is a padded copy, and on the way back a pass over all there is for every tap. What they give has
the precision of x, as in C: under autocast the products behind it want no more. Without a silu the convolution fuses
with what is around it: of Hyena and minGRU a step moves more with these, not less.
"""

import torch
from torch import Tensor

from chomsky_ladder.models.kernels.kernel import Kernel, cuda_module, member, register
from chomsky_ladder.models.kernels.native_conv import WITH_SILU

_MODULE = f"{__package__}.triton.convolution"


def triton_silu_convolution(x_BLE: Tensor, weight_EW: Tensor, bias_E: Tensor | None) -> Tensor:
    """`ShortConvolution` from the start through our own Triton kernels, which stack."""
    return member(_MODULE, "triton_silu_convolution")(x_BLE, weight_EW, bias_E)


register(
    Kernel(
        name="triton_silu_conv",
        computes="silu_convolution",
        reference="chomsky_ladder.models.layers.convolution.ShortConvolution",
        call=triton_silu_convolution,
        serves=WITH_SILU,
        dtypes=(torch.float32, torch.bfloat16),
        stacks=True,
        missing=cuda_module(_MODULE),
        rank=42,
    )
)
