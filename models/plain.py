"""Somebody's own layer as a model: an ordinary module on [B, L, D], with nothing of ours in it.

    class Mean(nn.Module):
        def __init__(self, d_model: int) -> None: ...
        def forward(self, x_BLD): return self.out(x_BLD.cumsum(1) / count)

    plain_model("mean", Mean)        then, with `--plugin FILE`: ladder check mean, ladder climb mean

    x = x + layer(rmsnorm(x))        x = x + SwiGLU(rmsnorm(x))        in each of `num_blocks`

The layer must be causal: what it says at a position may not depend on later ones (`ladder check` finds out), and it
sees padding behind a string like any token. It has no step form, so nothing is decoded token by token; a model that
has one, or settings, is a file of its own (CONTRIBUTING.md).
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from chomsky_ladder.models.base import ModelConfig, register
from chomsky_ladder.models.block import Block, Context, require
from chomsky_ladder.models.layers.feed_forward import SwiGLU, swiglu_width
from chomsky_ladder.models.layers.residual import Layer, Residual


class Plain(Layer):
    """A module that knows nothing of contexts."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        y_BLD = self.module(x_BLD)
        same = isinstance(y_BLD, Tensor) and y_BLD.shape == x_BLD.shape
        require(same, f"{type(self.module).__name__} must return a tensor of its input's shape {tuple(x_BLD.shape)}")
        return y_BLD


def plain_model(
    name: str,
    layer: Callable[[int], nn.Module],
    *,
    transition: str = "",
    feed_forward: bool = True,
    year: int = 2026,
    paper: str = "none",
) -> type[ModelConfig]:
    """Register `layer(d_model)` in pre-norm blocks under a name; without the feed-forward, the layer stands alone.

    `transition` is how its state moves, for what theory says of it (harness/config/theory.py).
    """
    given = name, year, paper, transition

    @dataclass(frozen=True, kw_only=True)
    class PlainConfig(ModelConfig):
        name, year, paper, transition = given
        family = "plain"
        stepwise, stackable = False, False

        d_inner: int = 0
        """Width inside the feed-forward; 0 for 8/3 of the model's, rounded up to a multiple of 8."""

        def __post_init__(self) -> None:
            super().__post_init__()
            require(self.d_inner >= 0, f"{self.name}: d_inner must not be negative")

        def block(self, layer_number: int) -> Block:
            layers: list[nn.Module] = [Plain(layer(self.d_model))]
            if feed_forward:
                layers.append(SwiGLU(self.d_model, swiglu_width(self.d_model, self.d_inner)))
            return Residual(self.d_model, layers, dropout=self.dropout)

    PlainConfig.__module__ = sys._getframe(1).f_globals.get("__name__", __name__)  # whose it is
    PlainConfig.__qualname__ = PlainConfig.__name__ = "".join(part.title() for part in name.split("_")) + "Config"
    return register(PlainConfig)
