"""The Triton programs that write into slots, forward and backward; gpu.py calls them.

A program has one head of one row and one tile of slots. What is read comes with its strides over replicas, rows, heads
and tokens; what is written lies token by token, every token's heads side by side, and what is of keys tile after tile.
"""
# pyright: reportAssignmentType=false, reportCallIssue=false, reportArgumentType=false
# (what a tuple holds that grows in a loop has no type)

import triton
import triton.language as tl

from chomsky_ladder.models.kernels.triton.memory import begin_head, read, write


@triton.jit
def _places(
    K: tl.constexpr, M: tl.constexpr, KEYS: tl.constexpr, TILE: tl.constexpr
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """The row, a tile's keys and slots, where it lies in a state [K, M], and what of it is there."""
    TILES: tl.constexpr = (M + TILE - 1) // TILE
    i, j = tl.arange(0, KEYS), tl.program_id(0) % TILES * TILE + tl.arange(0, TILE)
    in_KM = (i < K)[:, None] & (j < M)[None, :]
    return (tl.program_id(0) // TILES).to(tl.int64), i, j, i[:, None] * M + j[None, :], in_KM


@triton.jit
def _read_written(
    k: tl.tensor, s: tl.tensor, decay: tl.tensor, t: tl.tensor, of_k: tl.tuple, of_s: tl.tuple, of_decay: tl.tuple,
    in_K: tl.tensor, in_M: tl.tensor,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:  # fmt: skip
    """What a token writes: k, s and the decays."""
    w_M = tl.load(decay + t * of_decay[3], mask=in_M, other=1.0).to(tl.float32)
    return read(k + t * of_k[3], in_K), read(s + t * of_s[3], in_M), w_M


@triton.jit
def _behind(S_KM: tl.tensor, k_K: tl.tensor, s_M: tl.tensor, w_M: tl.tensor) -> tl.tensor:
    """The state behind a token."""
    return S_KM * w_M[None, :] + k_K[:, None] * s_M[None, :]


@triton.jit(do_not_specialize=["batch", "heads", "length"])
def forward_kernel(
    q: tl.tensor,
    k: tl.tensor,
    s: tl.tensor,
    decay: tl.tensor,
    first: tl.tensor,
    y: tl.tensor,
    last: tl.tensor,
    starts: tl.tensor,
    of_q: tl.tuple,
    of_k: tl.tuple,
    of_s: tl.tuple,
    of_decay: tl.tuple,
    of_first: tl.tuple,
    batch: tl.tensor,
    heads: tl.tensor,
    length: tl.tensor,
    K: tl.constexpr,
    M: tl.constexpr,
    KEYS: tl.constexpr,
    TILE: tl.constexpr,
    CHUNK: tl.constexpr,
    READ: tl.constexpr,
    KEEP: tl.constexpr,
) -> None:
    row, i, j, at_KM, in_KM = _places(K, M, KEYS, TILE)
    q, k = begin_head(q, of_q, row, batch, heads) + i, begin_head(k, of_k, row, batch, heads) + i
    s, decay = begin_head(s, of_s, row, batch, heads) + j, begin_head(decay, of_decay, row, batch, heads) + j
    y += (row // heads * length * heads + row % heads) * M + j
    starts += row * tl.cdiv(length, CHUNK) * K * M + at_KM
    first += row // heads // batch * of_first[0] + row % (heads * batch) * K * M

    S_KM = read(first + at_KM, in_KM)
    start = 0
    while start < length:  # no range: under NumPy 2.4 Triton's interpreter has none of a number not known beforehand
        if KEEP:
            tl.store(starts + start // CHUNK * K * M, S_KM, mask=in_KM & (start % CHUNK == 0))
        given = ()  # read before anything is written, behind which no read is brought forward
        for c in tl.static_range(READ):
            t = start + c
            in_K, in_M = (i < K) & (t < length), (j < M) & (t < length)
            k_K, s_M, w_M = _read_written(k, s, decay, t, of_k, of_s, of_decay, in_K, in_M)
            given += ((read(q + t * of_q[3], in_K), k_K, s_M, w_M),)
        for c in tl.static_range(READ):
            q_K, k_K, s_M, w_M = given[c]
            S_KM = _behind(S_KM, k_K, s_M, w_M)
            tl.store(y + (start + c) * heads * M, tl.sum(q_K[:, None] * S_KM, 0), mask=(j < M) & (start + c < length))
        start += READ
    tl.store(last + row * K * M + at_KM, S_KM, mask=in_KM)


@triton.jit(do_not_specialize=["batch", "heads", "length"])
def backward_kernel(
    q: tl.tensor,
    k: tl.tensor,
    s: tl.tensor,
    decay: tl.tensor,
    starts: tl.tensor,
    d_y: tl.tensor,
    d_last: tl.tensor,
    d_q: tl.tensor,
    d_k: tl.tensor,
    d_s: tl.tensor,
    d_decay: tl.tensor,
    d_first: tl.tensor,
    of_q: tl.tuple,
    of_k: tl.tuple,
    of_s: tl.tuple,
    of_decay: tl.tuple,
    of_d_y: tl.tuple,
    batch: tl.tensor,
    heads: tl.tensor,
    length: tl.tensor,
    K: tl.constexpr,
    M: tl.constexpr,
    KEYS: tl.constexpr,
    TILE: tl.constexpr,
    CHUNK: tl.constexpr,
    HELD: tl.constexpr,
) -> None:
    TILES: tl.constexpr = (M + TILE - 1) // TILE
    row, i, j, at_KM, in_KM = _places(K, M, KEYS, TILE)
    q, k = begin_head(q, of_q, row, batch, heads) + i, begin_head(k, of_k, row, batch, heads) + i
    s, decay = begin_head(s, of_s, row, batch, heads) + j, begin_head(decay, of_decay, row, batch, heads) + j
    d_y = begin_head(d_y, of_d_y, row, batch, heads) + j
    line = tl.program_id(0) % TILES * (tl.num_programs(0) // TILES // heads) + row // heads  # of what is tile by tile
    of_keys = (line * length * heads + row % heads) * K + i
    of_slots = (row // heads * length * heads + row % heads) * M + j
    starts += row * tl.cdiv(length, CHUNK) * K * M + at_KM

    G_KM = read(d_last + row * K * M + at_KM, in_KM)
    start = tl.cdiv(length, HELD) * HELD
    while start > 0:
        start -= HELD
        S_KM = read(starts + start // CHUNK * K * M, in_KM)
        t = start // CHUNK * CHUNK
        while t < start:
            given = ()
            for c in tl.static_range(HELD):
                given += (_read_written(k, s, decay, t + c, of_k, of_s, of_decay, i < K, j < M),)
            for c in tl.static_range(HELD):
                k_K, s_M, w_M = given[c]
                S_KM = _behind(S_KM, k_K, s_M, w_M)
            t += HELD
        before, given = (), ()
        for c in tl.static_range(HELD):
            t = start + c
            in_K, in_M = (i < K) & (t < length), (j < M) & (t < length)
            k_K, s_M, w_M = _read_written(k, s, decay, t, of_k, of_s, of_decay, in_K, in_M)
            given += ((read(q + t * of_q[3], in_K), k_K, s_M, w_M, read(d_y + t * of_d_y[3], in_M)),)
        for c in tl.static_range(HELD):
            before += (S_KM,)
            _, k_K, s_M, w_M, _ = given[c]
            S_KM = _behind(S_KM, k_K, s_M, w_M)
        for c in tl.static_range(HELD - 1, -1, -1):
            t = start + c
            in_K, in_M = (i < K) & (t < length), (j < M) & (t < length)
            q_K, k_K, s_M, w_M, d_y_M = given[c]
            write(d_q + of_keys + t * heads * K, tl.sum(S_KM * d_y_M[None, :], 1), in_K)
            G_KM += q_K[:, None] * d_y_M[None, :]
            write(d_k + of_keys + t * heads * K, tl.sum(G_KM * s_M[None, :], 1), in_K)
            write(d_s + of_slots + t * heads * M, tl.sum(k_K[:, None] * G_KM, 0), in_M)
            S_KM = before[c]
            write(d_decay + of_slots + t * heads * M, tl.sum(G_KM * S_KM, 0), in_M)
            G_KM *= w_M[None, :]
    tl.store(d_first + row * K * M + at_KM, G_KM, mask=in_KM)
