"""Linear attention that writes into slots as two Triton kernels: `decayed_slots` of reference.py.

    y_t = q_t S_t        S_t = S_{t-1} diag(w_t) + k_t s_t^T

Columns of S have nothing to do with one another, so a program walks through time for one head of one row and one tile
of slots, its state [K, tile] in registers. The forward pass writes the state before every chunk of `CHUNK` tokens; the
backward pass goes from the last token to the first, finds a few states at a time again from the one that starts their
chunk, and takes the gradients off them, where G is that of S_t with q_t^T dy_t added:

    dq_t = S_t dy_t        dk_t = G s_t        ds_t = k_t G        dw_t = sum_k G S_{t-1}
    dL/dS_{t-1} = G diag(w_t)

Nothing is divided, so that decays of 0 are as exact as others. Sums over tiles of slots are added outside, so the
result does not depend on the order in which programs run. Tokens behind the end count as q = k = s = 0 and w = 1, which
leave S and G as they are. Inputs may lie in memory as they do where heads are a part of a product: what is next to one
another must be a head's channels alone.
"""
# pyright: reportIndexIssue=false
# (a kernel[grid] has no type where triton.jit has none)

from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from chomsky_ladder.models.kernels.triton.memory import by_token, each_together, together
from chomsky_ladder.models.operations.slots.gpu_programs import backward_kernel, forward_kernel
from chomsky_ladder.models.scans.replicas import fold_replicas, unfold_replicas

CHUNK = 16  # tokens from one state that is kept to the next
READ = 4  # tokens that are read at a time there
PER_PROGRAM = 1024  # elements of a state, for one warp: sums over keys and over slots then wait for no other
HELD = 2048  # elements of the states that one warp holds going back
WARPS = 1

DTYPES = (torch.float32, torch.bfloat16)

Some = Tensor | None


def triton_slots(
    q_BHLK: Tensor, k_BHLK: Tensor, s_BHLM: Tensor, decay_BHLM: Tensor, state_BHKM: Tensor
) -> tuple[Tensor, Tensor]:
    """As `decayed_slots`, in fp32, where all but the state may be of 16 bits; it stacks under vmap."""
    given = (q_BHLK, k_BHLK, s_BHLM, decay_BHLM)
    assert all(x.dtype in DTYPES for x in given), "the kernel takes fp32 and bf16 alone"
    assert state_BHKM.dtype == torch.float32, "the state is in fp32"
    y_1BHLM, last_1BHKM, _ = _slots(*(x[None] for x in (*given, state_BHKM)), torch.is_grad_enabled())
    return y_1BHLM[0], last_1BHKM[0]


