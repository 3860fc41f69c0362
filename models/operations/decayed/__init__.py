"""Linear attention whose heads forget at rates of their own (RetNet), of a string from its start or from a state.

    y_BHLV, state_BHKV = decayed(q_BHLK, k_BHLK, v_BHLV, log_decay_BHL, state_BHKV, ctx)

In Triton (gpu.py) strings of up to 64 tokens, whose state nobody asks for, take the place of products in fp32 around
all pairs of tokens, each written and read again. The plain forms are those of models/scans/chunked.py, which others
share.
"""

import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.operations.operation import Operation
from chomsky_ladder.models.scans.chunked import decayed_attention
from chomsky_ladder.models.scans.chunked import decayed_pairs as plain

LONGEST = 64  # tokens in Triton


def _values(q_BHLK: Tensor, k_BHLK: Tensor, v_BHLV: Tensor, log_decay_BHL: Tensor) -> Tensor:
    return v_BHLV


def _takes(v_BHLV: Tensor, ctx: Context) -> bool:
    return v_BHLV.shape[2] <= LONGEST


decayed_pairs = Operation(plain, serves=("retention",), shown=_values)
decayed_pairs.in_triton(
    f"{__name__}.gpu", name="triton_decayed", rank=45, takes=_takes, dtypes=(torch.float32, torch.bfloat16)
)


def decayed(
    q_BHLK: Tensor, k_BHLK: Tensor, v_BHLV: Tensor, log_decay_BHL: Tensor, state_BHKV: Tensor | None, ctx: Context
) -> tuple[Tensor, Tensor | None]:
    """Return y [B, H, L, V] and the last state; from None, which is zeros, none."""
    kernel = decayed_pairs.chosen(v_BHLV, ctx) if state_BHKV is None else None
    if kernel:  # in the precision of what products are made of, as v is
        return kernel(q_BHLK.to(v_BHLV.dtype), k_BHLK.to(v_BHLV.dtype), v_BHLV, log_decay_BHL), None
    return decayed_attention(q_BHLK, k_BHLK, v_BHLV, log_decay_BHL, state_BHKV)
