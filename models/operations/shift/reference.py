"""What RWKV does between its products: tokens mixed with the one before, and squares of what is positive."""

from collections.abc import Sequence

import torch
from torch import Tensor


def token_before(x_BLD: Tensor, last_BD: Tensor) -> Tensor:
    """x_{t-1} at every position; `last_BD` stands before the first."""
    return torch.cat([last_BD[:, None].to(x_BLD.dtype), x_BLD[:, :-1]], dim=1)


def token_shifts(x_BLD: Tensor, last_BD: Tensor, mixes: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """x_t + (x_{t-1} - x_t) * mix for each mix, the shares of the token before: [D], or [B, L, D]."""
    back_BLD = token_before(x_BLD, last_BD) - x_BLD
    return tuple(x_BLD + back_BLD * mix for mix in mixes)


def squared_relu(x: Tensor) -> Tensor:
    return x.relu().square()
