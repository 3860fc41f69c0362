"""The Triton programs of a whole machine with links, forward and backward; gpu_machine.py calls them.

A program has one machine, which is one row of one replica, for all its tokens: memory, links and c in registers, as are
usage, the last write and precedence, which lie in that order in `of_rows`; weightings in memory (linked_programs.py).
`y` is [h, r] of each token; of gates, weightings and what was asked for there is room for all tokens where a backward
pass is to come, and else for one, or of weightings for two.
"""

import triton
import triton.language as tl

from chomsky_ladder.models.kernels.triton.controller import cell, cell_back, product, product_back
from chomsky_ladder.models.kernels.triton.memory import begin, read
from chomsky_ladder.models.operations.linked.gpu_programs import OF_READ, OF_WRITE, turn, turn_back


@triton.jit
def _read_rows(at: tl.tensor, n: tl.tensor, N: tl.constexpr) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    return read(at + n, n < N), read(at + N + n, n < N), read(at + 2 * N + n, n < N)


@triton.jit
def _write_rows(at: tl.tensor, u_N: tl.tensor, w_N: tl.tensor, p_N: tl.tensor, n: tl.tensor, N: tl.constexpr) -> None:
    tl.store(at + n, u_N, mask=n < N)
    tl.store(at + N + n, w_N, mask=n < N)
    tl.store(at + 2 * N + n, p_N, mask=n < N)


@triton.jit(do_not_specialize=["batch", "length"])
def forward_kernel(
    x: tl.tensor,
    W_y: tl.tensor,
    A: tl.tensor,
    bias: tl.tensor,
    first_y: tl.tensor,
    first_c: tl.tensor,
    first_memory: tl.tensor,
    first_rows: tl.tensor,
    first_links: tl.tensor,
    first_weights: tl.tensor,
    y: tl.tensor,
    last_c: tl.tensor,
    last_memory: tl.tensor,
    last_rows: tl.tensor,
    last_links: tl.tensor,
    last_weights: tl.tensor,
    gates: tl.tensor,
    asked: tl.tensor,
    c_all: tl.tensor,
    memories: tl.tensor,
    rows: tl.tensor,
    links: tl.tensor,
    weights: tl.tensor,
    of_x: tl.tuple,
    batch: tl.tensor,
    length: tl.tensor,
    D: tl.constexpr,
    W: tl.constexpr,
    N: tl.constexpr,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    DS: tl.constexpr,
    KS: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_K: tl.constexpr,
    KEEP: tl.constexpr,
) -> None:
    X: tl.constexpr = HEADS * (W + OF_READ) + 3 * W + OF_WRITE
    K: tl.constexpr = D + HEADS * W
    HN: tl.constexpr = HEADS * N
    row, i, n = tl.program_id(0).to(tl.int64), tl.arange(0, WIDTH), tl.arange(0, ROWS)
    d, k, h = tl.arange(0, DS), tl.arange(0, KS), tl.arange(0, triton.next_power_of_2(HN))
    at_WN, in_WN = i[:, None] * N + n[None, :], (i < W)[:, None] & (n < N)[None, :]
    at_NN, in_NN = n[:, None] * N + n[None, :], (n < N)[:, None] & (n < N)[None, :]
    replica, kept = row // batch, row * (length if KEEP else 1)
    x, y = begin(x, of_x, row, batch), y + row * length * K
    W_y, A, bias = W_y + replica * 4 * D * K, A + replica * X * D, bias + replica * X
    gates, asked, c_all, memories = gates + kept * 4 * D, asked + kept * X, c_all + kept * D, memories + kept * W * N
    rows, links, weights = rows + kept * 3 * N, links + kept * N * N, weights + (kept + row) * HN

    tl.store(weights + h, read(first_weights + row * HN + h, h < HN), mask=h < HN)
    c_D = read(first_c + row * D + d, d < D)
    M_WN, L_NN = read(first_memory + row * W * N + at_WN, in_WN), read(first_links + row * N * N + at_NN, in_NN)
    u_N, w_N, p_N = _read_rows(first_rows + row * 3 * N, n, N)
    past_K = read(first_y + row * K + k, k < K)
    t = 0
    while t < length:  # no range: under NumPy 2.4 Triton's interpreter has none of a number not known beforehand
        if KEEP:
            at, before, after = t, t, t + 1
            tl.store(c_all + t * D + d, c_D, mask=d < D)
            tl.store(memories + t * W * N + at_WN, M_WN, mask=in_WN)
            _write_rows(rows + t * 3 * N, u_N, w_N, p_N, n, N)
            tl.store(links + t * N * N + at_NN, L_NN, mask=in_NN)
        else:
            at, before, after = 0, t % 2, (t + 1) % 2
        product(gates + at * 4 * D, x + t * of_x[2], W_y, past_K, 4 * D, K, BLOCK_K)
        tl.debug_barrier()
        h_D, c_D = cell(gates + at * 4 * D, c_D, d, D)
        tl.store(y + t * K + d, h_D, mask=d < D)
        product(asked + at * X, bias, A, h_D, X, D, BLOCK_D)
        tl.debug_barrier()
        M_WN, u_N, w_N, p_N, L_NN = turn(
            asked + at * X, weights + before * HN, weights + after * HN, y + t * K + D, M_WN, u_N, w_N, p_N, L_NN,
            W, N, HEADS,
        )  # fmt: skip
        tl.debug_barrier()
        past_K = read(y + t * K + k, k < K)
        t += 1
    tl.store(last_c + row * D + d, c_D, mask=d < D)
    tl.store(last_memory + row * W * N + at_WN, M_WN, mask=in_WN)
    _write_rows(last_rows + row * 3 * N, u_N, w_N, p_N, n, N)
    tl.store(last_links + row * N * N + at_NN, L_NN, mask=in_NN)
    end = length if KEEP else length % 2
    tl.store(last_weights + row * HN + h, read(weights + end * HN + h, h < HN), mask=h < HN)


