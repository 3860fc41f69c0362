"""The Triton programs of fast weights, forward and backward; gpu.py calls them.

A program has one head of one row and one mini-batch at a time. Its weights, and going back their gradients, stay in
memory, of which it reads and writes `BLOCK` rows at a time; other threads of it may read what one wrote only behind a
barrier. What is read comes with its strides over replicas, rows, heads and tokens; what is written of tokens lies token
by token, every token's heads side by side. Axes are filled up with zeros, which every mean leaves out; tokens that are
not there have no rate and are asked nothing.
"""

import triton
import triton.language as tl

from chomsky_ladder.models.kernels.triton.memory import begin_head, read, write
from chomsky_ladder.models.kernels.triton.pairs import product

EPS = tl.constexpr(1e-6)  # as in reference.py


@triton.jit
def _tile(at: tl.tensor, stride: tl.tensor, t: tl.tensor, i: tl.tensor) -> tl.tensor:
    """Where tokens, so far from one another, have channels."""
    return at + (t * stride)[:, None] + i[None, :]


@triton.jit
def _less_mean(x_TK: tl.tensor, in_K: tl.tensor, K: tl.constexpr) -> tl.tensor:
    return tl.where(in_K[None, :], x_TK - (tl.sum(x_TK, 1) / K)[:, None], 0.0)


