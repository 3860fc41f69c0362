"""`momentum_delta_rule` through our own Triton kernel (models/kernels/triton/momentum.py), for heads of up to 64 keys.

What it stands in for are chunks, each of a few products and a triangular system, which write what lies between.
"""

from torch import Tensor, float32

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.kernel import Kernel, cuda_module, member, register
from chomsky_ladder.models.scans.momentum_delta import Held

LARGEST = 64  # keys of a head

_MODULE = f"{__package__}.triton.momentum"


def triton_momentum(
    q_BHLK: Tensor,
    k_BHLK: Tensor,
    v_BHLV: Tensor,
    rate_BHL: Tensor,
    log_decay_BHL: Tensor,
    log_momentum_BHL: Tensor,
    state: Held,
) -> tuple[Tensor, Held]:
    """`momentum_delta_rule` in fp32 inside through our own Triton kernel, which stacks."""
    given = (q_BHLK, k_BHLK, v_BHLV, rate_BHL, log_decay_BHL, log_momentum_BHL)
    return member(_MODULE, "triton_momentum")(*given, state)


def _takes(M_BHKV: Tensor, ctx: Context) -> bool:
    return M_BHKV.shape[-2] <= LARGEST


register(
    Kernel(
        name="triton_momentum",
        computes="momentum_delta_rule",
        reference="chomsky_ladder.models.scans.momentum_delta.momentum_delta_rule",
        call=triton_momentum,
        serves=("titans",),
        dtypes=(float32,),
        stacks=True,
        takes=_takes,
        missing=cuda_module(_MODULE),
        rank=48,
    )
)
