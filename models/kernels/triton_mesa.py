"""The mesa layer's systems through our own Triton kernel (models/kernels/triton/mesa.py), for heads of up to 64 keys.

What it stands in for are K + 4 steps of some eight passes each, there and back: 4,033 kernels a step of MesaNet at 40
positions, more than are compiled.
"""

import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.kernel import Kernel, cuda_module, member, register

LARGEST = 64  # keys of a head

_MODULE = f"{__package__}.triton.mesa"


def triton_solved(
    q_BHNCK: Tensor, k_BHNCK: Tensor, share_BHNCC: Tensor, from_start_BHNC1: Tensor, H_BHNKK: Tensor, *, steps: int = 0
) -> Tensor:
    """`solved` by conjugate gradients in fp32 through our own Triton kernel, which stacks."""
    given = (q_BHNCK, k_BHNCK, share_BHNCC, from_start_BHNC1, H_BHNKK)
    return member(_MODULE, "triton_solved")(*given, steps=steps)


def _takes(q_BHLK: Tensor, ctx: Context) -> bool:
    return q_BHLK.shape[-1] <= LARGEST


register(
    Kernel(
        name="triton_mesa",
        computes="mesa_solution",
        reference="chomsky_ladder.models.scans.mesa.solved",
        call=triton_solved,
        serves=("mesa_net",),
        dtypes=(torch.float32,),
        stacks=True,
        takes=_takes,
        missing=cuda_module(_MODULE),
        rank=44,
    )
)
