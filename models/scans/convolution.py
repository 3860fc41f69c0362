"""A short causal convolution from the start of strings, in place and with a hand-written backward pass."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from chomsky_ladder.models.scans.function import Function
from chomsky_ladder.models.scans.replicas import fold_replicas


def convolve(x_BLE: Tensor, weight_WE: Tensor, bias_E: Tensor, y_BLE: Tensor) -> None:
    """Compute y in place. Weights and bias have size 1 for B and L, or lack these if no axes precede B."""
    length = x_BLE.shape[-2]
    torch.addcmul(bias_E, x_BLE, weight_WE[-1], out=y_BLE)
    for lag, weight_E in enumerate(reversed(weight_WE[:-1])):
        y_BLE[..., 1 + lag :, :].addcmul_(x_BLE[..., : max(0, length - 1 - lag), :], weight_E)


def convolve_back(
    gy_BLE: Tensor, x_BLE: Tensor, weight_WE: Tensor, gx_BLE: Tensor, room_BLE: Tensor
) -> tuple[Tensor, Tensor]:
    """Add to the gradient of x, and return those of the weights and of the bias. `room` is overwritten."""
    length = x_BLE.shape[-2]
    gx_BLE.addcmul_(gy_BLE, weight_WE[-1])
    of_taps = [torch.mul(gy_BLE, x_BLE, out=room_BLE).sum((-3, -2))]
    for lag, weight_E in enumerate(reversed(weight_WE[:-1]), start=1):
        later_BLE, earlier = gy_BLE[..., lag:, :], slice(0, max(0, length - lag))
        gx_BLE[..., earlier, :].addcmul_(later_BLE, weight_E)
        torch.mul(later_BLE, x_BLE[..., earlier, :], out=room_BLE[..., earlier, :])
        room_BLE[..., earlier.stop :, :].zero_()  # a sum over all positions is ten times as fast as over a part
        of_taps.append(room_BLE.sum((-3, -2)))
    return torch.stack(of_taps[::-1]), gy_BLE.sum((-3, -2))


class FromStart(Function):
    """`convolve` with an axis R in front, for replicas with different weights. Replicas of vmap are folded into it."""

    @staticmethod
    def forward(x_RBLE: Tensor, weight_RWE: Tensor, bias_RE: Tensor) -> Tensor:
        weight_WR11E = weight_RWE.movedim(1, 0)[:, :, None, None].contiguous()
        y_RBLE = torch.empty_like(x_RBLE, dtype=torch.promote_types(x_RBLE.dtype, bias_RE.dtype))
        convolve(x_RBLE, weight_WR11E, bias_RE[:, None, None], y_RBLE)
        return y_RBLE

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gy_RBLE: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x_RBLE, weight_RWE = ctx.saved_tensors
        weight_WR11E = weight_RWE.movedim(1, 0)[:, :, None, None].contiguous()
        gx_RBLE, room_RBLE = torch.zeros_like(gy_RBLE), torch.empty_like(gy_RBLE)
        gweight_WRE, gbias_RE = convolve_back(gy_RBLE, x_RBLE, weight_WR11E, gx_RBLE, room_RBLE)
        return gx_RBLE, gweight_WRE.movedim(0, 1), gbias_RE

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[Tensor, int]:
        folded = fold_replicas(inputs, in_dims, info.batch_size)
        return FromStart.apply(*folded).unflatten(0, (info.batch_size, -1)), 0
