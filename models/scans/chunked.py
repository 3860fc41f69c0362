"""Linear attention with one decay for each head and token: the parallel form, in chunks.

    y_t = q_t S_t        S_t = a_t S_{t-1} + k_t v_t^T        0 <= a_t <= 1, given as log a_t

Inside a chunk y = (q k^T * D) v with D_ts = a_{s+1} .. a_t for s <= t. S is carried from chunk to chunk, so that memory
is linear in the length (the chunkwise form of Sun et al. 2023, 2307.08621, and of Dao and Gu 2024, 2405.21060).

Every log D_ts is its own sum, over s < i <= t. As a difference of two sums from the chunk's start it would lose its
digits after a strong decay (measured in fp32: y off by 1e-4 after one of e^-3000, here by 2e-7), and be nan after a =
0, which is exact here. All factors lie in [0, 1] and nothing is divided: values and gradients stay finite.

Chunks have 32 tokens, and a single one up to 64. We measured B = 32, H = 4, K = 16, V = 32, forward and backward on one
thread: 64 takes 23 ms to its 18 at length 256 (51 to 27 where decays depend on the token), and 2.1 to its 3.2 at 40.
"""

import torch
from torch import Tensor, nn

from chomsky_ladder.models.scans.products import matmul

CHUNK = 32


def decayed_attention(
    q_BHLK: Tensor, k_BHLK: Tensor, v_BHLV: Tensor, log_decay_BHL: Tensor, state_BHKV: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Return y [B, H, L, V] and the last state, in at least fp32. With a state of None (zeros), the last state is None.

    Heads may share q and k (their H is 1), and rows the decays (their B is 1).
    """
    dtype = torch.promote_types(q_BHLK.dtype, torch.float32)
    q_BHLK, k_BHLK, v_BHLV, log_decay_BHL = (x.to(dtype) for x in (q_BHLK, k_BHLK, v_BHLV, log_decay_BHL))
    state_BHKV = None if state_BHKV is None else state_BHKV.to(dtype)
    with torch.autocast(q_BHLK.device.type, enabled=False):
        if q_BHLK.shape[2] == 1 and state_BHKV is not None:
            return _one_token(q_BHLK, k_BHLK, v_BHLV, log_decay_BHL, state_BHKV)
        return _chunked(q_BHLK, k_BHLK, v_BHLV, log_decay_BHL, state_BHKV)


def decayed_pairs(q_BHLK: Tensor, k_BHLK: Tensor, v_BHLV: Tensor, log_decay_BHL: Tensor) -> Tensor:
    """Return all y of a whole string, without the state."""
    return decayed_attention(q_BHLK, k_BHLK, v_BHLV, log_decay_BHL, None)[0]


def _one_token(
    q_BHLK: Tensor, k_BHLK: Tensor, v_BHLV: Tensor, log_decay_BHL: Tensor, state_BHKV: Tensor
) -> tuple[Tensor, Tensor]:
    state_BHKV = torch.exp(log_decay_BHL)[..., None] * state_BHKV + k_BHLK.mT * v_BHLV
    return q_BHLK @ state_BHKV, state_BHKV


def _chunked(
    q_BHLK: Tensor, k_BHLK: Tensor, v_BHLV: Tensor, log_decay_BHL: Tensor, state_BHKV: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    length = q_BHLK.shape[2]
    chunk = CHUNK if length > 2 * CHUNK else length
    # N chunks of C tokens. After the end k = 0 and a = 1, which leave the state as it is.
    q_BHNCK, k_BHNCK, v_BHNCV, log_decay_BHNC1 = (
        nn.functional.pad(x, (0, 0, 0, -length % chunk)).unflatten(2, (-1, chunk))
        for x in (q_BHLK, k_BHLK, v_BHLV, log_decay_BHL[..., None])
    )
    decay_BHNCC = torch.exp(sums_between(log_decay_BHNC1))
    inside_BHNCV = matmul(matmul(q_BHNCK, k_BHNCK.mT) * decay_BHNCC, v_BHNCV)
    if state_BHKV is None and length <= chunk:
        return inside_BHNCV.flatten(2, 3), None

    from_start_BHNC1 = torch.exp(log_decay_BHNC1.cumsum(3))
    new_BHNKV = matmul(k_BHNCK.mT, decay_BHNCC[..., -1, :, None] * v_BHNCV)
    states, S_BHKV = [], torch.zeros_like(new_BHNKV[:, :, 0]) if state_BHKV is None else state_BHKV
    for decay_BH11, new_BHKV in zip(from_start_BHNC1[..., -1:, :].unbind(2), new_BHNKV.unbind(2), strict=True):
        states.append(S_BHKV)
        S_BHKV = torch.addcmul(new_BHKV, decay_BH11, S_BHKV)
    y_BHNCV = inside_BHNCV + from_start_BHNC1 * matmul(q_BHNCK, torch.stack(states, 2))
    return y_BHNCV.flatten(2, 3)[:, :, :length], None if state_BHKV is None else S_BHKV


def sums_between(x_BHNC1: Tensor) -> Tensor:
    """Return at [t, s] the sum of x over s < i <= t; -inf for s > t."""
    chunk = x_BHNC1.shape[3]
    later_CC = torch.ones(chunk, chunk, device=x_BHNC1.device, dtype=torch.bool).tril(-1)
    sums_BHNCC = torch.where(later_CC, x_BHNC1, 0).cumsum(3)
    return torch.where(later_CC.mT, float("-inf"), sums_BHNCC)
