"""The delta rule's loops in C (cpu.c, unit_delta.c) as an autograd function that supports vmap.

It is by hand because a declaration would need eight hooks and cost 50 us a call: most inputs may be missing, heads lie
where they come from by three strides each, and one function serves both loops. Of `unit_delta_loop` queries and keys
come as they are and are made 1 long as the turn of their head comes, which saves a dozen passes over all of them.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.native import integers, kernel, untraced
from chomsky_ladder.models.scans.delta import LENGTH_EPS
from chomsky_ladder.models.scans.function import Function
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
    """C version of `delta_loop`. Supports vmap."""
    return _of_all_heads(r_BHLK, f_BHMK, g_BHMK, k_BHMK, v_BHMV, decay_BHLK, None, state_BHKV, reads_before, None)


def native_unit_delta(
    q_BHLK: Tensor,
    k_BHMK: Tensor,
    v_BHMV: Tensor,
    beta_BHM1: Tensor | None,
    share_BHMK: Tensor | None,
    decay_BHLK: Tensor | None,
    state_BHKV: Tensor,
    *,
    scale: float = 1.0,
    less_BHL1: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """C version of `unit_delta_loop`. Supports vmap."""
    given = (q_BHLK, share_BHMK, beta_BHM1, k_BHMK, v_BHMV, decay_BHLK, less_BHL1, state_BHKV)
    return _of_all_heads(*given, False, scale)


def _of_all_heads(*given: Any) -> tuple[Tensor, Tensor]:
    *tensors, reads_before, scale = given
    whole = (None if x is None else x.expand(*tensors[0].shape[:2], *x.shape[2:]) for x in tensors)
    y_BHLV, last_BHKV, *_ = _Delta.apply(*whole, reads_before, scale)
    return y_BHLV, last_BHKV


class _Delta(Function):
    """The loop with its gradient; vmap adds rows. Heads lie where they come from, and behind time in what is written.

    With a scale r is the queries of any length, k the keys, f their share, g their beta, the seventh what is taken off.
    """

    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, ...]:
        """Return y and the last state; for the backward pass what was taken out, and the state before each chunk."""
        *tensors, reads_before, scale = inputs
        given, first_BHKV = [steady(x) for x in tensors[:7]], tensors[7].contiguous()
        r_BHLK, v_BHMV = given[0], given[4]
        (rows, heads, length, _), moves, values = r_BHLK.shape, *v_BHMV.shape[2:]
        y_BLHV, last_BHKV = v_BHMV.new_empty(rows, length, heads, values), torch.empty_like(first_BHKV)
        u_BHMV = v_BHMV.new_empty(rows, heads, moves, values)
        starts_BHNKV = v_BHMV.new_empty(rows, heads, -(-moves // CHUNK), *first_BHKV.shape[2:])
        name, constants = _named(scale, v_BHMV.dtype)
        read, written = (*_taken(given, scale), first_BHKV, *constants), (y_BLHV, last_BHKV, u_BHMV, starts_BHNKV)
        sizes = sizes_of(given, None, reads_before=reads_before)
        kernel(f"{name}_forward", v_BHMV.dtype)(*read, *written, sizes=sizes)
        return y_BLHV.transpose(1, 2), last_BHKV, u_BHMV, starts_BHNKV

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[2:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs[:7], *output[2:])
        ctx.reads_before, ctx.scale = inputs[8:]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y_BHLV: Tensor | None, d_last_BHKV: Tensor | None, *_: None) -> tuple[Any, ...]:
        *tensors, u_BHMV, starts_BHNKV = ctx.saved_tensors
        given = [steady(x) for x in tensors]
        r_BHLK, v_BHMV = given[0], given[4]
        d_y_BHLV = v_BHMV.new_zeros(*r_BHLK.shape[:3], v_BHMV.shape[3]) if d_y_BHLV is None else steady(d_y_BHLV)
        if d_last_BHKV is None:
            d_state_BHKV = v_BHMV.new_zeros(*r_BHLK.shape[:2], *starts_BHNKV.shape[3:])
        else:
            d_state_BHKV = d_last_BHKV.clone(memory_format=torch.contiguous_format)
        d_given = [None if x is None else x.new_empty(x.transpose(1, 2).shape) for x in given]
        name, constants = _named(ctx.scale, v_BHMV.dtype)
        read = (*_taken(given, ctx.scale), *constants, u_BHMV, starts_BHNKV, d_y_BHLV)
        written = (d_state_BHKV, *_taken(d_given, ctx.scale))
        sizes = sizes_of(given, d_y_BHLV, reads_before=ctx.reads_before)
        kernel(f"{name}_backward", v_BHMV.dtype)(*read, *written, sizes=sizes)
        return *(None if x is None else x.transpose(1, 2) for x in d_given), d_state_BHKV, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        there = [place for place, x in enumerate(inputs[:8]) if x is not None]
        folded = fold_replicas([inputs[i] for i in there], [in_dims[i] for i in there], info.batch_size)
        by_place = dict(zip(there, folded, strict=True))
        found = _Delta.apply(*(by_place.get(place) for place in range(8)), *inputs[8:])
        return unfold_replicas(found, info.batch_size)


def _named(scale: float | None, dtype: torch.dtype) -> tuple[str, tuple[Tensor, ...]]:
    """Return the kernel's name and its constants."""
    return ("delta", ()) if scale is None else ("unit_delta", (torch.tensor([scale, LENGTH_EPS], dtype=dtype),))


def _taken(of_each: list[Any], scale: float | None) -> list[Any]:
    """Select the tensors a kernel reads. Without a scale, the subtracted-query tensor is dropped."""
    return of_each[:6] if scale is None else of_each


def steady(x: Tensor | None) -> Any:
    """Return x, or a copy of it, whose last axis lies in one piece."""
    return x if x is None or x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def sizes_of(given: list[Any], d_y_BHLV: Tensor | None, *, reads_before: bool = False, replicas: int = 1) -> object:
    r_BHLK, share_BHMK, _, _, v_BHMV, decay_BHLK, _ = given
    (rows, heads, length, keys), (moves, values) = r_BHLK.shape, v_BHMV.shape[2:]
    shares, decays = (0 if x is None else x.shape[3] for x in (share_BHMK, decay_BHLK))
    apart = [(0, 0, 0) if x is None else x.stride()[:3] for x in (*given, d_y_BHLV)]
    shape = (rows, heads, length, moves // length, keys, values, decays, CHUNK, reads_before, shares, replicas)
    return integers(*shape, *(each for strides in apart for each in strides))


def takes(r_BHLK: Tensor, ctx: Context) -> bool:
    return untraced(r_BHLK, ctx) and r_BHLK.shape[-1] <= LARGEST
