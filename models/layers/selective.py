"""The selective scan of Mamba-1 by the fastest form there is for its tensors."""

import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.choose import chosen
from chomsky_ladder.models.scans.selective import scan_loop


def selective_scan(
    x_BLE: Tensor,
    dt_BLE: Tensor,
    A_EN: Tensor,
    B_BLN: Tensor,
    C_BLN: Tensor,
    D_E: Tensor,
    h_BNE: Tensor | None,
    *,
    signed: bool,
    ctx: Context,
) -> tuple[Tensor, Tensor]:
    """All y [B, L, E] and the last state, in the precision of `dt_BLE`, from a state (None: zeros).

    A kernel for `selective_scan`, of the signature (x_BLE, dt_BLE, A_EN, B_BLN, C_BLN, D_E) -> y_BLE, stands for what
    this does from zeros with positive eigenvalues, one for `scan_loop` for the recurrence alone.
    """
    with torch.autocast(x_BLE.device.type, enabled=False):  # its products are a state's, not a layer's
        if h_BNE is None:
            h_BNE = torch.zeros_like(dt_BLE[:, :1]).expand(-1, A_EN.shape[1], -1)
        x_BLE, A_EN, B_BLN, C_BLN, h_BNE = (z.to(dt_BLE.dtype) for z in (x_BLE, A_EN, B_BLN, C_BLN, h_BNE))
        kernel = chosen("scan_loop", dt_BLE, ctx)
        scan = kernel.call if kernel else scan_loop
        y_BLE, h_BNE = scan(dt_BLE * x_BLE, dt_BLE, A_EN.mT, B_BLN, C_BLN, h_BNE, signed)
        return y_BLE + D_E * x_BLE, h_BNE  # pyright: ignore[reportReturnType]
