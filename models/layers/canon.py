"""A short causal convolution in front of the layers of any architecture, added to what they read: Canon layers.

    u = norm(x)        x = x + layer(u + conv(u))

Allen-Zhu 2025 (2512.17351, "Physics of Language Models: Part 4.1") names four places of a block. A is in front of the
mixer, behind its norm. B is on queries, keys and values. C is in front of the feed-forward, behind its norm. D is on
the hidden channels of the feed-forward. A and C need nothing of the operator, so every architecture can have them:
`--model.short-conv 4 --model.conv-places AC`. B is what DeltaNet and Mamba have of their own, with a SiLU.

As in the author's code each channel has a filter of its own, without bias or activation, that starts as torch.nn.Conv1d
starts its weights. A block without a norm in front, as the LSTM's, has A on its input. A block of one layer, as
Mamba's, has no C.
"""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from chomsky_ladder.models.block import Block, Context, State, require
from chomsky_ladder.models.layers.convolution import ShortConvolution
from chomsky_ladder.models.layers.residual import Residual

Places = Literal["AC", "A", "C"]


class Convolved(Block):
    """A layer, or a block without such, that reads its input plus a short convolution of it."""

    heeds_asked = True

    def __init__(self, inner: nn.Module, channels: int, *, width: int) -> None:
        super().__init__()
        self.convolution = ShortConvolution(channels, width=width, bias=False)
        self.inner: Any = inner

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        x_BLD = self._read(x_BLD, ctx)
        return self.inner(ctx.wanted(x_BLD) if getattr(self.inner, "each_alone", False) else x_BLD, ctx)

    def at_asked(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        return self.inner.at_asked(self._read(x_BLD, ctx), ctx)

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        past_BWD = self.convolution.init_state(batch, device=device, dtype=dtype)
        return past_BWD, self.inner.init_state(batch, max_length=max_length, device=device, dtype=dtype)

    def step(self, x_BD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        y_BD, past_BWD = self.convolution.step(x_BD, state[0])
        x_BD, inner = self.inner.step(x_BD + y_BD, state[1], ctx)
        return x_BD, (past_BWD, inner)

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        y_BLD, past_BWD = self.convolution.extend(x_BLD, state[0])
        x_BLD, inner = self.inner.extend(x_BLD + y_BLD, state[1], ctx)
        return x_BLD, (past_BWD, inner)

    def _read(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        return x_BLD + self.convolution(x_BLD, ctx)


def convolved(blocks: Sequence[Block], channels: int, *, width: int, places: Places) -> list[Block]:
    """Return the blocks with a short convolution in front of their layers, at these places."""
    after, found = [], False
    for block in blocks:
        inside = [part for part in block.modules() if isinstance(part, Residual)]
        for residual in inside:
            for place, at in zip("AC", range(1, len(residual.parts), 2), strict=False):
                if place in places:
                    residual.parts[at] = Convolved(residual.parts[at], channels, width=width)
                    found = True
        if not inside and "A" in places:
            block, found = Convolved(block, channels, width=width), True
        after.append(block)
    require(found, f"conv_places={places}: no block has a feed-forward, whose place C is")
    return after
