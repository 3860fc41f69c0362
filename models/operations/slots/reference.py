"""Linear attention that writes into slots, each of which decays at a rate of its own: the parallel form.

    y_t = q_t S_t        S_t = S_{t-1} diag(w_t) + k_t s_t^T        0 <= w_t <= 1

with S in R^{K x M}, s and w in R^M: the first of the two passes of Gated Slot Attention (Zhang et al. 2024,
2409.07146). Rates are those of what is read out, where in decayed.py they are those of what is asked, so that a pair
t > s has no score of its own but one for each slot. The halving is the same: of two neighbouring blocks, what is
written in the first is scaled by the decays behind s to its block's end, and what the second reads of it by those from
its block's start up to t,

    y_t += (prod_{start <= i <= t} w_i) sum_s (q_t . k_s) (prod_{s < i <= end} w_i) s_s

and blocks double in size until they are the chunk of 16. Every factor is a product of decays, thus in [0, 1]: nothing
is divided, decays of exactly 0 and 1 are exact, and all gradients are finite. In C (cpu.c) and in Triton (gpu.py) it
goes token by token.
"""

import torch
from torch import Tensor

from chomsky_ladder.models.scans.decayed import CHUNK, in_chunks, scaled
from chomsky_ladder.models.scans.products import matmul


def decayed_slots(
    q_BHLK: Tensor, k_BHLK: Tensor, s_BHLM: Tensor, decay_BHLM: Tensor, state_BHKM: Tensor
) -> tuple[Tensor, Tensor]:
    """y [B, H, L, M] and the last state, in at least fp32."""
    dtype = torch.promote_types(q_BHLK.dtype, torch.float32)
    inputs = (x.to(dtype) for x in (q_BHLK, k_BHLK, s_BHLM, decay_BHLM, state_BHKM))
    with torch.autocast(q_BHLK.device.type, enabled=False):
        return _one_token(*inputs) if q_BHLK.shape[2] == 1 else _chunked(*inputs)


def _one_token(
    q_BHLK: Tensor, k_BHLK: Tensor, s_BHLM: Tensor, decay_BHLM: Tensor, state_BHKM: Tensor
) -> tuple[Tensor, Tensor]:
    state_BHKM = decay_BHLM * state_BHKM + k_BHLK.mT * s_BHLM
    return q_BHLK @ state_BHKM, state_BHKM


def _chunked(
    q_BHLK: Tensor, k_BHLK: Tensor, s_BHLM: Tensor, decay_BHLM: Tensor, state_BHKM: Tensor
) -> tuple[Tensor, Tensor]:
    length = q_BHLK.shape[2]
    chunk = min(CHUNK, 1 << (length - 1).bit_length())
    # N chunks of C tokens. Behind the end k = s = 0 and w = 1, which leave the state as it is.
    q_BHNCK, k_BHNCK, s_BHNCM = (in_chunks(x, chunk, filling=0.0) for x in (q_BHLK, k_BHLK, s_BHLM))
    total_BHNXM = in_chunks(decay_BHLM, chunk, filling=1.0)  # a block's decays multiplied; X blocks a chunk
    from_start_BHNCM = total_BHNXM  # of the token's block, up to the token

    scores_BHNCC = matmul(q_BHNCK, k_BHNCK.mT)
    y_BHNCM = (q_BHNCK * k_BHNCK).sum(-1, keepdim=True) * s_BHNCM
    block_C = torch.arange(chunk, device=q_BHLK.device)
    while total_BHNXM.shape[3] > 1:
        size = chunk // total_BHNXM.shape[3]  # of a block
        apart_CC = (block_C[:, None] % 2 == 0) | (block_C[:, None] != block_C + 1)
        y_BHNCM = y_BHNCM + from_start_BHNCM * matmul(scores_BHNCC.masked_fill(apart_CC, 0), s_BHNCM)
        first_BHNXM, second_BHNXM = total_BHNXM.unflatten(3, (-1, 2)).unbind(4)
        one_BHNXM = torch.ones_like(first_BHNXM)
        from_start_BHNCM = scaled(from_start_BHNCM, one_BHNXM, first_BHNXM, size)
        s_BHNCM = scaled(s_BHNCM, second_BHNXM, one_BHNXM, size)
        total_BHNXM = first_BHNXM * second_BHNXM
        block_C = block_C // 2

    # By now there is one block a chunk, and s is decayed to its end.
    states = []
    for decay_BH1M, new_BHKM in zip(total_BHNXM.unbind(2), matmul(k_BHNCK.mT, s_BHNCM).unbind(2), strict=True):
        states.append(state_BHKM)
        state_BHKM = torch.addcmul(new_BHKM, decay_BH1M, state_BHKM)
    y_BHNCM = y_BHNCM + from_start_BHNCM * matmul(q_BHNCK, torch.stack(states, 2))
    return y_BHNCM.flatten(2, 3)[:, :, :length], state_BHKM
