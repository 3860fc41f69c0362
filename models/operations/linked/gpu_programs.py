"""The Triton programs of one turn of a memory with links, forward and backward; gpu.py calls them.

A program has one machine, its memory [W, N] and its links [N, N] in registers. Weightings, as many as heads want, lie
in memory, and are read there again behind a barrier. `asked` is one row: reference.py.
"""

import triton
import triton.language as tl

from chomsky_ladder.models.kernels.triton.content import find, find_back, one_by_lengths, softplus
from chomsky_ladder.models.kernels.triton.memory import read
from chomsky_ladder.models.kernels.triton.recurrence import sigmoid
from chomsky_ladder.models.operations.linked import reference

OF_READ, OF_WRITE = tl.constexpr(reference.OF_READ), tl.constexpr(reference.OF_WRITE)
LEAST = tl.constexpr(1e-18)  # of a usage that something is divided by: products of less than that count as none


@triton.jit
def _times(a: tl.tensor, b: tl.tensor) -> tl.tensor:
    return a * b


@triton.jit
def _earlier(u_N: tl.tensor, n: tl.tensor, N: tl.constexpr) -> tl.tensor:
    """At [n, m] whether row m is filled before row n: that of the smaller usage, and of two alike the first."""
    alike = (u_N[None, :] == u_N[:, None]) & (n[None, :] < n[:, None])
    return ((u_N[None, :] < u_N[:, None]) | alike) & (n < N)[None, :]


@triton.jit
def _allocation(u_N: tl.tensor, n: tl.tensor, N: tl.constexpr) -> tl.tensor:
    """How much of a write goes to each row if all of it goes to free ones."""
    return (1 - u_N) * tl.reduce(tl.where(_earlier(u_N, n, N), u_N[None, :], 1.0), 1, _times)


@triton.jit
def _allocation_back(d_N: tl.tensor, u_N: tl.tensor, n: tl.tensor, N: tl.constexpr) -> tl.tensor:
    """The gradient of the usage, from products without one of their factors: what divides them is no usage near 0."""
    earlier_NN, small_N = _earlier(u_N, n, N), u_N < LEAST
    product_N = tl.reduce(tl.where(earlier_NN & (u_N >= LEAST)[None, :], u_N[None, :], 1.0), 1, _times)
    small_before_N = tl.sum((earlier_NN & small_N[None, :]).to(tl.int32), 1)
    d_product_N = tl.where(n < N, d_N * (1 - u_N) * product_N, 0.0)
    of_others_N = tl.where(small_before_N == 0, d_product_N, 0.0)  # where a small one is before, it is 0 for others
    of_small_N = tl.where(small_before_N == 1, d_product_N, 0.0)
    of_NN = tl.where(small_N[None, :], of_small_N[:, None], of_others_N[:, None])
    later_N = tl.sum(tl.where(earlier_NN, of_NN, 0.0), 0) / tl.where(small_N, 1.0, u_N)
    return later_N - tl.where(small_before_N == 0, d_N * product_N, 0.0)


