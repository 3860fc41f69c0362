"""The recurrence of models/scans/block_steps.py through our own Triton kernel (models/kernels/triton/block_steps.py).

What it stands in for takes log2(L) levels, each of which writes down transitions, half as many as the one before.
"""

import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.kernel import Kernel, cuda_module, member, register

LONGEST = 2048  # positions; beyond, few rows would leave a GPU waiting for one position after the other
LARGEST = 16  # rows of a block; of more no program holds one

_MODULE = f"{__package__}.triton.block_steps"


def triton_block_steps(c_BLX: Tensor, b_BLX: Tensor, h_BHK: Tensor, *, steps: int) -> tuple[Tensor, Tensor]:
    """`block_steps` in fp32 through our own Triton kernel, which stacks."""
    return member(_MODULE, "triton_block_steps")(c_BLX, b_BLX, h_BHK, steps=steps)


def _takes(c_BLHKK: Tensor, ctx: Context) -> bool:
    return c_BLHKK.shape[1] <= LONGEST and c_BLHKK.shape[-1] <= LARGEST


register(
    Kernel(
        name="triton_block_steps",
        computes="block_steps",
        reference="chomsky_ladder.models.scans.block_steps.block_steps",
        call=triton_block_steps,
        serves=("slice",),
        dtypes=(torch.float32, torch.bfloat16),
        stacks=True,
        takes=_takes,
        missing=cuda_module(_MODULE),
        rank=46,
    )
)
