"""RWKV-4's weighted average of the past, in every channel.

    wkv_BLD, (sums_B2D, top_BD) = wkv(k_BLD, v_BLD, rate_D, bonus_D, (sums_B2D, top_BD), ctx)

In Triton (gpu.py) one kernel takes the place of the recurrence of numerator and denominator
(models/operations/diagonal) and of some ten arrays in fp32 around it, each as large as all keys. Without it the
recurrence may have a kernel.
"""

from functools import partial

import torch
from torch import Tensor

from chomsky_ladder.models.block import Context, State
from chomsky_ladder.models.operations.diagonal import LONGEST, diagonal_scan
from chomsky_ladder.models.operations.operation import Operation
from chomsky_ladder.models.operations.wkv.reference import wkv as plain
from chomsky_ladder.models.operations.wkv.reference import wkv_by


def _keys(k_BLD: Tensor, v_BLD: Tensor, rate_D: Tensor, bonus_D: Tensor, state: State) -> Tensor:
    return k_BLD


def _takes(k_BLD: Tensor, ctx: Context) -> bool:
    return k_BLD.shape[1] <= LONGEST


averages = Operation(plain, serves=("rwkv4",), shown=_keys, inside=("diagonal_loop",))
averages.in_triton(f"{__name__}.gpu", name="triton_wkv", rank=43, takes=_takes, dtypes=(torch.float32, torch.bfloat16))


def wkv(
    k_BLD: Tensor, v_BLD: Tensor, rate_D: Tensor, bonus_D: Tensor, state: State, ctx: Context
) -> tuple[Tensor, State]:
    """Return the averages and the last state. Single tokens are left to the plain form."""
    kernel = averages.chosen(k_BLD, ctx) if k_BLD.shape[1] > 1 else None
    return (kernel or partial(wkv_by, partial(diagonal_scan, ctx=ctx)))(k_BLD, v_BLD, rate_D, bonus_D, state)
