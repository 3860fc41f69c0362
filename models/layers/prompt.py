"""The end of the prompt and the beginning of the answers, for models that treat the two differently.

token      1 2 3 ACT . .        prompt_B = 4
position   0 1 2  3  4 5        the last of the prompt is 3, where the first answer is read
slot       0 0 0  0  1 2        inside the prompt each position is a slot 0: the first answer if it were read there
"""

import torch
from torch import Tensor

from chomsky_ladder.models.block import Context


def positions(x_BLD: Tensor) -> Tensor:
    return torch.arange(x_BLD.shape[1], device=x_BLD.device)


def last_of_prompt(x_BLD: Tensor, ctx: Context) -> Tensor:
    """Return the position where the first answer is read, [B, 1]; without a prompt's end, the last valid one."""
    if ctx.prompt_B is not None:
        return ctx.prompt_B[:, None] - 1
    valid_BL = torch.ones_like(x_BLD[..., 0], dtype=torch.bool) if ctx.valid_BL is None else ctx.valid_BL
    return valid_BL.sum(1, keepdim=True) - 1


def in_prompt(x_BLD: Tensor, ctx: Context) -> Tensor:
    """Return [B, L], true up to the position where the first answer is read."""
    return positions(x_BLD) <= last_of_prompt(x_BLD, ctx)


def slots(x_BLD: Tensor, ctx: Context) -> Tensor:
    """Return the number of the answer at each position, [B, L]."""
    return (positions(x_BLD) - last_of_prompt(x_BLD, ctx)).clamp(min=0)
