"""Feedback for any architecture: a mixer, or a whole block, reads its own output before a token.

    mixer    u = norm(x)        y_t = mixer(u_t + W rms(y_{t-1}))        x = x + y
    block    y_t = block(x_t + W rms(y_{t-1}))                           x = y

Most mixers map the past to y_t by a scan or by attention, so that all tokens are computed at once. With feedback y_t
goes through nonlinear gates and products again at the next token, as in the networks of Jordan 1986. So tokens are read
one after the other. Attention to a single token is a linear map, and only the block around it is more. In a Transformer
this is close to Fan et al. 2020 (2002.09402), who attend to the outputs of all tokens before.

W starts at zero: the model starts as the one without feedback. No gradient passes y. So a forward pass computes y token
by token without a gradient, and then runs the layer once over all tokens with y held fixed. Gradients pass through the
layer's own state. FP-Mamba (models/fp_mamba.py) is trained in this way, too. The y that is read has no dropout.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import rms_norm
from torch.nn.init import zeros_

from chomsky_ladder.models.block import Block, Context, State
from chomsky_ladder.models.layers.residual import Residual

Feedback = Literal["none", "mixer", "block"]


class Fed(Block):
    """A mixer or a block that reads its input plus a map of its output before."""

    heeds_asked = True

    def __init__(self, inner: nn.Module, channels: int) -> None:
        super().__init__()
        self.read = nn.Linear(channels, channels, bias=False)
        zeros_(self.read.weight)
        self.inner: Any = inner

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        return self.inner(x_BLD + self._before(x_BLD, ctx), ctx)

    def at_asked(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        return self.inner.at_asked(x_BLD + self._before(x_BLD, ctx), ctx)

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        y_BD = torch.zeros(batch, self.read.in_features, device=device, dtype=dtype)
        return y_BD, self.inner.init_state(batch, max_length=max_length, device=device, dtype=dtype)

    def step(self, x_BD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        y_BD, inner = self.inner.step(x_BD + self._read(state[0]), state[1], ctx)
        return y_BD, (y_BD, inner)

    def _before(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        """Return the map of the output before each token; no gradient reaches that output."""
        alone = replace(ctx, asked_B=None, ends=False, masks=None, losses={}, metrics={}, shared={})
        with torch.no_grad():
            batch, length = x_BLD.shape[:2]
            state = self.init_state(batch, max_length=length, device=x_BLD.device, dtype=x_BLD.dtype)
            before = []
            for x_BD in x_BLD.unbind(1):
                before.append(state[0])
                _, state = self.step(x_BD, state, alone)
        return self._read(torch.stack(before, 1))

    def _read(self, y: Tensor) -> Tensor:
        return self.read(rms_norm(y.detach(), y.shape[-1:]))


def fed(blocks: Sequence[Block], channels: int, *, feedback: Feedback) -> list[Block]:
    """Return the blocks with feedback. A block without layers, as the LSTM's, is its own mixer."""
    after = []
    for block in blocks:
        inside = [part for part in block.modules() if isinstance(part, Residual)] if feedback == "mixer" else []
        for residual in inside:
            residual.parts[1] = Fed(residual.parts[1], channels)
        after.append(block if inside else Fed(block, channels))
    return after
