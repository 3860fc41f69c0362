"""`momentum_delta_rule` (models/scans/momentum_delta.py) on a CPU in C: what a token changes stays in the cache.

Measured for B = 64, H = 4, L = 40, K = V = 16, forward and backward on one thread: 4 ms, where chunks take 29;
K = V = 64 takes 55 for 85.
"""

import torch
from torch import Tensor

from chomsky_ladder.models.kernels.kernel import Kernel, register
from chomsky_ladder.models.kernels.native import REAL, missing, untraced
from chomsky_ladder.models.kernels.native_states import OverStates
from chomsky_ladder.models.scans.momentum_delta import Held


def native_momentum(
    q_BHLK: Tensor,
    k_BHLK: Tensor,
    v_BHLV: Tensor,
    rate_BHL: Tensor,
    log_decay_BHL: Tensor,
    log_momentum_BHL: Tensor,
    state: Held,
) -> tuple[Tensor, Held]:
    """As `momentum_delta_rule`; it stacks under vmap."""
    dtype = state[0].dtype
    gates = (rate_BHL, torch.exp(log_decay_BHL.to(dtype)), torch.exp(log_momentum_BHL.to(dtype)))
    given = (x.to(dtype).transpose(1, 2) for x in (q_BHLK, k_BHLK, v_BHLV, *gates))
    y_BLHV, last_BH2KV = OverStates.apply("momentum", *given, torch.stack(state, 2))
    M_BHKV, S_BHKV = last_BH2KV.unbind(2)
    return y_BLHV.transpose(1, 2), (M_BHKV, S_BHKV)


register(
    Kernel(
        name="native_momentum",
        computes="momentum_delta_rule",
        reference="chomsky_ladder.models.scans.momentum_delta.momentum_delta_rule",
        call=native_momentum,
        serves=("titans",),
        device="cpu",
        dtypes=tuple(REAL),
        stacks=True,
        takes=untraced,
        missing=missing,
        rank=12,
    )
)