@triton.jit(do_not_specialize=["batch", "length"])
def backward_kernel(
    d_y: tl.tensor,
    d_last_c: tl.tensor | None,
    d_last_memory: tl.tensor | None,
    d_last_rows: tl.tensor | None,
    d_last_links: tl.tensor | None,
    d_last_weights: tl.tensor | None,
    W_y: tl.tensor,
    A: tl.tensor,
    gates: tl.tensor,
    asked: tl.tensor,
    c_all: tl.tensor,
    memories: tl.tensor,
    rows: tl.tensor,
    links: tl.tensor,
    weights: tl.tensor,
    d_gates: tl.tensor,
    d_asked: tl.tensor,
    d_first_y: tl.tensor,
    d_first_c: tl.tensor,
    d_first_memory: tl.tensor,
    d_first_rows: tl.tensor,
    d_first_links: tl.tensor,
    d_first_weights: tl.tensor,
    batch: tl.tensor,
    length: tl.tensor,
    D: tl.constexpr,
    W: tl.constexpr,
    N: tl.constexpr,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    DS: tl.constexpr,
    KS: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> None:
    X: tl.constexpr = HEADS * (W + OF_READ) + 3 * W + OF_WRITE
    K: tl.constexpr = D + HEADS * W
    HN: tl.constexpr = HEADS * N
    row, i, n = tl.program_id(0).to(tl.int64), tl.arange(0, WIDTH), tl.arange(0, ROWS)
    d, k, h = tl.arange(0, DS), tl.arange(0, KS), tl.arange(0, triton.next_power_of_2(HN))
    at_WN, in_WN = i[:, None] * N + n[None, :], (i < W)[:, None] & (n < N)[None, :]
    at_NN, in_NN = n[:, None] * N + n[None, :], (n < N)[:, None] & (n < N)[None, :]
    replica, kept = row // batch, row * length
    W_y, A, d_y = W_y + replica * 4 * D * K, A + replica * X * D, d_y + kept * K
    gates, asked, c_all, memories = gates + kept * 4 * D, asked + kept * X, c_all + kept * D, memories + kept * W * N
    rows, links, weights = rows + kept * 3 * N, links + kept * N * N, weights + (kept + row) * HN
    d_gates, d_asked = d_gates + kept * 4 * D, d_asked + kept * X
    d_first_y, d_first_weights = d_first_y + row * K, d_first_weights + row * HN  # until then those of a token

    d_c_D, d_M_WN = tl.zeros((DS,), tl.float32), tl.zeros((WIDTH, ROWS), tl.float32)
    d_u_N, d_w_N, d_p_N = tl.zeros((ROWS,), tl.float32), tl.zeros((ROWS,), tl.float32), tl.zeros((ROWS,), tl.float32)
    d_L_NN = tl.zeros((ROWS, ROWS), tl.float32)
    d_weights_H = tl.zeros((triton.next_power_of_2(HN),), tl.float32)
    if d_last_c is not None:
        d_c_D = read(d_last_c + row * D + d, d < D)
    if d_last_memory is not None:
        d_M_WN = read(d_last_memory + row * W * N + at_WN, in_WN)
    if d_last_rows is not None:
        d_u_N, d_w_N, d_p_N = _read_rows(d_last_rows + row * 3 * N, n, N)
    if d_last_links is not None:
        d_L_NN = read(d_last_links + row * N * N + at_NN, in_NN)
    if d_last_weights is not None:
        d_weights_H = read(d_last_weights + row * HN + h, h < HN)
    tl.store(d_first_weights + h, d_weights_H, mask=h < HN)
    d_past_K = tl.zeros((KS,), tl.float32)
    t = length
    while t > 0:
        t -= 1
        tl.store(d_first_y + k, d_past_K + read(d_y + t * K + k, k < K), mask=k < K)
        tl.debug_barrier()
        u_N, w_N, p_N = _read_rows(rows + t * 3 * N, n, N)
        d_M_WN, d_u_N, d_w_N, d_p_N, d_L_NN = turn_back(
            d_M_WN, d_u_N, d_w_N, d_p_N, d_L_NN, d_first_weights, d_first_y + D, asked + t * X, weights + t * HN,
            weights + (t + 1) * HN, read(memories + t * W * N + at_WN, in_WN), u_N, w_N, p_N,
            read(links + t * N * N + at_NN, in_NN), d_asked + t * X, d_first_weights, W, N, HEADS,
        )  # fmt: skip
        tl.debug_barrier()
        d_h_D = read(d_first_y + d, d < D) + product_back(d_asked + t * X, A, X, D, BLOCK_D, DS)
        c_D = read(c_all + t * D + d, d < D)
        d_c_D = cell_back(gates + t * 4 * D, d_gates + t * 4 * D, c_D, d_h_D, d_c_D, d, D)
        tl.debug_barrier()
        d_past_K = product_back(d_gates + t * 4 * D, W_y, 4 * D, K, BLOCK_K, KS)
    tl.debug_barrier()
    tl.store(d_first_y + k, d_past_K, mask=k < K)
    tl.store(d_first_c + row * D + d, d_c_D, mask=d < D)
    tl.store(d_first_memory + row * W * N + at_WN, d_M_WN, mask=in_WN)
    _write_rows(d_first_rows + row * 3 * N, d_u_N, d_w_N, d_p_N, n, N)
    tl.store(d_first_links + row * N * N + at_NN, d_L_NN, mask=in_NN)
