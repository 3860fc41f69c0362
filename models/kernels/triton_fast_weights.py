"""`fast_weights_from` through our own Triton kernel (models/kernels/triton/fast_weights.py), for small mini-batches.

What it stands in for are mini-batches one after the other, each of dozens of kernels that read and write the weights.
"""

from torch import Tensor, float32

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.kernel import Kernel, cuda_module, member, register
from chomsky_ladder.models.scans.fast_weights import Norm

LEAST = 16  # of tokens or keys as products have them: filled up to a power of two
MOST = 1024  # of both together, as in 16 tokens of 64 keys; of more, registers would spill

_MODULE = f"{__package__}.triton.fast_weights"


def triton_fast_weights(
    q_BHLK: Tensor, k_BHLK: Tensor, v_BHLK: Tensor, rate_BHL: Tensor, place_rate_C: Tensor, norm: Norm, M_BHXK: Tensor
) -> Tensor:
    """`fast_weights_from` in fp32 inside through our own Triton kernel, which stacks."""
    given = (q_BHLK, k_BHLK, v_BHLK, rate_BHL, place_rate_C, norm, M_BHXK)
    return member(_MODULE, "triton_fast_weights")(*given)


def _takes(M_BHCXK: Tensor, ctx: Context) -> bool:
    return _filled_up(M_BHCXK.shape[2]) * _filled_up(M_BHCXK.shape[4]) <= MOST


def _filled_up(size: int) -> int:
    return max(LEAST, 1 << (size - 1).bit_length())


register(
    Kernel(
        name="triton_fast_weights",
        computes="fast_weights_from",
        reference="chomsky_ladder.models.scans.fast_weights.fast_weights_from",
        call=triton_fast_weights,
        serves=("ttt_linear",),
        dtypes=(float32,),
        stacks=True,
        takes=_takes,
        missing=cuda_module(_MODULE),
        rank=49,
    )
)
