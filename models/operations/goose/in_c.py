"""RWKV-7's loop in C (cpu.c) as an autograd function that supports vmap.

It is by hand as the delta rule's is: tensors lie where they come from, by three strides each, and channels differ among
replicas while all else that vmap adds becomes more rows.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from chomsky_ladder.models.kernels.native import kernel
from chomsky_ladder.models.operations.delta.in_c import CHUNK, sizes_of, steady
from chomsky_ladder.models.operations.goose.reference import Channels
from chomsky_ladder.models.scans.delta import LENGTH_EPS
from chomsky_ladder.models.scans.function import Function
from chomsky_ladder.models.scans.replicas import fold_replicas, unfold_replicas


def native_goose(
    r_BHLK: Tensor,
    k_BHLK: Tensor,
    rate_BHLK: Tensor,
    v_BHLV: Tensor,
    decay_BHLK: Tensor,
    channels: Channels,
    state_BHKV: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """C version of `goose_loop`. Supports vmap."""
    channels_31HK = torch.stack(channels)[:, None]
    return _Goose.apply(r_BHLK, rate_BHLK, k_BHLK, v_BHLV, decay_BHLK, channels_31HK, state_BHKV)[:3]


class _Goose(Function):
    """The loop with its gradient. Channels have an axis R of replicas that differ; of all else vmap adds rows."""

    @staticmethod
    def forward(*inputs: Tensor) -> tuple[Tensor, ...]:
        """Return y, the present's weights and the last state; what was taken out, and the state before each chunk."""
        given = [steady(x) for x in inputs[:5]]
        channels_3RHK, first_BHKV = (x.contiguous() for x in inputs[5:])
        v_BHLV = given[3]
        rows, heads, length, values = v_BHLV.shape
        y_BLHV, present_BLH1 = (v_BHLV.new_empty(rows, length, heads, width) for width in (values, 1))
        last_BHKV = torch.empty_like(first_BHKV)
        u_BHLV = v_BHLV.new_empty(v_BHLV.shape)
        starts_BHNKV = v_BHLV.new_empty(rows, heads, -(-length // CHUNK), *first_BHKV.shape[2:])
        read = (*given, channels_3RHK, first_BHKV, _eps(v_BHLV))
        written = (y_BLHV, present_BLH1, last_BHKV, u_BHLV, starts_BHNKV)
        kernel("goose_forward", v_BHLV.dtype)(*read, *written, sizes=_sizes(given, channels_3RHK))
        return y_BLHV.transpose(1, 2), present_BLH1.transpose(1, 2), last_BHKV, u_BHLV, starts_BHNKV

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[3:])
        ctx.save_for_backward(*inputs[:6], *output[3:])

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, d_y_BHLV: Tensor, d_present_BHL1: Tensor, d_last_BHKV: Tensor, *_: Tensor
    ) -> tuple[Tensor, ...]:
        *tensors, channels_3RHK, u_BHLV, starts_BHNKV = ctx.saved_tensors
        given, channels_3RHK, d_y_BHLV = [steady(x) for x in tensors], channels_3RHK.contiguous(), steady(d_y_BHLV)
        d_present_BLH = d_present_BHL1.squeeze(-1).transpose(1, 2).contiguous()
        d_state_BHKV = d_last_BHKV.clone(memory_format=torch.contiguous_format)
        d_given = [x.new_empty(x.transpose(1, 2).shape) for x in given]
        d_channels_3RHK = torch.zeros_like(channels_3RHK)
        read = (*given, channels_3RHK, _eps(u_BHLV), u_BHLV, starts_BHNKV, d_y_BHLV, d_present_BLH)
        written, sizes = (d_state_BHKV, *d_given, d_channels_3RHK), _sizes(given, channels_3RHK, d_y_BHLV)
        kernel("goose_backward", u_BHLV.dtype)(*read, *written, sizes=sizes)
        return *(x.transpose(1, 2) for x in d_given), d_channels_3RHK, d_state_BHKV

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        folded = fold_replicas(inputs, in_dims, info.batch_size, places=(*[0] * 5, 1, 0))
        return unfold_replicas(_Goose.apply(*folded), info.batch_size)


def _eps(x: Tensor) -> Tensor:
    return torch.tensor(LENGTH_EPS, dtype=x.dtype)


def _sizes(given: list[Tensor], channels_3RHK: Tensor, d_y_BHLV: Tensor | None = None) -> object:
    r_BHLK, rate_BHLK, k_BHLK, v_BHLV, decay_BHLK = given
    as_in_delta = [r_BHLK, rate_BHLK, None, k_BHLK, v_BHLV, decay_BHLK, None]
    return sizes_of(as_in_delta, d_y_BHLV, replicas=channels_3RHK.shape[1])
