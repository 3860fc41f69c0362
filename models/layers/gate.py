"""One half of a projection, or one layer's output, gated by another: y * silu(z), by the fastest form there is."""

import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.choose import chosen


def silu_gated(z: Tensor, y: Tensor | None = None) -> Tensor:
    """y silu(z); without a y the first half of the last axis of z gates the second."""
    z, y = z.chunk(2, dim=-1) if y is None else (z, y)
    return torch.nn.functional.silu(z) * y


def gated(z: Tensor, y: Tensor | None = None, *, ctx: Context) -> Tensor:
    alike = y is None or (z.dtype == y.dtype and z.shape == y.shape)
    kernel = chosen("silu_gated", z, ctx) if alike else None
    return kernel.call(z, y) if kernel else silu_gated(z, y)
