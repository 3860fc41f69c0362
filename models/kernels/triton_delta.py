"""`delta_loop` through our own Triton kernel (models/kernels/triton/delta.py), for heads of up to 64 keys.

What it stands in for are chunks, each of a few products and a triangular system, which write what lies between. Heads
with more keys are left to those: a state no longer stays in the registers of few warps.
"""

from typing import Any

import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.kernel import Kernel, cuda_module, member, register

LARGEST = 64  # keys of a head

_MODULE = f"{__package__}.triton.delta"


def triton_delta(*given: Any, reads_before: bool = False) -> tuple[Tensor, Tensor]:
    """`delta_loop` in fp32 inside through our own Triton kernel, which stacks."""
    return member(_MODULE, "triton_delta")(*given, reads_before=reads_before)


def _takes(r_BHLK: Tensor, ctx: Context) -> bool:
    return r_BHLK.shape[-1] <= LARGEST


register(
    Kernel(
        name="triton_delta",
        computes="delta_loop",
        reference="chomsky_ladder.models.scans.generalised_delta.delta_loop",
        call=triton_delta,
        serves=(
            *("delta_net", "gated_delta_net", "gated_delta_product", "kda", "gated_delta_net2", "comba", "rwkv7"),
            *("gla", "hgrn2", "gated_slot_attention", "rwkv5", "rwkv6", "xlstm", "xlstm_large"),
        ),
        dtypes=(torch.float32, torch.bfloat16),
        stacks=True,
        takes=_takes,
        missing=cuda_module(_MODULE),
        rank=33,
    )
)
