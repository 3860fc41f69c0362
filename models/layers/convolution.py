"""A short causal convolution, one filter a channel: the local mixing in front of many scans.

    y_t = b + sum_k w_k x_{t - (W - 1) + k}        k = 0 .. W - 1, x before the start is 0

As W shifted multiply-adds, with the time axis where it is. From the start they run in place and without padding on a
CPU, with the backward pass by hand: forward and backward of 4 taps over [256, 39, 128] take 20 ms on one core, through
autograd from a padded input 40; in C (models/kernels/native_conv.py) 4 where those in place took 14. Elsewhere, and
where a compiler looks on, they are the plain sum over a padded input, which fuses. The state: the last W - 1 inputs.
With `silu` it gives silu(y), as most scans want it; a kernel may then do both at once.
"""

import torch
from torch import Tensor, nn

from chomsky_ladder.models.block import Context, State
from chomsky_ladder.models.kernels.choose import chosen
from chomsky_ladder.models.layers.residual import OneForm
from chomsky_ladder.models.scans.convolution import FromStart


class ShortConvolution(nn.Module):
    """From [B, L, E] to [B, L, E]; weights and bias start as torch.nn.Conv1d's do: uniform in +-1/sqrt(W)."""

    def __init__(self, channels: int, *, width: int = 4, bias: bool = True, silu: bool = False) -> None:
        super().__init__()
        self.silu = silu
        bound = width**-0.5
        self.weight = nn.Parameter(torch.empty(channels, width).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(channels).uniform_(-bound, bound)) if bias else None

    def forward(self, x_BLE: Tensor, ctx: Context | None = None) -> Tensor:
        if self.silu and ctx is not None:
            kernel = chosen("silu_convolution", x_BLE, ctx, inside=("short_convolution",))
            if kernel:
                return kernel.call(x_BLE, self.weight, self.bias)
        return self._activated(self._convolved(x_BLE, ctx))

    def _convolved(self, x_BLE: Tensor, ctx: Context | None) -> Tensor:
        kernel = None if ctx is None else chosen("short_convolution", x_BLE, ctx)
        if kernel:
            return kernel.call(x_BLE, self.weight, self.bias)
        in_place = x_BLE.device.type == "cpu" and not torch.compiler.is_compiling()
        if not in_place or (ctx is not None and ctx.backend == "reference"):
            past = self.weight.shape[1] - 1
            return self._sum(nn.functional.pad(x_BLE, (0, 0, past, 0)), x_BLE.shape[1])
        bias_E = torch.zeros_like(self.weight[:, 0]) if self.bias is None else self.bias
        return FromStart.apply(x_BLE[None], self.weight.mT[None], bias_E[None]).squeeze(0)

    def init_state(self, batch: int, *, device: torch.device, dtype: torch.dtype) -> Tensor:
        channels, width = self.weight.shape
        return torch.zeros(batch, width - 1, channels, device=device, dtype=dtype)

    def step(self, x_BE: Tensor, state_BWE: Tensor) -> tuple[Tensor, Tensor]:
        y_BLE, state_BWE = self.extend(x_BE[:, None], state_BWE)
        return y_BLE[:, 0], state_BWE

    def extend(self, x_BLE: Tensor, state_BWE: Tensor) -> tuple[Tensor, Tensor]:
        length = x_BLE.shape[1]
        padded_BLE = torch.cat([state_BWE.to(x_BLE.dtype), x_BLE], 1)
        y_BLE = self._activated(self._sum(padded_BLE, length))
        return y_BLE, padded_BLE[:, length:].clone()  # a view would keep all of the prompt

    def _activated(self, y_BLE: Tensor) -> Tensor:
        return nn.functional.silu(y_BLE) if self.silu else y_BLE

    def _sum(self, padded_BLE: Tensor, length: int) -> Tensor:
        """The sum over taps of a sequence that begins with the W - 1 inputs before it."""
        if length == 1:  # a token decoded: few operations, however many taps
            y_BLE = (padded_BLE * self.weight.mT).sum(1, keepdim=True)
            return y_BLE if self.bias is None else y_BLE + self.bias
        y_BLE = torch.zeros_like(self.weight[:, 0]) if self.bias is None else self.bias
        for tap, weight_E in enumerate(self.weight.unbind(1)):
            y_BLE = torch.addcmul(y_BLE, padded_BLE[:, tap : tap + length], weight_E)
        return y_BLE


class BehindConvolution(OneForm):
    """A layer that reads queries, keys and values behind one short convolution; its state is the convolution's and one
    of its own. What a subclass adds are its weights, its state and `read`.
    """

    query_key_value: nn.Linear
    convolution: ShortConvolution

    def read(self, x_BLD: Tensor, mixed_BLE: Tensor, state: Tensor, ctx: Context) -> tuple[Tensor, Tensor]:
        """What it adds to the stream, and its own state after the last, from what has been convolved."""
        raise NotImplementedError

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        _, state = self.init_state(x_BLD.shape[0], max_length=0, device=x_BLD.device, dtype=x_BLD.dtype)
        return self.read(x_BLD, self.convolution(self.query_key_value(x_BLD), ctx), state, ctx)[0]

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        past_BWE, own = state
        mixed_BLE, past_BWE = self.convolution.extend(self.query_key_value(x_BLD), past_BWE)
        y_BLD, own = self.read(x_BLD, mixed_BLE, own, ctx)
        return y_BLD, (past_BWE, own)
