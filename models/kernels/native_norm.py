"""`rms_norm` (models/layers/norm.py) on a CPU in C: a row stays in the cache from its squares to its values."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from chomsky_ladder.models.kernels.kernel import Kernel, register
from chomsky_ladder.models.kernels.native import REAL, integers, kernel, missing, worth_a_call
from chomsky_ladder.models.scans.function import Function
from chomsky_ladder.models.scans.replicas import fold_replicas, unfold_replicas


def native_rms_norm(x: Tensor, weight_D: Tensor, eps: float) -> Tensor:
    """As `rms_norm`; it stacks under vmap."""
    y_RND, _ = _Norm.apply(x.reshape(1, -1, x.shape[-1]), weight_D[None], eps)
    return y_RND.view(x.shape)


class _Norm(Function):
    """With an axis R in front, of replicas whose weights differ: what vmap adds folds into it."""

    @staticmethod
    def forward(x_RND: Tensor, weight_RD: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        x_RND, weight_RD = x_RND.contiguous(), weight_RD.contiguous()
        y_RND, scale_RN = torch.empty_like(x_RND), x_RND.new_empty(x_RND.shape[:2])
        small = torch.tensor(eps, dtype=x_RND.dtype)
        kernel("norm_forward", x_RND.dtype)(x_RND, weight_RD, small, y_RND, scale_RN, sizes=integers(*x_RND.shape))
        return y_RND, scale_RN

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, float], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*inputs[:2], output[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y_RND: Tensor, _: Tensor) -> tuple[Tensor, Tensor, None]:
        given = [z.contiguous() for z in (*ctx.saved_tensors, d_y_RND)]
        d_x_RND, d_weight_RD = torch.empty_like(given[0]), torch.zeros_like(given[1])
        kernel("norm_backward", d_y_RND.dtype)(*given, d_x_RND, d_weight_RD, sizes=integers(*d_x_RND.shape))
        return d_x_RND, d_weight_RD, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        *tensors, eps = inputs
        return unfold_replicas(_Norm.apply(*fold_replicas(tensors, in_dims[:2], info.batch_size), eps), info.batch_size)


register(
    Kernel(
        name="native_norm",
        computes="rms_norm",
        reference="chomsky_ladder.models.layers.norm.rms_norm",
        call=native_rms_norm,
        serves=(),
        device="cpu",
        dtypes=tuple(REAL),
        stacks=True,
        takes=worth_a_call,
        missing=missing,
        rank=19,
    )
)
