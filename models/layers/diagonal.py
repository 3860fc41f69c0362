"""Linear recurrences in every channel, by the fastest form for their tensors."""

import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.choose import chosen
from chomsky_ladder.models.scans.diagonal import scan_loop, scanned


def diagonal_scan(a_BLD: Tensor, u_BLD: Tensor, h_BD: Tensor, ctx: Context) -> tuple[Tensor, Tensor]:
    """Return all h_t = a_t h_{t-1} + u_t [B, L, D] and the last, from a state h, in at least fp32:
    models/scans/diagonal.py.

    There may be other axes between B and L. Single tokens use the plain form: a step of decoding is a product.
    """
    kernel = chosen("diagonal_loop", u_BLD, ctx) if u_BLD.shape[-2] > 1 else None
    if kernel:
        return kernel.call(a_BLD, u_BLD, h_BD)
    dtype = torch.promote_types(u_BLD.dtype, torch.float32)
    a_BLD, u_BLD, h_BD = (x.to(dtype) for x in (a_BLD, u_BLD, h_BD))
    return (scan_loop if ctx.backend == "reference" else scanned)(a_BLD, u_BLD, h_BD)
