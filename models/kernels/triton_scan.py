"""`gated_scan` through our own Triton kernel (models/kernels/triton/scan.py), for any number of channels.

Softplus and gate are in it because memory is what binds: each, on its own, would read and write arrays as large as the
scan's own, in fp32.
"""

from typing import Any

import torch
from torch import Tensor

from chomsky_ladder.models.kernels.kernel import Kernel, cuda_module, member, register

_MODULE = f"{__package__}.triton.scan"


def triton_gated_scan(*given: Any) -> tuple[Tensor, Tensor]:
    """`gated_scan` in fp32 through our own Triton kernel, which stacks."""
    return member(_MODULE, "triton_gated_scan")(*given)


register(
    Kernel(
        name="triton_scan",
        computes="gated_scan",
        reference="chomsky_ladder.models.scans.selective.gated_scan",
        call=triton_gated_scan,
        serves=("mamba",),
        dtypes=(torch.float32, torch.bfloat16),
        stacks=True,
        missing=cuda_module(_MODULE),
        rank=34,
    )
)
