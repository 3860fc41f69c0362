"""The forms by hand in plain torch of models/scans/, which need nothing and stack: taken where there is nothing faster.

They count as kernels since they compute in another order, or keep other tensors, than what they stand for.
"""

import functools

from chomsky_ladder.models.kernels.kernel import Kernel, register
from chomsky_ladder.models.scans.mlstm import SHORT
from chomsky_ladder.models.scans.mlstm_rows import PLAIN, mlstm_rows
from chomsky_ladder.models.scans.slstm import fused_slstm_scan

register(
    Kernel(
        name="fused_mlstm",
        computes="mlstm_rows",
        reference="chomsky_ladder.models.xlstm.MLSTM",
        call=functools.partial(mlstm_rows, form=PLAIN),
        serves=("xlstm",),
        device="cpu",
        stacks=True,
        takes=lambda x_BLD, ctx: x_BLD.shape[1] <= SHORT,
        when="always",
        rank=5,
    )
)
register(
    Kernel(
        name="fused_slstm",
        computes="slstm_scan",
        reference="chomsky_ladder.models.scans.slstm.slstm_scan",
        call=fused_slstm_scan,
        serves=("xlstm",),
        device="any",
        stacks=True,
        when="always",
        rank=6,
    )
)
