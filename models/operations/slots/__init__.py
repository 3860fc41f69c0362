"""Linear attention that writes into slots with a decay each: y_t = q_t S_t with S_t = S_{t-1} diag(w_t) + k_t s_t^T.

    y_BHLM, last_BHKM = slots(ctx, q_BHLK, k_BHLK, s_BHLM, decay_BHLM, state_BHKM)

Measured in C for B = 64, H = 4, L = 40, forward and backward on one thread: 2.9 ms where K = M = 16 and the plain form
takes 24; 33 ms where K = M = 64 and it takes 106. In Triton slots may be any number, as programs have tiles of them.
"""

import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.operations.in_c import Loops
from chomsky_ladder.models.operations.operation import Operation
from chomsky_ladder.models.operations.slots.reference import decayed_slots

_LOOPS = Loops(
    "slots",
    "q k: B L H K, s decay y: B L H M, first last: B H K M",
    forward="q k s decay first -> y last",
    backward="q k s decay first d_y -> d_q d_k d_s d_decay d_first=d_last",
    sizes="B L H K M",
)
LONGEST = 2048  # tokens; of more a GPU with few rows would wait for one token after the other
LARGEST = 128  # keys of a head, which a state in the registers of a warp may have


def _in_c(
    q_BHLK: Tensor, k_BHLK: Tensor, s_BHLM: Tensor, decay_BHLM: Tensor, state_BHKM: Tensor
) -> tuple[Tensor, Tensor]:
    """C version of `decayed_slots`."""
    given = (x.to(state_BHKM.dtype).transpose(1, 2) for x in (q_BHLK, k_BHLK, s_BHLM, decay_BHLM))
    y_BLHM, last_BHKM = _LOOPS(*given, state_BHKM)
    return y_BLHM.transpose(1, 2), last_BHKM


def _takes(q_BHLK: Tensor, ctx: Context) -> bool:
    """Leave a single token to the plain form: a step of decoding is a few products."""
    return 1 < q_BHLK.shape[2] <= LONGEST and q_BHLK.shape[3] <= LARGEST


slots = Operation(
    decayed_slots, serves=("gated_slot_attention",), shown=lambda q, k, s, decay, state: q.to(state.dtype)
)
slots.in_c(_in_c, name="native_slots", rank=13)
slots.in_triton(f"{__name__}.gpu", name="triton_slots", rank=47, takes=_takes, dtypes=(torch.float32, torch.bfloat16))
