"""The selective scan of Mamba-1 by the fastest form there is for its tensors."""

from collections.abc import Callable

import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels import calls as _kernel_calls
from chomsky_ladder.models.kernels import kernel as _kernels
from chomsky_ladder.models.kernels.native_scan import native_selective_scan
from chomsky_ladder.models.scans.selective import scan_chunks, scan_loop


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

    A fused kernel of the signature (x_BLE, dt_BLE, A_EN, B_BLN, C_BLN, D_E) -> y_BLE stands for what this does from
    zeros with positive eigenvalues.
    """
    with torch.autocast(x_BLE.device.type, enabled=False):  # its products are a state's, not a layer's
        if h_BNE is None:
            h_BNE = torch.zeros_like(dt_BLE[:, :1]).expand(-1, A_EN.shape[1], -1)
        x_BLE, A_EN, B_BLN, C_BLN, h_BNE = (z.to(dt_BLE.dtype) for z in (x_BLE, A_EN, B_BLN, C_BLN, h_BNE))
        y_BLE, h_BNE = _scan_for(dt_BLE, ctx)(dt_BLE * x_BLE, dt_BLE, A_EN.mT, B_BLN, C_BLN, h_BNE, signed)
        return y_BLE + D_E * x_BLE, h_BNE


def _scan_for(dt_BLE: Tensor, ctx: Context) -> Callable[..., tuple[Tensor, Tensor]]:
    """The fastest form there is for these tensors."""
    if ctx.backend == "reference":
        return scan_loop
    if _kernels.usable("triton_scan", dt_BLE[..., :1], ctx):  # any number of channels
        ctx.backends.add("triton_scan")
        return _kernel_calls.fused_selective_scan
    if _kernels.usable("native_scan", dt_BLE, ctx):
        ctx.backends.add("native_scan")
        return native_selective_scan
    ctx.backends.add("fused_scan")
    return scan_chunks
