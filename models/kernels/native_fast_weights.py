"""`fast_weights_from` (models/scans/fast_weights.py) on a CPU in C: a head's weights stay in the cache.

Measured for B = 64, H = 4, L = 40, K = 16, forward and backward on one thread: 4.2 ms, where torch's loop takes 19;
K = 64 takes 23 for 107.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from chomsky_ladder.models.kernels.kernel import Kernel, register
from chomsky_ladder.models.kernels.native import REAL, integers, kernel, missing, untraced, whole_vectors
from chomsky_ladder.models.scans.fast_weights import Norm
from chomsky_ladder.models.scans.function import Function
from chomsky_ladder.models.scans.replicas import fold_replicas, unfold_replicas


def native_fast_weights(
    q_BHLK: Tensor, k_BHLK: Tensor, v_BHLK: Tensor, rate_BHL: Tensor, place_rate_C: Tensor, norm: Norm, M_BHXK: Tensor
) -> Tensor:
    """As `fast_weights_from`; it stacks under vmap."""
    of_replicas = (x[None] for x in (place_rate_C, norm.scale_H1K.squeeze(1), norm.shift_H1K.squeeze(1)))
    given = (x.to(M_BHXK.dtype) for x in (q_BHLK, k_BHLK, v_BHLK, rate_BHL, *of_replicas, M_BHXK))
    return _MiniBatches.apply(*given, torch.is_grad_enabled())[0]


class _MiniBatches(Function):
    """Rates of places [R, C], scales and shifts [R, H, K] have an axis of replicas, which are so many more rows."""

    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, Tensor]:
        """All z; and for the way back, if there will be one, the weights before each mini-batch."""
        *given, keeps = inputs
        *given, M_BHXK = (x.contiguous() for x in given)
        q_BHLK, place_rate_RC = given[0], given[4]
        batch, heads, rows, width = M_BHXK.shape
        count = -(-q_BHLK.shape[2] // place_rate_RC.shape[1]) if keeps else 0
        z_BHLK = torch.empty_like(q_BHLK)
        starts = q_BHLK.new_empty(batch, heads, count, rows, whole_vectors(width, q_BHLK.dtype))
        written = (z_BHLK, starts if keeps else None)
        kernel("fast_weights_forward", M_BHXK.dtype)(*given, M_BHXK, *written, sizes=_sizes(q_BHLK, place_rate_RC))
        return z_BHLK, starts

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*inputs[:7], output[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_z_BHLK: Tensor, _: None) -> tuple[Tensor | None, ...]:
        *given, starts = (x.contiguous() for x in ctx.saved_tensors)
        batch, heads, _, rows, _ = starts.shape
        d_M_BHXK = starts.new_empty(batch, heads, rows, d_z_BHLK.shape[-1])
        written = [*map(torch.empty_like, given[:4]), *map(torch.zeros_like, given[4:]), d_M_BHXK]
        sizes = _sizes(given[0], given[4])
        kernel("fast_weights_backward", starts.dtype)(*given, starts, d_z_BHLK.contiguous(), *written, sizes=sizes)
        return *written, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        *given, keeps = inputs
        folded = fold_replicas(given, in_dims[:8], info.batch_size)
        return unfold_replicas(_MiniBatches.apply(*folded, keeps), info.batch_size)


def _sizes(q_BHLK: Tensor, place_rate_RC: Tensor) -> Any:
    batch, heads, length, width = q_BHLK.shape
    replicas, size = place_rate_RC.shape
    return integers(replicas, batch // replicas, heads, length, width, size)


register(
    Kernel(
        name="native_fast_weights",
        computes="fast_weights_from",
        reference="chomsky_ladder.models.scans.fast_weights.fast_weights_from",
        call=native_fast_weights,
        serves=("ttt_linear",),
        device="cpu",
        dtypes=tuple(REAL),
        stacks=True,
        takes=untraced,
        missing=missing,
        rank=10,
    )
)
