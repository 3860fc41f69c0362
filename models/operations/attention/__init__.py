"""Softmax attention over the past, from the projection's heads to what they read.

    y_BLHK = causal_attention(heads_BLXK, turns_2LK, level_BLH, num_heads=H, window=W)

At the lengths of formal languages most of attention in torch is moving: turning queries and keys, bringing heads to the
front, masks, scores that are written and read four times. In C a head's keys and values stay in the first cache. Layers
ask for a kernel (`causal_attention.chosen`), since their own form is another without one.
"""

import torch
from torch import Tensor, nn

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.operations.attention.reference import causal_attention as plain
from chomsky_ladder.models.operations.attention.reference import explicit_attention as plain_explicit
from chomsky_ladder.models.operations.in_c import Loops
from chomsky_ladder.models.operations.operation import Operation

FUSED_FROM = 64  # positions; below, the explicit form beats torch's on a CPU (measured 5.8x in bf16 at 40)

LOOPS = Loops(
    "attention",
    "heads: B L X K, turns: 2 L D, level: B L H, y: B L H K, kept: B H 2 L",
    forward="heads turns level -> y kept",
    backward="heads turns level kept d_y -> d_heads d_level",
    sizes="B L H G K window breaks",
    settings="H window breaks",
    derived=lambda sizes: {"G": (sizes["X"] - sizes["H"]) // 2},
)
"""Attention by softmax, or by sticks where it `breaks`. Kept are the largest score of each query, and one over the sum
of the others. G are the heads of keys; turns are those of places, the same for all replicas."""


def _in_c(
    heads_BLXK: Tensor, turns_2LK: Tensor | None, level_BLH: Tensor | None, *, num_heads: int, window: int
) -> Tensor:
    """C version of `causal_attention`."""
    return LOOPS(heads_BLXK, turns_2LK, level_BLH, num_heads, window, 0)[0]


causal_attention = Operation(
    plain,
    serves=("transformer", "sliding_window", "moe", "looped_transformer", "fox", "stack_attention", "based"),
    shown=lambda heads, turns, level, *, num_heads, window: heads,
)
causal_attention.in_c(_in_c, name="native_attention", rank=28)


def _by_torch(
    q_BHMK: Tensor, k_BHLK: Tensor, v_BHLK: Tensor, mask: Tensor | None, *, is_causal: bool = False
) -> Tensor:
    """Call torch's attention with as many heads of keys as of queries; `is_causal` is a mask without one."""
    if mask is not None and mask.dtype != torch.bool:
        mask = mask.to(q_BHMK.dtype)
    return nn.functional.scaled_dot_product_attention(q_BHMK, k_BHLK, v_BHLK, attn_mask=mask, is_causal=is_causal)


def _is_long(q_BHMK: Tensor, ctx: Context) -> bool:
    return q_BHMK.shape[2] >= FUSED_FROM


explicit_attention: Operation[..., Tensor] = Operation(
    plain_explicit,
    serves=(
        *("transformer", "sliding_window", "moe", "encoder", "encoder_decoder", "prefix_lm"),
        *("looped_transformer", "stack_attention", "based"),
    ),
    shown=lambda q, *others, **options: q,
)
explicit_attention.register(
    _by_torch, name="torch.sdpa", rank=3, device="any", takes=_is_long, stacks=False, when="always"
)
