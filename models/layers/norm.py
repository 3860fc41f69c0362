"""A norm's values by the fastest form there is.

RMSNorm     y = w x / sqrt(mean(x^2) + eps)         Zhang and Sennrich 2019 (1910.07467)
"""

import torch
from torch import Tensor, nn

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.choose import chosen


def rms_norm(x: Tensor, weight_D: Tensor, eps: float) -> Tensor:
    return nn.functional.rms_norm(x, weight_D.shape, weight_D, eps)


def normed(x: Tensor, norm: nn.Module, ctx: Context) -> Tensor:
    """norm(x)."""
    weight_D = norm.weight if type(norm) is nn.RMSNorm else None
    if weight_D is None or weight_D.dtype != x.dtype or weight_D.ndim > 1:
        return norm(x)
    kernel = chosen("rms_norm", x, ctx)
    eps = norm.eps
    return kernel.call(x, weight_D, torch.finfo(x.dtype).eps if eps is None else eps) if kernel else norm(x)
