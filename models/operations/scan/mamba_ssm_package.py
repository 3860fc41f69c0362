"""The selective scan of the authors of Mamba, in CUDA. By name alone: ours stacks, and scores as it trains."""

from torch import Tensor

from chomsky_ladder.models.kernels.kernel import member

MODULE = "mamba_ssm.ops.selective_scan_interface"


def mamba_scan(x_BLE: Tensor, dt_BLE: Tensor, A_EN: Tensor, B_BLN: Tensor, C_BLN: Tensor, D_E: Tensor) -> Tensor:
    """`selective_scan` from zeros, with positive eigenvalues, through mamba-ssm's CUDA kernel.

    All in the precision of dt, which comes in fp32 with care: the kernel wants one for all.
    """
    scan = member(MODULE, "selective_scan_fn")
    x_BEL, dt_BEL, B_BNL, C_BNL = (
        z.mT.contiguous() for z in (z.to(dt_BLE.dtype) for z in (x_BLE, dt_BLE, B_BLN, C_BLN))
    )
    return scan(x_BEL, dt_BEL, A_EN.float(), B_BNL, C_BNL, D_E.float()).mT
