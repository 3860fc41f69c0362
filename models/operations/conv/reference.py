"""A short causal convolution, one filter a channel: the local mixing in front of many scans.

    y_t = b + sum_k w_k x_{t - (W - 1) + k}        k = 0 .. W - 1, x before the start is 0

`padded_sum` says so: W shifted multiply-adds over a padded input, which a compiler fuses. `from_start` does them in
place and without padding on a CPU, with the backward pass by hand: forward and backward of 4 taps over [256, 39, 128]
take 20 ms on one core, through autograd from a padded input 40.
"""

import torch
from torch import Tensor, nn

from chomsky_ladder.models.scans.convolution import FromStart


def padded_sum(x_BLE: Tensor, weight_EW: Tensor, bias_E: Tensor | None) -> Tensor:
    """The convolution of sequences from their start."""
    padded_BLE = nn.functional.pad(x_BLE, (0, 0, weight_EW.shape[1] - 1, 0))
    return sum_over_taps(padded_BLE, weight_EW, bias_E, x_BLE.shape[1])


def silu_padded_sum(x_BLE: Tensor, weight_EW: Tensor, bias_E: Tensor | None) -> Tensor:
    return nn.functional.silu(padded_sum(x_BLE, weight_EW, bias_E))


def from_start(x_BLE: Tensor, weight_EW: Tensor, bias_E: Tensor | None) -> Tensor:
    """`padded_sum`, in place on a CPU where no compiler looks on."""
    if x_BLE.device.type != "cpu" or torch.compiler.is_compiling():
        return padded_sum(x_BLE, weight_EW, bias_E)
    bias_E = torch.zeros_like(weight_EW[:, 0]) if bias_E is None else bias_E
    return FromStart.apply(x_BLE[None], weight_EW.mT[None], bias_E[None]).squeeze(0)


def sum_over_taps(padded_BLE: Tensor, weight_EW: Tensor, bias_E: Tensor | None, length: int) -> Tensor:
    """The sum over taps of a sequence that begins with the W - 1 inputs before it."""
    if length == 1:  # a token decoded: few operations, however many taps
        y_BLE = (padded_BLE * weight_EW.mT).sum(1, keepdim=True)
        return y_BLE if bias_E is None else y_BLE + bias_E
    y_BLE = torch.zeros_like(weight_EW[:, 0]) if bias_E is None else bias_E
    for tap, weight_E in enumerate(weight_EW.unbind(1)):
        y_BLE = torch.addcmul(y_BLE, padded_BLE[:, tap : tap + length], weight_E)
    return y_BLE
