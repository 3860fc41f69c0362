"""Softmax attention over the past: the plain form, and the parts that attentions share.

y_t = sum_s softmax_s(q_t . k_s / sqrt(K)) v_s        s over what t may see
"""

from collections.abc import Callable

import torch
from torch import Tensor

from chomsky_ladder.models.scans.products import matmul

BLOCK = 64
"""Queries that are read together. All at once are twice the scores, and leave a CPU's caches: of 32 strings of 512 the
forward passes of FoX, stick-breaking and DeltaFormer take 4 to 5 times as long. Blocks of 32 gain no more."""


def causal_attention(
    heads_BLXK: Tensor, turns_2LK: Tensor | None, level_BLH: Tensor | None, *, num_heads: int, window: int
) -> Tensor:
    """Queries, keys and values behind each other to what is read [B, L, H, K]: all between a layer's projections.

    Scores get level_t - level_s, if there are levels; with a window only the nearest positions are seen.
    """
    q_BHLK, k_BHLK, v_BHLK = in_front(heads_BLXK, turns_2LK, num_heads=num_heads)
    position_L = torch.arange(heads_BLXK.shape[1], device=heads_BLXK.device)
    ahead_LL = position_L[:, None] - position_L
    mask = (ahead_LL >= 0) & (ahead_LL < (window or len(position_L)))
    if level_BLH is not None:
        level_BHL = level_BLH.transpose(1, 2)
        mask = torch.where(mask, level_BHL[..., None] - level_BHL[..., None, :], float("-inf"))
    return explicit_attention(q_BHLK, k_BHLK, v_BHLK, mask).transpose(1, 2)


def explicit_attention(q_BHMK: Tensor, k_BHLK: Tensor, v_BHLK: Tensor, mask: Tensor | None) -> Tensor:
    """The definition; `mask` broadcasts against [B, H, M, L]: what may be seen (bool), or what is added to scores."""
    k_BHLK, v_BHLK = repeated(k_BHLK, q_BHMK), repeated(v_BHLK, q_BHMK)
    scores_BHML = matmul(q_BHMK * q_BHMK.shape[-1] ** -0.5, k_BHLK.mT)
    if mask is not None:  # added, not selected: a sum of a small mask has no backward pass of its own
        if mask.dtype == torch.bool:
            mask = torch.where(mask, 0.0, float("-inf")).to(scores_BHML.dtype)
        scores_BHML = scores_BHML + mask
    return matmul(torch.softmax(scores_BHML, dim=-1).to(v_BHLK.dtype), v_BHLK)


def in_front(heads_BLXK: Tensor, turns_2LK: Tensor | None, *, num_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries and keys [B, H, L, K], turned if there are turns, and values."""
    num_kv_heads = (heads_BLXK.shape[2] - num_heads) // 2
    q_k_BHLK, v_BHLK = heads_BLXK.transpose(1, 2).split([num_heads + num_kv_heads, num_kv_heads], dim=1)
    if turns_2LK is not None:
        q_k_BHLK = turned(q_k_BHLK, *turns_2LK)
    q_BHLK, k_BHLK = q_k_BHLK.split([num_heads, num_kv_heads], dim=1)
    return q_BHLK, k_BHLK, v_BHLK


def turned(x_BHLK: Tensor, cos_LK: Tensor, sin_LK: Tensor) -> Tensor:
    a_BHLK, b_BHLK = x_BHLK.chunk(2, dim=-1)
    pairs = [a_BHLK * cos_LK - b_BHLK * sin_LK, a_BHLK * sin_LK + b_BHLK * cos_LK]
    return torch.cat(pairs, dim=-1).to(x_BHLK.dtype)


def repeated(x_BHLK: Tensor, q_BHMK: Tensor) -> Tensor:
    """Keys or values, one copy for each head of queries."""
    copies = q_BHMK.shape[1] // x_BHLK.shape[1]
    return x_BHLK if copies == 1 else x_BHLK.repeat_interleave(copies, dim=1)


def in_blocks(read: Callable[[slice, slice], Tensor], length: int) -> Tensor:
    """[B, H, L, K] of `read(queries, keys)`: a block of queries at a time, over the keys up to its last."""
    ends = [min(start + BLOCK, length) for start in range(0, length, BLOCK)]
    return torch.cat([read(slice(number * BLOCK, end), slice(end)) for number, end in enumerate(ends)], 2)
