"""`slstm_scan` through our own Triton kernel (models/kernels/triton/slstm.py)."""

import torch
from torch import Tensor

from chomsky_ladder.models.kernels.kernel import Kernel, cuda_module, member, register
from chomsky_ladder.models.scans.slstm import Carried, Read, Weights

_MODULE = f"{__package__}.triton.slstm"


def triton_slstm_scan(read: Read, state: Carried, weights: Weights) -> tuple[Tensor, Carried]:
    """`slstm_scan` through our own Triton kernel, which stacks."""
    return member(_MODULE, "triton_slstm_scan")(read, state, weights)


register(
    Kernel(
        name="triton_slstm",
        computes="slstm_scan",
        reference="chomsky_ladder.models.scans.slstm.slstm_scan",
        call=triton_slstm_scan,
        serves=("xlstm",),
        dtypes=(torch.float32, torch.bfloat16),
        stacks=True,
        takes=lambda x_BLHJ, ctx: x_BLHJ.shape[-1] <= 256,
        missing=cuda_module(_MODULE),
        rank=32,
    )
)
