"""The sLSTM's recurrence: all steps of exponential gates with memory mixing inside each head.

    h_BLHK, (h_BHK, y_BHK, a_BHK) = slstm_scan(ctx, read, state, weights)

`read` is what the gates read, [B, L, H, J]: one tensor, or one for i and f and another for z and o. All kernels are by
hand: each makes W x of all steps in one product around its loop, and W, R and x get their gradients by products behind
it, which no declaration of loops has.
"""

import torch
from torch import Tensor

from chomsky_ladder.models.operations.operation import Operation
from chomsky_ladder.models.operations.slstm import xlstm_package
from chomsky_ladder.models.operations.slstm.in_c import native_slstm_scan
from chomsky_ladder.models.operations.slstm.reference import Carried, Read, Weights, fused_slstm_scan
from chomsky_ladder.models.operations.slstm.reference import slstm_scan as plain

LARGEST = 256  # channels of a head in Triton


def _shown(read: Read, state: Carried, weights: Weights) -> Tensor:
    return read[0]


slstm_scan = Operation(plain, serves=("xlstm",), shown=_shown)
slstm_scan.register(fused_slstm_scan, name="fused_slstm", rank=6, device="any", when="always")
slstm_scan.in_c(native_slstm_scan, name="native_slstm", rank=23)
slstm_scan.in_triton(
    f"{__name__}.gpu",
    "triton_slstm_scan",
    name="triton_slstm",
    rank=32,
    dtypes=(torch.float32, torch.bfloat16),
    takes=lambda x_BLHJ, ctx: x_BLHJ.shape[-1] <= LARGEST,
)
slstm_scan.register(
    xlstm_package.xlstm_slstm_scan,
    name="xlstm_slstm",
    rank=33,
    device="cuda",
    stacks=False,
    when="named",
    missing=xlstm_package.missing,
)
