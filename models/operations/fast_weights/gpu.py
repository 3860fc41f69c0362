"""Fast weights that descend in mini-batches as two Triton kernels: `fast_weights_from` of reference.py.

    u_s = k_s M + m        n_s = (u_s - E(u_s)) p_s        e_s = g (g n_s + b - (v_s - k_s))
    d_s = (e_s - E(e_s) - n_s E(e_s n_s)) p_s        z_t = q_t M + m - r_t sum_{s <= t} c_s (q_t k_s + 1) d_s

with E the mean of a row, p one over its deviation, g the norm's scale, b its shift, and m the bias, M's last row.
Behind a mini-batch of C tokens M loses r_C sum_s c_s k_s^T d_s, and m r_C sum_s c_s d_s.

A norm is over all of a head's channels, so a program walks through the mini-batches of one head of one row, whose
weights it reads and writes a few rows at a time: as a whole they would leave products no registers. The forward pass
writes the weights before every mini-batch; the backward pass goes from the last one to the first, computes its d again,
and takes the gradients off them, where G and h are those of the next M and m, and x_s = k_s G + h:

    dd_s = -r_C c_s x_s - c_s sum_{t >= s} r_t (q_t k_s + 1) dz_t, from which come du_s, dv_s, dg and db
    w_ts = -r_t c_s dz_t d_s for s <= t
    dq_t = dz_t M + sum_s w_ts k_s        dk_s = -r_C c_s G d_s + sum_t w_ts q_t + M du_s - dv_s
    dc_s = -r_C x_s d_s - sum_t r_t (q_t k_s + 1) dz_t d_s
    dr_t = -sum_s c_s (q_t k_s + 1) dz_t d_s, and that of r_C also -sum_s c_s x_s d_s
    G <- G + sum_t q_t^T dz_t + k_t^T du_t        h <- h + sum_t dz_t + du_t

What rows share, g, b and r, has its gradient from each, and these are added outside, so the result does not depend on
the order in which programs run. Products are in fp32, of all its bits.

The host code is by hand: in a declaration (in_triton.py) all inputs have rows, where place rates and norms are one for
all of them.
"""
# pyright: reportIndexIssue=false
# (a kernel[grid] has no type where triton.jit has none)

from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from chomsky_ladder.models.kernels.triton.memory import by_token, each_together, together
from chomsky_ladder.models.operations.fast_weights.gpu_programs import backward_kernel, forward_kernel
from chomsky_ladder.models.operations.fast_weights.reference import Norm
from chomsky_ladder.models.scans.replicas import fold_replicas, unfold_replicas

BLOCK = 16  # the least that an axis of a product may have; so many rows of the weights are multiplied at a time
PER_WARP = 128  # elements of a mini-batch

DTYPES = (torch.float32, torch.bfloat16)

Gradients = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


def triton_fast_weights(
    q_BHLK: Tensor, k_BHLK: Tensor, v_BHLK: Tensor, rate_BHL: Tensor, place_rate_C: Tensor, norm: Norm, M_BHXK: Tensor
) -> Tensor:
    """Compute `fast_weights_from` in fp32 for q, k and v of fp32 or bf16; it stacks under vmap."""
    given = (q_BHLK, k_BHLK, v_BHLK)
    assert all(x.dtype in DTYPES for x in given), "the kernel takes fp32 and bf16 alone"
    assert M_BHXK.dtype == torch.float32, "weights are in fp32"
    of_all = (place_rate_C, norm.scale_H1K.squeeze(1), norm.shift_H1K.squeeze(1))
    one = (x[None] for x in (*given, rate_BHL.float(), *(x.float() for x in of_all), M_BHXK))
    return _scan(*one, torch.is_grad_enabled())[0][0]


@torch.library.custom_op("chomsky_ladder::fast_weights", mutates_args=())
def _scan(
    q_RBHLK: Tensor,
    k_RBHLK: Tensor,
    v_RBHLK: Tensor,
    rate_RBHL: Tensor,
    place_rate_RC: Tensor,
    scale_RHK: Tensor,
    shift_RHK: Tensor,
    M_RBHXK: Tensor,
    keep: bool,
) -> tuple[Tensor, Tensor]:
    """All z, and the weights before every mini-batch: only the last, unless a backward pass is to come.

    With an axis R in front, of replicas: what vmap adds folds into it.
    """
    given = _given(q_RBHLK, k_RBHLK, v_RBHLK, rate_RBHL, place_rate_RC, scale_RHK, shift_RHK)
    M_RBHXK = M_RBHXK if M_RBHXK[0, 0, 0].is_contiguous() else M_RBHXK.contiguous()
    written, plan = _written(*given, M_RBHXK, keep), _Plan.of(q_RBHLK, place_rate_RC)
    with torch.cuda.device_of(q_RBHLK):
        forward_kernel[plan.grid](
            *given, M_RBHXK, *written, *_strides(*given, M_RBHXK), *plan.sizes, BLOCK, keep, num_warps=plan.warps
        )
    return written


