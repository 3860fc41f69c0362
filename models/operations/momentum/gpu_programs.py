"""The Triton programs of the delta rule with momentum, forward and backward; gpu.py calls them.

A program has one head of one row and one tile of values. What is read comes with its strides over replicas, rows, heads
and tokens; what is written lies token by token, every token's heads side by side, and what is of keys or of a head
alone tile after tile. At tokens behind the end nothing is moved: momentum would move M there.
"""
# pyright: reportAssignmentType=false, reportCallIssue=false, reportArgumentType=false
# (what a tuple holds that grows in a loop has no type)

import triton
import triton.language as tl

from chomsky_ladder.models.kernels.triton.memory import begin_head, read, write


@triton.jit
def move(
    M_KV: tl.tensor, S_KV: tl.tensor, k_K: tl.tensor, v_V: tl.tensor, r: tl.tensor, a: tl.tensor, h: tl.tensor
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """What M has wrong about v, and the next M and S."""
    e_V = tl.sum(k_K[:, None] * M_KV, 0) - v_V
    S_KV = h * S_KV - k_K[:, None] * (r * e_V)[None, :]
    return e_V, a * M_KV + S_KV, S_KV


@triton.jit(do_not_specialize=["batch", "heads", "length"])
def forward_kernel(
    q: tl.tensor,
    k: tl.tensor,
    v: tl.tensor,
    r: tl.tensor,
    a: tl.tensor,
    h: tl.tensor,
    first_M: tl.tensor,
    first_S: tl.tensor,
    y: tl.tensor,
    last_M: tl.tensor,
    last_S: tl.tensor,
    starts: tl.tensor,
    of_q: tl.tuple,
    of_k: tl.tuple,
    of_v: tl.tuple,
    of_r: tl.tuple,
    of_a: tl.tuple,
    of_h: tl.tuple,
    of_first_M: tl.tuple,
    of_first_S: tl.tuple,
    batch: tl.tensor,
    heads: tl.tensor,
    length: tl.tensor,
    K: tl.constexpr,
    V: tl.constexpr,
    KEYS: tl.constexpr,
    TILE: tl.constexpr,
    CHUNK: tl.constexpr,
    KEEP: tl.constexpr,
) -> None:
    TILES: tl.constexpr = (V + TILE - 1) // TILE
    row = (tl.program_id(0) // TILES).to(tl.int64)
    i, j = tl.arange(0, KEYS), tl.program_id(0) % TILES * TILE + tl.arange(0, TILE)
    at_KV, in_KV = i[:, None] * V + j[None, :], (i < K)[:, None] & (j < V)[None, :]
    q, k = begin_head(q, of_q, row, batch, heads) + i, begin_head(k, of_k, row, batch, heads) + i
    v, r = begin_head(v, of_v, row, batch, heads) + j, begin_head(r, of_r, row, batch, heads)
    a, h = begin_head(a, of_a, row, batch, heads), begin_head(h, of_h, row, batch, heads)
    y += (row // heads * length * heads + row % heads) * V + j
    starts += row * tl.cdiv(length, CHUNK) * 2 * K * V + at_KV

    replica, own = row // heads // batch, row % (heads * batch) * K * V
    M_KV = read(first_M + replica * of_first_M[0] + own + at_KV, in_KV)
    S_KV = read(first_S + replica * of_first_S[0] + own + at_KV, in_KV)
    start = 0
    while start < length:  # no range: under NumPy 2.4 Triton's interpreter has none of a number not known beforehand
        if KEEP:
            tl.store(starts + start // CHUNK * 2 * K * V, M_KV, mask=in_KV)
            tl.store(starts + (start // CHUNK * 2 + 1) * K * V, S_KV, mask=in_KV)
        given = ()  # read before anything is written, behind which no read is brought forward
        for c in tl.static_range(CHUNK):
            t = start + c
            in_K, in_V, there = (i < K) & (t < length), (j < V) & (t < length), t < length
            q_K, k_K, v_V = read(q + t * of_q[3], in_K), read(k + t * of_k[3], in_K), read(v + t * of_v[3], in_V)
            r_t, a_t, h_t = read(r + t * of_r[3], there), read(a + t * of_a[3], there), read(h + t * of_h[3], there)
            given += ((q_K, k_K, v_V, r_t, a_t, h_t),)
        for c in tl.static_range(CHUNK):
            t = start + c
            q_K, k_K, v_V, r_t, a_t, h_t = given[c]
            _, next_KV, pushed_KV = move(M_KV, S_KV, k_K, v_V, r_t, a_t, h_t)
            M_KV, S_KV = tl.where(t < length, next_KV, M_KV), tl.where(t < length, pushed_KV, S_KV)
            tl.store(y + t * heads * V, tl.sum(q_K[:, None] * M_KV, 0), mask=(j < V) & (t < length))
        start += CHUNK
    tl.store(last_M + row * K * V + at_KV, M_KV, mask=in_KV)
    tl.store(last_S + row * K * V + at_KV, S_KV, mask=in_KV)


@triton.jit(do_not_specialize=["batch", "heads", "length"])
def backward_kernel(
    q: tl.tensor,
    k: tl.tensor,
    v: tl.tensor,
    r: tl.tensor,
    a: tl.tensor,
    h: tl.tensor,
    starts: tl.tensor,
    d_y: tl.tensor,
    d_last_M: tl.tensor,
    d_last_S: tl.tensor,
    d_q: tl.tensor,
    d_k: tl.tensor,
    d_v: tl.tensor,
    d_r: tl.tensor,
    d_a: tl.tensor,
    d_h: tl.tensor,
    d_first_M: tl.tensor,
    d_first_S: tl.tensor,
    of_q: tl.tuple,
    of_k: tl.tuple,
    of_v: tl.tuple,
    of_r: tl.tuple,
    of_a: tl.tuple,
    of_h: tl.tuple,
    of_d_y: tl.tuple,
    batch: tl.tensor,
    heads: tl.tensor,
    length: tl.tensor,
    K: tl.constexpr,
    V: tl.constexpr,
    KEYS: tl.constexpr,
    TILE: tl.constexpr,
    CHUNK: tl.constexpr,
) -> None:
    TILES: tl.constexpr = (V + TILE - 1) // TILE
    row, tile = (tl.program_id(0) // TILES).to(tl.int64), (tl.program_id(0) % TILES).to(tl.int64)
    i, j = tl.arange(0, KEYS), tl.program_id(0) % TILES * TILE + tl.arange(0, TILE)
    at_KV, in_KV = i[:, None] * V + j[None, :], (i < K)[:, None] & (j < V)[None, :]
    q, k = begin_head(q, of_q, row, batch, heads) + i, begin_head(k, of_k, row, batch, heads) + i
    v, d_y = begin_head(v, of_v, row, batch, heads) + j, begin_head(d_y, of_d_y, row, batch, heads) + j
    r, a = begin_head(r, of_r, row, batch, heads), begin_head(a, of_a, row, batch, heads)
    h = begin_head(h, of_h, row, batch, heads)
    lines = tl.num_programs(0) // TILES // heads
    by_token = (tile * lines + row // heads) * length * heads + row % heads  # of what is written tile after tile
    d_q, d_k = d_q + by_token * K + i, d_k + by_token * K + i
    d_r, d_a, d_h = d_r + by_token, d_a + by_token, d_h + by_token
    d_v += (row // heads * length * heads + row % heads) * V + j
    chunks = tl.cdiv(length, CHUNK)
    starts += row * chunks * 2 * K * V + at_KV

    G_KV, N_KV = read(d_last_M + row * K * V + at_KV, in_KV), read(d_last_S + row * K * V + at_KV, in_KV)
    start = chunks * CHUNK
    while start > 0:
        start -= CHUNK
        M_KV = read(starts + start // CHUNK * 2 * K * V, in_KV)
        S_KV = read(starts + (start // CHUNK * 2 + 1) * K * V, in_KV)
        before = ()
        for c in tl.static_range(CHUNK):
            t = start + c
            in_K, in_V, there = (i < K) & (t < length), (j < V) & (t < length), t < length
            k_K, v_V = read(k + t * of_k[3], in_K), read(v + t * of_v[3], in_V)
            r_t, a_t, h_t = read(r + t * of_r[3], there), read(a + t * of_a[3], there), read(h + t * of_h[3], there)
            e_V, next_KV, pushed_KV = move(M_KV, S_KV, k_K, v_V, r_t, a_t, h_t)
            before += ((M_KV, S_KV, e_V),)
            M_KV, S_KV = next_KV, pushed_KV  # whatever it is behind the end, nothing reads it
        for c in tl.static_range(CHUNK - 1, -1, -1):
            t = start + c
            in_K, in_V, there = (i < K) & (t < length), (j < V) & (t < length), t < length
            q_K, k_K, d_y_V = read(q + t * of_q[3], in_K), read(k + t * of_k[3], in_K), read(d_y + t * of_d_y[3], in_V)
            r_t, a_t, h_t = read(r + t * of_r[3], there), read(a + t * of_a[3], there), read(h + t * of_h[3], there)
            before_KV, pushed_KV, e_V = before[c]
            write(d_q + t * heads * K, tl.sum(M_KV * d_y_V[None, :], 1), in_K)
            G_KV += q_K[:, None] * d_y_V[None, :]
            N_KV = tl.where(there, N_KV + G_KV, N_KV)
            written_V = -tl.sum(k_K[:, None] * N_KV, 0)
            d_e_V = r_t * written_V
            write(d_v + t * heads * V, -d_e_V, in_V)
            d_k_KV = before_KV * d_e_V[None, :] - N_KV * (r_t * e_V)[None, :]
            write(d_k + t * heads * K, tl.sum(d_k_KV, 1), in_K)
            tl.store(d_r + t * heads, tl.sum(written_V * e_V, 0), mask=there)
            tl.store(d_a + t * heads, tl.sum(tl.sum(G_KV * before_KV, 1), 0), mask=there)
            tl.store(d_h + t * heads, tl.sum(tl.sum(N_KV * pushed_KV, 1), 0), mask=there)
            G_KV = tl.where(there, a_t * G_KV + k_K[:, None] * d_e_V[None, :], G_KV)
            N_KV = tl.where(there, h_t * N_KV, N_KV)
            M_KV = before_KV
    tl.store(d_first_M + row * K * V + at_KV, G_KV, mask=in_KV)
    tl.store(d_first_S + row * K * V + at_KV, N_KV, mask=in_KV)