@triton.jit
def _descent(
    u_TK: tl.tensor, goal_TK: tl.tensor, scale_K: tl.tensor, shift_K: tl.tensor, in_K: tl.tensor, K: tl.constexpr
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """d, and of what lies between n, p, e over the scale, and E(e n)."""
    u_TK = _less_mean(u_TK, in_K, K)
    p_T = 1 / tl.sqrt(tl.sum(u_TK * u_TK, 1) / K + EPS)
    n_TK = u_TK * p_T[:, None]
    off_TK = scale_K[None, :] * n_TK + shift_K[None, :] - goal_TK
    e_TK = scale_K[None, :] * off_TK
    along_T = tl.sum(e_TK * n_TK, 1) / K
    d_TK = (_less_mean(e_TK, in_K, K) - n_TK * along_T[:, None]) * p_T[:, None]
    return d_TK, n_TK, p_T, off_TK, along_T


@triton.jit(do_not_specialize=["batch", "heads", "length"])
def forward_kernel(
    q: tl.tensor,
    k: tl.tensor,
    v: tl.tensor,
    rate: tl.tensor,
    place_rate: tl.tensor,
    scale: tl.tensor,
    shift: tl.tensor,
    first: tl.tensor,
    z: tl.tensor,
    starts: tl.tensor,
    of_q: tl.tuple,
    of_k: tl.tuple,
    of_v: tl.tuple,
    of_rate: tl.tuple,
    of_place_rate: tl.tuple,
    of_scale: tl.tuple,
    of_shift: tl.tuple,
    of_first: tl.tuple,
    batch: tl.tensor,
    heads: tl.tensor,
    length: tl.tensor,
    K: tl.constexpr,
    SIZE: tl.constexpr,
    KEYS: tl.constexpr,
    TOKENS: tl.constexpr,
    BLOCK: tl.constexpr,
    KEEP: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    replica, head = row // heads // batch, row % heads
    i, x, in_K = tl.arange(0, KEYS), tl.arange(0, BLOCK), tl.arange(0, KEYS) < K
    q, k = begin_head(q, of_q, row, batch, heads), begin_head(k, of_k, row, batch, heads)
    v, rate = begin_head(v, of_v, row, batch, heads), begin_head(rate, of_rate, row, batch, heads)
    z += (row // heads * length * heads + head) * K
    place_rate += replica * of_place_rate[0]
    last = tl.load(place_rate + SIZE - 1)
    scale_K = read(scale + replica * of_scale[0] + head * K + i, in_K)
    shift_K = read(shift + replica * of_shift[0] + head * K + i, in_K)

    M = begin_head(first, of_first, row, batch, heads) + i[None, :]
    next_M = starts + row * (tl.cdiv(length, SIZE) if KEEP else 1) * (K + 1) * K + i[None, :]
    for begin in tl.range(0, KEYS + BLOCK, BLOCK, num_stages=1):
        y = begin + x
        in_XK = (y <= K)[:, None] & in_K[None, :]
        tl.store(next_M + y[:, None] * K, read(M + y[:, None] * K, in_XK), mask=in_XK)
    tl.debug_barrier()
    start = 0
    while start < length:  # no range: under NumPy 2.4 Triton's interpreter has none of a number not known beforehand
        M = next_M
        t = start + tl.arange(0, TOKENS)
        in_T = (t < length) & (t < start + SIZE)
        in_TK = in_T[:, None] & in_K[None, :]
        z_TK = tl.zeros((TOKENS, KEYS), tl.float32) + read(M + K * K, in_K[None, :])
        u_TK, scores_TT = z_TK, tl.zeros((TOKENS, TOKENS), tl.float32) + 1
        for begin in tl.range(0, KEYS, BLOCK, num_stages=1):
            y = begin + x
            in_TX, in_XK = in_T[:, None] & (y < K)[None, :], (y < K)[:, None] & in_K[None, :]
            q_TX, k_TX = read(_tile(q, of_q[3], t, y), in_TX), read(_tile(k, of_k[3], t, y), in_TX)
            M_XK = read(M + y[:, None] * K, in_XK)
            z_TK += product(q_TX, M_XK)
            u_TK += product(k_TX, M_XK)
            scores_TT += product(q_TX, tl.trans(k_TX))
        goal_TK = read(_tile(v, of_v[3], t, i), in_TK) - read(_tile(k, of_k[3], t, i), in_TK)
        d_TK, _, _, _, _ = _descent(u_TK, goal_TK, scale_K, shift_K, in_K, K)
        place_T, rate_T = read(place_rate + t - start, in_T), read(rate + t * of_rate[3], in_T)
        share_TT = tl.where(t[:, None] >= t[None, :], place_T[:, None] * rate_T[None, :] * scores_TT, 0.0)
        tl.store(_tile(z, heads * K, t, i), z_TK - product(share_TT, d_TK), mask=in_TK)

        learned_TK = last * rate_T[:, None] * d_TK
        if KEEP:
            next_M += (K + 1) * K
        goes_on = start + SIZE < length
        m_K = read(M + K * K, in_K[None, :]) - tl.sum(learned_TK, 0)[None, :]
        for begin in tl.range(0, KEYS, BLOCK, num_stages=1):
            y = begin + x
            in_TX, in_XK = in_T[:, None] & (y < K)[None, :], (y < K)[:, None] & in_K[None, :] & goes_on
            k_TX = read(_tile(k, of_k[3], t, y), in_TX)
            M_XK = read(M + y[:, None] * K, in_XK) - product(tl.trans(k_TX), learned_TK)
            tl.debug_barrier()  # by now all have read what may be written over
            tl.store(next_M + y[:, None] * K, M_XK, mask=in_XK)
        tl.store(next_M + K * K, m_K, mask=in_K[None, :] & goes_on)
        tl.debug_barrier()  # behind it other threads read what was written, too
        start += SIZE


@triton.jit(do_not_specialize=["batch", "heads", "length"])
def backward_kernel(
    q: tl.tensor,
    k: tl.tensor,
    v: tl.tensor,
    rate: tl.tensor,
    place_rate: tl.tensor,
    scale: tl.tensor,
    shift: tl.tensor,
    starts: tl.tensor,
    d_z: tl.tensor,
    d_q: tl.tensor,
    d_k: tl.tensor,
    d_v: tl.tensor,
    d_rate: tl.tensor,
    d_place_rate: tl.tensor,
    d_scale: tl.tensor,
    d_shift: tl.tensor,
    d_first: tl.tensor,
    of_q: tl.tuple,
    of_k: tl.tuple,
    of_v: tl.tuple,
    of_rate: tl.tuple,
    of_place_rate: tl.tuple,
    of_scale: tl.tuple,
    of_shift: tl.tuple,
    of_d_z: tl.tuple,
    batch: tl.tensor,
    heads: tl.tensor,
    length: tl.tensor,
    K: tl.constexpr,
    SIZE: tl.constexpr,
    KEYS: tl.constexpr,
    TOKENS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    replica, head = row // heads // batch, row % heads
    i, x, in_K = tl.arange(0, KEYS), tl.arange(0, BLOCK), tl.arange(0, KEYS) < K
    q, k = begin_head(q, of_q, row, batch, heads), begin_head(k, of_k, row, batch, heads)
    v, rate = begin_head(v, of_v, row, batch, heads), begin_head(rate, of_rate, row, batch, heads)
    d_z = begin_head(d_z, of_d_z, row, batch, heads)
    by_token = row // heads * length * heads + head
    d_q, d_k, d_v, d_rate = d_q + by_token * K, d_k + by_token * K, d_v + by_token * K, d_rate + by_token
    starts += row * tl.cdiv(length, SIZE) * (K + 1) * K
    G = d_first + row * (K + 1) * K + i[None, :]
    place_rate += replica * of_place_rate[0]
    last = tl.load(place_rate + SIZE - 1)
    scale_K = read(scale + replica * of_scale[0] + head * K + i, in_K)
    shift_K = read(shift + replica * of_shift[0] + head * K + i, in_K)

    h_K, d_scale_K, d_shift_K = (
        tl.zeros((KEYS,), tl.float32), tl.zeros((KEYS,), tl.float32), tl.zeros((KEYS,), tl.float32)
    )  # fmt: skip
    d_place_T = tl.zeros((TOKENS,), tl.float32)
    start = tl.cdiv(length, SIZE) * SIZE
    while start > 0:
        start -= SIZE
        t = start + tl.arange(0, TOKENS)
        in_T, until = (t < length) & (t < start + SIZE), t[:, None] >= t[None, :]
        in_TK = in_T[:, None] & in_K[None, :]
        M, is_not_last = starts + start // SIZE * (K + 1) * K + i[None, :], start + SIZE < length
        u_TK = tl.zeros((TOKENS, KEYS), tl.float32) + read(M + K * K, in_K[None, :])
        x_TK = tl.zeros((TOKENS, KEYS), tl.float32) + h_K[None, :]
        scores_TT = tl.zeros((TOKENS, TOKENS), tl.float32) + 1
        for begin in tl.range(0, KEYS, BLOCK, num_stages=1):
            y = begin + x
            in_TX, in_XK = in_T[:, None] & (y < K)[None, :], (y < K)[:, None] & in_K[None, :]
            q_TX, k_TX = read(_tile(q, of_q[3], t, y), in_TX), read(_tile(k, of_k[3], t, y), in_TX)
            u_TK += product(k_TX, read(M + y[:, None] * K, in_XK))
            x_TK += product(k_TX, read(G + y[:, None] * K, in_XK & is_not_last))
            scores_TT += product(q_TX, tl.trans(k_TX))
        goal_TK = read(_tile(v, of_v[3], t, i), in_TK) - read(_tile(k, of_k[3], t, i), in_TK)
        d_TK, n_TK, p_T, off_TK, along_T = _descent(u_TK, goal_TK, scale_K, shift_K, in_K, K)

        # To d, and to rates: from the next weights, which are asked nothing behind the end, and from its own tokens.
        d_z_TK = read(_tile(d_z, of_d_z[3], t, i), in_TK)
        place_T, rate_T = read(place_rate + t - start, in_T), read(rate + t * of_rate[3], in_T)
        taken_T = tl.sum(x_TK * d_TK, 1)
        scores_TT = tl.where(until, scores_TT, 0.0)
        both_TT = place_T[:, None] * rate_T[None, :]
        of_d_TK = -last * rate_T[:, None] * x_TK - product(tl.trans(both_TT * scores_TT), d_z_TK)
        of_share_TT = product(d_z_TK, tl.trans(d_TK))
        of_both_TT = of_share_TT * scores_TT
        d_place_T -= tl.sum(of_both_TT * rate_T[None, :], 1)
        d_place_T -= tl.where(t == start + SIZE - 1, tl.sum(rate_T * taken_T, 0), 0.0)
        tl.store(d_rate + t * heads, -last * taken_T - tl.sum(of_both_TT * place_T[:, None], 0), mask=in_T)
        w_TT = tl.where(until, -both_TT * of_share_TT, 0.0)

        # Through the descent.
        of_p_T = tl.sum(of_d_TK * d_TK, 1)
        of_c_TK = of_d_TK * p_T[:, None]
        of_along_T = tl.sum(of_c_TK * n_TK, 1) / K
        of_e_TK = _less_mean(of_c_TK, in_K, K) - n_TK * of_along_T[:, None]
        d_scale_K += tl.sum(of_e_TK * (off_TK + scale_K[None, :] * n_TK), 0)
        of_e_TK *= scale_K[None, :]
        d_shift_K += tl.sum(of_e_TK, 0)
        write(_tile(d_v, heads * K, t, i), -of_e_TK, in_TK)
        write(_tile(d_k, heads * K, t, i), of_e_TK, in_TK)
        of_n_TK = scale_K[None, :] * (of_e_TK - of_along_T[:, None] * off_TK) - along_T[:, None] * of_c_TK
        of_p_T = (of_p_T + tl.sum(of_n_TK * n_TK, 1)) / K
        of_u_TK = _less_mean((of_n_TK - n_TK * of_p_T[:, None]) * p_T[:, None], in_K, K)
        h_K += tl.sum(d_z_TK + of_u_TK, 0)

        learned_TK = -last * rate_T[:, None] * d_TK
        tl.debug_barrier()  # behind it other threads read what was written, too
        for begin in tl.range(0, KEYS, BLOCK, num_stages=1):
            y = begin + x
            in_TX, in_XK = in_T[:, None] & (y < K)[None, :], (y < K)[:, None] & in_K[None, :]
            q_TX, k_TX = read(_tile(q, of_q[3], t, y), in_TX), read(_tile(k, of_k[3], t, y), in_TX)
            M_XK, at_k = read(M + y[:, None] * K, in_XK), _tile(d_k, heads * K, t, y)
            of_q_TX = product(d_z_TK, tl.trans(M_XK)) + product(w_TT, k_TX)
            write(_tile(d_q, heads * K, t, y), of_q_TX, in_TX)
            of_k_TX = read(at_k, in_TX) + product(of_u_TK, tl.trans(M_XK)) + product(tl.trans(w_TT), q_TX)
            G_XK = read(G + y[:, None] * K, in_XK & is_not_last)
            of_k_TX += product(learned_TK, tl.trans(G_XK))
            G_XK += product(tl.trans(q_TX), d_z_TK) + product(tl.trans(k_TX), of_u_TK)
            tl.debug_barrier()  # by now all have read what is written over
            write(at_k, of_k_TX, in_TX)
            tl.store(G + y[:, None] * K, G_XK, mask=in_XK)
        tl.debug_barrier()
    tl.store(G + K * K, h_K[None, :], mask=in_K[None, :])
    c = tl.arange(0, TOKENS)
    tl.store(d_place_rate + row * SIZE + c, d_place_T, mask=c < SIZE)
    tl.store(d_scale + row * K + i, d_scale_K, mask=in_K)
    tl.store(d_shift + row * K + i, d_shift_K, mask=in_K)
