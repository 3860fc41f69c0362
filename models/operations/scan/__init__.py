"""Mamba's selective scan with all that lies between its projections: softplus, the scan with its skip, and the gate.

    y_BLE, h_BNE = mamba_scan(ctx, v_BLE, dt_BLE, bias_E, A_log_EN, B_BLN, C_BLN, D_E, z_BLE, h_BNE, signed=False)

These are three operations, each inside the one before: `gated` is all of it, in C and Triton; `selective_scan` the scan
with its skip, which packages have; `scan_loop` the recurrence. In C four states of sixteen channels stay in registers,
and the backward pass finds all states again, from one of every CHUNK. In Triton softplus and gate are in the kernel
since memory is what binds: each on its own would read and write arrays as large as the scan's, in fp32.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.kernel import cuda_module
from chomsky_ladder.models.operations.in_c import Loops
from chomsky_ladder.models.operations.operation import Operation
from chomsky_ladder.models.operations.scan import mamba_ssm_package
from chomsky_ladder.models.operations.scan.reference import at_least_fp32, gated_scan, scan_chunks
from chomsky_ladder.models.operations.scan.reference import scan_loop as plain_loop

CHUNK = 32
LOG2_E = math.log2(math.e)

_LOOPS = Loops(
    "scan",
    "v dt z y: R B L E, bias D: R E, A: R N E, B C: R B L N, first last: R B N E, starts: R B K N E",
    forward="v dt bias A B C D z first -> y last starts",
    backward="v dt bias A B C D z starts d_y -> d_first=d_last d_v d_dt +d_bias +d_A d_B d_C +d_D d_z",
    sizes="R B L N E chunk signed row_z row_B row_C",
    settings="signed",
    derived=lambda sizes: {"chunk": CHUNK, "K": -(-sizes["L"] // CHUNK)},
    rows={"z": 1, "B": 1, "C": 1},
    scaled={"A": LOG2_E},
)


def _in_c(
    v_BLE: Tensor,
    dt_BLE: Tensor,
    bias_E: Tensor,
    A_NE: Tensor,
    B_BLN: Tensor,
    C_BLN: Tensor,
    D_E: Tensor,
    z_BLE: Tensor,
    h_BNE: Tensor,
    signed: bool,
) -> tuple[Tensor, Tensor]:
    """C version of `gated_scan`, in the precision of v. Each replica has weights of its own."""
    given = (v_BLE, dt_BLE, bias_E, A_NE, B_BLN, C_BLN, D_E, z_BLE, h_BNE)
    y_1BLE, h_1BNE = _LOOPS(*(x.to(v_BLE.dtype)[None] for x in given), int(signed))
    return y_1BLE.squeeze(0), h_1BNE.squeeze(0)


SERVES = ("mamba", "fp_mamba")
gated = Operation(gated_scan, serves=SERVES, shown=lambda v, *others: v, inside=("scan_loop", "selective_scan"))
gated.in_c(_in_c, name="native_scan", rank=20)
gated.in_triton(
    f"{__name__}.gpu", "triton_gated_scan", name="triton_scan", rank=34, dtypes=(torch.float32, torch.bfloat16)
)

scan_loop = Operation(plain_loop, serves=SERVES, shown=lambda u, dt, *others: dt)
scan_loop.register(scan_chunks, name="fused_scan", rank=7, device="any", when="always")


def mamba_scan(
    ctx: Context,
    v_BLE: Tensor,
    dt_BLE: Tensor,
    bias_E: Tensor,
    A_log_EN: Tensor,
    B_BLN: Tensor,
    C_BLN: Tensor,
    D_E: Tensor,
    z_BLE: Tensor,
    h_BNE: Tensor | None,
    *,
    signed: bool,
) -> tuple[Tensor, Tensor | None]:
    """Return the gated outputs that are wanted and the last state, by the largest operation with a kernel."""
    kernel = gated.chosen(v_BLE, ctx)
    if kernel:
        first_BNE = v_BLE.new_zeros(v_BLE.shape[0], A_log_EN.shape[1], v_BLE.shape[-1]) if h_BNE is None else h_BNE
        given = (v_BLE, dt_BLE, bias_E, -A_log_EN.exp().mT, B_BLN, C_BLN, D_E, z_BLE, first_BNE)
        y_BLE, h_BNE = kernel(*given, signed)
        return ctx.wanted(y_BLE), h_BNE
    # The bias in full: in bf16 softplus would turn the smallest steps into a handful of values.
    dt_BLE = nn.functional.softplus(dt_BLE.to(at_least_fp32(dt_BLE.dtype)) + bias_E)
    A_EN = -A_log_EN.to(dt_BLE.dtype).exp()
    scan = from_zeros.chosen(v_BLE, ctx) if h_BNE is None and not signed else None
    if scan:
        y_BLE = scan(v_BLE, dt_BLE, A_EN, B_BLN, C_BLN, D_E)
    else:
        y_BLE, h_BNE = selective_scan(v_BLE, dt_BLE, A_EN, B_BLN, C_BLN, D_E, h_BNE, signed=signed, ctx=ctx)
    return ctx.wanted(y_BLE) * nn.functional.silu(ctx.wanted(z_BLE)), h_BNE


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
    """Return all y [B, L, E] and the last state, in the precision of `dt_BLE`, from a state (None: zeros).

    A kernel that computes `selective_scan`, with the arguments (x_BLE, dt_BLE, A_EN, B_BLN, C_BLN, D_E) -> y_BLE, does
    this from zeros with positive eigenvalues.
    """
    with torch.autocast(x_BLE.device.type, enabled=False):  # its products are a state's, not a layer's
        if h_BNE is None:
            h_BNE = torch.zeros_like(dt_BLE[:, :1]).expand(-1, A_EN.shape[1], -1)
        x_BLE, A_EN, B_BLN, C_BLN, h_BNE = (z.to(dt_BLE.dtype) for z in (x_BLE, A_EN, B_BLN, C_BLN, h_BNE))
        y_BLE, h_BNE = scan_loop(ctx, dt_BLE * x_BLE, dt_BLE, A_EN.mT, B_BLN, C_BLN, h_BNE, signed)
        return y_BLE + D_E * x_BLE, h_BNE


from_zeros: Operation[..., Any] = Operation(selective_scan, serves=SERVES, shown=lambda x, *others: x)
from_zeros.register(
    mamba_ssm_package.mamba_scan,
    name="mamba_ssm",
    rank=30,
    device="cuda",
    dtypes=(torch.float32, torch.bfloat16),
    missing=cuda_module(mamba_ssm_package.MODULE, needs="selective_scan_cuda"),
    stacks=False,
    when="named",
)
