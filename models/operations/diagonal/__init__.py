"""A linear recurrence of its own in every channel, h_t = a_t h_{t-1} + u_t.

    h_BLD, h_BD = diagonal_scan(a_BLD, u_BLD, h_BD, ctx)

In Triton (gpu.py) one kernel takes the place of doublings, each of which reads and writes all there is: six of them at
40 positions. In C there is none: on a CPU the plain form goes through the positions in place.
"""

import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.operations.diagonal.reference import scan_loop, scanned
from chomsky_ladder.models.operations.operation import Operation

LONGEST = 2048  # positions in Triton; of more a GPU with few rows would wait for one position after the other


def _inputs(a_BLD: Tensor, u_BLD: Tensor, h_BD: Tensor) -> Tensor:
    return u_BLD


def _takes(u_BLD: Tensor, ctx: Context) -> bool:
    return u_BLD.shape[-2] <= LONGEST


SERVES = ("min_gru", "min_lstm", "hgrn", "rwkv4", "rg_lru", "preconditioned_delta_net")
diagonal_loop = Operation(scan_loop, name="diagonal_loop", serves=SERVES, shown=_inputs)
diagonal_loop.in_triton(
    f"{__name__}.gpu", name="triton_diagonal", rank=37, takes=_takes, dtypes=(torch.float32, torch.bfloat16)
)


def diagonal_scan(a_BLD: Tensor, u_BLD: Tensor, h_BD: Tensor, ctx: Context) -> tuple[Tensor, Tensor]:
    """Return all h_t = a_t h_{t-1} + u_t [B, L, D] and the last, from a state h, in at least fp32.

    There may be other axes between B and L. Single tokens are left to the plain form: a step of decoding is a product.
    """
    kernel = diagonal_loop.chosen(u_BLD, ctx) if u_BLD.shape[-2] > 1 else None
    if kernel:
        return kernel(a_BLD, u_BLD, h_BD)
    dtype = torch.promote_types(u_BLD.dtype, torch.float32)
    a_BLD, u_BLD, h_BD = (x.to(dtype) for x in (a_BLD, u_BLD, h_BD))
    return (scan_loop if ctx.backend == "reference" else scanned)(a_BLD, u_BLD, h_BD)
