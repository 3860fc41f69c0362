"""A kernel: the short convolution from the start as a product with windows of the input."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from chomsky_ladder.models.kernels.kernel import Kernel, register


def convolved(x_BLE: Tensor, weight_EW: Tensor, bias_E: Tensor | None) -> Tensor:
    windows_BLEW = pad(x_BLE, (0, 0, weight_EW.shape[1] - 1, 0)).unfold(1, weight_EW.shape[1], 1)
    y_BLE = torch.einsum("blew,ew->ble", windows_BLEW, weight_EW)
    return y_BLE if bias_E is None else y_BLE + bias_E


register(
    Kernel(
        name="unfolded_conv",
        computes="short_convolution",
        reference="chomsky_ladder.models.layers.convolution.ShortConvolution",
        call=convolved,
        serves=("min_gru",),
        device="cpu",
        when="named",
    )
)
