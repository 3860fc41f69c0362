"""One half of a projection, or one layer's output, gated by another: y * f(z), by the fastest form there is."""

from typing import Literal

import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.choose import chosen

Activation = Literal["silu", "gelu"]


def plain_gated(z: Tensor, y: Tensor | None = None, activation: Activation = "silu") -> Tensor:
    """y f(z); without a y the first half of the last axis of z gates the second."""
    z, y = z.chunk(2, dim=-1) if y is None else (z, y)
    return (torch.nn.functional.silu(z) if activation == "silu" else torch.nn.functional.gelu(z)) * y


def gated(z: Tensor, y: Tensor | None = None, activation: Activation = "silu", *, ctx: Context) -> Tensor:
    alike = y is None or (z.dtype == y.dtype and z.shape == y.shape)
    kernel = chosen("gate", z, ctx) if alike else None
    return (kernel.call if kernel else plain_gated)(z, y, activation)
