"""`decayed_pairs` through our own Triton kernels (models/kernels/triton/decayed.py), for strings of up to 64 tokens.

What they stand in for are products in fp32 around all pairs of tokens, each written and read again.
"""

import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.kernel import Kernel, cuda_module, member, register

LONGEST = 64  # tokens

_MODULE = f"{__package__}.triton.decayed"


def triton_decayed(q_BHLK: Tensor, k_BHLK: Tensor, v_BHLV: Tensor, log_decay_BHL: Tensor) -> Tensor:
    """`decayed_pairs` through our own Triton kernels, which stack."""
    return member(_MODULE, "triton_decayed")(q_BHLK, k_BHLK, v_BHLV, log_decay_BHL)


def _takes(x_BLD: Tensor, ctx: Context) -> bool:
    return x_BLD.shape[1] <= LONGEST


register(
    Kernel(
        name="triton_decayed",
        computes="decayed_pairs",
        reference="chomsky_ladder.models.scans.chunked.decayed_pairs",
        call=triton_decayed,
        serves=("retention",),
        dtypes=(torch.float32, torch.bfloat16),
        stacks=True,
        takes=_takes,
        missing=cuda_module(_MODULE),
        rank=45,
    )
)
