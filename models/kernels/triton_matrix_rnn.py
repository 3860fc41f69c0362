"""M2RNN's recurrence through our own Triton kernels (models/kernels/triton/matrix_rnn.py), for heads of up to 32.

What they stand in for is a loop of some eight passes a token each way: 2,414 kernels a step at 40 positions, more than
are compiled.
"""

import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.kernel import Kernel, cuda_module, member, register

LARGEST = 32  # keys or values of a head; of 64 registers spill

_MODULE = f"{__package__}.triton.matrix_rnn"


def triton_matrix_rnn(*given: Tensor) -> tuple[Tensor, Tensor]:
    """`matrix_rnn_loop` in fp32 through our own Triton kernels, which stack."""
    return member(_MODULE, "triton_matrix_rnn")(*given)


def _takes(h_BHKV: Tensor, ctx: Context) -> bool:
    return max(h_BHKV.shape[-2:]) <= LARGEST


register(
    Kernel(
        name="triton_matrix_rnn",
        computes="matrix_rnn_scan",
        reference="chomsky_ladder.models.scans.matrix_rnn.matrix_rnn_scan",
        call=triton_matrix_rnn,
        serves=("m2rnn",),
        dtypes=(torch.float32,),
        stacks=True,
        takes=_takes,
        missing=cuda_module(_MODULE),
        rank=40,
    )
)