@_scan.register_fake
def _written(
    q_RBHLK: Tensor,
    k_RBHLK: Tensor,
    v_RBHLK: Tensor,
    rate_RBHL: Tensor,
    place_rate_RC: Tensor,
    scale_RHK: Tensor,
    shift_RHK: Tensor,
    M_RBHXK: Tensor,
    keep: bool,
) -> tuple[Tensor, Tensor]:
    count = triton.cdiv(q_RBHLK.shape[3], place_rate_RC.shape[1]) if keep else 1
    starts = (*M_RBHXK.shape[:3], count, *M_RBHXK.shape[3:])
    return by_token(_room, q_RBHLK.shape, M_RBHXK), _room(starts, M_RBHXK)


@torch.library.custom_op("chomsky_ladder::fast_weights_back", mutates_args=())
def _scan_back(
    q_RBHLK: Tensor,
    k_RBHLK: Tensor,
    v_RBHLK: Tensor,
    rate_RBHL: Tensor,
    place_rate_RC: Tensor,
    scale_RHK: Tensor,
    shift_RHK: Tensor,
    starts_RBHNXK: Tensor,
    d_z_RBHLK: Tensor,
) -> Gradients:
    """Return all gradients, those of place rates [R, B, H, C], scales and shifts [R, B, H, K] by rows and heads."""
    given = _given(q_RBHLK, k_RBHLK, v_RBHLK, rate_RBHL, place_rate_RC, scale_RHK, shift_RHK)
    d_z_RBHLK = together(d_z_RBHLK)
    written = _written_back(*given, starts_RBHNXK, d_z_RBHLK)
    plan = _Plan.of(q_RBHLK, place_rate_RC)
    with torch.cuda.device_of(q_RBHLK):
        backward_kernel[plan.grid](
            *given,
            starts_RBHNXK,
            d_z_RBHLK,
            *written,
            *_strides(*given, d_z_RBHLK),
            *plan.sizes,
            BLOCK,
            num_warps=plan.warps,
        )
    return written


@_scan_back.register_fake
def _written_back(
    q_RBHLK: Tensor,
    k_RBHLK: Tensor,
    v_RBHLK: Tensor,
    rate_RBHL: Tensor,
    place_rate_RC: Tensor,
    scale_RHK: Tensor,
    shift_RHK: Tensor,
    starts_RBHNXK: Tensor,
    d_z_RBHLK: Tensor,
) -> Gradients:
    rows, (*_, weights, keys) = rate_RBHL.shape[:3], starts_RBHNXK.shape
    d_q, d_k, d_v = (by_token(_room, x.shape, x) for x in (q_RBHLK, k_RBHLK, v_RBHLK))
    d_rate = by_token(_room, (*rate_RBHL.shape, 1), rate_RBHL)[..., 0]
    d_place_rate = _room((*rows, place_rate_RC.shape[1]), starts_RBHNXK)
    d_scale, d_shift = (_room((*rows, keys), starts_RBHNXK) for _ in range(2))
    return d_q, d_k, d_v, d_rate, d_place_rate, d_scale, d_shift, _room((*rows, weights, keys), starts_RBHNXK)


def _keep(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(*inputs[:7], output[1])


def _gradients(ctx: Any, d_z_RBHLK: Tensor, _: None) -> tuple[Tensor | None, ...]:
    *of_tokens, d_place_rate, d_scale, d_shift, d_M_RBHXK = _scan_back(*ctx.saved_tensors, d_z_RBHLK)
    return *of_tokens, d_place_rate.sum((1, 2)), d_scale.sum(1), d_shift.sum(1), d_M_RBHXK, None


_scan.register_autograd(_gradients, setup_context=_keep)


@_scan.register_vmap
def _replicated(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple]:
    *tensors, keep = inputs
    return unfold_replicas(_scan(*fold_replicas(tensors, in_dims[:-1], info.batch_size), keep), info.batch_size)


class _Plan(NamedTuple):
    grid: tuple[int]
    sizes: tuple[int, ...]  # of both kernels, in their order
    warps: int

    @classmethod
    def of(cls, q_RBHLK: Tensor, place_rate_RC: Tensor) -> "_Plan":
        replicas, batch, heads, length, keys = q_RBHLK.shape
        size = place_rate_RC.shape[1]
        padded, tokens = (max(BLOCK, triton.next_power_of_2(x)) for x in (keys, size))
        sizes = (batch, heads, length, keys, size, padded, tokens)
        return cls((replicas * batch * heads,), sizes, padded * tokens // PER_WARP)


def _given(*tensors: Tensor) -> list[Any]:
    """Lay tensors as kernels read them: the channels of a head side by side, or all of one replica."""
    return [*map(together, tensors[:3]), tensors[3], *map(each_together, tensors[4:])]


def _strides(*tensors: Tensor) -> list[tuple[int, ...]]:
    return [x.stride()[:4] if x.ndim > 3 else x.stride()[:1] for x in tensors]


def _room(shape: tuple[int, ...], like: Tensor) -> Tensor:
    return like.new_empty(shape)
