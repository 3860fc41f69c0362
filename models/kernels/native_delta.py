"""The delta rule with any decay (models/scans/generalised_delta.py) on a CPU in C, token by token: no chunk, no system.

At the widths of heads a state stays in the first cache, so that a token costs less than the products of a chunk with
itself do: measured for B = 64, H = 4, L = 40, K = V = 16, forward and backward on one thread, 4.3 ms where chunks of
the delta rule take 13, of the generalised one 19 and of the decayed one 21; linear attention with decays takes 4.1 in
place of 27. Heads with more keys than 64 are left to products, which a library does better.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.kernel import Kernel, register
from chomsky_ladder.models.kernels.native import REAL, integers, kernel, missing, untraced
from chomsky_ladder.models.scans.replicas import fold_replicas, unfold_replicas

CHUNK = 16  # steps between the states that are kept for the way back
LARGEST = 64  # keys of a head


def native_delta(
    r_BHLK: Tensor,
    f_BHMK: Tensor | None,
    g_BHMK: Tensor | None,
    k_BHMK: Tensor,
    v_BHMV: Tensor,
    decay_BHLK: Tensor | None,
    state_BHKV: Tensor,
    *,
    reads_before: bool = False,
) -> tuple[Tensor, Tensor]:
    """As `delta_loop`; it stacks under vmap."""
    shape = r_BHLK.shape[:2]
    given = (r_BHLK, f_BHMK, g_BHMK, k_BHMK, v_BHMV, decay_BHLK, state_BHKV)
    rows = (None if x is None else x.expand(*shape, *x.shape[2:]).flatten(0, 1) for x in given)
    y_BLV, last_BKV, *_ = _Delta.apply(*rows, reads_before)
    return y_BLV.unflatten(0, shape), last_BKV.unflatten(0, shape)


class _Delta(torch.autograd.Function):
    """Rows and heads are one axis, and what vmap adds becomes more of it."""

    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, ...]:
        """y and the last state; and for the way back what was taken out, and the state that each chunk starts from."""
        *tensors, reads_before = inputs
        r_BLK, *_, k_BMK, v_BMV, _, first_BKV = given = [_whole(x) for x in tensors]
        y_BLV, last_BKV = v_BMV.new_empty(*r_BLK.shape[:2], v_BMV.shape[2]), torch.empty_like(first_BKV)
        u_BMV = torch.empty_like(v_BMV)
        starts_BNKV = v_BMV.new_empty(len(k_BMK), -(-k_BMK.shape[1] // CHUNK), *first_BKV.shape[1:])
        sizes = _sizes(given, reads_before=reads_before)
        kernel("delta_forward", v_BMV.dtype)(*given, y_BLV, last_BKV, u_BMV, starts_BNKV, sizes=sizes)
        return y_BLV, last_BKV, u_BMV, starts_BNKV

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[2:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs[:6], *output[2:])
        ctx.reads_before = inputs[7]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y_BLV: Tensor | None, d_last_BKV: Tensor | None, *_: None) -> tuple[Any, ...]:
        *given, u_BMV, starts_BNKV = [_whole(x) for x in ctx.saved_tensors]
        d_y_BLV = given[4].new_zeros(*given[0].shape[:2], given[4].shape[2]) if d_y_BLV is None else _whole(d_y_BLV)
        d_state_BKV = torch.zeros_like(starts_BNKV[:, 0]) if d_last_BKV is None else d_last_BKV.clone()
        d_state_BKV = _whole(d_state_BKV)
        d_given = [None if x is None else torch.empty_like(x) for x in given]
        written, sizes = (d_y_BLV, d_state_BKV, *d_given), _sizes([*given, d_state_BKV], reads_before=ctx.reads_before)
        kernel("delta_backward", starts_BNKV.dtype)(*given, u_BMV, starts_BNKV, *written, sizes=sizes)
        return *d_given, d_state_BKV, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        there = [place for place, x in enumerate(inputs[:7]) if x is not None]
        folded = fold_replicas([inputs[i] for i in there], [in_dims[i] for i in there], info.batch_size)
        by_place = dict(zip(there, folded, strict=True))
        found = _Delta.apply(*(by_place.get(place) for place in range(7)), inputs[7])
        return unfold_replicas(found, info.batch_size)


def _whole(x: Tensor | None) -> Any:
    return None if x is None else x.contiguous()


def _sizes(given: list[Any], *, reads_before: bool) -> object:
    r_BLK, _, _, k_BMK, _, decay_BLK, state_BKV = given
    (rows, length, _), decays = r_BLK.shape, 0 if decay_BLK is None else decay_BLK.shape[2]
    return integers(rows, length, k_BMK.shape[1] // length, *state_BKV.shape[1:], decays, CHUNK, reads_before)


def _takes(r_BHLK: Tensor, ctx: Context) -> bool:
    return untraced(r_BHLK, ctx) and r_BHLK.shape[-1] <= LARGEST


register(
    Kernel(
        name="native_delta",
        computes="delta_loop",
        reference="chomsky_ladder.models.scans.generalised_delta.delta_loop",
        call=native_delta,
        serves=(
            *("delta_net", "gated_delta_net", "gated_delta_product", "kda", "gated_delta_net2", "comba", "rwkv7"),
            *("gla", "hgrn2", "gated_slot_attention", "rwkv5", "rwkv6", "xlstm", "xlstm_large"),
        ),
        device="cpu",
        dtypes=tuple(REAL),
        stacks=True,
        takes=_takes,
        missing=missing,
        rank=24,
    )
)
