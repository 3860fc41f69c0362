"""The value of a norm by the fastest form available: RMSNorm's by models/operations/norm."""

import torch
from torch import Tensor, nn

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.operations.norm import rms_norm


def normed(x: Tensor, norm: nn.Module, ctx: Context) -> Tensor:
    """Return norm(x)."""
    weight_D = norm.weight if type(norm) is nn.RMSNorm else None
    if weight_D is None or weight_D.dtype != x.dtype or weight_D.ndim > 1:
        return norm(x)
    kernel = rms_norm.chosen(x, ctx)
    eps: float | None = norm.eps  # pyright: ignore[reportAssignmentType]
    return kernel(x, weight_D, torch.finfo(x.dtype).eps if eps is None else eps) if kernel else norm(x)
