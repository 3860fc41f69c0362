"""The backward Triton programs of the mesa layer; gpu_programs.py has the forward ones."""
# pyright: reportAssignmentType=false, reportCallIssue=false, reportArgumentType=false, reportOperatorIssue=false

import triton
import triton.language as tl

from chomsky_ladder.models.kernels.triton.memory import begin_head, read, write
from chomsky_ladder.models.operations.mesa.gpu_programs import decays, solve


@triton.jit
def decays_back(d_log_TT: tl.tensor, d_log_T: tl.tensor, t_T: tl.tensor) -> tl.tensor:
    """The gradient of a token's logarithm, from those of the sums."""
    upto_TT = (t_T[:, None] <= t_T[None, :]).to(tl.float32)
    of_pairs_TT = tl.where(t_T[:, None] > t_T[None, :], tl.dot(upto_TT, d_log_TT, input_precision="ieee"), 0.0)
    return tl.sum(of_pairs_TT, 1) + tl.sum(upto_TT * d_log_T[None, :], 1)


@triton.jit
def add(at: tl.tensor, x: tl.tensor, mask: tl.tensor) -> None:
    write(at, read(at, mask) + x, mask)


@triton.jit(do_not_specialize=["batch", "heads", "length"])
def solve_back_kernel(
    k: tl.tensor,
    v: tl.tensor,
    b: tl.tensor,
    log: tl.tensor,
    d_y: tl.tensor,
    starts_H: tl.tensor,
    starts_G: tl.tensor,
    d_q: tl.tensor,
    of_k: tl.tuple,
    of_v: tl.tuple,
    of_b: tl.tuple,
    of_log: tl.tuple,
    of_d_y: tl.tuple,
    batch: tl.tensor,
    heads: tl.tensor,
    length: tl.tensor,
    K: tl.constexpr,
    V: tl.constexpr,
    KEYS: tl.constexpr,
    VALUES: tl.constexpr,
    TOKENS: tl.constexpr,
    PRECISION: tl.constexpr,
    STEPS: tl.constexpr,
) -> None:
    """The gradient z of q, a program for every chunk."""
    chunks, chunk = tl.cdiv(length, TOKENS), tl.program_id(0).to(tl.int64)
    row, t_T, i, j = chunk // chunks, tl.arange(0, TOKENS), tl.arange(0, KEYS), tl.arange(0, VALUES)
    t = chunk % chunks * TOKENS + t_T
    in_TK, in_TV = (t < length)[:, None] & (i < K)[None, :], (t < length)[:, None] & (j < V)[None, :]
    at_b, at_log = begin_head(b, of_b, row, batch, heads), begin_head(log, of_log, row, batch, heads)
    at_k, at_v = begin_head(k, of_k, row, batch, heads), begin_head(v, of_v, row, batch, heads)
    at_d_y = begin_head(d_y, of_d_y, row, batch, heads)
    k_TK = read(at_k + t[:, None] * of_k[3] + i[None, :], in_TK)
    v_TV = read(at_v + t[:, None] * of_v[3] + j[None, :], in_TV)
    d_y_TV = read(at_d_y + t[:, None] * of_d_y[3] + j[None, :], in_TV)
    G_KV = read(starts_G + chunk * K * V + i[:, None] * V + j[None, :], (i < K)[:, None] & (j < V)[None, :])
    left_TT, from_start_T = decays(read(at_log + t * of_log[3], t < length), t_T)
    share_TT = left_TT * read(at_b + t * of_b[3], t < length)[None, :]
    d_seen_TT = tl.dot(d_y_TV, tl.trans(v_TV), input_precision=PRECISION)
    d_x_TK = from_start_T[:, None] * tl.dot(d_y_TV, tl.trans(G_KV), input_precision=PRECISION)
    d_x_TK = tl.dot(d_seen_TT * share_TT, k_TK, d_x_TK, input_precision=PRECISION)
    H_KK = read(starts_H + chunk * K * K + i[:, None] * K + i[None, :], (i < K)[:, None] & (i < K)[None, :])
    z_TK = solve(d_x_TK, k_TK, share_TT, from_start_T, H_KK, STEPS, PRECISION)
    by_token = row // heads * length * heads + row % heads
    write(d_q + (by_token + t[:, None] * heads) * K + i[None, :], z_TK, in_TK)


