"""Find the top of a stack, for all prefixes of many strings at once."""

import torch
from torch import Tensor


def top(pushes_BL: Tensor, depth_BL: Tensor) -> Tensor:
    """Return where the top of the stack was pushed: the latest push that reached the present depth."""
    order_BL = depth_BL.sort(dim=1, stable=True).indices  # by depth, then position
    index_L = torch.arange(depth_BL.shape[1], device=depth_BL.device)
    latest_BL = torch.where(pushes_BL.gather(1, order_BL), index_L, 0).cummax(1).values
    return torch.zeros_like(order_BL).scatter(1, order_BL, order_BL.gather(1, latest_BL))
