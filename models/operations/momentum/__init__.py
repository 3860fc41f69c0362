"""The delta rule with momentum: e_t = k_t M_{t-1} - v_t, S_t = h_t S_{t-1} - r_t k_t^T e_t, M_t = a_t M_{t-1} + S_t.

    y_BHLV, (M_BHKV, S_BHKV) = momentum(ctx, q_BHLK, k_BHLK, v_BHLV, rate_BHL, log_decay_BHL, log_momentum_BHL, state)

Measured in C for B = 64, H = 4, L = 40, forward and backward on one thread: 4 ms where K = V = 16 and the plain form
takes 29; 55 ms where K = V = 64 and it takes 85.
"""

import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.operations.in_c import Loops
from chomsky_ladder.models.operations.momentum.reference import Held, momentum_delta_rule
from chomsky_ladder.models.operations.operation import Operation

_LOOPS = Loops(
    "momentum",
    "q k: B L H K, v y: B L H V, r a h: B L H, first last: B H 2 K V",
    forward="q k v r a h first -> y last",
    backward="q k v r a h first d_y -> d_q d_k d_v d_r d_a d_h d_first=d_last",
    sizes="B L H K V",
)
LARGEST = 64  # keys of a head, in Triton


def _in_c(
    q_BHLK: Tensor,
    k_BHLK: Tensor,
    v_BHLV: Tensor,
    rate_BHL: Tensor,
    log_decay_BHL: Tensor,
    log_momentum_BHL: Tensor,
    state: Held,
) -> tuple[Tensor, Held]:
    """C version of `momentum_delta_rule`. M and S lie one behind the other."""
    dtype = state[0].dtype
    gates = (rate_BHL, torch.exp(log_decay_BHL.to(dtype)), torch.exp(log_momentum_BHL.to(dtype)))
    given = (x.to(dtype).transpose(1, 2) for x in (q_BHLK, k_BHLK, v_BHLV, *gates))
    y_BLHV, last_BH2KV = _LOOPS(*given, torch.stack(state, 2))
    M_BHKV, S_BHKV = last_BH2KV.unbind(2)
    return y_BLHV.transpose(1, 2), (M_BHKV, S_BHKV)


def _takes(M_BHKV: Tensor, ctx: Context) -> bool:
    return M_BHKV.shape[-2] <= LARGEST


momentum = Operation(
    momentum_delta_rule, serves=("titans", "momentum_deltanet"), shown=lambda q, k, v, r, a, h, state: state[0]
)
momentum.in_c(_in_c, name="native_momentum", rank=12)
momentum.in_triton(f"{__name__}.gpu", name="triton_momentum", rank=48, takes=_takes)