@triton.jit(do_not_specialize=["batch", "heads", "length"])
def read_back_kernel(
    k: tl.tensor,
    v: tl.tensor,
    b: tl.tensor,
    log: tl.tensor,
    x: tl.tensor,
    z: tl.tensor,
    d_y: tl.tensor,
    starts_H: tl.tensor,
    starts_G: tl.tensor,
    d_k: tl.tensor,
    d_v: tl.tensor,
    d_b: tl.tensor,
    d_log: tl.tensor,
    d_starts_H: tl.tensor,
    d_starts_G: tl.tensor,
    of_k: tl.tuple,
    of_v: tl.tuple,
    of_b: tl.tuple,
    of_log: tl.tuple,
    of_x: tl.tuple,
    of_z: tl.tuple,
    of_d_y: tl.tuple,
    batch: tl.tensor,
    heads: tl.tensor,
    length: tl.tensor,
    K: tl.constexpr,
    V: tl.constexpr,
    KEYS: tl.constexpr,
    VALUES: tl.constexpr,
    TOKENS: tl.constexpr,
    PRECISION: tl.constexpr,
) -> None:
    """What y = (x k^T * share) v + from_start x G, of (1 + H_t) x = q, says of a chunk's tokens and its H and G."""
    chunks, chunk = tl.cdiv(length, TOKENS), tl.program_id(0).to(tl.int64)
    row, t_T, i, j = chunk // chunks, tl.arange(0, TOKENS), tl.arange(0, KEYS), tl.arange(0, VALUES)
    t = chunk % chunks * TOKENS + t_T
    in_TK, in_TV = (t < length)[:, None] & (i < K)[None, :], (t < length)[:, None] & (j < V)[None, :]
    at_KK, in_KK = i[:, None] * K + i[None, :], (i < K)[:, None] & (i < K)[None, :]
    at_KV, in_KV = i[:, None] * V + j[None, :], (i < K)[:, None] & (j < V)[None, :]
    at_b, at_log = begin_head(b, of_b, row, batch, heads), begin_head(log, of_log, row, batch, heads)
    at_k, at_v = begin_head(k, of_k, row, batch, heads), begin_head(v, of_v, row, batch, heads)
    at_x, at_z = begin_head(x, of_x, row, batch, heads), begin_head(z, of_z, row, batch, heads)
    by_token = row // heads * length * heads + row % heads
    k_TK = read(at_k + t[:, None] * of_k[3] + i[None, :], in_TK)
    v_TV = read(at_v + t[:, None] * of_v[3] + j[None, :], in_TV)
    x_TK = read(at_x + t[:, None] * of_x[3] + i[None, :], in_TK)
    z_TK = read(at_z + t[:, None] * of_z[3] + i[None, :], in_TK)
    d_y_TV = read(begin_head(d_y, of_d_y, row, batch, heads) + t[:, None] * of_d_y[3] + j[None, :], in_TV)
    left_TT, from_start_T = decays(read(at_log + t * of_log[3], t < length), t_T)
    share_TT = left_TT * read(at_b + t * of_b[3], t < length)[None, :]

    seen_TT = tl.dot(x_TK, tl.trans(k_TK), input_precision=PRECISION)
    d_seen_TT = tl.dot(d_y_TV, tl.trans(v_TV), input_precision=PRECISION)
    d_seen_TT -= tl.dot(z_TK, tl.trans(k_TK), input_precision=PRECISION)
    seen_in_share_TT, d_share_TT = tl.trans(seen_TT * share_TT), seen_TT * d_seen_TT
    d_v_TV = tl.dot(seen_in_share_TT, d_y_TV, input_precision=PRECISION)
    write(d_v + (by_token + t[:, None] * heads) * V + j[None, :], d_v_TV, in_TV)
    d_k_TK = tl.dot(tl.trans(d_seen_TT * share_TT), x_TK, input_precision=PRECISION)
    d_k_TK -= tl.dot(seen_in_share_TT, z_TK, input_precision=PRECISION)
    write(d_k + (by_token + t[:, None] * heads) * K + i[None, :], d_k_TK, in_TK)
    G_KV = read(starts_G + chunk * K * V + at_KV, in_KV)
    d_start_T = tl.sum(d_y_TV * tl.dot(x_TK, G_KV, input_precision=PRECISION), 1)
    dG_KV = tl.dot(tl.trans(from_start_T[:, None] * x_TK), d_y_TV, input_precision=PRECISION)
    write(d_starts_G + chunk * K * V + at_KV, dG_KV, in_KV)
    H_KK = read(starts_H + chunk * K * K + at_KK, in_KK)
    d_start_T -= tl.sum(z_TK * tl.dot(x_TK, H_KK, input_precision=PRECISION), 1)
    dH_KK = tl.dot(tl.trans(-from_start_T[:, None] * z_TK), x_TK, input_precision=PRECISION)
    write(d_starts_H + chunk * K * K + at_KK, dH_KK, in_KK)
    write(d_b + by_token + t * heads, tl.sum(d_share_TT * left_TT, 0), t < length)
    d_log_T = decays_back(d_share_TT * share_TT, d_start_T * from_start_T, t_T)
    write(d_log + by_token + t * heads, d_log_T, t < length)


