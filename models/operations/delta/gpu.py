"""The delta rule with any decay as two Triton kernels, forward and backward: `delta_loop` of models/scans.

    S_t = diag(w_t) S_{t-1} - g_t u_t + k_t v_t^T        u_t = f_t S_{t-1}        y_t = r_t S_t, or r_t S_{t-1}

Columns of S have nothing to do with one another, so a program walks through time for one head of one row and one tile
of values, its state [K, tile] in registers. The forward pass writes the state before every chunk of `CHUNK` steps; the
backward pass goes from the last chunk to the first, computes its states and u again, and takes the gradients off them,
where G is that of S_t with r_t dy_t^T added, or without it where y_t reads S_{t-1}:

    dv_t = k_t G        dk_t = G v_t        du_t = -g_t G        dg_t = -G u_t        df_t = S_{t-1} du_t
    dw_t = sum_v G S_{t-1}        dL/dS_{t-1} = diag(w_t) G + f_t du_t^T

Sums over tiles of values are added outside, so the result does not depend on the order in which programs run. Steps
behind the end count as f = g = k = v = 0 and w = 1, which leave S and G as they are. Inputs may lie in memory as they
do where heads are a part of a product: what is next to one another must be a head's channels alone.

The host code is by hand: in a declaration (in_triton.py) no input may be missing, where f, g and the decays may.
"""
# pyright: reportIndexIssue=false
# (a kernel[grid] has no type where triton.jit has none)

from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from chomsky_ladder.models.kernels.triton.memory import by_token, each_together, together
from chomsky_ladder.models.operations.delta.gpu_programs import backward_kernel, forward_kernel
from chomsky_ladder.models.scans.replicas import fold_replicas, unfold_replicas

CHUNK = 4  # steps at the most, unless a token has more: as many states as one warp holds going back
PER_PROGRAM = 1024  # elements of a state, for one warp: sums over keys and over values then wait for no other

DTYPES = (torch.float32, torch.bfloat16)

Some = Tensor | None


def triton_delta(
    r_BHLK: Tensor,
    f_BHMK: Some,
    g_BHMK: Some,
    k_BHMK: Tensor,
    v_BHMV: Tensor,
    decay_BHLK: Some,
    state_BHKV: Tensor,
    *,
    reads_before: bool = False,
) -> tuple[Tensor, Tensor]:
    """Compute `delta_loop` in fp32, where r, f, g, k and v may be of 16 bits; it stacks under vmap."""
    g_BHMK = k_BHMK if g_BHMK is None and f_BHMK is not None else g_BHMK
    given = (r_BHLK, f_BHMK, g_BHMK, k_BHMK, v_BHMV, decay_BHLK, state_BHKV)
    assert all(x is None or x.dtype in DTYPES for x in given[:5]), "the kernel takes fp32 and bf16 alone"
    assert all(x is None or x.dtype == torch.float32 for x in given[5:]), "decays and state are in fp32"
    rows = r_BHLK.shape[:2]
    one = (None if x is None else together(x).expand(*rows, *x.shape[2:])[None] for x in given)
    y_1BHLV, last_1BHKV, _ = _delta(*one, reads_before, torch.is_grad_enabled())
    return y_1BHLV[0], last_1BHKV[0]


