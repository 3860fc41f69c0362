"""The delta rule with momentum as two Triton kernels: `momentum_delta_rule` of reference.py.

    e_t = k_t M_{t-1} - v_t        S_t = h_t S_{t-1} - r_t k_t^T e_t        M_t = a_t M_{t-1} + S_t        y_t = q_t M_t

Columns of M and S have nothing to do with one another, so a program walks through time for one head of one row and one
tile of values, both states [K, tile] in registers. The forward pass writes the states before every chunk of `CHUNK`
tokens; the backward pass goes from the last chunk to the first, computes its states and errors again, and takes the
gradients off them, where G and N are those of M_t and S_t:

    G <- G + q_t dy_t^T        N <- N + G        dw_t = -k_t N        de_t = r_t dw_t        dv_t = -de_t
    dq_t = M_t dy_t        dk_t = M_{t-1} de_t - r_t N e_t
    da_t = sum G M_{t-1}        dh_t = sum N S_{t-1}        dr_t = sum dw_t e_t
    dL/dM_{t-1} = a_t G + k_t de_t^T        dL/dS_{t-1} = h_t N

Sums over tiles of values are added outside, so the result does not depend on the order in which programs run.
"""
# pyright: reportIndexIssue=false
# (a kernel[grid] has no type where triton.jit has none)

from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from chomsky_ladder.models.kernels.triton.memory import by_token, each_together, together
from chomsky_ladder.models.operations.momentum.gpu_programs import backward_kernel, forward_kernel
from chomsky_ladder.models.operations.momentum.reference import Held
from chomsky_ladder.models.scans.replicas import fold_replicas, unfold_replicas

CHUNK = 4  # tokens, of which one warp holds all states going back
PER_PROGRAM = 512  # elements of a state, for one warp: sums over keys and over values then wait for no other


def triton_momentum(
    q_BHLK: Tensor,
    k_BHLK: Tensor,
    v_BHLV: Tensor,
    rate_BHL: Tensor,
    log_decay_BHL: Tensor,
    log_momentum_BHL: Tensor,
    state: Held,
) -> tuple[Tensor, Held]:
    """As `momentum_delta_rule`, in fp32 for q, k and v of fp32 or bf16; it stacks under vmap."""
    given = (q_BHLK, k_BHLK, v_BHLV)
    assert all(x.dtype in (torch.float32, torch.bfloat16) for x in given), "the kernel takes fp32 and bf16 alone"
    assert all(x.dtype == torch.float32 for x in state), "states are in fp32"
    gates = (rate_BHL.float(), torch.exp(log_decay_BHL.float()), torch.exp(log_momentum_BHL.float()))
    one = (x[None] for x in (*map(together, given), *gates, *state))
    y_1BHLV, M_1BHKV, S_1BHKV, *_ = _scan(*one, torch.is_grad_enabled())
    return y_1BHLV[0], (M_1BHKV[0], S_1BHKV[0])


