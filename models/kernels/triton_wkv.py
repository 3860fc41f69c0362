"""RWKV-4's weighted average through our own Triton kernels (models/kernels/triton/wkv.py), for any number of channels.

What they stand in for is a recurrence of numerator and denominator (models/kernels/triton_diagonal.py) with some ten
arrays in fp32 around it, each as large as all keys.
"""

import torch
from torch import Tensor

from chomsky_ladder.models.block import Context, State
from chomsky_ladder.models.kernels.kernel import Kernel, cuda_module, member, register
from chomsky_ladder.models.kernels.triton_diagonal import LONGEST

_MODULE = f"{__package__}.triton.wkv"


def triton_wkv(
    k_BLD: Tensor, v_BLD: Tensor, rate_D: Tensor, bonus_D: Tensor, state: State
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """`wkv` in fp32 inside through our own Triton kernels, which stack."""
    return member(_MODULE, "triton_wkv")(k_BLD, v_BLD, rate_D, bonus_D, state)


def _takes(k_BLD: Tensor, ctx: Context) -> bool:
    return k_BLD.shape[1] <= LONGEST


register(
    Kernel(
        name="triton_wkv",
        computes="wkv",
        reference="chomsky_ladder.models.rwkv4.wkv",
        call=triton_wkv,
        serves=("rwkv4",),
        dtypes=(torch.float32, torch.bfloat16),
        stacks=True,
        takes=_takes,
        missing=cuda_module(_MODULE),
        rank=43,
    )
)
