"""DeltaFormer's two attentions, a block of queries at a time. In the first a is k, or q where it asks by query.

    u_t = v_t - b_t sum over s < t of softmax_s(a_t . k_s / sqrt(K)) u_s
    y_t = sum over s <= t of softmax_s(q_t . k_s / sqrt(K)) u_s

All u of a block solve one triangular system, (1 + b A) U = V with A the first softmax; of the past, whose u are known,
b A U goes to the right.
"""

import torch
from torch import Tensor

from chomsky_ladder.models.operations.attention.reference import in_blocks, in_front


def over_the_past(heads_BLXK: Tensor, turns_2LK: Tensor, beta_BLH: Tensor, *, asks_by_query: bool) -> Tensor:
    """y [B, L, H, K] of a whole string; heads are queries, keys and values behind each other."""
    q_BHLK, k_BHLK, v_BHLK = in_front(heads_BLXK, turns_2LK, num_heads=beta_BLH.shape[-1])
    asks_BHLK, beta_BHL = q_BHLK if asks_by_query else k_BHLK, beta_BLH.mT
    written: list[Tensor] = []

    def read(block: slice, seen: slice) -> Tensor:
        past_k_BHSK = k_BHLK[:, :, : block.start]
        y_BHCK, u_BHCK = delta_attention(
            asks_BHLK[:, :, block],
            q_BHLK[:, :, block],
            k_BHLK[:, :, block],
            v_BHLK[:, :, block],
            beta_BHL[..., block],
            past_k_BHSK,
            torch.cat(written, 2) if written else past_k_BHSK,
            torch.ones(block.start, dtype=torch.bool, device=heads_BLXK.device),
        )
        written.append(u_BHCK)
        return y_BHCK

    return in_blocks(read, heads_BLXK.shape[1]).transpose(1, 2)


def delta_attention(
    asks_BHLK: Tensor,
    q_BHLK: Tensor,
    k_BHLK: Tensor,
    v_BHLK: Tensor,
    beta_BHL: Tensor,
    past_k_BHSK: Tensor,
    past_u_BHSK: Tensor,
    written_S: Tensor,
) -> tuple[Tensor, Tensor]:
    """y and u [B, H, L, K], behind a past of which only what is written counts."""
    length, device = q_BHLK.shape[2], q_BHLK.device
    before_LL = torch.ones(length, length, dtype=torch.bool, device=device).tril(-1)
    written_LS = written_S.expand(length, -1)
    before_LX = torch.cat([written_LS, before_LL], 1)
    first_L1 = ~before_LX.any(1, keepdim=True)  # it asks nobody: of no score there is no softmax
    upto_LX = torch.cat([written_LS, before_LL | torch.eye(length, dtype=torch.bool, device=device)], 1)
    with torch.autocast(device.type, enabled=False):
        k_BHXK = torch.cat([past_k_BHSK, k_BHLK], 2)
        found_BHLX = torch.where(before_LX, shares(asks_BHLK, k_BHXK, before_LX | first_L1), 0)
        old_BHLS, own_BHLL = (beta_BHL[..., None] * found_BHLX).split([len(written_S), length], -1)
        u_BHLK = torch.linalg.solve_triangular(
            own_BHLL, v_BHLK - old_BHLS @ past_u_BHSK, upper=False, unitriangular=True
        )
        return shares(q_BHLK, k_BHXK, upto_LX) @ torch.cat([past_u_BHSK, u_BHLK], 2), u_BHLK


def shares(q_BHLK: Tensor, k_BHXK: Tensor, may_see_LX: Tensor) -> Tensor:
    scores_BHLX = (q_BHLK * q_BHLK.shape[-1] ** -0.5) @ k_BHXK.mT
    return torch.softmax(torch.where(may_see_LX, scores_BHLX, float("-inf")), -1)
