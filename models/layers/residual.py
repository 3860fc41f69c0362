"""Blocks that add to the stream: a chain of layers, each with a norm before or after it.

    pre:  x = x + layer(norm(x))        post:  x = norm(x + layer(x))

Most architectures only differ in their layers: attention and a feed-forward, a scan and nothing else, a time mix and a
channel mix. Post-norm is Vaswani et al. 2017 (1706.03762), pre-norm Xiong et al. 2020 (2002.04745).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from chomsky_ladder.models.block import Block, Context, Norm, State, make_norm
from chomsky_ladder.models.operations.norm import normed


class Layer(nn.Module):
    """A function of the sequence, like a block but not residual. One without a state works position by position."""

    each_alone: bool = False
    """True if a position's output only depends on that position, and not on the context."""
    heeds_asked: bool = False
    """True if, with a context that `ends`, it only computes the `ctx.wanted` positions of its output."""

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        raise NotImplementedError

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        return None

    def step(self, x_BD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        return self(x_BD, ctx), None

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        if state is None:
            return self(x_BLD, ctx), None
        outputs = []
        for x_BD in x_BLD.unbind(1):
            y_BD, state = self.step(x_BD, state, ctx)
            outputs.append(y_BD)
        return torch.stack(outputs, 1), state


class OneForm(Layer):
    """A layer whose `extend` also serves as `forward` and `step`."""

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        state = self.init_state(x_BLD.shape[0], max_length=x_BLD.shape[1], device=x_BLD.device, dtype=x_BLD.dtype)
        return self.extend(x_BLD, state, ctx)[0]

    def step(self, x_BD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        y_BLD, state = self.extend(x_BD[:, None], state, ctx)
        return y_BLD[:, 0], state


class Residual(Block):
    """Layers added to the stream one after the other."""

    def __init__(
        self,
        width: int,
        layers: Sequence[nn.Module],
        *,
        norm: Norm = "rms",
        place: Literal["pre", "post"] = "pre",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.place, self.dropout = place, dropout
        # Each norm before its layer: norms of gradients sum parameters in this order, down to the last bit.
        self.parts = nn.ModuleList(part for layer in layers for part in (make_norm(norm, width), layer))

    @property
    def norms(self) -> list[nn.Module]:
        return list(self.parts)[::2]

    @property
    def layers(self) -> list[Any]:
        return list(self.parts)[1::2]

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        return self._through(x_BLD, 0, len(self.layers), ctx)

    def at_asked(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        """Compute only the asked positions after the last layer that mixes positions, and at that layer's own end."""
        masked = ctx.masks is not None and self.dropout > 0  # a mask is drawn for all positions
        if masked or type(self).forward is not Residual.forward:
            return super().at_asked(x_BLD, ctx)
        layers, norms = self.layers, self.norms
        behind = len(layers)
        while behind and getattr(layers[behind - 1], "each_alone", False):
            behind -= 1
        if behind and getattr(layers[behind - 1], "heeds_asked", False):
            last, norm = layers[behind - 1], norms[behind - 1]
            x_BLD = self._through(x_BLD, 0, behind - 1, ctx)
            y_BLD = last(self._read(x_BLD, norm, ctx), replace(ctx, ends=True))
            y_B1D = y_BLD if y_BLD.shape[1] == 1 else ctx.asked(y_BLD)  # a subclass may not heed it
            x_B1D = self._added(ctx.asked(x_BLD), y_B1D, norm, ctx)
        else:
            x_B1D = ctx.asked(self._through(x_BLD, 0, behind, ctx))
        return self._through(x_B1D, behind, len(layers), ctx)

    def _through(self, x_BLD: Tensor, first: int, last: int, ctx: Context) -> Tensor:
        """Apply the layers first..last-1."""
        for layer, norm in list(zip(self.layers, self.norms, strict=True))[first:last]:
            x_BLD = self._added(x_BLD, layer(self._read(x_BLD, norm, ctx), ctx), norm, ctx)
        return x_BLD

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        return [layer.init_state(batch, max_length=max_length, device=device, dtype=dtype) for layer in self.layers]

    def step(self, x_BD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        after = []
        for layer, norm, held in zip(self.layers, self.norms, state, strict=True):
            y_BD, held = layer.step(self._read(x_BD, norm, ctx), held, ctx)
            x_BD = self._added(x_BD, y_BD, norm, ctx)
            after.append(held)
        return x_BD, after

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        after = []
        for layer, norm, held in zip(self.layers, self.norms, state, strict=True):
            y_BLD, held = layer.extend(self._read(x_BLD, norm, ctx), held, ctx)
            x_BLD = self._added(x_BLD, y_BLD, norm, ctx)
            after.append(held)
        return x_BLD, after

    def _read(self, x: Tensor, norm: nn.Module, ctx: Context) -> Tensor:
        return normed(x, norm, ctx) if self.place == "pre" else x

    def _added(self, x: Tensor, y: Tensor, norm: nn.Module, ctx: Context) -> Tensor:
        x = x + ctx.dropout(y, self.dropout)
        return normed(x, norm, ctx) if self.place == "post" else x


def scale_down(projection: nn.Linear, num_layers: int) -> None:
    """Divide a projection into the stream by the root of the number of such layers (Radford et al. 2019)."""
    with torch.no_grad():
        projection.weight *= num_layers**-0.5
