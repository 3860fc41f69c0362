"""The Triton programs of a whole Turing machine, forward and backward; gpu_machine.py calls them.

A program has one machine, which is one row of one replica, for all its tokens: memory and c in registers, weightings in
memory (turing_programs.py). `y` is [h, r] of each token; of gates, weightings and what was asked for there is room
for all tokens where a backward pass is to come, and else for one, or of weightings for two.
"""

import triton
import triton.language as tl

from chomsky_ladder.models.kernels.triton.controller import cell, cell_back, product, product_back
from chomsky_ladder.models.kernels.triton.memory import begin, read
from chomsky_ladder.models.operations.turing.gpu_programs import SCALARS, turn, turn_back


@triton.jit(do_not_specialize=["batch", "length"])
def forward_kernel(
    x: tl.tensor,
    W_y: tl.tensor,
    A: tl.tensor,
    bias: tl.tensor,
    first_y: tl.tensor,
    first_c: tl.tensor,
    first_memory: tl.tensor,
    first_weights: tl.tensor,
    y: tl.tensor,
    last_c: tl.tensor,
    last_memory: tl.tensor,
    last_weights: tl.tensor,
    gates: tl.tensor,
    asked: tl.tensor,
    c_all: tl.tensor,
    memories: tl.tensor,
    weights: tl.tensor,
    of_x: tl.tuple,
    batch: tl.tensor,
    length: tl.tensor,
    D: tl.constexpr,
    W: tl.constexpr,
    N: tl.constexpr,
    HEADS: tl.constexpr,
    SHIFTS: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    DS: tl.constexpr,
    KS: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_K: tl.constexpr,
    KEEP: tl.constexpr,
) -> None:
    X: tl.constexpr = 2 * HEADS * (2 * W + SCALARS + SHIFTS)
    K: tl.constexpr = D + HEADS * W
    HN: tl.constexpr = 2 * HEADS * N
    row, i, n = tl.program_id(0).to(tl.int64), tl.arange(0, WIDTH), tl.arange(0, ROWS)
    d, k, h = tl.arange(0, DS), tl.arange(0, KS), tl.arange(0, triton.next_power_of_2(HN))
    at_WN, in_WN = i[:, None] * N + n[None, :], (i < W)[:, None] & (n < N)[None, :]
    replica, kept = row // batch, row * (length if KEEP else 1)
    x, y = begin(x, of_x, row, batch), y + row * length * K
    W_y, A, bias = W_y + replica * 4 * D * K, A + replica * X * D, bias + replica * X
    gates, asked, c_all, memories = gates + kept * 4 * D, asked + kept * X, c_all + kept * D, memories + kept * W * N
    weights += row * ((length if KEEP else 1) + 1) * HN

    tl.store(weights + h, read(first_weights + row * HN + h, h < HN), mask=h < HN)
    c_D = read(first_c + row * D + d, d < D)
    M_WN = read(first_memory + row * W * N + at_WN, in_WN)
    past_K = read(first_y + row * K + k, k < K)
    t = 0
    while t < length:  # no range: under NumPy 2.4 Triton's interpreter has none of a number not known beforehand
        if KEEP:
            at, before, after = t, t, t + 1
            tl.store(c_all + t * D + d, c_D, mask=d < D)
            tl.store(memories + t * W * N + at_WN, M_WN, mask=in_WN)
        else:
            at, before, after = 0, t % 2, (t + 1) % 2
        product(gates + at * 4 * D, x + t * of_x[2], W_y, past_K, 4 * D, K, BLOCK_K)
        tl.debug_barrier()
        h_D, c_D = cell(gates + at * 4 * D, c_D, d, D)
        tl.store(y + t * K + d, h_D, mask=d < D)
        product(asked + at * X, bias, A, h_D, X, D, BLOCK_D)
        tl.debug_barrier()
        M_WN = turn(
            asked + at * X, weights + before * HN, weights + after * HN, y + t * K + D, M_WN, W, N, HEADS, SHIFTS
        )
        tl.debug_barrier()
        past_K = read(y + t * K + k, k < K)
        t += 1
    tl.store(last_c + row * D + d, c_D, mask=d < D)
    tl.store(last_memory + row * W * N + at_WN, M_WN, mask=in_WN)
    end = length if KEEP else length % 2
    tl.store(last_weights + row * HN + h, read(weights + end * HN + h, h < HN), mask=h < HN)


@triton.jit(do_not_specialize=["batch", "length"])
def backward_kernel(
    d_y: tl.tensor,
    d_last_c: tl.tensor | None,
    d_last_memory: tl.tensor | None,
    d_last_weights: tl.tensor | None,
    W_y: tl.tensor,
    A: tl.tensor,
    gates: tl.tensor,
    asked: tl.tensor,
    c_all: tl.tensor,
    memories: tl.tensor,
    weights: tl.tensor,
    d_gates: tl.tensor,
    d_asked: tl.tensor,
    d_first_y: tl.tensor,
    d_first_c: tl.tensor,
    d_first_memory: tl.tensor,
    d_first_weights: tl.tensor,
    batch: tl.tensor,
    length: tl.tensor,
    D: tl.constexpr,
    W: tl.constexpr,
    N: tl.constexpr,
    HEADS: tl.constexpr,
    SHIFTS: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    DS: tl.constexpr,
    KS: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> None:
    X: tl.constexpr = 2 * HEADS * (2 * W + SCALARS + SHIFTS)
    K: tl.constexpr = D + HEADS * W
    HN: tl.constexpr = 2 * HEADS * N
    row, i, n = tl.program_id(0).to(tl.int64), tl.arange(0, WIDTH), tl.arange(0, ROWS)
    d, k, h = tl.arange(0, DS), tl.arange(0, KS), tl.arange(0, triton.next_power_of_2(HN))
    at_WN, in_WN = i[:, None] * N + n[None, :], (i < W)[:, None] & (n < N)[None, :]
    replica, kept = row // batch, row * length
    W_y, A, d_y = W_y + replica * 4 * D * K, A + replica * X * D, d_y + kept * K
    gates, asked, c_all, memories = gates + kept * 4 * D, asked + kept * X, c_all + kept * D, memories + kept * W * N
    weights, d_gates, d_asked = weights + row * (length + 1) * HN, d_gates + kept * 4 * D, d_asked + kept * X
    d_first_y, d_first_weights = d_first_y + row * K, d_first_weights + row * HN  # until then those of a token

    d_c_D, d_M_WN = tl.zeros((DS,), tl.float32), tl.zeros((WIDTH, ROWS), tl.float32)
    d_weights_H = tl.zeros((triton.next_power_of_2(HN),), tl.float32)
    if d_last_c is not None:
        d_c_D = read(d_last_c + row * D + d, d < D)
    if d_last_memory is not None:
        d_M_WN = read(d_last_memory + row * W * N + at_WN, in_WN)
    if d_last_weights is not None:
        d_weights_H = read(d_last_weights + row * HN + h, h < HN)
    tl.store(d_first_weights + h, d_weights_H, mask=h < HN)
    d_past_K = tl.zeros((KS,), tl.float32)
    t = length
    while t > 0:
        t -= 1
        tl.store(d_first_y + k, d_past_K + read(d_y + t * K + k, k < K), mask=k < K)
        tl.debug_barrier()
        d_M_WN = turn_back(
            d_M_WN, d_first_weights, d_first_y + D, asked + t * X, weights + t * HN, weights + (t + 1) * HN,
            read(memories + t * W * N + at_WN, in_WN), d_asked + t * X, d_first_weights, W, N, HEADS, SHIFTS,
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