@torch.library.custom_op("chomsky_ladder::delta", mutates_args=())
def _delta(
    r_RBHLK: Tensor,
    f_RBHMK: Some,
    g_RBHMK: Some,
    k_RBHMK: Tensor,
    v_RBHMV: Tensor,
    decay_RBHLK: Some,
    state_RBHKV: Tensor,
    reads_before: bool,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """All y, the last state, and the states that start the chunks: none, unless a backward pass is to come.

    With an axis R in front, of replicas: what vmap adds folds into it.
    """
    given = [together(x) for x in (r_RBHLK, f_RBHMK, g_RBHMK, k_RBHMK, v_RBHMV, decay_RBHLK)]
    state_RBHKV = each_together(state_RBHKV)
    written = _written(*given, state_RBHKV, reads_before, keep)
    plan = _Plan.of(r_RBHLK, k_RBHMK, v_RBHMV, decay_RBHLK)
    with torch.cuda.device_of(r_RBHLK):
        forward_kernel[plan.grid](
            *given, state_RBHKV, *written, *map(_strides, given), state_RBHKV.stride()[:1], *plan.sizes,
            f_RBHMK is not None, reads_before, keep, num_warps=plan.warps,
        )  # fmt: skip
    return written


@_delta.register_fake
def _written(
    r_RBHLK: Tensor,
    f_RBHMK: Some,
    g_RBHMK: Some,
    k_RBHMK: Tensor,
    v_RBHMV: Tensor,
    decay_RBHLK: Some,
    state_RBHKV: Tensor,
    reads_before: bool,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    chunks = _Plan.of(r_RBHLK, k_RBHMK, v_RBHMV, decay_RBHLK).chunks if keep else 0
    starts = (*state_RBHKV.shape[:3], chunks, *state_RBHKV.shape[3:])
    y_RBHLV = by_token(_room, (*r_RBHLK.shape[:4], v_RBHMV.shape[4]), state_RBHKV)
    return y_RBHLV, _room(state_RBHKV.shape, state_RBHKV), _room(starts, state_RBHKV)


@torch.library.custom_op("chomsky_ladder::delta_back", mutates_args=())
def _delta_back(
    r_RBHLK: Tensor,
    f_RBHMK: Some,
    g_RBHMK: Some,
    k_RBHMK: Tensor,
    v_RBHMV: Tensor,
    decay_RBHLK: Some,
    starts_RBHNKV: Tensor,
    d_y_RBHLV: Tensor,
    d_last_RBHKV: Tensor,
    reads_before: bool,
) -> list[Tensor]:
    """The gradients of r, k, v and the first state, then of f, g and the decays where there are any; by tiles,
    but for those of v and the state, which have the values that tiles are of. Tiles are in fp32 where there are some.
    """
    given = [together(x) for x in (r_RBHLK, f_RBHMK, g_RBHMK, k_RBHMK, v_RBHMV, decay_RBHLK)]
    d_y_RBHLV = together(d_y_RBHLV)
    written = _written_back(*given, starts_RBHNKV, d_y_RBHLV, d_last_RBHKV, reads_before)
    d_r, d_f, d_g, d_k, d_v, d_decay, d_first = _in_order(written, f_RBHMK, decay_RBHLK)
    plan = _Plan.of(r_RBHLK, k_RBHMK, v_RBHMV, decay_RBHLK)
    with torch.cuda.device_of(r_RBHLK):
        backward_kernel[plan.grid](
            *given, starts_RBHNKV, d_y_RBHLV, d_last_RBHKV.contiguous(), d_r, d_f, d_g, d_k, d_v, d_decay, d_first,
            *map(_strides, (*given, d_y_RBHLV)), *plan.sizes, f_RBHMK is not None, reads_before,
            num_warps=plan.warps,
        )  # fmt: skip
    return written


@_delta_back.register_fake
def _written_back(
    r_RBHLK: Tensor,
    f_RBHMK: Some,
    g_RBHMK: Some,
    k_RBHMK: Tensor,
    v_RBHMV: Tensor,
    decay_RBHLK: Some,
    starts_RBHNKV: Tensor,
    d_y_RBHLV: Tensor,
    d_last_RBHKV: Tensor,
    reads_before: bool,
) -> list[Tensor]:
    tiles = _Plan.of(r_RBHLK, k_RBHMK, v_RBHMV, decay_RBHLK).tiles
    d_r, d_k, *d_others = (
        by_token(_room, (tiles, *x.shape), d_last_RBHKV if tiles > 1 else x)
        for x in (r_RBHLK, k_RBHMK, f_RBHMK, g_RBHMK, decay_RBHLK)
        if x is not None
    )
    return [d_r, d_k, by_token(_room, v_RBHMV.shape, v_RBHMV), _room(d_last_RBHKV.shape, d_last_RBHKV), *d_others]


def _keep(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor, Tensor]) -> None:
    *tensors, _, ctx.reads_before, _ = inputs
    ctx.mark_non_differentiable(output[2])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors, output[2])


