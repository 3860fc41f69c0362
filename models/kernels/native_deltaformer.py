"""DeltaFormer's attentions (models/deltaformer.py) on a CPU in C, from the projection's heads to what they read."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from chomsky_ladder.models.kernels.kernel import Kernel, register
from chomsky_ladder.models.kernels.native import REAL, integers, kernel, missing, untraced
from chomsky_ladder.models.scans.function import Function
from chomsky_ladder.models.scans.replicas import fold_replicas, unfold_replicas


def native_deltaformer(heads_BLXK: Tensor, turns_2LK: Tensor, beta_BLH: Tensor, *, asks_by_query: bool) -> Tensor:
    """As `over_the_past`; it stacks under vmap."""
    return _Attentions.apply(heads_BLXK, turns_2LK, beta_BLH, asks_by_query)[0]


class _Attentions(Function):
    """What vmap adds becomes more rows; turns are those of places, the same in all."""

    @staticmethod
    def forward(heads_BLXK: Tensor, turns_2LK: Tensor, beta_BLH: Tensor, asks_by_query: bool) -> tuple[Tensor, Tensor]:
        """y [B, L, H, K], and for the way back u [B, H, L, K]."""
        batch, length, num_heads = beta_BLH.shape
        given = [x.contiguous() for x in (heads_BLXK, turns_2LK, beta_BLH)]
        y_BLHK = heads_BLXK.new_empty(batch, length, num_heads, heads_BLXK.shape[-1])
        u_BHLK = y_BLHK.new_empty(batch, num_heads, length, heads_BLXK.shape[-1])
        kernel("deltaformer_forward", heads_BLXK.dtype)(*given, y_BLHK, u_BHLK, sizes=_sizes(u_BHLK, asks_by_query))
        return y_BLHK, u_BHLK

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        *given, ctx.asks_by_query = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*given, output[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y_BLHK: Tensor, *_: None) -> tuple[Any, ...]:
        heads_BLXK, _, beta_BLH, u_BHLK = given = [x.contiguous() for x in ctx.saved_tensors]
        written, sizes = [torch.empty_like(heads_BLXK), torch.empty_like(beta_BLH)], _sizes(u_BHLK, ctx.asks_by_query)
        kernel("deltaformer_backward", heads_BLXK.dtype)(*given, d_y_BLHK.contiguous(), *written, sizes=sizes)
        return written[0], None, written[1], None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        heads_BLXK, beta_BLH = fold_replicas(inputs[0:3:2], in_dims[0:3:2], info.batch_size)
        found = _Attentions.apply(heads_BLXK, inputs[1], beta_BLH, inputs[3])
        return unfold_replicas(found, info.batch_size)


def _sizes(u_BHLK: Tensor, asks_by_query: bool) -> object:
    batch, num_heads, length, width = u_BHLK.shape
    return integers(batch, length, num_heads, num_heads, width, 0, asks_by_query)


register(
    Kernel(
        name="native_deltaformer",
        computes="delta_attention",
        reference="chomsky_ladder.models.deltaformer.over_the_past",
        call=native_deltaformer,
        serves=("deltaformer",),
        device="cpu",
        dtypes=tuple(REAL),
        stacks=True,
        takes=untraced,
        missing=missing,
        rank=16,
    )
)
