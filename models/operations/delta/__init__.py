"""The delta rule with any decay: every recurrence whose state [K, V] outer products are added to and taken out of.

    y_BHLV, state_BHKV = by_gated_delta_rule(q_BHLK, k_BHMK, v_BHMV, beta_BHM, log_decay_BHL, state_BHKV, ctx)

Models call the rules of rules.py, each with chunks of its own where no kernel takes their tensors. The kernels compute
`delta_loop`, the equation of reference.py, or in C `unit_delta_loop`, whose queries and keys have any length.

In C a loop takes token after token: no chunk, no triangular system. At the widths of heads a state stays in the first
cache, so a token costs less than the products of a chunk with itself. Measured for B = 64, H = 4, L = 40, K = V = 16,
forward and backward on one thread: 4.3 ms, where chunks of the delta rule take 13, of the generalised one 19 and of the
decayed one 21; linear attention with decays takes 4.1 in place of 27. In Triton the loop takes the place of chunks,
each a few products and a triangular system that write what lies between. Heads of more than 64 keys are left to chunks:
their products are what a library does best on a CPU, and on a GPU a state no longer stays in the registers of few
warps.
"""

import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.operations.delta import in_c
from chomsky_ladder.models.operations.delta.reference import delta_loop as plain
from chomsky_ladder.models.operations.delta.reference import unit_delta_loop as plain_unit
from chomsky_ladder.models.operations.operation import Operation

LARGEST = 64  # keys of a head in Triton
UNIT = ("delta_net", "gated_delta_net", "gated_delta_product", "kda", "gated_delta_net2", "comba")
OTHERS = (
    *("preconditioned_delta_net", "rwkv7", "gla", "hgrn2", "gated_slot_attention"),
    *("rwkv5", "rwkv6", "xlstm", "xlstm_large"),
)


def _query(query_BHLK: Tensor, *others: object, **options: object) -> Tensor:
    return query_BHLK


def _takes(r_BHLK: Tensor, ctx: Context) -> bool:
    return r_BHLK.shape[-1] <= LARGEST


delta_loop = Operation(plain, serves=(*UNIT, *OTHERS), shown=_query)
delta_loop.in_c(in_c.native_delta, name="native_delta", rank=24, takes=in_c.takes)
delta_loop.in_triton(
    f"{__name__}.gpu", name="triton_delta", rank=33, takes=_takes, dtypes=(torch.float32, torch.bfloat16)
)

unit_delta_loop = Operation(plain_unit, serves=UNIT, shown=_query, inside=("delta_loop",))
unit_delta_loop.in_c(in_c.native_unit_delta, name="native_unit_delta", rank=24, takes=in_c.takes)