def _gradients(ctx: Any, d_y_RBHLV: Some, d_last_RBHKV: Some, _: None) -> tuple[Some, ...]:
    *given, starts_RBHNKV = ctx.saved_tensors
    if d_y_RBHLV is None:
        d_y_RBHLV = torch.zeros_like(given[4][:, :, :, : given[0].shape[3]], dtype=starts_RBHNKV.dtype)
    if d_last_RBHKV is None:
        d_last_RBHKV = torch.zeros_like(starts_RBHNKV[:, :, :, 0])
    found = _delta_back(*given, starts_RBHNKV, d_y_RBHLV, d_last_RBHKV, ctx.reads_before)
    whole = [x if place in (2, 3) else x[0] if len(x) == 1 else x.sum(0) for place, x in enumerate(found)]
    in_order = _in_order(whole, given[1], given[5])
    alike = (d_x if d_x is None else d_x.to(x.dtype) for d_x, x in zip(in_order, (*given, starts_RBHNKV), strict=True))
    return *alike, None, None


def _in_order(written: list[Tensor], f_RBHMK: Some, decay_RBHLK: Some) -> tuple[Some, ...]:
    """The gradients of `_delta_back` in the order of the inputs: r, f, g, k, v, decay, state."""
    d_r, d_k, d_v, d_first, *others = written
    d_f, d_g = others[:2] if f_RBHMK is not None else (None, None)
    return d_r, d_f, d_g, d_k, d_v, others[-1] if decay_RBHLK is not None else None, d_first


_delta.register_autograd(_gradients, setup_context=_keep)


@_delta.register_vmap
def _replicated(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple]:
    *tensors, reads_before, keep = inputs
    there = [place for place, x in enumerate(tensors) if x is not None]
    folded = fold_replicas([tensors[i] for i in there], [in_dims[i] for i in there], info.batch_size)
    by_place = dict(zip(there, folded, strict=True))
    outputs = _delta(*(by_place.get(place) for place in range(len(tensors))), reads_before, keep)
    return unfold_replicas(outputs, info.batch_size)


class _Plan(NamedTuple):
    grid: tuple[int]
    sizes: tuple[int, ...]  # of the kernels, in their order
    chunks: int
    tiles: int
    warps: int

    @classmethod
    def of(cls, r_RBHLK: Tensor, k_RBHMK: Tensor, v_RBHMV: Tensor, decay_RBHLK: Some) -> "_Plan":
        """A tile is all values of a head where a warp holds them: then no gradient is a sum over tiles."""
        replicas, batch, heads, length, keys = r_RBHLK.shape
        values, steps = v_RBHMV.shape[4], k_RBHMK.shape[3] // length
        padded, decays = triton.next_power_of_2(keys), 0 if decay_RBHLK is None else decay_RBHLK.shape[4]
        tile = max(16, min(PER_PROGRAM // padded, triton.next_power_of_2(values)))
        tokens, tiles = max(1, CHUNK // steps), triton.cdiv(values, tile)
        sizes = (batch, heads, length, keys, values, padded, tile, decays, steps, tokens)
        grid, warps = (replicas * batch * heads * tiles,), max(1, padded * tile // PER_PROGRAM)
        return cls(grid, sizes, triton.cdiv(length, tokens), tiles, warps)


def _strides(x: Some) -> tuple[int, ...] | None:
    return None if x is None else x.stride()[:4]


def _room(shape: tuple[int, ...], like: Tensor) -> Tensor:
    return like.new_empty(shape)
