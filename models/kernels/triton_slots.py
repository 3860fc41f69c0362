"""`decayed_slots` through our own Triton kernel (models/kernels/triton/slots.py), for heads of up to 128 keys.

What it stands in for are chunks, of which each doubling of blocks writes all that is decayed and what was summed. Slots
may be any number, as programs have tiles of them; of more keys a state no longer stays in the registers of a warp.
"""

import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.kernel import Kernel, cuda_module, member, register

LONGEST = 2048  # tokens; beyond, few rows would leave a GPU waiting for one token after the other
LARGEST = 128  # keys of a head

_MODULE = f"{__package__}.triton.slots"


def triton_slots(
    q_BHLK: Tensor, k_BHLK: Tensor, s_BHLM: Tensor, decay_BHLM: Tensor, state_BHKM: Tensor
) -> tuple[Tensor, Tensor]:
    """`decayed_slots` in fp32 inside through our own Triton kernel, which stacks."""
    return member(_MODULE, "triton_slots")(q_BHLK, k_BHLK, s_BHLM, decay_BHLM, state_BHKM)


def _takes(q_BHLK: Tensor, ctx: Context) -> bool:
    """A single token is left to the plain form: a step of decoding is a few products."""
    return 1 < q_BHLK.shape[2] <= LONGEST and q_BHLK.shape[3] <= LARGEST


register(
    Kernel(
        name="triton_slots",
        computes="decayed_slots",
        reference="chomsky_ladder.models.scans.slots.decayed_slots",
        call=triton_slots,
        serves=("gated_slot_attention",),
        dtypes=(torch.float32, torch.bfloat16),
        stacks=True,
        takes=_takes,
        missing=cuda_module(_MODULE),
        rank=47,
    )
)
