"""Attention over the past (models/layers/attention.py) on a CPU in C, from the projection's heads to what they read.

At the lengths of formal languages most of attention in torch is moving: turning queries and keys, bringing heads to the
front, masks, scores that are written and read four times. Here a head's keys and values stay in the first cache.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from chomsky_ladder.models.kernels.kernel import Kernel, register
from chomsky_ladder.models.kernels.native import REAL, integers, kernel, missing, untraced
from chomsky_ladder.models.scans.function import Function
from chomsky_ladder.models.scans.replicas import fold_replicas, unfold_replicas


def native_attention(
    heads_BLXK: Tensor, turns_2LK: Tensor | None, level_BLH: Tensor | None, *, num_heads: int, window: int
) -> Tensor:
    """As `causal_attention`; it stacks under vmap."""
    return Attention.apply(heads_BLXK, turns_2LK, level_BLH, num_heads, window, False)[0]


class Attention(Function):
    """Of softmax, or where it `breaks` of sticks. What vmap adds becomes more rows; turns are those of places."""

    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, Tensor]:
        """y [B, L, H, K], and for the way back the largest score of each query and one over the sum of the others."""
        *tensors, num_heads, window, breaks = inputs
        heads_BLXK, *_ = given = [_whole(x) for x in tensors]
        batch, length, _, width = heads_BLXK.shape
        y_BLHK = heads_BLXK.new_empty(batch, length, num_heads, width)
        kept_BH2L = heads_BLXK.new_empty(batch, num_heads, 2, length)
        sizes = _sizes(given, num_heads, window, breaks)
        kernel("attention_forward", heads_BLXK.dtype)(*given, y_BLHK, kept_BH2L, sizes=sizes)
        return y_BLHK, kept_BH2L

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*inputs[:3], output[1])
        ctx.settings = inputs[3:]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y_BLHK: Tensor, _: Tensor) -> tuple[Any, ...]:
        *given, kept_BH2L = [_whole(x) for x in ctx.saved_tensors]
        heads_BLXK, _, level_BLH = given
        d_heads_BLXK = torch.empty_like(heads_BLXK)
        d_level_BLH = None if level_BLH is None else torch.empty_like(level_BLH)
        written, sizes = (_whole(d_y_BLHK), d_heads_BLXK, d_level_BLH), _sizes(given, *ctx.settings)
        kernel("attention_backward", heads_BLXK.dtype)(*given, kept_BH2L, *written, sizes=sizes)
        return d_heads_BLXK, None, d_level_BLH, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        of_rows = [i for i in (0, 2) if inputs[i] is not None]
        folded = fold_replicas([inputs[i] for i in of_rows], [in_dims[i] for i in of_rows], info.batch_size)
        heads_BLXK, *level_BLH = folded
        found = Attention.apply(heads_BLXK, inputs[1], *(level_BLH or [None]), *inputs[3:])
        return unfold_replicas(found, info.batch_size)


def _whole(x: Tensor | None) -> Any:
    return None if x is None else x.contiguous()


def _sizes(given: list[Any], num_heads: int, window: int, breaks: bool) -> object:
    rows, length, parts, width = given[0].shape
    return integers(rows, length, num_heads, (parts - num_heads) // 2, width, window, breaks)


register(
    Kernel(
        name="native_attention",
        computes="causal_attention",
        reference="chomsky_ladder.models.layers.attention.causal_attention",
        call=native_attention,
        serves=("transformer", "sliding_window", "moe", "looped_transformer", "fox"),
        device="cpu",
        dtypes=tuple(REAL),
        stacks=True,
        takes=untraced,
        missing=missing,
        rank=28,
    )
)
