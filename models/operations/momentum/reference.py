"""The delta rule with momentum: what is erased and written at a token goes on at those behind it, ever less.

    e_t = k_t M_{t-1} - v_t        S_t = h_t S_{t-1} - r_t k_t^T e_t        M_t = a_t M_{t-1} + S_t        y_t = q_t M_t

with a and h in [0, 1], given as log a and log h, and rates r >= 0: the linear memory of Titans (Behrouz et al. 2024,
2501.00663), gradient descent on |k M - v|^2 with momentum and decay; the 2 of its gradient is in r. With P_ts and N_ts,
the products of a and of h over s < i <= t, and G = P N, from a chunk's start M, S

    S_t = N_t0 S - sum_{s <= t} N_ts r_s k_s^T e_s        M_t = P_t0 M + F_t S - sum_{s <= t} G_ts r_s k_s^T e_s

where F_t = sum_{0 < s <= t} P_ts N_s0, and e solves one triangular system, as in delta.py:

    e_t + sum_{s < t} G_{t-1,s} r_s (k_t . k_s) e_s = P_{t-1,0} k_t M + F_{t-1} k_t S - v_t

G and F are sums of products of factors in [0, 1]: nothing is divided, and a and h of 0 and 1 are exact. Along one key
of length 1 the pair (M, S) has eigenvalues of product a h and sum a + h - r, complex where (a + h - r)^2 < 4 a h and
of size 1 at most while r <= (1 + a) (1 + h). Gradients at an older M, which make the paper's form parallel, are not
needed for a memory that is linear.

Chunks are those of models/scans/gated_delta.py. In C (cpu.c) and in Triton (gpu.py) it goes token by token.
"""

import torch
from torch import Tensor

from chomsky_ladder.models.scans.gated_delta import LARGEST_CHUNK, decays_between, in_chunks
from chomsky_ladder.models.scans.products import matmul

Held = tuple[Tensor, Tensor]  # M and S [B, H, K, V]


def momentum_delta_rule(
    q_BHLK: Tensor,
    k_BHLK: Tensor,
    v_BHLV: Tensor,
    rate_BHL: Tensor,
    log_decay_BHL: Tensor,
    log_momentum_BHL: Tensor,
    state: Held,
) -> tuple[Tensor, Held]:
    """y [B, H, L, V] and the last state, in at least fp32."""
    dtype = torch.promote_types(q_BHLK.dtype, torch.float32)
    gates = (x[..., None] for x in (rate_BHL, log_decay_BHL, log_momentum_BHL))
    inputs = (x.to(dtype) for x in (q_BHLK, k_BHLK, v_BHLV, *gates, *state))
    with torch.autocast(q_BHLK.device.type, enabled=False):
        return _one_token(*inputs) if q_BHLK.shape[2] == 1 else _chunked(*inputs)


def _one_token(
    q_BHLK: Tensor,
    k_BHLK: Tensor,
    v_BHLV: Tensor,
    rate_BHL1: Tensor,
    log_decay_BHL1: Tensor,
    log_momentum_BHL1: Tensor,
    M_BHKV: Tensor,
    S_BHKV: Tensor,
) -> tuple[Tensor, Held]:
    e_BHLV = k_BHLK @ M_BHKV - v_BHLV
    S_BHKV = torch.exp(log_momentum_BHL1) * S_BHKV - k_BHLK.mT * (rate_BHL1 * e_BHLV)
    M_BHKV = torch.exp(log_decay_BHL1) * M_BHKV + S_BHKV
    return q_BHLK @ M_BHKV, (M_BHKV, S_BHKV)


def _chunked(
    q_BHLK: Tensor,
    k_BHLK: Tensor,
    v_BHLV: Tensor,
    rate_BHL1: Tensor,
    log_decay_BHL1: Tensor,
    log_momentum_BHL1: Tensor,
    M_BHKV: Tensor,
    S_BHKV: Tensor,
) -> tuple[Tensor, Held]:
    length, width = k_BHLK.shape[2:]
    chunk = -(-length // -(-length // LARGEST_CHUNK))  # as few chunks as there can be, of one size
    # N chunks of C tokens. Nothing behind the end leaves M as it is: the last state is read off before that.
    q_BHNCK, k_BHNCK, v_BHNCV, rate_BHNC1, log_decay_BHNC1, log_momentum_BHNC1 = (
        in_chunks(x, chunk) for x in (q_BHLK, k_BHLK, v_BHLV, rate_BHL1, log_decay_BHL1, log_momentum_BHL1)
    )
    P_BHNCC, N_BHNCC = (decays_between(x) for x in (log_decay_BHNC1, log_momentum_BHNC1))
    G_BHNCC = matmul(P_BHNCC, N_BHNCC)
    from_M_BHNC1, of_S_BHNC1 = (torch.exp(x.cumsum(3)) for x in (log_decay_BHNC1, log_momentum_BHNC1))
    from_S_BHNC1 = P_BHNCC @ of_S_BHNC1

    # Read below the diagonal alone, with ones on it.
    rk_BHNKC = (rate_BHNC1 * k_BHNCK).mT
    system_BHNCC = matmul(k_BHNCK, rk_BHNKC) * before(G_BHNCC, 0.0)
    right_BHNCX = torch.cat([before(from_M_BHNC1, 1.0) * k_BHNCK, before(from_S_BHNC1, 0.0) * k_BHNCK, v_BHNCV], -1)
    solved_BHNCX = torch.linalg.solve_triangular(system_BHNCC, right_BHNCX, upper=False, unitriangular=True)
    of_state_BHNCX, of_v_BHNCV = solved_BHNCX.split([2 * width, v_BHNCV.shape[-1]], -1)

    states, errors = [], []
    every = (rk_BHNKC, of_state_BHNCX, of_v_BHNCV, G_BHNCC, N_BHNCC, from_M_BHNC1, from_S_BHNC1, of_S_BHNC1)
    ends = [chunk - 1] * (k_BHNCK.shape[2] - 1) + [(length - 1) % chunk]
    for end, rk_BHKC, of_state_BHCX, of_v_BHCV, *ways in zip(ends, *(x.unbind(2) for x in every), strict=True):
        G_BH1C, N_BH1C, from_M_BH11, from_S_BH11, of_S_BH11 = (x[:, :, end, None] for x in ways)
        state_BHXV = torch.cat([M_BHKV, S_BHKV], 2)
        e_BHCV = matmul(of_state_BHCX, state_BHXV) - of_v_BHCV
        states.append(state_BHXV)
        errors.append(e_BHCV)
        M_BHKV = from_M_BH11 * M_BHKV + from_S_BH11 * S_BHKV - matmul(G_BH1C * rk_BHKC, e_BHCV)
        S_BHKV = of_S_BH11 * S_BHKV - matmul(N_BH1C * rk_BHKC, e_BHCV)
    reads_BHNCX = torch.cat([from_M_BHNC1 * q_BHNCK, from_S_BHNC1 * q_BHNCK], -1)
    y_BHNCV = matmul(reads_BHNCX, torch.stack(states, 2))
    y_BHNCV = y_BHNCV - matmul(matmul(q_BHNCK, rk_BHNKC) * G_BHNCC, torch.stack(errors, 2))
    return y_BHNCV.flatten(2, 3)[:, :, :length], (M_BHKV, S_BHKV)


def before(x_BHNCX: Tensor, first: float) -> Tensor:
    """The row of the token before."""
    return torch.cat([torch.full_like(x_BHNCX[..., :1, :], first), x_BHNCX[..., :-1, :]], -2)
