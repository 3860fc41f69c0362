"""`mlstm_heads` through our own Triton kernels (models/kernels/triton/mlstm.py), for strings of up to 64 tokens.

What they stand in for are the maps to q, k and v and the products with what is of pairs of tokens between them, written
and read again in fp32: more than half of what a step of xLSTM[1:0] moves. Longer strings go token by token
(models/kernels/triton_delta.py).
"""

import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.kernel import Kernel, cuda_module, member, register
from chomsky_ladder.models.scans.mlstm import SHORT

_MODULE = f"{__package__}.triton.mlstm"


def triton_mlstm(*given: Tensor) -> Tensor:
    """`mlstm_heads` through our own Triton kernels, which stack."""
    return member(_MODULE, "triton_mlstm")(*given)


def _takes(x_BLD: Tensor, ctx: Context) -> bool:
    return x_BLD.shape[1] <= SHORT


register(
    Kernel(
        name="triton_mlstm",
        computes="mlstm_heads",
        reference="chomsky_ladder.models.scans.mlstm.mlstm_heads",
        call=triton_mlstm,
        serves=("xlstm",),
        dtypes=(torch.float32, torch.bfloat16),
        stacks=True,
        takes=_takes,
        missing=cuda_module(_MODULE),
        rank=41,
    )
)
