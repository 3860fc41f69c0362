"""Solutions of the mesa layer's systems as one Triton kernel: `solved` of models/scans/mesa.py, there and back.

    (1 + H_t) x_t = x_t + a_t H x_t + sum_{s <= t} D_ts (x_t . k_s) k_s = q_t

A program has the tokens of one chunk of one head of one string and takes all steps of conjugate gradients for them, as
the plain form does, or as long as more than rounding is left to find, with q, k, the shares D and H on the chip: a step
is two products with the keys and one with H. The gradient of x is such a solution again, and what else there is to it
are products of what is there.
"""
# pyright: reportIndexIssue=false
# (a kernel[grid] has no type where triton.jit has none)

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from chomsky_ladder.models.kernels.triton.memory import read
from chomsky_ladder.models.scans.mesa import ROUNDING, of_solution
from chomsky_ladder.models.scans.replicas import fold_replicas

LEAST = 16  # of an axis of a product
PRECISION = "tf32x3"  # on tensor cores with nearly all bits; plain fp32 would take other cores five times as long
TINY = tl.constexpr(1.1754943508222875e-38)
ROUNDED = tl.constexpr(2.0**-48)  # of q^2: less than that is left of no sum
WARPS = 4


def triton_solved(
    q_BHNCK: Tensor, k_BHNCK: Tensor, share_BHNCC: Tensor, from_start_BHNC1: Tensor, H_BHNKK: Tensor, *, steps: int = 0
) -> Tensor:
    """As `solved` by steps, in fp32; it stacks under vmap."""
    given = (q_BHNCK, k_BHNCK, share_BHNCC, from_start_BHNC1, H_BHNKK)
    assert all(x.dtype == torch.float32 for x in given), "the kernel takes fp32 alone"
    lead = q_BHNCK.shape[:3]
    flat = (x.expand(*lead, *x.shape[3:]).flatten(0, 2) for x in given)
    return _solve(*flat, steps or q_BHNCK.shape[-1] + ROUNDING).unflatten(0, lead)


@torch.library.custom_op("chomsky_ladder::mesa_solution", mutates_args=())
def _solve(q_XCK: Tensor, k_XCK: Tensor, share_XCC: Tensor, start_XC1: Tensor, H_XKK: Tensor, steps: int) -> Tensor:
    """Chunks, heads and strings are one axis, and what vmap adds becomes more of it."""
    given = [x.contiguous() for x in (q_XCK, k_XCK, share_XCC, start_XC1, H_XKK)]
    x_XCK = _room(q_XCK)
    with torch.cuda.device_of(q_XCK):
        solve_kernel[(len(q_XCK),)](*given, x_XCK, q_XCK.shape[1], **constants(*q_XCK.shape[1:]), STEPS=steps)
    return x_XCK


@_solve.register_fake
def _solution(q_XCK: Tensor, k_XCK: Tensor, share_XCC: Tensor, start_XC1: Tensor, H_XKK: Tensor, steps: int) -> Tensor:
    return _room(q_XCK)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, *system, ctx.steps = inputs
    ctx.save_for_backward(*system, output)


def _gradients(ctx: Any, gx_XCK: Tensor) -> tuple[Tensor | None, ...]:
    *system, x_XCK = ctx.saved_tensors
    with torch.autocast(gx_XCK.device.type, enabled=False):
        z_XCK = _solve(gx_XCK, *system, ctx.steps)
        return z_XCK, *of_solution(z_XCK, x_XCK, *system), None


_solve.register_autograd(_gradients, setup_context=_keep)


@_solve.register_vmap
def _replicated(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Tensor, int]:
    *tensors, steps = inputs
    folded = fold_replicas(tensors, in_dims[:-1], info.batch_size)
    return _solve(*folded, steps).unflatten(0, (info.batch_size, -1)), 0


def constants(tokens: int, keys: int) -> dict[str, Any]:
    """The kernel's, and its warps."""
    padded = {name: max(LEAST, triton.next_power_of_2(size)) for name, size in (("TOKENS", tokens), ("KEYS", keys))}
    return {"K": keys, **padded, "PRECISION": PRECISION, "num_warps": WARPS}


def _room(like: Tensor) -> Tensor:
    return torch.empty(like.shape, dtype=torch.float32, device=like.device)


@triton.jit
def _left(length_T: tl.tensor, enough_T: tl.tensor) -> tl.tensor:
    """Whether any token is not done. What is no number, or too large for one, never is, and so stays to be seen."""
    done_T = (length_T <= enough_T) & (length_T < float("inf"))
    return tl.max(tl.where(done_T, 0, 1), 0)


@triton.jit(do_not_specialize=["tokens"])
def solve_kernel(
    q: tl.tensor,
    k: tl.tensor,
    share: tl.tensor,
    from_start: tl.tensor,
    H: tl.tensor,
    x: tl.tensor,
    tokens: tl.tensor,
    K: tl.constexpr,
    TOKENS: tl.constexpr,
    KEYS: tl.constexpr,
    PRECISION: tl.constexpr,
    STEPS: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    t, i = tl.arange(0, TOKENS), tl.arange(0, KEYS)
    in_T, in_K = t < tokens, i < K
    at, there = row * tokens * K + t[:, None] * K + i[None, :], in_T[:, None] & in_K[None, :]
    of_pairs = row * tokens * tokens + t[:, None] * tokens + t[None, :]
    of_H = row * K * K + i[:, None] * K + i[None, :]
    k_TK = read(k + at, there)
    share_TT = read(share + of_pairs, in_T[:, None] & in_T[None, :])
    H_KK = read(H + of_H, in_K[:, None] & in_K[None, :])
    from_start_T = read(from_start + row * tokens + t, in_T)
    rest_TK = read(q + at, there)
    way_TK, x_TK, length_T = rest_TK, tl.zeros((TOKENS, KEYS), tl.float32), tl.sum(rest_TK * rest_TK, 1)
    enough_T = ROUNDED * length_T
    step, left = 0, _left(length_T, enough_T)
    while (step < STEPS) & (left > 0):
        seen_TT = tl.dot(way_TK, tl.trans(k_TK), input_precision=PRECISION) * share_TT
        of_way_TK = tl.dot(seen_TT, k_TK, way_TK, input_precision=PRECISION)
        of_way_TK += from_start_T[:, None] * tl.dot(way_TK, H_KK, input_precision=PRECISION)
        far_T = length_T / tl.maximum(tl.sum(way_TK * of_way_TK, 1), TINY)
        x_TK += far_T[:, None] * way_TK
        rest_TK -= far_T[:, None] * of_way_TK
        before_T = length_T
        length_T = tl.sum(rest_TK * rest_TK, 1)
        way_TK = rest_TK + (length_T / tl.maximum(before_T, TINY))[:, None] * way_TK
        step, left = step + 1, _left(length_T, enough_T)
    tl.store(x + at, x_TK, mask=there)
