"""The recurrence of PD-SSM through our own Triton kernels (models/kernels/triton/one_hot.py).

What they stand in for writes every token's map, N x N numbers, and reads it for its largest; again for its softmax, and
with its gradient, on the way back: at the climb's size four fifths of a step's traffic. States are one more kernel each
way, not log2 L rounds of several.
"""

import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.kernel import Kernel, cuda_module, member, register
from chomsky_ladder.models.scans.one_hot import Form

LARGEST = 256  # places; of more a comparison of all with all is no longer held in a program's registers

_MODULE = f"{__package__}.triton.one_hot"


def triton_one_hot(
    share_BLK: Tensor, maps_KNN: Tensor, d_BLN2: Tensor, b_BLN2: Tensor, h_BN2: Tensor, form: Form
) -> Tensor:
    """`one_hot_loop` in fp32 through our own Triton kernels, which stack."""
    return member(_MODULE, "triton_one_hot")(share_BLK, maps_KNN, d_BLN2, b_BLN2, h_BN2, form)


def _takes(d_BLN2: Tensor, ctx: Context) -> bool:
    return d_BLN2.shape[-2] <= LARGEST


register(
    Kernel(
        name="triton_one_hot",
        computes="one_hot_loop",
        reference="chomsky_ladder.models.scans.one_hot.one_hot_loop",
        call=triton_one_hot,
        serves=("pd_ssm",),
        dtypes=(torch.float32,),
        stacks=True,
        takes=_takes,
        missing=cuda_module(_MODULE),
        rank=38,
    )
)
