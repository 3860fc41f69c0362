"""Content addressing: how `ntm` and `dnc` find a row of memory.

    c = softmax_n(b cos(k, M[n]))        b > 0, cos(k, m) = k . m / sqrt((|k|^2 + e) (|m|^2 + e)), e = 1e-6

Graves et al. 2014 (1410.5401), equations 5 and 6. e keeps the cosine of a row of zeros, with which memories start, and
its gradient finite. A memory is [B, W, N]: its N rows lie side by side.
"""

import torch
from torch import Tensor

LENGTH_EPS = 1e-6


def by_content(key_BHW: Tensor, strength_BH: Tensor, memory_BWN: Tensor) -> Tensor:
    """Return the weightings [B, H, N]."""
    scale_BH = strength_BH * _one_by_length(key_BHW, -1)
    scale_BHN = scale_BH[..., None] * _one_by_length(memory_BWN, 1)[:, None]
    return torch.softmax(key_BHW @ memory_BWN * scale_BHN, -1)


def _one_by_length(x: Tensor, dim: int) -> Tensor:
    return torch.rsqrt(torch.linalg.vector_norm(x, dim=dim).square() + LENGTH_EPS)
