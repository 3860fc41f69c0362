"""The forward Triton programs of the mesa layer; gpu.py calls them.

A program has one head of one row, or a chunk of it where chunks need not wait for each other. What is read comes with
its strides over replicas, rows, heads and tokens; what is written lies token by token, every token's heads side by
side. Behind the end keys, values and writes are 0 and nothing is forgotten, which leaves H and G as they are.
"""
# pyright: reportAssignmentType=false, reportCallIssue=false, reportArgumentType=false, reportOperatorIssue=false

import triton
import triton.language as tl

from chomsky_ladder.models.kernels.triton.memory import begin_head, read, write

TINY = tl.constexpr(1.1754943508222875e-38)
ROUNDED = tl.constexpr(2.0**-48)  # of q^2: less than that is left of no sum
LEAST_LOG = tl.constexpr(-1000.0)  # of which the power is 0, and infinity times 0 would be no number


@triton.jit
def decays(log_T: tl.tensor, t_T: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
    """What is left at t of what came at s, every logarithm a sum of its own; and of what came before all."""
    log_T = tl.maximum(log_T, LEAST_LOG)
    upto_TT = (t_T[:, None] >= t_T[None, :]).to(tl.float32)
    behind_TT = tl.where(t_T[:, None] > t_T[None, :], log_T[:, None], 0.0)
    left_TT = tl.exp(tl.dot(upto_TT, behind_TT, input_precision="ieee")) * upto_TT
    return left_TT, tl.exp(tl.sum(upto_TT * log_T[None, :], 1))


@triton.jit
def _left(length_T: tl.tensor, enough_T: tl.tensor) -> tl.tensor:
    """Whether any token is not done. What is no number, or too large for one, never is, and so stays to be seen."""
    done_T = (length_T <= enough_T) & (length_T < float("inf"))
    return tl.max(tl.where(done_T, 0, 1), 0)


@triton.jit
def solve(
    rest_TK: tl.tensor,
    k_TK: tl.tensor,
    share_TT: tl.tensor,
    start_T: tl.tensor,
    H_KK: tl.tensor,
    STEPS: tl.constexpr,
    PRECISION: tl.constexpr,
) -> tl.tensor:
    """All x of (1 + H_t) x_t = rest_t by conjugate gradients."""
    way_TK, x_TK, length_T = rest_TK, rest_TK * 0.0, tl.sum(rest_TK * rest_TK, 1)
    enough_T = ROUNDED * length_T
    step, left = 0, _left(length_T, enough_T)
    while (step < STEPS) & (left > 0):
        seen_TT = tl.dot(way_TK, tl.trans(k_TK), input_precision=PRECISION) * share_TT
        of_way_TK = tl.dot(seen_TT, k_TK, way_TK, input_precision=PRECISION)
        of_way_TK += start_T[:, None] * tl.dot(way_TK, H_KK, input_precision=PRECISION)
        far_T = length_T / tl.maximum(tl.sum(way_TK * of_way_TK, 1), TINY)
        x_TK += far_T[:, None] * way_TK
        rest_TK -= far_T[:, None] * of_way_TK
        before_T = length_T
        length_T = tl.sum(rest_TK * rest_TK, 1)
        way_TK = rest_TK + (length_T / tl.maximum(before_T, TINY))[:, None] * way_TK
        step, left = step + 1, _left(length_T, enough_T)
    return x_TK


@triton.jit(do_not_specialize=["batch", "heads", "length"])
def states_kernel(
    k: tl.tensor,
    v: tl.tensor,
    b: tl.tensor,
    log: tl.tensor,
    first_H: tl.tensor,
    first_G: tl.tensor,
    starts_H: tl.tensor,
    starts_G: tl.tensor,
    last_H: tl.tensor,
    last_G: tl.tensor,
    of_k: tl.tuple,
    of_v: tl.tuple,
    of_b: tl.tuple,
    of_log: tl.tuple,
    of_H: tl.tuple,
    of_G: tl.tuple,
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
    """H and G before every chunk, and the last."""
    row = tl.program_id(0).to(tl.int64)
    replica, own = row // heads // batch, row % (heads * batch)
    t_T, i, j = tl.arange(0, TOKENS), tl.arange(0, KEYS), tl.arange(0, VALUES)
    at_KK, in_KK = i[:, None] * K + i[None, :], (i < K)[:, None] & (i < K)[None, :]
    at_KV, in_KV = i[:, None] * V + j[None, :], (i < K)[:, None] & (j < V)[None, :]
    k, v = begin_head(k, of_k, row, batch, heads), begin_head(v, of_v, row, batch, heads)
    b, log = begin_head(b, of_b, row, batch, heads), begin_head(log, of_log, row, batch, heads)
    chunk = row * tl.cdiv(length, TOKENS)

    H_KK = read(first_H + replica * of_H[0] + own * K * K + at_KK, in_KK)
    G_KV = read(first_G + replica * of_G[0] + own * K * V + at_KV, in_KV)
    start = 0
    while start < length:  # no range: under NumPy 2.4 Triton's interpreter has none of a number not known beforehand
        t = start + t_T
        k_TK = read(k + t[:, None] * of_k[3] + i[None, :], (t < length)[:, None] & (i < K)[None, :])
        v_TV = read(v + t[:, None] * of_v[3] + j[None, :], (t < length)[:, None] & (j < V)[None, :])
        left_TT, from_start_T = decays(read(log + t * of_log[3], t < length), t_T)
        share_TT = left_TT * read(b + t * of_b[3], t < length)[None, :]
        at_end_T = tl.sum(tl.where((t_T == TOKENS - 1)[:, None], share_TT, 0.0), 0)
        kept = tl.sum(tl.where(t_T == TOKENS - 1, from_start_T, 0.0), 0)
        write(starts_H + chunk * K * K + at_KK, H_KK, in_KK)
        write(starts_G + chunk * K * V + at_KV, G_KV, in_KV)
        new_KT = tl.trans(k_TK * at_end_T[:, None])
        H_KK = tl.dot(new_KT, k_TK, kept * H_KK, input_precision=PRECISION)
        G_KV = tl.dot(new_KT, v_TV, kept * G_KV, input_precision=PRECISION)
        start, chunk = start + TOKENS, chunk + 1
    write(last_H + row * K * K + at_KK, H_KK, in_KK)
    write(last_G + row * K * V + at_KV, G_KV, in_KV)


@triton.jit(do_not_specialize=["batch", "heads", "length"])
def read_kernel(
    q: tl.tensor,
    k: tl.tensor,
    v: tl.tensor,
    b: tl.tensor,
    log: tl.tensor,
    starts_H: tl.tensor,
    starts_G: tl.tensor,
    y: tl.tensor,
    x: tl.tensor,
    of_q: tl.tuple,
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
    STEPS: tl.constexpr,
) -> None:
    """x and y, a program for every chunk."""
    chunks, chunk = tl.cdiv(length, TOKENS), tl.program_id(0).to(tl.int64)
    row, t_T, i, j = chunk // chunks, tl.arange(0, TOKENS), tl.arange(0, KEYS), tl.arange(0, VALUES)
    t = chunk % chunks * TOKENS + t_T
    in_TK, in_TV = (t < length)[:, None] & (i < K)[None, :], (t < length)[:, None] & (j < V)[None, :]
    at_b, at_log = begin_head(b, of_b, row, batch, heads), begin_head(log, of_log, row, batch, heads)
    at_k, at_v = begin_head(k, of_k, row, batch, heads), begin_head(v, of_v, row, batch, heads)
    by_token = row // heads * length * heads + row % heads
    q_TK = read(begin_head(q, of_q, row, batch, heads) + t[:, None] * of_q[3] + i[None, :], in_TK)
    k_TK = read(at_k + t[:, None] * of_k[3] + i[None, :], in_TK)
    left_TT, from_start_T = decays(read(at_log + t * of_log[3], t < length), t_T)
    share_TT = left_TT * read(at_b + t * of_b[3], t < length)[None, :]
    H_KK = read(starts_H + chunk * K * K + i[:, None] * K + i[None, :], (i < K)[:, None] & (i < K)[None, :])
    x_TK = solve(q_TK, k_TK, share_TT, from_start_T, H_KK, STEPS, PRECISION)
    write(x + (by_token + t[:, None] * heads) * K + i[None, :], x_TK, in_TK)
    seen_TT = tl.dot(x_TK, tl.trans(k_TK), input_precision=PRECISION) * share_TT
    G_KV = read(starts_G + chunk * K * V + i[:, None] * V + j[None, :], (i < K)[:, None] & (j < V)[None, :])
    y_TV = from_start_T[:, None] * tl.dot(x_TK, G_KV, input_precision=PRECISION)
    v_TV = read(at_v + t[:, None] * of_v[3] + j[None, :], in_TV)
    y_TV = tl.dot(seen_TT, v_TV, y_TV, input_precision=PRECISION)
    write(y + (by_token + t[:, None] * heads) * V + j[None, :], y_TV, in_TV)