@torch.library.custom_op("chomsky_ladder::slots", mutates_args=())
def _slots(
    q_RBHLK: Tensor, k_RBHLK: Tensor, s_RBHLM: Tensor, decay_RBHLM: Tensor, state_RBHKM: Tensor, keep: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """All y, the last state, and the states that start the chunks: none, unless a backward pass is to come.

    With an axis R in front, of replicas: what vmap adds folds into it.
    """
    given = [together(x) for x in (q_RBHLK, k_RBHLK, s_RBHLM, decay_RBHLM)]
    state_RBHKM = each_together(state_RBHKM)
    written = _written(*given, state_RBHKM, keep)
    plan = _Plan.of(q_RBHLK, s_RBHLM)
    with torch.cuda.device_of(q_RBHLK):
        forward_kernel[plan.grid](
            *given, state_RBHKM, *written, *map(_strides, given), state_RBHKM.stride()[:1], *plan.sizes, READ, keep,
            num_warps=WARPS,
        )  # fmt: skip
    return written


@_slots.register_fake
def _written(
    q_RBHLK: Tensor, k_RBHLK: Tensor, s_RBHLM: Tensor, decay_RBHLM: Tensor, state_RBHKM: Tensor, keep: bool
) -> tuple[Tensor, Tensor, Tensor]:
    chunks = triton.cdiv(q_RBHLK.shape[3], CHUNK) if keep else 0
    starts = (*state_RBHKM.shape[:3], chunks, *state_RBHKM.shape[3:])
    y_RBHLM = by_token(_room, s_RBHLM.shape, state_RBHKM)
    return y_RBHLM, _room(state_RBHKM.shape, state_RBHKM), _room(starts, state_RBHKM)


@torch.library.custom_op("chomsky_ladder::slots_back", mutates_args=())
def _slots_back(
    q_RBHLK: Tensor,
    k_RBHLK: Tensor,
    s_RBHLM: Tensor,
    decay_RBHLM: Tensor,
    starts_RBHNKM: Tensor,
    d_y_RBHLM: Tensor,
    d_last_RBHKM: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The gradients of all inputs; those of q and k by tiles, in fp32 where there are some."""
    given = [together(x) for x in (q_RBHLK, k_RBHLK, s_RBHLM, decay_RBHLM)]
    d_y_RBHLM = together(d_y_RBHLM)
    written = _written_back(*given, starts_RBHNKM, d_y_RBHLM, d_last_RBHKM)
    plan = _Plan.of(q_RBHLK, s_RBHLM)
    with torch.cuda.device_of(q_RBHLK):
        backward_kernel[plan.grid](
            *given, starts_RBHNKM, d_y_RBHLM, d_last_RBHKM.contiguous(), *written, *map(_strides, (*given, d_y_RBHLM)),
            *plan.sizes, plan.held, num_warps=WARPS,
        )  # fmt: skip
    return written


@_slots_back.register_fake
def _written_back(
    q_RBHLK: Tensor,
    k_RBHLK: Tensor,
    s_RBHLM: Tensor,
    decay_RBHLM: Tensor,
    starts_RBHNKM: Tensor,
    d_y_RBHLM: Tensor,
    d_last_RBHKM: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    tiles = _Plan.of(q_RBHLK, s_RBHLM).tiles
    d_q, d_k = (by_token(_room, (tiles, *x.shape), d_last_RBHKM if tiles > 1 else x) for x in (q_RBHLK, k_RBHLK))
    d_s, d_decay = (by_token(_room, x.shape, x) for x in (s_RBHLM, decay_RBHLM))
    return d_q, d_k, d_s, d_decay, _room(d_last_RBHKM.shape, d_last_RBHKM)


def _keep(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor, Tensor]) -> None:
    ctx.mark_non_differentiable(output[2])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:4], output[2])


def _gradients(ctx: Any, d_y_RBHLM: Some, d_last_RBHKM: Some, _: None) -> tuple[Some, ...]:
    q_RBHLK, k_RBHLK, s_RBHLM, _, starts_RBHNKM = ctx.saved_tensors
    if d_y_RBHLM is None:
        d_y_RBHLM = torch.zeros_like(s_RBHLM, dtype=starts_RBHNKM.dtype)
    if d_last_RBHKM is None:
        d_last_RBHKM = torch.zeros_like(starts_RBHNKM[:, :, :, 0])
    d_q, d_k, *others = _slots_back(*ctx.saved_tensors, d_y_RBHLM, d_last_RBHKM)
    whole = ((d_x[0] if len(d_x) == 1 else d_x.sum(0)).to(x.dtype) for d_x, x in ((d_q, q_RBHLK), (d_k, k_RBHLK)))
    return *whole, *others, None


_slots.register_autograd(_gradients, setup_context=_keep)


@_slots.register_vmap
def _replicated(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple]:
    *tensors, keep = inputs
    return unfold_replicas(_slots(*fold_replicas(tensors, in_dims[:-1], info.batch_size), keep), info.batch_size)


class _Plan(NamedTuple):
    grid: tuple[int]
    sizes: tuple[int, ...]  # of both kernels, in their order
    held: int  # states
    tiles: int

    @classmethod
    def of(cls, q_RBHLK: Tensor, s_RBHLM: Tensor) -> "_Plan":
        """A tile is all slots of a head where a warp holds them: then no gradient is a sum over tiles."""
        replicas, batch, heads, length, keys = q_RBHLK.shape
        slots, padded = s_RBHLM.shape[4], triton.next_power_of_2(keys)
        tile = max(1, min(PER_PROGRAM // padded, triton.next_power_of_2(slots)))
        tiles, held = triton.cdiv(slots, tile), max(1, min(READ, HELD // (padded * tile)))
        sizes = (batch, heads, length, keys, slots, padded, tile, CHUNK)
        return cls((replicas * batch * heads * tiles,), sizes, held, tiles)


def _strides(x: Tensor) -> tuple[int, ...]:
    return x.stride()[:4]


def _room(shape: tuple[int, ...], like: Tensor) -> Tensor:
    return like.new_empty(shape)
