"""A short causal convolution as a layer: models/operations/conv, with the last W - 1 inputs as the state.

With `silu` it gives silu(y), which most scans need. A kernel may then compute both at once.
"""

import torch
from torch import Tensor, nn

from chomsky_ladder.models.block import Context, State
from chomsky_ladder.models.layers.residual import OneForm
from chomsky_ladder.models.operations.conv import convolved
from chomsky_ladder.models.operations.conv.reference import from_start, sum_over_taps


class ShortConvolution(nn.Module):
    """Map [B, L, E] to [B, L, E]. Weights and bias start as torch.nn.Conv1d's do: uniform in +-1/sqrt(W)."""

    def __init__(self, channels: int, *, width: int = 4, bias: bool = True, silu: bool = False) -> None:
        super().__init__()
        self.silu = silu
        bound = width**-0.5
        self.weight = nn.Parameter(torch.empty(channels, width).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(channels).uniform_(-bound, bound)) if bias else None

    def forward(self, x_BLE: Tensor, ctx: Context | None = None) -> Tensor:
        if ctx is not None:
            return convolved(ctx, x_BLE, self.weight, self.bias, silu=self.silu)
        return self._activated(from_start(x_BLE, self.weight, self.bias))

    def init_state(self, batch: int, *, device: torch.device, dtype: torch.dtype) -> Tensor:
        channels, width = self.weight.shape
        return torch.zeros(batch, width - 1, channels, device=device, dtype=dtype)

    def step(self, x_BE: Tensor, state_BWE: Tensor) -> tuple[Tensor, Tensor]:
        y_BLE, state_BWE = self.extend(x_BE[:, None], state_BWE)
        return y_BLE[:, 0], state_BWE

    def extend(self, x_BLE: Tensor, state_BWE: Tensor) -> tuple[Tensor, Tensor]:
        length = x_BLE.shape[1]
        padded_BLE = torch.cat([state_BWE.to(x_BLE.dtype), x_BLE], 1)
        y_BLE = self._activated(sum_over_taps(padded_BLE, self.weight, self.bias, length))
        return y_BLE, padded_BLE[:, length:].clone()  # a view would keep all of the prompt

    def _activated(self, y_BLE: Tensor) -> Tensor:
        return nn.functional.silu(y_BLE) if self.silu else y_BLE


class BehindConvolution(OneForm):
    """A layer that reads queries, keys and values after one short convolution. Its state is the convolution's and its
    own. A subclass adds weights, a state and `read`.
    """

    query_key_value: nn.Linear
    convolution: ShortConvolution

    def read(self, x_BLD: Tensor, mixed_BLE: Tensor, state: Tensor, ctx: Context) -> tuple[Tensor, Tensor]:
        """Return what is added to the stream, and the layer's own last state, given the convolved input."""
        raise NotImplementedError

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        _, state = self.init_state(x_BLD.shape[0], max_length=0, device=x_BLD.device, dtype=x_BLD.dtype)
        return self.read(x_BLD, self.convolution(self.query_key_value(x_BLD), ctx), state, ctx)[0]

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        past_BWE, own = state
        mixed_BLE, past_BWE = self.convolution.extend(self.query_key_value(x_BLD), past_BWE)
        y_BLD, own = self.read(x_BLD, mixed_BLE, own, ctx)
        return y_BLD, (past_BWE, own)
