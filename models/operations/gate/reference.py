"""One half of a projection, or one layer's output, gated by another: y * f(z)."""

from typing import Literal

import torch
from torch import Tensor

Activation = Literal["silu", "gelu"]


def plain_gated(z: Tensor, y: Tensor | None = None, activation: Activation = "silu") -> Tensor:
    """y f(z); without a y the first half of the last axis of z gates the second."""
    z, y = z.chunk(2, dim=-1) if y is None else (z, y)
    return (torch.nn.functional.silu(z) if activation == "silu" else torch.nn.functional.gelu(z)) * y
