"""A short causal convolution, one filter a channel: the local mixing in front of many scans.

    y_t = b + sum_k w_k x_{t - (W - 1) + k}        k = 0 .. W - 1, x before the start is 0

As W shifted multiply-adds, with the time axis where it is. From the start they run in place and without padding, with
the backward pass by hand: forward and backward of 4 taps over [256, 39, 128] take 20 ms on one core, through autograd
from a padded input 40; in C (models/_native_conv.py) 4 where those in place took 14. The state: the last W - 1 inputs.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable

from models import _kernels
from models._native_conv import NativeConvolution
from models._replicas import fold_replicas
from models.base import Context


class ShortConvolution(nn.Module):
    """From [B, L, E] to [B, L, E]; weights and bias start as torch.nn.Conv1d's do: uniform in +-1/sqrt(W)."""

    def __init__(self, channels: int, *, width: int = 4, bias: bool = True) -> None:
        super().__init__()
        bound = width**-0.5
        self.weight = nn.Parameter(torch.empty(channels, width).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(channels).uniform_(-bound, bound)) if bias else None

    def forward(self, x_BLE: Tensor, ctx: Context | None = None) -> Tensor:
        if ctx is not None and _kernels.usable("causal_conv1d", x_BLE, ctx):
            ctx.backends.add("causal_conv1d")
            return _kernels.short_convolution(x_BLE, self.weight, self.bias)
        if ctx is not None and ctx.backend == "reference":
            past = self.weight.shape[1] - 1
            return self._sum(nn.functional.pad(x_BLE, (0, 0, past, 0)), x_BLE.shape[1])
        bias_E = torch.zeros_like(self.weight[:, 0]) if self.bias is None else self.bias
        form = _FromStart
        if ctx is not None and x_BLE.dtype == self.weight.dtype and _kernels.usable("native_conv", x_BLE, ctx):
            ctx.backends.add("native_conv")
            form = NativeConvolution
        return form.apply(x_BLE[None], self.weight.mT[None], bias_E[None])[0]

    def init_state(self, batch: int, *, device: torch.device, dtype: torch.dtype) -> Tensor:
        channels, width = self.weight.shape
        return torch.zeros(batch, width - 1, channels, device=device, dtype=dtype)

    def step(self, x_BE: Tensor, state_BWE: Tensor) -> tuple[Tensor, Tensor]:
        y_BLE, state_BWE = self.extend(x_BE[:, None], state_BWE)
        return y_BLE[:, 0], state_BWE

    def extend(self, x_BLE: Tensor, state_BWE: Tensor) -> tuple[Tensor, Tensor]:
        length = x_BLE.shape[1]
        padded_BLE = torch.cat([state_BWE.to(x_BLE.dtype), x_BLE], 1)
        return self._sum(padded_BLE, length), padded_BLE[:, length:].clone()  # a view would keep all of the prompt

    def _sum(self, padded_BLE: Tensor, length: int) -> Tensor:
        """The sum over taps of a sequence that begins with the W - 1 inputs before it."""
        y_BLE = torch.zeros_like(self.weight[:, 0]) if self.bias is None else self.bias
        for tap, weight_E in enumerate(self.weight.unbind(1)):
            y_BLE = torch.addcmul(y_BLE, padded_BLE[:, tap : tap + length], weight_E)
        return y_BLE


def convolve(x_BLE: Tensor, weight_WE: Tensor, bias_E: Tensor, y_BLE: Tensor) -> None:
    """Fill in y. Weights and bias have a size of 1 for B and L, or nothing where no other axes are in front of B."""
    length = x_BLE.shape[-2]
    torch.addcmul(bias_E, x_BLE, weight_WE[-1], out=y_BLE)
    for lag, weight_E in enumerate(reversed(weight_WE[:-1])):
        y_BLE[..., 1 + lag :, :].addcmul_(x_BLE[..., : max(0, length - 1 - lag), :], weight_E)


def convolve_back(
    gy_BLE: Tensor, x_BLE: Tensor, weight_WE: Tensor, gx_BLE: Tensor, room_BLE: Tensor
) -> tuple[Tensor, Tensor]:
    """Add to the gradient of x, and return those of the weights and of the bias. What `room` holds is overwritten."""
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


class _FromStart(torch.autograd.Function):
    """`convolve` with an axis R in front, of replicas whose weights differ: what vmap adds folds into it."""

    @staticmethod
    def forward(x_RBLE: Tensor, weight_RWE: Tensor, bias_RE: Tensor) -> Tensor:
        weight_WR11E = weight_RWE.movedim(1, 0)[:, :, None, None].contiguous()
        y_RBLE = torch.empty_like(x_RBLE, dtype=torch.promote_types(x_RBLE.dtype, bias_RE.dtype))
        convolve(x_RBLE, weight_WR11E, bias_RE[:, None, None], y_RBLE)
        return y_RBLE

    @staticmethod
    def setup_context(ctx: FunctionCtx, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, gy_RBLE: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x_RBLE, weight_RWE = ctx.saved_tensors
        weight_WR11E = weight_RWE.movedim(1, 0)[:, :, None, None].contiguous()
        gx_RBLE, room_RBLE = torch.zeros_like(gy_RBLE), torch.empty_like(gy_RBLE)
        gweight_WRE, gbias_RE = convolve_back(gy_RBLE, x_RBLE, weight_WR11E, gx_RBLE, room_RBLE)
        return gx_RBLE, gweight_WRE.movedim(0, 1), gbias_RE

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[Tensor, int]:
        folded = fold_replicas(inputs, in_dims, info.batch_size)
        return _FromStart.apply(*folded).unflatten(0, (info.batch_size, -1)), 0