@torch.library.custom_op("chomsky_ladder::momentum", mutates_args=())
def _scan(
    q_RBHLK: Tensor,
    k_RBHLK: Tensor,
    v_RBHLV: Tensor,
    r_RBHL: Tensor,
    a_RBHL: Tensor,
    h_RBHL: Tensor,
    M_RBHKV: Tensor,
    S_RBHKV: Tensor,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """All y, the last M and S, and those that start the chunks: none, unless a backward pass is to come.

    With an axis R in front, of replicas: what vmap adds folds into it.
    """
    given = [*map(together, (q_RBHLK, k_RBHLK, v_RBHLV)), r_RBHL, a_RBHL, h_RBHL]
    states = each_together(M_RBHKV), each_together(S_RBHKV)
    written, plan = _written(*given, *states, keep), _Plan.of(q_RBHLK, v_RBHLV)
    with torch.cuda.device_of(q_RBHLK):
        forward_kernel[plan.grid](
            *given, *states, *written, *(x.stride()[:4] for x in given), *(x.stride()[:1] for x in states),
            *plan.sizes, keep, num_warps=plan.warps,
        )  # fmt: skip
    return written


@_scan.register_fake
def _written(
    q_RBHLK: Tensor,
    k_RBHLK: Tensor,
    v_RBHLV: Tensor,
    r_RBHL: Tensor,
    a_RBHL: Tensor,
    h_RBHL: Tensor,
    M_RBHKV: Tensor,
    S_RBHKV: Tensor,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    chunks = triton.cdiv(q_RBHLK.shape[3], CHUNK) if keep else 0
    starts = (*M_RBHKV.shape[:3], chunks, 2, *M_RBHKV.shape[3:])
    last_M, last_S = _room(M_RBHKV.shape, M_RBHKV), _room(M_RBHKV.shape, M_RBHKV)
    return by_token(_room, v_RBHLV.shape, M_RBHKV), last_M, last_S, _room(starts, M_RBHKV)


@torch.library.custom_op("chomsky_ladder::momentum_back", mutates_args=())
def _scan_back(
    q_RBHLK: Tensor,
    k_RBHLK: Tensor,
    v_RBHLV: Tensor,
    r_RBHL: Tensor,
    a_RBHL: Tensor,
    h_RBHL: Tensor,
    starts_RBHN2KV: Tensor,
    d_y_RBHLV: Tensor,
    d_M_RBHKV: Tensor,
    d_S_RBHKV: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Those of q, k, r, a and h by tiles of values, in fp32 where there are some; of v, M and S whole."""
    given = [*map(together, (q_RBHLK, k_RBHLK, v_RBHLV)), r_RBHL, a_RBHL, h_RBHL]
    d_y_RBHLV, d_last = together(d_y_RBHLV), (d_M_RBHKV.contiguous(), d_S_RBHKV.contiguous())
    written = _written_back(*given, starts_RBHN2KV, d_y_RBHLV, *d_last)
    plan = _Plan.of(q_RBHLK, v_RBHLV)
    with torch.cuda.device_of(q_RBHLK):
        backward_kernel[plan.grid](
            *given, starts_RBHN2KV, d_y_RBHLV, *d_last, *written, *(x.stride()[:4] for x in (*given, d_y_RBHLV)),
            *plan.sizes, num_warps=plan.warps,
        )  # fmt: skip
    return written


@_scan_back.register_fake
def _written_back(
    q_RBHLK: Tensor,
    k_RBHLK: Tensor,
    v_RBHLV: Tensor,
    r_RBHL: Tensor,
    a_RBHL: Tensor,
    h_RBHL: Tensor,
    starts_RBHN2KV: Tensor,
    d_y_RBHLV: Tensor,
    d_M_RBHKV: Tensor,
    d_S_RBHKV: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    tiles = _Plan.of(q_RBHLK, v_RBHLV).tiles
    d_q, d_k = (by_token(_room, (tiles, *x.shape), d_M_RBHKV if tiles > 1 else x) for x in (q_RBHLK, k_RBHLK))
    d_r, d_a, d_h = (by_token(_room, (tiles, *r_RBHL.shape, 1), d_M_RBHKV)[..., 0] for _ in "rah")
    d_M, d_S = (_room(d_M_RBHKV.shape, d_M_RBHKV) for _ in "MS")
    return d_q, d_k, by_token(_room, v_RBHLV.shape, v_RBHLV), d_r, d_a, d_h, d_M, d_S


def _keep(ctx: Any, inputs: tuple, output: tuple[Tensor, ...]) -> None:
    ctx.mark_non_differentiable(output[3])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:6], output[3])


def _gradients(
    ctx: Any, d_y: Tensor | None, d_M: Tensor | None, d_S: Tensor | None, _: None
) -> tuple[Tensor | None, ...]:
    *given, starts_RBHN2KV = ctx.saved_tensors
    d_y = torch.zeros_like(given[2], dtype=starts_RBHN2KV.dtype) if d_y is None else d_y
    d_last = (torch.zeros_like(starts_RBHN2KV[:, :, :, 0, 0]) if x is None else x for x in (d_M, d_S))
    d_q, d_k, d_v, *d_gates, d_M, d_S = _scan_back(*given, starts_RBHN2KV, d_y, *d_last)
    d_q, d_k, *d_gates = (x[0] if len(x) == 1 else x.sum(0) for x in (d_q, d_k, *d_gates))
    return d_q.to(given[0].dtype), d_k.to(given[1].dtype), d_v, *d_gates, d_M, d_S, None


_scan.register_autograd(_gradients, setup_context=_keep)


@_scan.register_vmap
def _replicated(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple]:
    *tensors, keep = inputs
    return unfold_replicas(_scan(*fold_replicas(tensors, in_dims[:-1], info.batch_size), keep), info.batch_size)


class _Plan(NamedTuple):
    grid: tuple[int]
    sizes: tuple[int, ...]  # of the kernels, in their order
    tiles: int
    warps: int

    @classmethod
    def of(cls, q_RBHLK: Tensor, v_RBHLV: Tensor) -> "_Plan":
        replicas, batch, heads, length, keys = q_RBHLK.shape
        values, padded = v_RBHLV.shape[4], triton.next_power_of_2(keys)
        tile = max(16, min(PER_PROGRAM // padded, triton.next_power_of_2(values)))
        tiles, elements = triton.cdiv(values, tile), padded * tile
        # Where one warp does not hold it, more of them wait for each other anyway.
        warps = 1 if elements <= PER_PROGRAM else 2 * elements // PER_PROGRAM
        sizes = (batch, heads, length, keys, values, padded, tile, CHUNK)
        return cls((replicas * batch * heads * tiles,), sizes, tiles, warps)


def _room(shape: tuple[int, ...], like: Tensor) -> Tensor:
    return like.new_empty(shape)
