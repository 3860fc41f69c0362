"""`scan_loop` through our own Triton kernel (models/kernels/triton/scan.py), for any number of channels."""

import torch
from torch import Tensor

from chomsky_ladder.models.kernels.kernel import Kernel, cuda_module, member, register

_MODULE = f"{__package__}.triton.scan"


def triton_selective_scan(
    u_BLE: Tensor, dt_BLE: Tensor, A_NE: Tensor, B_BLN: Tensor, C_BLN: Tensor, h_BNE: Tensor, signed: bool
) -> tuple[Tensor, Tensor]:
    """`scan_loop` in fp32 through our own Triton kernel, which stacks."""
    scan = member(_MODULE, "triton_selective_scan")
    return scan(u_BLE, dt_BLE, A_NE, B_BLN, C_BLN, h_BNE, signed)


register(
    Kernel(
        name="triton_scan",
        computes="scan_loop",
        reference="chomsky_ladder.models.scans.selective.scan_loop",
        call=triton_selective_scan,
        serves=("mamba",),
        dtypes=(torch.float32, torch.bfloat16),
        stacks=True,
        missing=cuda_module(_MODULE),
        rank=34,
    )
)
