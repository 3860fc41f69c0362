"""`weighed` (models/scans/ssd.py) on a CPU in C: the decays and weights of a chunk's matrix in one pass, and none kept.

Measured for 64 chunks of 40 tokens in 2 heads, forward and backward on one thread: .8 ms, where plain torch takes 2.2.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from chomsky_ladder.models.kernels.kernel import Kernel, register
from chomsky_ladder.models.kernels.native import REAL, integers, kernel, missing, untraced
from chomsky_ladder.models.scans.function import Function
from chomsky_ladder.models.scans.replicas import fold_replicas, unfold_replicas


def native_weighed(
    scores_BCGTS: Tensor, l_BCHP: Tensor, weight_BCHP: Tensor, own_BCHP: Tensor | None, skip_H: Tensor
) -> Tensor:
    """As `weighed`, of weights and skips there are; it stacks under vmap."""
    given = (scores_BCGTS, l_BCHP, weight_BCHP, weight_BCHP if own_BCHP is None else own_BCHP)
    rows = (x.flatten(0, 1)[None] for x in given)
    return _Weighed.apply(*rows, skip_H.to(l_BCHP.dtype)[None])[0].unflatten(0, scores_BCGTS.shape[:2])


class _Weighed(Function):
    """Chunks X are one axis, with an axis R in front, of replicas: what vmap adds folds into it."""

    @staticmethod
    def forward(*inputs: Tensor) -> Tensor:
        given = [x.contiguous() for x in inputs]
        scores_RXGTS, l_RXHP = given[:2]
        matrix_RXHTS = scores_RXGTS.new_empty(*l_RXHP.shape[:3], *scores_RXGTS.shape[3:])
        kernel("chunk_forward", l_RXHP.dtype)(*given, matrix_RXHTS, sizes=_sizes(scores_RXGTS, l_RXHP))
        return matrix_RXHTS

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_matrix_RXHTS: Tensor) -> tuple[Tensor, ...]:
        *given, skip_RH = (x.contiguous() for x in ctx.saved_tensors)
        written = [*map(torch.empty_like, given), torch.zeros_like(skip_RH)]
        sizes = _sizes(given[0], given[1])
        kernel("chunk_backward", skip_RH.dtype)(*given, d_matrix_RXHTS.contiguous(), *written, sizes=sizes)
        return tuple(written)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[Tensor, int]:
        outputs = [_Weighed.apply(*fold_replicas(inputs, in_dims, info.batch_size))]
        (found,), places = unfold_replicas(outputs, info.batch_size)
        return found, places[0]


def _sizes(scores_RXGTS: Tensor, l_RXHP: Tensor) -> object:
    replicas, chunks, groups, rows, _ = scores_RXGTS.shape
    return integers(replicas, chunks, groups, l_RXHP.shape[2], rows, l_RXHP.shape[3])


register(
    Kernel(
        name="native_chunk",
        computes="weighed",
        reference="chomsky_ladder.models.scans.ssd.weighed",
        call=native_weighed,
        serves=("mamba2", "mamba3"),
        device="cpu",
        dtypes=tuple(REAL),
        stacks=True,
        takes=untraced,
        missing=missing,
        rank=27,
    )
)
