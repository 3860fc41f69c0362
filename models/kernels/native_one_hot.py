"""`one_hot_loop` (models/scans/one_hot.py) on a CPU in C: one row of sixteen tokens' maps at a time, and none is kept.

A map's row is made, read for its largest or its softmax, and forgotten within the first cache; the way back makes it
again. Only where every number is read or written stays. Measured for B = 64, L = 40, N = 64, K = 8, forward and
backward on one thread: 14 ms, where products and a softmax of a few tokens' maps at a time take 55.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from chomsky_ladder.models.kernels.kernel import Kernel, register
from chomsky_ladder.models.kernels.native import REAL, integers, kernel, missing, untraced
from chomsky_ladder.models.scans.function import Function
from chomsky_ladder.models.scans.one_hot import Form
from chomsky_ladder.models.scans.replicas import fold_replicas, unfold_replicas


def native_one_hot(
    share_BLK: Tensor, maps_KNN: Tensor, d_BLN2: Tensor, b_BLN2: Tensor, h_BN2: Tensor, form: Form
) -> Tensor:
    """As `one_hot_loop`; it stacks under vmap."""
    return _Scan.apply(*(x[None] for x in (share_BLK, maps_KNN, d_BLN2, b_BLN2, h_BN2)), form)[0].squeeze(0)


class _Scan(Function):
    """With an axis R in front, of replicas that differ in their maps too: what vmap adds folds into it."""

    @staticmethod
    def forward(
        share_RBLK: Tensor, maps_RKNN: Tensor, d_RBLN2: Tensor, b_RBLN2: Tensor, h_RBN2: Tensor, form: Form
    ) -> tuple[Tensor, Tensor]:
        given = [x.contiguous() for x in (share_RBLK, maps_RKNN, d_RBLN2, b_RBLN2, h_RBN2)]
        h_RBLN2 = torch.empty_like(given[3])
        place_RBLN = torch.empty(h_RBLN2.shape[:-1], dtype=torch.int32)
        sizes = _sizes(share_RBLK, maps_RKNN, form)
        kernel("one_hot_forward", h_RBLN2.dtype)(*given, h_RBLN2, place_RBLN, sizes=sizes)
        return h_RBLN2, place_RBLN

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:
        share_RBLK, maps_RKNN, d_RBLN2, _, h_RBN2, ctx.form = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(share_RBLK, maps_RKNN, d_RBLN2, h_RBN2, *output)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_h_RBLN2: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        given = [x.contiguous() for x in ctx.saved_tensors]
        share_RBLK, maps_RKNN, d_RBLN2, h_RBN2 = given[:4]
        written = [torch.empty_like(x) for x in (share_RBLK, maps_RKNN, d_RBLN2, d_RBLN2, h_RBN2)]
        sizes = _sizes(share_RBLK, maps_RKNN, ctx.form)
        kernel("one_hot_backward", d_RBLN2.dtype)(*given, d_h_RBLN2.contiguous(), *written, sizes=sizes)
        return *written, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple]:
        *tensors, form = inputs
        outputs = _Scan.apply(*fold_replicas(tensors, in_dims[:-1], info.batch_size), form)
        return unfold_replicas(outputs, info.batch_size)


def _sizes(share_RBLK: Tensor, maps_RKNN: Tensor, form: Form) -> object:
    return integers(*share_RBLK.shape[:3], maps_RKNN.shape[-1], maps_RKNN.shape[1], int(form == "gather"))


register(
    Kernel(
        name="native_one_hot",
        computes="one_hot_loop",
        reference="chomsky_ladder.models.scans.one_hot.one_hot_loop",
        call=native_one_hot,
        serves=("pd_ssm",),
        device="cpu",
        dtypes=tuple(REAL),
        stacks=True,
        takes=untraced,
        missing=missing,
        rank=26,
    )
)
