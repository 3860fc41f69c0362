"""The mesa layer through our own Triton kernels (models/kernels/triton/mesa.py), for heads of up to 64 keys and values.

What they stand in for are K + 4 steps of some eight passes each, there and back: 4,033 kernels a step of MesaNet at 40
positions, more than are compiled.
"""

import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.kernel import Kernel, cuda_module, member, register
from chomsky_ladder.models.scans.mesa import Held

LARGEST = 64  # keys of a head

_MODULE = f"{__package__}.triton.mesa"


def triton_mesa(
    q_BHLK: Tensor,
    k_BHLK: Tensor,
    v_BHLV: Tensor,
    beta_BHL: Tensor,
    log_decay_BHL: Tensor,
    state: Held,
    *,
    steps: int = 0,
) -> tuple[Tensor, Held]:
    """`mesa` by conjugate gradients in fp32 through our own Triton kernels, which stack."""
    given = (q_BHLK, k_BHLK, v_BHLV, beta_BHL, log_decay_BHL, state)
    return member(_MODULE, "triton_mesa")(*given, steps=steps)


def _takes(q_BHLK: Tensor, ctx: Context) -> bool:
    return q_BHLK.shape[-1] <= LARGEST


register(
    Kernel(
        name="triton_mesa",
        computes="mesa_by_steps",
        reference="chomsky_ladder.models.scans.mesa.mesa",
        call=triton_mesa,
        serves=("mesa_net",),
        dtypes=(torch.float32,),
        stacks=True,
        takes=_takes,
        missing=cuda_module(_MODULE),
        rank=44,
    )
)