@triton.jit
def _left(
    asked: tl.tensor, before: tl.tensor, skipped: tl.tensor, n: tl.tensor,
    W: tl.constexpr, N: tl.constexpr, HEADS: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """What of the usage is left by heads, but for one that is skipped."""
    left_N = tl.full([n.shape[0]], 1.0, tl.float32)
    for k in tl.range(0, HEADS):
        freed = sigmoid(tl.load(asked + k * (W + OF_READ) + W + 1))
        left_N *= 1 - tl.where(k == skipped, 0.0, freed) * read(before + k * N + n, n < N)
    return left_N


@triton.jit
def _write(
    ask: tl.tensor, M_WN: tl.tensor, inverse_N: tl.tensor, u_N: tl.tensor, W: tl.constexpr, N: tl.constexpr
) -> tuple:
    """The key of a write and k . M, what that finds, what is free, and the write."""
    i, n = tl.arange(0, M_WN.shape[0]), tl.arange(0, M_WN.shape[1])
    key_W = read(ask + i, i < W)
    dot_N, found_N = find(key_W, 1 + softplus(tl.load(ask + 3 * W)), M_WN, inverse_N, n < N)
    allocated_N = _allocation(u_N, n, N)
    gate, to_free = sigmoid(tl.load(ask + 3 * W + 1)), sigmoid(tl.load(ask + 3 * W + 2))
    w_N = tl.where(n < N, gate * (found_N + to_free * (allocated_N - found_N)), 0.0)
    return key_W, dot_N, found_N, allocated_N, w_N


@triton.jit
def _written(ask: tl.tensor, M_WN: tl.tensor, w_N: tl.tensor, W: tl.constexpr) -> tl.tensor:
    i = tl.arange(0, M_WN.shape[0])
    e_W, v_W = sigmoid(read(ask + W + i, i < W)), read(ask + 2 * W + i, i < W)
    return M_WN * (1 - e_W[:, None] * w_N[None, :]) + v_W[:, None] * w_N[None, :]


@triton.jit
def _linked(L_NN: tl.tensor, w_N: tl.tensor, p_N: tl.tensor, n: tl.tensor) -> tl.tensor:
    L_NN = (1 - w_N[:, None] - w_N[None, :]) * L_NN + w_N[:, None] * p_N[None, :]
    return tl.where(n[:, None] == n[None, :], 0.0, L_NN)


@triton.jit
def _shares(asked: tl.tensor) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """Of back, content and forth."""
    back, content, forth = tl.load(asked), tl.load(asked + 1), tl.load(asked + 2)
    most = tl.maximum(tl.maximum(back, content), forth)
    back, content, forth = tl.exp(back - most), tl.exp(content - most), tl.exp(forth - most)
    total = back + content + forth
    return back / total, content / total, forth / total


@triton.jit
def turn(
    asked: tl.tensor,
    before: tl.tensor,
    weights: tl.tensor,
    reads: tl.tensor,
    M_WN: tl.tensor,
    u_N: tl.tensor,
    w_N: tl.tensor,
    p_N: tl.tensor,
    L_NN: tl.tensor,
    W: tl.constexpr,
    N: tl.constexpr,
    HEADS: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """Memory, usage, write, precedence and links behind it; writes the weightings and what was read."""
    i, n = tl.arange(0, M_WN.shape[0]), tl.arange(0, M_WN.shape[1])
    ask = asked + HEADS * (W + OF_READ)
    u_N = (u_N + w_N - u_N * w_N) * _left(asked, before, -1, n, W, N, HEADS)
    _, _, _, _, w_N = _write(ask, M_WN, one_by_lengths(M_WN), u_N, W, N)
    M_WN, L_NN = _written(ask, M_WN, w_N, W), _linked(L_NN, w_N, p_N, n)
    p_N = w_N + (1 - tl.sum(w_N, 0)) * p_N
    inverse_N = one_by_lengths(M_WN)
    for k in tl.range(0, HEADS):
        own = asked + k * (W + OF_READ)
        r_N = read(before + k * N + n, n < N)
        _, found_N = find(read(own + i, i < W), 1 + softplus(tl.load(own + W)), M_WN, inverse_N, n < N)
        back, content, forth = _shares(own + W + 2)
        to_N = back * tl.sum(r_N[:, None] * L_NN, 0) + content * found_N + forth * tl.sum(L_NN * r_N[None, :], 1)
        tl.store(weights + k * N + n, to_N, mask=n < N)
        tl.store(reads + k * W + i, tl.sum(M_WN * to_N[None, :], 1), mask=i < W)
    return M_WN, u_N, w_N, p_N, L_NN


@triton.jit
def _reads_back(
    d_M_WN: tl.tensor, d_L_NN: tl.tensor, d_weights: tl.tensor, d_reads: tl.tensor, asked: tl.tensor,
    before: tl.tensor, weights: tl.tensor, M_WN: tl.tensor, L_NN: tl.tensor, d_asked: tl.tensor, d_before: tl.tensor,
    W: tl.constexpr, N: tl.constexpr, HEADS: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:  # fmt: skip
    """What heads read and where they stand, through the links and what they found: M and L are those behind it."""
    i, n = tl.arange(0, M_WN.shape[0]), tl.arange(0, M_WN.shape[1])
    inverse_N = one_by_lengths(M_WN)
    for k in tl.range(0, HEADS):
        own, d_own = asked + k * (W + OF_READ), d_asked + k * (W + OF_READ)
        r_N, to_N = read(before + k * N + n, n < N), read(weights + k * N + n, n < N)
        key_W, of_strength, d_read_W = read(own + i, i < W), tl.load(own + W), read(d_reads + k * W + i, i < W)
        dot_N, found_N = find(key_W, 1 + softplus(of_strength), M_WN, inverse_N, n < N)
        back, content, forth = _shares(own + W + 2)
        d_N = read(d_weights + k * N + n, n < N) + tl.sum(d_read_W[:, None] * M_WN, 0)
        d_M_WN += d_read_W[:, None] * to_N[None, :]

        along_N, against_N = tl.sum(L_NN * d_N[None, :], 1), tl.sum(d_N[:, None] * L_NN, 0)
        d_back, d_content, d_forth = tl.sum(r_N * along_N, 0), tl.sum(found_N * d_N, 0), tl.sum(r_N * against_N, 0)
        d_all = back * d_back + content * d_content + forth * d_forth
        tl.store(d_own + W + 2, back * (d_back - d_all))
        tl.store(d_own + W + 3, content * (d_content - d_all))
        tl.store(d_own + W + 4, forth * (d_forth - d_all))
        d_L_NN += r_N[:, None] * (back * d_N)[None, :] + (forth * d_N)[:, None] * r_N[None, :]
        d_strength, d_key_W, found_WN = find_back(
            content * d_N, found_N, dot_N, key_W, 1 + softplus(of_strength), M_WN, inverse_N
        )
        d_M_WN += found_WN
        tl.store(d_own + i, d_key_W, mask=i < W)
        tl.store(d_own + W, d_strength * sigmoid(of_strength))
        tl.debug_barrier()  # all have read
        tl.store(d_before + k * N + n, back * along_N + forth * against_N, mask=n < N)
    return d_M_WN, d_L_NN


@triton.jit
def turn_back(
    d_M_WN: tl.tensor,
    d_u_N: tl.tensor,
    d_w_N: tl.tensor,
    d_p_N: tl.tensor,
    d_L_NN: tl.tensor,
    d_weights: tl.tensor,
    d_reads: tl.tensor,
    asked: tl.tensor,
    before: tl.tensor,
    weights: tl.tensor,
    M_WN: tl.tensor,
    u_N: tl.tensor,
    w_N: tl.tensor,
    p_N: tl.tensor,
    L_NN: tl.tensor,
    d_asked: tl.tensor,
    d_before: tl.tensor,
    W: tl.constexpr,
    N: tl.constexpr,
    HEADS: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """The gradients of memory, usage, write, precedence and links; writes those of what was asked and, maybe over
    `d_weights`, of the weightings."""
    i, n = tl.arange(0, M_WN.shape[0]), tl.arange(0, M_WN.shape[1])
    ask, d_ask = asked + HEADS * (W + OF_READ), d_asked + HEADS * (W + OF_READ)
    used_N = u_N + w_N - u_N * w_N
    left_N = _left(asked, before, -1, n, W, N, HEADS)
    inverse_N = one_by_lengths(M_WN)
    key_W, dot_N, found_N, allocated_N, written_N = _write(ask, M_WN, inverse_N, used_N * left_N, W, N)
    d_M_WN, d_L_NN = _reads_back(
        d_M_WN, d_L_NN, d_weights, d_reads, asked, before, weights, _written(ask, M_WN, written_N, W),
        _linked(L_NN, written_N, p_N, n), d_asked, d_before, W, N, HEADS,
    )  # fmt: skip

    d_L_NN = tl.where(n[:, None] == n[None, :], 0.0, d_L_NN)
    d_written_N = d_w_N + d_p_N - tl.sum(d_p_N * p_N, 0)
    d_written_N += tl.sum(d_L_NN * (p_N[None, :] - L_NN), 1) - tl.sum(d_L_NN * L_NN, 0)
    d_p_N = (1 - tl.sum(written_N, 0)) * d_p_N + tl.sum(written_N[:, None] * d_L_NN, 0)
    d_L_NN *= 1 - written_N[:, None] - written_N[None, :]

    e_W, v_W = sigmoid(read(ask + W + i, i < W)), read(ask + 2 * W + i, i < W)
    d_kept_WN = d_M_WN * M_WN
    d_written_N += tl.sum(v_W[:, None] * d_M_WN - e_W[:, None] * d_kept_WN, 0)
    tl.store(d_ask + W + i, -tl.sum(d_kept_WN * written_N[None, :], 1) * e_W * (1 - e_W), mask=i < W)
    tl.store(d_ask + 2 * W + i, tl.sum(d_M_WN * written_N[None, :], 1), mask=i < W)
    d_M_WN *= 1 - e_W[:, None] * written_N[None, :]

    d_written_N = tl.where(n < N, d_written_N, 0.0)
    of_strength, gate, to_free = tl.load(ask + 3 * W), tl.load(ask + 3 * W + 1), tl.load(ask + 3 * W + 2)
    gate, to_free = sigmoid(gate), sigmoid(to_free)
    d_gate = tl.sum(d_written_N * (found_N + to_free * (allocated_N - found_N)), 0)
    d_to_free = tl.sum(d_written_N * (allocated_N - found_N), 0)
    d_strength, d_key_W, found_WN = find_back(
        gate * (1 - to_free) * d_written_N, found_N, dot_N, key_W, 1 + softplus(of_strength), M_WN, inverse_N
    )
    tl.store(d_ask + i, d_key_W, mask=i < W)
    tl.store(d_ask + 3 * W, d_strength * sigmoid(of_strength))
    tl.store(d_ask + 3 * W + 1, d_gate * gate * (1 - gate))
    tl.store(d_ask + 3 * W + 2, d_to_free * gate * to_free * (1 - to_free))

    d_used_N = d_u_N + _allocation_back(gate * to_free * d_written_N, used_N * left_N, n, N)
    tl.debug_barrier()
    for k in tl.range(0, HEADS):
        d_left_N = d_used_N * used_N * _left(asked, before, k, n, W, N, HEADS)
        freed = sigmoid(tl.load(asked + k * (W + OF_READ) + W + 1))
        d_freed = -tl.sum(d_left_N * read(before + k * N + n, n < N), 0)
        tl.store(d_asked + k * (W + OF_READ) + W + 1, d_freed * freed * (1 - freed))
        d_N = read(d_before + k * N + n, n < N) - freed * d_left_N
        tl.debug_barrier()  # all have read
        tl.store(d_before + k * N + n, d_N, mask=n < N)
    d_used_N *= left_N
    return d_M_WN + found_WN, d_used_N * (1 - w_N), d_used_N * (1 - u_N), d_p_N, d_L_NN


@triton.jit
def forward_kernel(
    asked: tl.tensor,
    memory: tl.tensor,
    usage: tl.tensor,
    write: tl.tensor,
    precedence: tl.tensor,
    link: tl.tensor,
    before: tl.tensor,
    memories: tl.tensor,
    usages: tl.tensor,
    writes: tl.tensor,
    precedences: tl.tensor,
    links: tl.tensor,
    weights: tl.tensor,
    reads: tl.tensor,
    W: tl.constexpr,
    N: tl.constexpr,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
) -> None:
    row, i, n = tl.program_id(0).to(tl.int64), tl.arange(0, WIDTH), tl.arange(0, ROWS)
    at_WN, in_WN = row * W * N + i[:, None] * N + n[None, :], (i < W)[:, None] & (n < N)[None, :]
    at_NN, in_NN = row * N * N + n[:, None] * N + n[None, :], (n < N)[:, None] & (n < N)[None, :]
    at_N, in_N = row * N + n, n < N
    M_WN, u_N, w_N, p_N, L_NN = turn(
        asked + row * (HEADS * (W + OF_READ) + 3 * W + OF_WRITE), before + row * HEADS * N, weights + row * HEADS * N,
        reads + row * HEADS * W, read(memory + at_WN, in_WN), read(usage + at_N, in_N), read(write + at_N, in_N),
        read(precedence + at_N, in_N), read(link + at_NN, in_NN), W, N, HEADS,
    )  # fmt: skip
    tl.store(memories + at_WN, M_WN, mask=in_WN)
    tl.store(usages + at_N, u_N, mask=in_N)
    tl.store(writes + at_N, w_N, mask=in_N)
    tl.store(precedences + at_N, p_N, mask=in_N)
    tl.store(links + at_NN, L_NN, mask=in_NN)


@triton.jit
def backward_kernel(
    d_memories: tl.tensor,
    d_usages: tl.tensor,
    d_writes: tl.tensor,
    d_precedences: tl.tensor,
    d_links: tl.tensor,
    d_weights: tl.tensor,
    d_reads: tl.tensor,
    asked: tl.tensor,
    memory: tl.tensor,
    usage: tl.tensor,
    write: tl.tensor,
    precedence: tl.tensor,
    link: tl.tensor,
    before: tl.tensor,
    weights: tl.tensor,
    d_asked: tl.tensor,
    d_memory: tl.tensor,
    d_usage: tl.tensor,
    d_write: tl.tensor,
    d_precedence: tl.tensor,
    d_link: tl.tensor,
    d_before: tl.tensor,
    W: tl.constexpr,
    N: tl.constexpr,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
) -> None:
    row, i, n = tl.program_id(0).to(tl.int64), tl.arange(0, WIDTH), tl.arange(0, ROWS)
    at_WN, in_WN = row * W * N + i[:, None] * N + n[None, :], (i < W)[:, None] & (n < N)[None, :]
    at_NN, in_NN = row * N * N + n[:, None] * N + n[None, :], (n < N)[:, None] & (n < N)[None, :]
    at_N, in_N, of_heads = row * N + n, n < N, row * HEADS * N
    own = row * (HEADS * (W + OF_READ) + 3 * W + OF_WRITE)
    d_M_WN, d_u_N, d_w_N, d_p_N, d_L_NN = turn_back(
        read(d_memories + at_WN, in_WN), read(d_usages + at_N, in_N), read(d_writes + at_N, in_N),
        read(d_precedences + at_N, in_N), read(d_links + at_NN, in_NN), d_weights + of_heads,
        d_reads + row * HEADS * W, asked + own, before + of_heads, weights + of_heads, read(memory + at_WN, in_WN),
        read(usage + at_N, in_N), read(write + at_N, in_N), read(precedence + at_N, in_N), read(link + at_NN, in_NN),
        d_asked + own, d_before + of_heads, W, N, HEADS,
    )  # fmt: skip
    tl.store(d_memory + at_WN, d_M_WN, mask=in_WN)
    tl.store(d_usage + at_N, d_u_N, mask=in_N)
    tl.store(d_write + at_N, d_w_N, mask=in_N)
    tl.store(d_precedence + at_N, d_p_N, mask=in_N)
    tl.store(d_link + at_NN, d_L_NN, mask=in_NN)
