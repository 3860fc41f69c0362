"""`ssd_chunks` (models/scans/ssd.py) on a CPU in C: a chunk's matrix and the states of its heads stay in the cache.

Measured on one thread for states of 64 x 64, both ways in brackets, beside products by torch around a matrix in C: 16
strings of 256 in four heads that share B and C take 5 ms (22) for 16 (51), 64 of 40 in two .9 (3.8) for 1.2 (5.7).
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from chomsky_ladder.models.kernels.kernel import Kernel, register
from chomsky_ladder.models.kernels.native import REAL, in_rows, integers, kernel, missing, untraced, whole_vectors
from chomsky_ladder.models.kernels.native_states import gradients_of
from chomsky_ladder.models.scans.function import Function
from chomsky_ladder.models.scans.replicas import fold_replicas, unfold_replicas
from chomsky_ladder.models.scans.ssd import positions_of_a_chunk


def native_ssd(
    u_BLHRK: Tensor,
    log_a_BLH: Tensor,
    B_BLGRN: Tensor,
    C_BLGRN: Tensor,
    h_BHNK: Tensor | None,
    *,
    weight_BLH: Tensor,
    own_BLH: Tensor | None = None,
    skip_H: Tensor,
) -> tuple[Tensor, Tensor | None]:
    """As `ssd_chunks`, of weights and skips there are; it stacks under vmap."""
    from_none = u_BLHRK.new_empty(len(u_BLHRK), 0, B_BLGRN.shape[-1], u_BLHRK.shape[-1])  # of no heads
    h_BXNK = from_none if h_BHNK is None else h_BHNK
    given = (u_BLHRK, log_a_BLH, B_BLGRN, C_BLGRN, h_BXNK, weight_BLH, weight_BLH if own_BLH is None else own_BLH)
    alike = (x.to(u_BLHRK.dtype) for x in (*given, skip_H[None]))
    y_BLHRK, last_BHNK, _ = _Chunks.apply(*alike, torch.is_grad_enabled())
    return y_BLHRK, None if h_BHNK is None else last_BHNK


class _Chunks(Function):
    """Skips [X, H] have an axis of replicas, which are so many more rows of all others."""

    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
        """All y and the last state; and for the way back, if there will be one, the states that chunks start from."""
        *given, keeps = inputs
        tensors, sizes = _as_read(*given)
        u_BLHRK, h_BXNK = given[0], tensors[4]
        y_BLHRK, last_BXNK = u_BLHRK.new_empty(u_BLHRK.shape), torch.empty_like(h_BXNK)
        (batch, length, heads, rank, values), states = u_BLHRK.shape, h_BXNK.shape[2]
        chunks = -(-length // positions_of_a_chunk(length, rank))
        if not keeps or (chunks == 1 and not h_BXNK.numel()):
            chunks = 0  # or start from zeros
        starts = u_BLHRK.new_empty(batch, chunks, heads, states, whole_vectors(values, u_BLHRK.dtype))
        written = (y_BLHRK, _or_null(last_BXNK), _or_null(starts))
        kernel("ssd_forward", u_BLHRK.dtype)(*_nulled(tensors), *written, sizes=sizes)
        return y_BLHRK, last_BXNK, starts

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(output[2])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs[:-1], output[2])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y_BLHRK: Tensor | None, d_last_BXNK: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        *given, starts = ctx.saved_tensors
        tensors, sizes = _as_read(*given)
        d_y_BLHRK, d_BXNK = gradients_of(given[0], tensors[4], d_y_BLHRK, d_last_BXNK)
        written = [x.new_empty(x.shape) for x in given]
        written[4], written[7] = d_BXNK, torch.zeros_like(given[7])
        kernel("ssd_backward", starts.dtype)(*_nulled(tensors), starts, d_y_BLHRK, *written, sizes=sizes)
        return *written, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        *given, keeps = inputs
        folded = fold_replicas(given, in_dims[:8], info.batch_size)
        return unfold_replicas(_Chunks.apply(*folded, keeps), info.batch_size)


def _as_read(
    u_BLHRK: Tensor, log_a_BLH: Tensor, B_BLGRN: Tensor, C_BLGRN: Tensor, h: Tensor, w: Tensor, o: Tensor, skip: Tensor
) -> tuple[list[Tensor], Any]:
    """What C takes, numbers of a position in one piece, and its sizes."""
    batch, length, heads, rank, values = u_BLHRK.shape
    (u, u_apart), (B, B_apart), (C, C_apart) = (in_rows(x.flatten(2)) for x in (u_BLHRK, B_BLGRN, C_BLGRN))
    replicas, groups, states = len(skip), B_BLGRN.shape[2], B_BLGRN.shape[4]
    of_each = (replicas, batch // replicas, length, heads, groups, rank, states, values)
    sizes = integers(*of_each, positions_of_a_chunk(length, rank), u_apart, B_apart, C_apart)
    log_a, h, w, o, skip = (x.contiguous() for x in (log_a_BLH, h, w, o, skip))
    return [u, log_a, B, C, h, w, o, skip], sizes


def _or_null(x: Tensor) -> Tensor | None:
    return x if x.numel() else None


def _nulled(tensors: list[Tensor]) -> list[Tensor | None]:
    """Without the state where there is none."""
    return [*tensors[:4], _or_null(tensors[4]), *tensors[5:]]


register(
    Kernel(
        name="native_ssd",
        computes="ssd_chunks",
        reference="chomsky_ladder.models.scans.ssd.ssd_chunks",
        call=native_ssd,
        serves=(),
        device="cpu",
        dtypes=tuple(REAL),
        stacks=True,
        takes=untraced,
        missing=missing,
        rank=27,
    )
)
