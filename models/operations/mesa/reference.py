"""The mesa layer: at every token the best linear map from all keys to all values, read by its query, in chunks.

    G_t = a_t G_{t-1} + b_t k_t v_t^T        H_t = a_t H_{t-1} + b_t k_t k_t^T        y_t = ((1 + H_t)^-1 q_t)^T G_t

von Oswald et al. 2025 (2506.05233), ridge regression over a past that fades: 0 <= a, b <= 1. Their 1 is a diagonal
matrix L, to which queries and keys divided by its root lead. Inside a chunk that starts from H, with the decays
D_ts = a_{s+1} .. a_t of chunked.py,

    (1 + H_t) x_t = x_t + a_1 .. a_t H x_t + sum_{s <= t} D_ts b_s (x_t . k_s) k_s

is two products for all tokens of all chunks at once, of which a step of conjugate gradients takes one, and no H_t is
ever made. 1 + H_t is K x K, so that K steps would be exact but for rounding, for which there are 4 more: measured in
fp32 over 256 tokens of which none is forgotten, of length 2 and with channels of keys from 1 to 1e-3, y is within 3e-5
of the largest; within 1e-6 where keys lie in all directions alike. On a CPU, which has Cholesky's method for small
matrices, the H_t of one chunk after the other are made and divided by instead, unless a number of steps is asked for.

The gradient of x is such a solution, too, z_t = (1 + H_t)^-1 dx_t, with dq_t = z_t and dH_t = -z_t x_t^T: nothing of
the way to x is kept for it but, of a single chunk, Cholesky's factors.

Measured for B = 32, H = 4, L = 40, forward and backward on one thread: K = 16 takes 13 ms and K = 32 37, by steps 21
and 61, and by autograd through all H_t and torch.linalg.solve 25 and 80.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from chomsky_ladder.models.scans.chunked import CHUNK
from chomsky_ladder.models.scans.function import Function
from chomsky_ladder.models.scans.gated_delta import decays_between

ROUNDING = 4  # steps beyond those that would be exact

Held = tuple[Tensor, Tensor]  # H [B, H, K, K] and G [B, H, K, V]


def mesa(
    q_BHLK: Tensor,
    k_BHLK: Tensor,
    v_BHLV: Tensor,
    beta_BHL: Tensor,
    log_decay_BHL: Tensor,
    state: Held,
    *,
    steps: int = 0,
) -> tuple[Tensor, Held]:
    """y [B, H, L, V] and the last state, in at least fp32. With 0 steps it is the solution, however that is found."""
    dtype = torch.promote_types(q_BHLK.dtype, torch.float32)
    inputs = (x.to(dtype) for x in (q_BHLK, k_BHLK, v_BHLV, beta_BHL, log_decay_BHL, *state))
    with torch.autocast(q_BHLK.device.type, enabled=False):
        return _chunked(*inputs, steps=steps)


def _chunked(
    q_BHLK: Tensor,
    k_BHLK: Tensor,
    v_BHLV: Tensor,
    beta_BHL: Tensor,
    log_decay_BHL: Tensor,
    H_BHKK: Tensor,
    G_BHKV: Tensor,
    *,
    steps: int,
) -> tuple[Tensor, Held]:
    length, width = q_BHLK.shape[2:]
    chunk = CHUNK if length > 2 * CHUNK else length
    # N chunks of C tokens. Behind the end k = 0 and a = 1, which leave the state as it is.
    q_BHNCK, k_BHNCK, v_BHNCV, beta_BHNC1, log_decay_BHNC1 = (
        nn.functional.pad(x, (0, 0, 0, -length % chunk)).unflatten(2, (-1, chunk))
        for x in (q_BHLK, k_BHLK, v_BHLV, beta_BHL[..., None], log_decay_BHL[..., None])
    )
    share_BHNCC = decays_between(log_decay_BHNC1) * beta_BHNC1.mT
    from_start_BHNC1 = torch.exp(log_decay_BHNC1.cumsum(3))

    state_BHKX, both_BHNCX = torch.cat([H_BHKK, G_BHKV], -1), torch.cat([k_BHNCK, v_BHNCV], -1)
    new_BHNKX = k_BHNCK.mT @ (share_BHNCC[..., -1, :, None] * both_BHNCX)
    states = []
    for decay_BH11, new_BHKX in zip(from_start_BHNC1[..., -1:, :].unbind(2), new_BHNKX.unbind(2), strict=True):
        states.append(state_BHKX)
        state_BHKX = torch.addcmul(new_BHKX, decay_BH11, state_BHKX)
    H_BHNKK, G_BHNKV = torch.stack(states, 2).split([width, v_BHLV.shape[-1]], -1)

    x_BHNCK = solved(q_BHNCK, k_BHNCK, share_BHNCC, from_start_BHNC1, H_BHNKK, steps=steps)
    y_BHNCV = (x_BHNCK @ k_BHNCK.mT * share_BHNCC) @ v_BHNCV + from_start_BHNC1 * (x_BHNCK @ G_BHNKV)
    last_BHKK, last_BHKV = state_BHKX.split([width, v_BHLV.shape[-1]], -1)
    return y_BHNCV.flatten(2, 3)[:, :, :length], (last_BHKK, last_BHKV)


def solved(
    q_BHNCK: Tensor, k_BHNCK: Tensor, share_BHNCC: Tensor, from_start_BHNC1: Tensor, H_BHNKK: Tensor, *, steps: int = 0
) -> Tensor:
    """All x of (1 + H_t) x_t = q_t."""
    return _Solved.apply(q_BHNCK, k_BHNCK, share_BHNCC, from_start_BHNC1, H_BHNKK, steps)[0]


class _Solved(Function):
    """x of (1 + H_t) x_t = q_t at every t, and what solves another such system again."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        q_BHNCK: Tensor, k_BHNCK: Tensor, share_BHNCC: Tensor, from_start_BHNC1: Tensor, H_BHNKK: Tensor, steps: int
    ) -> tuple[Tensor, Tensor]:
        return solution(q_BHNCK, k_BHNCK, share_BHNCC, from_start_BHNC1, H_BHNKK, None, steps=steps)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        *system, ctx.steps = inputs[1:]
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(output[0], *system, output[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dx_BHNCK: Tensor, _: None) -> tuple[Tensor | None, ...]:
        x_BHNCK, k_BHNCK, share_BHNCC, from_start_BHNC1, H_BHNKK, factor = ctx.saved_tensors
        system = (k_BHNCK, share_BHNCC, from_start_BHNC1, H_BHNKK)
        z_BHNCK = solution(dx_BHNCK, *system, factor, steps=ctx.steps)[0]
        return z_BHNCK, *of_solution(z_BHNCK, x_BHNCK, *system), None


def of_solution(
    z_BHNCK: Tensor,
    x_BHNCK: Tensor,
    k_BHNCK: Tensor,
    share_BHNCC: Tensor,
    from_start_BHNC1: Tensor,
    H_BHNKK: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of the system's parts, from x and z."""
    of_x_BHNCC, of_z_BHNCC = x_BHNCK @ k_BHNCK.mT, z_BHNCK @ k_BHNCK.mT
    dshare_BHNCC = -of_x_BHNCC * of_z_BHNCC
    dk_BHNCK = (share_BHNCC * of_x_BHNCC).mT @ z_BHNCK + (share_BHNCC * of_z_BHNCC).mT @ x_BHNCK
    dstart_BHNC1 = -(z_BHNCK * (x_BHNCK @ H_BHNKK)).sum(-1, keepdim=True)
    dH_BHNKK = -(from_start_BHNC1 * z_BHNCK).mT @ x_BHNCK
    return -dk_BHNCK, dshare_BHNCC, dstart_BHNC1, dH_BHNKK


def solution(
    q_BHNCK: Tensor,
    k_BHNCK: Tensor,
    share_BHNCC: Tensor,
    from_start_BHNC1: Tensor,
    H_BHNKK: Tensor,
    factor_BHCKK: Tensor | None,
    *,
    steps: int,
) -> tuple[Tensor, Tensor]:
    """x, and Cholesky's factors if there is one chunk and they were made, else nothing."""
    nothing, whole = q_BHNCK.new_zeros(()), q_BHNCK.shape[2] == 1
    if steps or q_BHNCK.device.type != "cpu" or torch.compiler.is_compiling():
        system = (k_BHNCK, share_BHNCC, from_start_BHNC1, H_BHNKK)
        return conjugate_gradients(q_BHNCK, *system, steps=steps or q_BHNCK.shape[-1] + ROUNDING), nothing
    if factor_BHCKK is not None and factor_BHCKK.dim():
        return divided(q_BHNCK[:, :, 0], factor_BHCKK)[:, :, None], nothing
    parts, made_BHCKK = [], nothing
    for q_BHCK, *system in zip(
        *(x.unbind(2) for x in (q_BHNCK, k_BHNCK, share_BHNCC, from_start_BHNC1, H_BHNKK)), strict=True
    ):
        made_BHCKK = factors(*system)
        parts.append(divided(q_BHCK, made_BHCKK))
    return torch.stack(parts, 2), made_BHCKK if whole else nothing


def factors(k_BHCK: Tensor, share_BHCC: Tensor, from_start_BHC1: Tensor, H_BHKK: Tensor) -> Tensor:
    """Cholesky's, of all 1 + H_t [B, H, C, K, K] of a chunk that starts from H."""
    squares_BHCX = (k_BHCK[..., None] * k_BHCK[..., None, :]).flatten(-2)
    one_KK = torch.eye(k_BHCK.shape[-1], dtype=k_BHCK.dtype, device=k_BHCK.device).expand_as(H_BHKK)
    # What H and 1 add is in the same product, as two tokens more: sums over so many numbers take as long as it does.
    share_BHCS = torch.cat([share_BHCC, from_start_BHC1, torch.ones_like(from_start_BHC1)], -1)
    squares_BHSX = torch.cat([squares_BHCX, H_BHKK.flatten(-2)[..., None, :], one_KK.flatten(-2)[..., None, :]], -2)
    return torch.linalg.cholesky_ex((share_BHCS @ squares_BHSX).unflatten(-1, one_KK.shape[-2:])).L


def divided(q_BHCK: Tensor, factor_BHCKK: Tensor) -> Tensor:
    return torch.cholesky_solve(q_BHCK[..., None], factor_BHCKK)[..., 0]


def conjugate_gradients(
    q_BHNCK: Tensor,
    k_BHNCK: Tensor,
    share_BHNCC: Tensor,
    from_start_BHNC1: Tensor,
    H_BHNKK: Tensor,
    *,
    steps: int,
) -> Tensor:
    """From x = 0, every token with a system of its own."""
    tiny = torch.finfo(q_BHNCK.dtype).tiny
    x_BHNCK, rest_BHNCK, way_BHNCK = torch.zeros_like(q_BHNCK), q_BHNCK, q_BHNCK
    length_BHNC1 = rest_BHNCK.square().sum(-1, keepdim=True)
    for _ in range(steps):
        of_way_BHNCK = way_BHNCK + (way_BHNCK @ k_BHNCK.mT * share_BHNCC) @ k_BHNCK
        of_way_BHNCK = torch.addcmul(of_way_BHNCK, from_start_BHNC1, way_BHNCK @ H_BHNKK)
        far_BHNC1 = length_BHNC1 / (way_BHNCK * of_way_BHNCK).sum(-1, keepdim=True).clamp(min=tiny)
        x_BHNCK = torch.addcmul(x_BHNCK, far_BHNC1, way_BHNCK)
        rest_BHNCK = torch.addcmul(rest_BHNCK, -far_BHNC1, of_way_BHNCK)
        before_BHNC1, length_BHNC1 = length_BHNC1, rest_BHNCK.square().sum(-1, keepdim=True)
        way_BHNCK = torch.addcmul(rest_BHNCK, length_BHNC1 / before_BHNC1.clamp(min=tiny), way_BHNCK)
    return x_BHNCK
