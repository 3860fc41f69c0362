"""The Triton programs of one turn of a Turing machine's memory, forward and backward; gpu.py calls them.

A program has one machine, all of its memory [W, N] in registers. Weightings, of which there are as many as heads want,
lie in memory, and are read there again behind a barrier. `asked` is one row: reference.py.
"""

import triton
import triton.language as tl

from chomsky_ladder.models.kernels.triton.content import find, find_back, one_by_lengths, softplus
from chomsky_ladder.models.kernels.triton.memory import read
from chomsky_ladder.models.kernels.triton.recurrence import sigmoid
from chomsky_ladder.models.operations.turing import reference

SCALARS = tl.constexpr(reference.SCALARS)


@triton.jit
def _shares(asked: tl.tensor, SHIFTS: tl.constexpr) -> tuple[tl.tensor, tl.tensor]:
    """What shares of the shifts are made with: the largest of what was asked, and the sum of their exponentials."""
    s = tl.arange(0, triton.next_power_of_2(SHIFTS))
    x_S = tl.load(asked + s, mask=s < SHIFTS, other=float("-inf"))
    most = tl.max(x_S, 0)
    return most, tl.sum(tl.exp(x_S - most), 0)


@triton.jit
def _beside(x_N: tl.tensor, by: tl.tensor, n: tl.tensor, N: tl.constexpr) -> tl.tensor:
    """x[n - by] on the ring."""
    return tl.where(n < N, tl.gather(x_N, (n + (N - by)) % N, 0), 0.0)


