"""The recurrence of models/scans/diagonal.py through our own Triton kernel (models/kernels/triton/diagonal.py).

What it stands in for are doublings, each of which reads and writes all there is: six of them at 40 positions.
"""

import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.kernel import Kernel, cuda_module, member, register

LONGEST = 2048  # positions; beyond, few rows would leave a GPU waiting for one position after the other

_MODULE = f"{__package__}.triton.diagonal"


def triton_diagonal(a_BLD: Tensor, u_BLD: Tensor, h_BD: Tensor) -> tuple[Tensor, Tensor]:
    """`scan_loop` in fp32 through our own Triton kernel, which stacks."""
    return member(_MODULE, "triton_diagonal")(a_BLD, u_BLD, h_BD)


def _takes(u_BLD: Tensor, ctx: Context) -> bool:
    return u_BLD.shape[-2] <= LONGEST


register(
    Kernel(
        name="triton_diagonal",
        computes="diagonal_loop",
        reference="chomsky_ladder.models.scans.diagonal.scan_loop",
        call=triton_diagonal,
        serves=("min_gru", "min_lstm", "hgrn", "rwkv4"),
        dtypes=(torch.float32, torch.bfloat16),
        stacks=True,
        takes=_takes,
        missing=cuda_module(_MODULE),
        rank=37,
    )
)
