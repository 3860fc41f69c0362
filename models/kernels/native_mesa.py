"""`mesa` (models/scans/mesa.py) on a CPU in C: Cholesky's method for as many rows at once as a vector has
lanes, token by token.

Measured for B = 64, H = 4, L = 40, K = V = 16, forward and backward on one thread: 6 ms, where factors of all tokens by
a library take 49; K = V = 64 takes 150 for 830. Heads with more keys than that are left to the library.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.kernel import Kernel, register
from chomsky_ladder.models.kernels.native import REAL, integers, kernel, missing, untraced, whole_vectors
from chomsky_ladder.models.scans.function import Function
from chomsky_ladder.models.scans.mesa import Held
from chomsky_ladder.models.scans.replicas import fold_replicas, unfold_replicas

CHUNK = 8  # tokens between the states that are kept for the way back
LARGEST = 64  # keys of a head


def native_mesa(
    q_BHLK: Tensor, k_BHLK: Tensor, v_BHLV: Tensor, beta_BHL: Tensor, log_decay_BHL: Tensor, state: Held
) -> tuple[Tensor, Held]:
    """As `mesa` without steps; it stacks under vmap."""
    shape, widths = q_BHLK.shape[:2], [q_BHLK.shape[-1], v_BHLV.shape[-1]]
    given = (q_BHLK, k_BHLK, v_BHLV, torch.exp(log_decay_BHL), beta_BHL, torch.cat(state, -1))
    y_BLV, last_BKX, *_ = _Mesa.apply(*(x.flatten(0, 1) for x in given))
    last_BHKK, last_BHKV = last_BKX.unflatten(0, shape).split(widths, -1)
    return y_BLV.unflatten(0, shape), (last_BHKK, last_BHKV)


class _Mesa(Function):
    """Rows and heads are one axis, and what vmap adds becomes more of it. A state is H and G, X = K + V wide."""

    @staticmethod
    def forward(*inputs: Tensor) -> tuple[Tensor, ...]:
        """y and the last state; and for the way back x, and the states that chunks start from, a lane for each row."""
        given = [x.contiguous() for x in inputs]
        q_BLK, _, v_BLV, _, _, first_BKX = given
        y_BLV, x_BLK, last_BKX = torch.empty_like(v_BLV), torch.empty_like(q_BLK), torch.empty_like(first_BKX)
        (rows, length, _), state = q_BLK.shape, first_BKX.shape[1:]
        starts_BNKX = q_BLK.new_empty(whole_vectors(rows, q_BLK.dtype), -(-length // CHUNK), *state)
        kernel("mesa_forward", q_BLK.dtype)(*given, y_BLV, last_BKX, x_BLK, starts_BNKX, sizes=_sizes(q_BLK, v_BLV))
        return y_BLV, last_BKX, x_BLK, starts_BNKX

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[2:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs[1:5], *output[2:])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y_BLV: Tensor | None, d_last_BKX: Tensor | None, *_: None) -> tuple[Tensor, ...]:
        given = [x.contiguous() for x in ctx.saved_tensors]
        k_BLK, v_BLV, a_BL, b_BL = given[:4]
        d_y_BLV = torch.zeros_like(v_BLV) if d_y_BLV is None else d_y_BLV.contiguous()
        d_state_BKX = k_BLK.new_zeros(len(k_BLK), k_BLK.shape[2], k_BLK.shape[2] + v_BLV.shape[2])
        if d_last_BKX is not None:
            d_state_BKX += d_last_BKX
        written = [torch.empty_like(x) for x in (k_BLK, k_BLK, v_BLV, a_BL, b_BL)]
        sizes = _sizes(k_BLK, v_BLV)
        kernel("mesa_backward", k_BLK.dtype)(*given, d_y_BLV, d_state_BKX, *written, sizes=sizes)
        return *written, d_state_BKX

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[tuple[Tensor, ...], tuple]:
        *found, starts_BNKX = _Mesa.apply(*fold_replicas(inputs, in_dims, info.batch_size))
        found, places = unfold_replicas(found, info.batch_size)
        return (*found, starts_BNKX), (*places, None)  # whose lanes may hold rows of two replicas


def _sizes(q_BLK: Tensor, v_BLV: Tensor) -> object:
    return integers(*q_BLK.shape, v_BLV.shape[2], CHUNK)


def _takes(q_BHLK: Tensor, ctx: Context) -> bool:
    return untraced(q_BHLK, ctx) and q_BHLK.shape[-1] <= LARGEST


register(
    Kernel(
        name="native_mesa",
        computes="mesa",
        reference="chomsky_ladder.models.scans.mesa.mesa",
        call=native_mesa,
        serves=("mesa_net",),
        device="cpu",
        dtypes=tuple(REAL),
        stacks=True,
        takes=_takes,
        missing=missing,
        rank=29,
    )
)