@triton.jit
def _address(
    asked: tl.tensor,
    before_N: tl.tensor,
    M_WN: tl.tensor,
    inverse_N: tl.tensor,
    W: tl.constexpr,
    N: tl.constexpr,
    SHIFTS: tl.constexpr,
) -> tuple:
    """How one head finds its rows: key, k . M, what it found, between that and before, moved, its log, sharpened."""
    i, n = tl.arange(0, M_WN.shape[0]), tl.arange(0, M_WN.shape[1])
    key_W = read(asked + i, i < W)
    dot_N, found_N = find(key_W, softplus(tl.load(asked + W)), M_WN, inverse_N, n < N)
    gated_N = before_N + sigmoid(tl.load(asked + W + 2)) * (found_N - before_N)
    most, total = _shares(asked + W + SCALARS, SHIFTS)
    moved_N = tl.zeros_like(gated_N)
    for place in tl.range(0, SHIFTS):
        share = tl.exp(tl.load(asked + W + SCALARS + place) - most) / total
        moved_N += share * _beside(gated_N, place - SHIFTS // 2, n, N)
    # Over the largest, or a small weight's power would be 0 everywhere.
    log_N = tl.log(moved_N / tl.max(moved_N, 0))
    to_N = tl.exp((1 + softplus(tl.load(asked + W + 1))) * log_N)
    return key_W, dot_N, found_N, gated_N, moved_N, log_N, to_N / tl.sum(to_N, 0)


@triton.jit
def _address_back(
    d_N: tl.tensor,
    asked: tl.tensor,
    d_asked: tl.tensor,
    before_N: tl.tensor,
    M_WN: tl.tensor,
    inverse_N: tl.tensor,
    W: tl.constexpr,
    N: tl.constexpr,
    SHIFTS: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:
    """The gradients of the weighting before and of the memory; writes those of what was asked."""
    i, n = tl.arange(0, M_WN.shape[0]), tl.arange(0, M_WN.shape[1])
    s = tl.arange(0, triton.next_power_of_2(SHIFTS))
    key_W, dot_N, found_N, gated_N, moved_N, log_N, to_N = _address(asked, before_N, M_WN, inverse_N, W, N, SHIFTS)
    there = (n < N) & (moved_N > 0)
    d_power_N = tl.where(there, to_N * (d_N - tl.sum(to_N * d_N, 0)), 0.0)
    of_sharpness = tl.load(asked + W + 1)
    d_sharpness = tl.sum(tl.where(there, d_power_N * log_N, 0.0), 0)
    d_moved_N = d_power_N * (1 + softplus(of_sharpness)) / tl.where(there, moved_N, 1.0)

    most, total = _shares(asked + W + SCALARS, SHIFTS)
    d_gated_N, d_S = tl.zeros_like(gated_N), tl.zeros([triton.next_power_of_2(SHIFTS)], tl.float32)
    for place in tl.range(0, SHIFTS):
        share = tl.exp(tl.load(asked + W + SCALARS + place) - most) / total
        d_share = tl.sum(d_moved_N * _beside(gated_N, place - SHIFTS // 2, n, N), 0)
        d_S = tl.where(s == place, d_share, d_S)
        d_gated_N += share * _beside(d_moved_N, SHIFTS // 2 - place, n, N)
    share_S = tl.exp(tl.load(asked + W + SCALARS + s, mask=s < SHIFTS, other=float("-inf")) - most) / total
    tl.store(d_asked + W + SCALARS + s, share_S * (d_S - tl.sum(share_S * d_S, 0)), mask=s < SHIFTS)

    of_strength, gate = tl.load(asked + W), sigmoid(tl.load(asked + W + 2))
    d_gate = tl.sum(d_gated_N * (found_N - before_N), 0)
    d_strength, d_key_W, d_M_WN = find_back(
        gate * d_gated_N, found_N, dot_N, key_W, softplus(of_strength), M_WN, inverse_N
    )
    tl.store(d_asked + i, d_key_W, mask=i < W)
    tl.store(d_asked + W, d_strength * sigmoid(of_strength))
    tl.store(d_asked + W + 1, d_sharpness * sigmoid(of_sharpness))
    tl.store(d_asked + W + 2, d_gate * gate * (1 - gate))
    return (1 - gate) * d_gated_N, d_M_WN


@triton.jit
def _kept_by_others(
    k: tl.tensor, erase: tl.tensor, writes: tl.tensor, like_WN: tl.tensor,
    W: tl.constexpr, N: tl.constexpr, HEADS: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """What heads other than the k-th leave of each number."""
    i, n = tl.arange(0, like_WN.shape[0]), tl.arange(0, like_WN.shape[1])
    kept_WN = tl.zeros_like(like_WN) + 1
    for other in tl.range(0, HEADS):
        e_W = tl.where(other == k, 0.0, sigmoid(read(erase + other * W + i, i < W)))
        kept_WN *= 1 - e_W[:, None] * read(writes + other * N + n, n < N)[None, :]
    return kept_WN


@triton.jit
def _written(
    asked: tl.tensor, weights: tl.tensor, M_WN: tl.tensor,
    W: tl.constexpr, N: tl.constexpr, HEADS: tl.constexpr, SHIFTS: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """The memory once all heads have written."""
    i, n = tl.arange(0, M_WN.shape[0]), tl.arange(0, M_WN.shape[1])
    erase = asked + 2 * HEADS * (W + SCALARS + SHIFTS)
    added_WN = tl.zeros_like(M_WN)
    for k in tl.range(0, HEADS):
        write_N = read(weights + (HEADS + k) * N + n, n < N)
        e_W, a_W = read(erase + k * W + i, i < W), read(erase + (HEADS + k) * W + i, i < W)
        M_WN *= 1 - sigmoid(e_W)[:, None] * write_N[None, :]
        added_WN += a_W[:, None] * write_N[None, :]
    return M_WN + added_WN


@triton.jit
def turn(
    asked: tl.tensor,
    before: tl.tensor,
    weights: tl.tensor,
    reads: tl.tensor,
    M_WN: tl.tensor,
    W: tl.constexpr,
    N: tl.constexpr,
    HEADS: tl.constexpr,
    SHIFTS: tl.constexpr,
) -> tl.tensor:
    """The memory behind it; writes the weightings and what was read."""
    i, n = tl.arange(0, M_WN.shape[0]), tl.arange(0, M_WN.shape[1])
    inverse_N = one_by_lengths(M_WN)
    for k in tl.range(0, 2 * HEADS):
        before_N = read(before + k * N + n, n < N)
        at = asked + k * (W + SCALARS + SHIFTS)
        _, _, _, _, _, _, to_N = _address(at, before_N, M_WN, inverse_N, W, N, SHIFTS)
        tl.store(weights + k * N + n, to_N, mask=n < N)
    tl.debug_barrier()
    M_WN = _written(asked, weights, M_WN, W, N, HEADS, SHIFTS)
    for k in tl.range(0, HEADS):
        read_W = tl.sum(read(weights + k * N + n, n < N)[None, :] * M_WN, 1)
        tl.store(reads + k * W + i, read_W, mask=i < W)
    return M_WN


@triton.jit
def turn_back(
    d_M_WN: tl.tensor,
    d_weights: tl.tensor,
    d_reads: tl.tensor,
    asked: tl.tensor,
    before: tl.tensor,
    weights: tl.tensor,
    M_WN: tl.tensor,
    d_asked: tl.tensor,
    d_before: tl.tensor,
    W: tl.constexpr,
    N: tl.constexpr,
    HEADS: tl.constexpr,
    SHIFTS: tl.constexpr,
) -> tl.tensor:
    """The gradient of the memory; writes those of what was asked and, maybe over `d_weights`, of those before."""
    i, n = tl.arange(0, M_WN.shape[0]), tl.arange(0, M_WN.shape[1])
    TO_FIND: tl.constexpr = 2 * HEADS * (W + SCALARS + SHIFTS)
    erase, add = asked + TO_FIND, asked + TO_FIND + HEADS * W
    now_WN = _written(asked, weights, M_WN, W, N, HEADS, SHIFTS)
    for k in tl.range(0, HEADS):
        d_read_W = read(d_reads + k * W + i, i < W)
        d_N = read(d_weights + k * N + n, n < N) + tl.sum(d_read_W[:, None] * now_WN, 0)
        d_M_WN += d_read_W[:, None] * read(weights + k * N + n, n < N)[None, :]
        tl.debug_barrier()  # all have read
        tl.store(d_before + k * N + n, d_N, mask=n < N)
    for k in tl.range(0, HEADS):
        write_N = read(weights + (HEADS + k) * N + n, n < N)
        e_W, a_W = sigmoid(read(erase + k * W + i, i < W)), read(add + k * W + i, i < W)
        d_kept_WN = d_M_WN * M_WN * _kept_by_others(k, erase, weights + HEADS * N, M_WN, W, N, HEADS)
        d_N = read(d_weights + (HEADS + k) * N + n, n < N)
        d_N += tl.sum(a_W[:, None] * d_M_WN - e_W[:, None] * d_kept_WN, 0)
        tl.debug_barrier()
        tl.store(d_before + (HEADS + k) * N + n, d_N, mask=n < N)
        d_e_W = -tl.sum(d_kept_WN * write_N[None, :], 1) * e_W * (1 - e_W)
        tl.store(d_asked + TO_FIND + k * W + i, d_e_W, mask=i < W)
        tl.store(d_asked + TO_FIND + (HEADS + k) * W + i, tl.sum(d_M_WN * write_N[None, :], 1), mask=i < W)
    d_M_WN *= _kept_by_others(-1, erase, weights + HEADS * N, M_WN, W, N, HEADS)

    inverse_N = one_by_lengths(M_WN)
    tl.debug_barrier()
    for k in tl.range(0, 2 * HEADS):
        at = k * (W + SCALARS + SHIFTS)
        d_N, before_N = read(d_before + k * N + n, n < N), read(before + k * N + n, n < N)
        d_N, found_WN = _address_back(d_N, asked + at, d_asked + at, before_N, M_WN, inverse_N, W, N, SHIFTS)
        d_M_WN += found_WN
        tl.debug_barrier()  # all have read
        tl.store(d_before + k * N + n, d_N, mask=n < N)
    return d_M_WN


@triton.jit
def forward_kernel(
    asked: tl.tensor,
    before: tl.tensor,
    memory: tl.tensor,
    weights: tl.tensor,
    memories: tl.tensor,
    reads: tl.tensor,
    W: tl.constexpr,
    N: tl.constexpr,
    HEADS: tl.constexpr,
    SHIFTS: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
) -> None:
    ASKED: tl.constexpr = 2 * HEADS * (2 * W + SCALARS + SHIFTS)
    row, i, n = tl.program_id(0).to(tl.int64), tl.arange(0, WIDTH), tl.arange(0, ROWS)
    at_WN, in_WN = row * W * N + i[:, None] * N + n[None, :], (i < W)[:, None] & (n < N)[None, :]
    asked, before, weights = asked + row * ASKED, before + row * 2 * HEADS * N, weights + row * 2 * HEADS * N
    M_WN = read(memory + at_WN, in_WN)
    M_WN = turn(asked, before, weights, reads + row * HEADS * W, M_WN, W, N, HEADS, SHIFTS)
    tl.store(memories + at_WN, M_WN, mask=in_WN)


@triton.jit
def backward_kernel(
    d_weights: tl.tensor,
    d_memories: tl.tensor,
    d_reads: tl.tensor,
    asked: tl.tensor,
    before: tl.tensor,
    memory: tl.tensor,
    weights: tl.tensor,
    d_asked: tl.tensor,
    d_before: tl.tensor,
    d_memory: tl.tensor,
    W: tl.constexpr,
    N: tl.constexpr,
    HEADS: tl.constexpr,
    SHIFTS: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
) -> None:
    ASKED: tl.constexpr = 2 * HEADS * (2 * W + SCALARS + SHIFTS)
    row, i, n = tl.program_id(0).to(tl.int64), tl.arange(0, WIDTH), tl.arange(0, ROWS)
    at_WN, in_WN = row * W * N + i[:, None] * N + n[None, :], (i < W)[:, None] & (n < N)[None, :]
    own, of_heads = row * ASKED, row * 2 * HEADS * N
    d_M_WN = turn_back(
        read(d_memories + at_WN, in_WN), d_weights + of_heads, d_reads + row * HEADS * W, asked + own,
        before + of_heads, weights + of_heads, read(memory + at_WN, in_WN), d_asked + own, d_before + of_heads,
        W, N, HEADS, SHIFTS,
    )  # fmt: skip
    tl.store(d_memory + at_WN, d_M_WN, mask=in_WN)
