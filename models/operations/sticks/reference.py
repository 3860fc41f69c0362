"""Stick-breaking attention: each position takes its share of what nearer ones have left.

    y_t = sum over s < t of v_s sigmoid(z_ts) prod over s < l < t of (1 - sigmoid(z_tl))      z_ts = q_t . k_s / sqrt(K)

Tan et al. 2024 (2410.17980). Products of what is left are sums of logarithms, a block of queries at a time.
"""

import torch
from torch import Tensor, nn

from chomsky_ladder.models.operations.attention.reference import in_blocks


def over_the_past(heads_BLXK: Tensor, *, num_heads: int) -> Tensor:
    """y [B, L, H, K] of a whole string; heads are queries, keys and values behind each other."""
    q_BHLK, k_BHLK, v_BHLK = heads_BLXK.unflatten(2, (3, num_heads)).permute(2, 0, 3, 1, 4).unbind(0)
    position_L = torch.arange(q_BHLK.shape[2], device=heads_BLXK.device)

    def read(block: slice, seen: slice) -> Tensor:
        k_BHSK, v_BHSK = k_BHLK[:, :, seen], v_BHLK[:, :, seen]
        return stick_breaking(q_BHLK[:, :, block], k_BHSK, v_BHSK, position_L[block], position_L[seen])

    return in_blocks(read, len(position_L)).transpose(1, 2)


def stick_breaking(q_BHLK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, position_L: Tensor, held_S: Tensor) -> Tensor:
    """Return what queries at `position_L` read from the values at `held_S`, in fp32 at least."""
    with torch.autocast(q_BHLK.device.type, enabled=False):
        q_BHLK, k_BHSK, v_BHSK = (x.to(torch.promote_types(x.dtype, torch.float32)) for x in (q_BHLK, k_BHSK, v_BHSK))
        z_BHLS = (q_BHLK * q_BHLK.shape[-1] ** -0.5) @ k_BHSK.mT
        may_see_LS = held_S < position_L[:, None]
        left_BHLS = torch.where(may_see_LS, nn.functional.logsigmoid(-z_BHLS), 0)
        nearer_BHLS = nn.functional.pad(left_BHLS[..., 1:].flip(-1).cumsum(-1).flip(-1), (0, 1))
        log_share_BHLS = torch.where(may_see_LS, nn.functional.logsigmoid(z_BHLS) + nearer_BHLS, float("-inf"))
        return torch.exp(log_share_BHLS) @ v_BHSK
