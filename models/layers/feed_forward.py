"""The feed-forward layers of the Transformers: gated, and with one hidden layer.

swiglu       W_3 (silu(W_1 x) * W_2 x)            Shazeer 2020 (2002.05202), without biases
relu, gelu   W_2 f(W_1 x + b_1) + b_2             Vaswani et al. 2017 (1706.03762); GELU as in BERT (1810.04805)
"""

from typing import Literal

from torch import Tensor, nn

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.layers.gate import gated
from chomsky_ladder.models.layers.residual import Layer

FeedForward = Literal["swiglu", "relu", "gelu"]


def swiglu_width(d_model: int, d_inner: int) -> int:
    """Return the inner width, by default (0) 8/3 of the model's, rounded up to a multiple of 8."""
    return d_inner or -(-d_model * 8 // 3 // 8) * 8


def inner_width(kind: FeedForward, d_model: int, d_inner: int) -> int:
    """Return the inner width, by default (0) the kind's usual one. Both usual ones cost as many parameters."""
    return swiglu_width(d_model, d_inner) if kind == "swiglu" else d_inner or 4 * d_model


class SwiGLU(Layer):
    """The gated feed-forward of Shazeer 2020 (2002.05202), without biases."""

    each_alone = True

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate_up = nn.Linear(width, 2 * inner, bias=False)
        self.out = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor, ctx: Context) -> Tensor:
        return self.out(gated(self.gate_up(x), ctx=ctx))


class MLP(Layer):
    """One hidden layer, with biases."""

    each_alone = True

    def __init__(self, width: int, inner: int, *, activation: Literal["relu", "gelu"]) -> None:
        super().__init__()
        self.activation = {"relu": nn.functional.relu, "gelu": nn.functional.gelu}[activation]
        self.inner = nn.Linear(width, inner)
        self.out = nn.Linear(inner, width)

    def forward(self, x: Tensor, ctx: Context) -> Tensor:
        return self.out(self.activation(self.inner(x)))


def feed_forward(kind: FeedForward, width: int, inner: int) -> SwiGLU | MLP:
    return SwiGLU(width, inner) if kind == "swiglu" else MLP(width, inner, activation=kind)