@triton.jit(do_not_specialize=["batch", "heads", "length"])
def write_back_kernel(
    k: tl.tensor,
    v: tl.tensor,
    b: tl.tensor,
    log: tl.tensor,
    starts_H: tl.tensor,
    starts_G: tl.tensor,
    d_starts_H: tl.tensor,
    d_starts_G: tl.tensor,
    d_last_H: tl.tensor,
    d_last_G: tl.tensor,
    d_k: tl.tensor,
    d_v: tl.tensor,
    d_b: tl.tensor,
    d_log: tl.tensor,
    d_first_H: tl.tensor,
    d_first_G: tl.tensor,
    of_k: tl.tuple,
    of_v: tl.tuple,
    of_b: tl.tuple,
    of_log: tl.tuple,
    batch: tl.tensor,
    heads: tl.tensor,
    length: tl.tensor,
    K: tl.constexpr,
    V: tl.constexpr,
    KEYS: tl.constexpr,
    VALUES: tl.constexpr,
    TOKENS: tl.constexpr,
    PRECISION: tl.constexpr,
) -> None:
    """What H <- kept H + (at_end k)^T k, and G likewise, say, from the last chunk to the first."""
    row = tl.program_id(0).to(tl.int64)
    t_T, i, j = tl.arange(0, TOKENS), tl.arange(0, KEYS), tl.arange(0, VALUES)
    at_KK, in_KK = i[:, None] * K + i[None, :], (i < K)[:, None] & (i < K)[None, :]
    at_KV, in_KV = i[:, None] * V + j[None, :], (i < K)[:, None] & (j < V)[None, :]
    k, v = begin_head(k, of_k, row, batch, heads), begin_head(v, of_v, row, batch, heads)
    b, log = begin_head(b, of_b, row, batch, heads), begin_head(log, of_log, row, batch, heads)
    by_token = row // heads * length * heads + row % heads
    chunks = tl.cdiv(length, TOKENS)

    # Of H and G behind the chunk.
    dH_KK, dG_KV = read(d_last_H + row * K * K + at_KK, in_KK), read(d_last_G + row * K * V + at_KV, in_KV)
    start = chunks * TOKENS
    while start > 0:
        start -= TOKENS
        t, chunk = start + t_T, row * chunks + start // TOKENS
        in_TK, in_TV = (t < length)[:, None] & (i < K)[None, :], (t < length)[:, None] & (j < V)[None, :]
        k_TK = read(k + t[:, None] * of_k[3] + i[None, :], in_TK)
        v_TV = read(v + t[:, None] * of_v[3] + j[None, :], in_TV)
        left_TT, from_start_T = decays(read(log + t * of_log[3], t < length), t_T)
        left_T = tl.sum(tl.where((t_T == TOKENS - 1)[:, None], left_TT, 0.0), 0)
        at_end_T = left_T * read(b + t * of_b[3], t < length)
        kept = tl.sum(tl.where(t_T == TOKENS - 1, from_start_T, 0.0), 0)

        d_new_TK = tl.dot(k_TK, tl.trans(dH_KK), input_precision=PRECISION)
        d_new_TK = tl.dot(v_TV, tl.trans(dG_KV), d_new_TK, input_precision=PRECISION)
        d_at_end_T = tl.sum(d_new_TK * k_TK, 1)
        new_TK = k_TK * at_end_T[:, None]
        d_k_TK = tl.dot(new_TK, dH_KK, d_new_TK * at_end_T[:, None], input_precision=PRECISION)
        add(d_k + (by_token + t[:, None] * heads) * K + i[None, :], d_k_TK, in_TK)
        d_v_TV = tl.dot(new_TK, dG_KV, input_precision=PRECISION)
        add(d_v + (by_token + t[:, None] * heads) * V + j[None, :], d_v_TV, in_TV)
        add(d_b + by_token + t * heads, d_at_end_T * left_T, t < length)
        d_kept = tl.sum(tl.sum(dH_KK * read(starts_H + chunk * K * K + at_KK, in_KK), 1), 0)
        d_kept += tl.sum(tl.sum(dG_KV * read(starts_G + chunk * K * V + at_KV, in_KV), 1), 0)
        before_TT = (t_T[:, None] > t_T[None, :]).to(tl.float32)
        d_log_T = tl.sum(before_TT * (d_at_end_T * at_end_T)[None, :], 1) + d_kept * kept
        add(d_log + by_token + t * heads, d_log_T, t < length)
        dH_KK = kept * dH_KK + read(d_starts_H + chunk * K * K + at_KK, in_KK)
        dG_KV = kept * dG_KV + read(d_starts_G + chunk * K * V + at_KV, in_KV)
    write(d_first_H + row * K * K + at_KK, dH_KK, in_KK)
    write(d_first_G + row * K * V + at_KV, dG_KV, in_KV)
