"""The two Triton kernels of the delta rule (gpu.py), forward and backward.

A program has one head of one row and one tile of values. What is read comes with its strides over replicas, rows, heads
and tokens; what is written lies token by token, every token's heads side by side, and what is of keys tile after tile.
"""
# pyright: reportAssignmentType=false, reportCallIssue=false, reportArgumentType=false
# (what a tuple holds that grows in a loop has no type)

import triton
import triton.language as tl

from chomsky_ladder.models.kernels.triton.memory import begin_head, read, write


@triton.jit
def _read_decay(at: tl.tensor, i: tl.tensor, there: tl.tensor, DECAYS: tl.constexpr) -> tl.tensor:
    """One for each key in any case."""
    return tl.load(at + (i if DECAYS > 1 else i * 0), mask=there, other=1.0)


@triton.jit(do_not_specialize=["batch", "heads", "length"])
def forward_kernel(
    r: tl.tensor,
    f: tl.tensor,
    g: tl.tensor,
    k: tl.tensor,
    v: tl.tensor,
    decay: tl.tensor,
    first: tl.tensor,
    y: tl.tensor,
    last: tl.tensor,
    starts: tl.tensor,
    of_r: tl.tuple,
    of_f: tl.tuple,
    of_g: tl.tuple,
    of_k: tl.tuple,
    of_v: tl.tuple,
    of_decay: tl.tuple,
    of_first: tl.tuple,
    batch: tl.tensor,
    heads: tl.tensor,
    length: tl.tensor,
    K: tl.constexpr,
    V: tl.constexpr,
    KEYS: tl.constexpr,
    TILE: tl.constexpr,
    DECAYS: tl.constexpr,
    STEPS: tl.constexpr,
    TOKENS: tl.constexpr,
    ERASES: tl.constexpr,
    READS_BEFORE: tl.constexpr,
    KEEP: tl.constexpr,
) -> None:
    TILES: tl.constexpr = (V + TILE - 1) // TILE
    row = (tl.program_id(0) // TILES).to(tl.int64)
    i, j = tl.arange(0, KEYS), tl.program_id(0) % TILES * TILE + tl.arange(0, TILE)
    at_KV, in_KV = i[:, None] * V + j[None, :], (i < K)[:, None] & (j < V)[None, :]
    r, k = begin_head(r, of_r, row, batch, heads) + i, begin_head(k, of_k, row, batch, heads) + i
    v = begin_head(v, of_v, row, batch, heads) + j
    if ERASES:
        f, g = begin_head(f, of_f, row, batch, heads) + i, begin_head(g, of_g, row, batch, heads) + i
    if DECAYS:
        decay = begin_head(decay, of_decay, row, batch, heads)
    y += (row // heads * length * heads + row % heads) * V + j
    starts += row * tl.cdiv(length, TOKENS) * K * V + at_KV

    first += row // heads // batch * of_first[0] + row % (heads * batch) * K * V
    S_KV = read(first + at_KV, in_KV)
    start = 0
    while start < length:  # no range: under NumPy 2.4 Triton's interpreter has none of a number not known beforehand
        if KEEP:
            tl.store(starts + start // TOKENS * K * V, S_KV, mask=in_KV)
        of_tokens, of_steps = (), ()  # read before anything is written, behind which no read is brought forward
        for c in tl.static_range(TOKENS):
            t = start + c
            in_K, in_V = (i < K) & (t < length), (j < V) & (t < length)
            r_K, w_K = read(r + t * of_r[3], in_K), in_K
            if DECAYS:
                w_K = _read_decay(decay + t * of_decay[3], i, in_K, DECAYS)
            of_tokens += ((r_K, w_K),)
            for s in tl.static_range(STEPS):
                m = t * STEPS + s
                k_K, v_V = read(k + m * of_k[3], in_K), read(v + m * of_v[3], in_V)
                f_K, g_K = k_K, k_K
                if ERASES:
                    f_K, g_K = read(f + m * of_f[3], in_K), read(g + m * of_g[3], in_K)
                of_steps += ((f_K, g_K, k_K, v_V),)
        for c in tl.static_range(TOKENS):
            t = start + c
            in_V = (j < V) & (t < length)
            r_K, w_K = of_tokens[c]
            for s in tl.static_range(STEPS):
                f_K, g_K, k_K, v_V = of_steps[c * STEPS + s]
                if READS_BEFORE and s == STEPS - 1:
                    tl.store(y + t * heads * V, tl.sum(r_K[:, None] * S_KV, 0), mask=in_V)
                added_KV = k_K[:, None] * v_V[None, :]
                if ERASES:
                    added_KV -= g_K[:, None] * tl.sum(f_K[:, None] * S_KV, 0)[None, :]
                if DECAYS and s == 0:
                    S_KV *= w_K[:, None]
                S_KV += added_KV
                if not READS_BEFORE and s == STEPS - 1:
                    tl.store(y + t * heads * V, tl.sum(r_K[:, None] * S_KV, 0), mask=in_V)
        start += TOKENS
    tl.store(last + row * K * V + at_KV, S_KV, mask=in_KV)


@triton.jit(do_not_specialize=["batch", "heads", "length"])
def backward_kernel(
    r: tl.tensor,
    f: tl.tensor,
    g: tl.tensor,
    k: tl.tensor,
    v: tl.tensor,
    decay: tl.tensor,
    starts: tl.tensor,
    d_y: tl.tensor,
    d_last: tl.tensor,
    d_r: tl.tensor,
    d_f: tl.tensor,
    d_g: tl.tensor,
    d_k: tl.tensor,
    d_v: tl.tensor,
    d_decay: tl.tensor,
    d_first: tl.tensor,
    of_r: tl.tuple,
    of_f: tl.tuple,
    of_g: tl.tuple,
    of_k: tl.tuple,
    of_v: tl.tuple,
    of_decay: tl.tuple,
    of_d_y: tl.tuple,
    batch: tl.tensor,
    heads: tl.tensor,
    length: tl.tensor,
    K: tl.constexpr,
    V: tl.constexpr,
    KEYS: tl.constexpr,
    TILE: tl.constexpr,
    DECAYS: tl.constexpr,
    STEPS: tl.constexpr,
    TOKENS: tl.constexpr,
    ERASES: tl.constexpr,
    READS_BEFORE: tl.constexpr,
) -> None:
    TILES: tl.constexpr = (V + TILE - 1) // TILE
    row, tile = (tl.program_id(0) // TILES).to(tl.int64), (tl.program_id(0) % TILES).to(tl.int64)
    i, j = tl.arange(0, KEYS), tl.program_id(0) % TILES * TILE + tl.arange(0, TILE)
    at_KV, in_KV = i[:, None] * V + j[None, :], (i < K)[:, None] & (j < V)[None, :]
    r, k = begin_head(r, of_r, row, batch, heads) + i, begin_head(k, of_k, row, batch, heads) + i
    v, d_y = begin_head(v, of_v, row, batch, heads) + j, begin_head(d_y, of_d_y, row, batch, heads) + j
    chunks, lines = tl.cdiv(length, TOKENS), tl.num_programs(0) // TILES // heads
    line = tile * lines + row // heads  # of all that is written tile after tile
    by_token, by_step = line * length * heads + row % heads, line * length * STEPS * heads + row % heads
    d_r, d_k = d_r + by_token * K + i, d_k + by_step * K + i
    d_v += (row // heads * length * STEPS * heads + row % heads) * V + j
    if ERASES:
        f, g = begin_head(f, of_f, row, batch, heads) + i, begin_head(g, of_g, row, batch, heads) + i
        d_f, d_g = d_f + by_step * K + i, d_g + by_step * K + i
    if DECAYS:
        decay, d_decay = begin_head(decay, of_decay, row, batch, heads), d_decay + by_token * DECAYS
    starts += row * chunks * K * V + at_KV

    G_KV = read(d_last + row * K * V + at_KV, in_KV)
    start = chunks * TOKENS
    while start > 0:
        start -= TOKENS
        S_KV = read(starts + start // TOKENS * K * V, in_KV)
        before, taken = (), ()
        for c in tl.static_range(TOKENS):
            t = start + c
            in_K, in_V = (i < K) & (t < length), (j < V) & (t < length)
            for s in tl.static_range(STEPS):
                m = t * STEPS + s
                before += (S_KV,)
                k_K, v_V = read(k + m * of_k[3], in_K), read(v + m * of_v[3], in_V)
                added_KV = k_K[:, None] * v_V[None, :]
                if ERASES:
                    f_K, g_K = read(f + m * of_f[3], in_K), read(g + m * of_g[3], in_K)
                    u_1V = tl.sum(f_K[:, None] * S_KV, 0)[None, :]
                    taken += (u_1V,)
                    added_KV -= g_K[:, None] * u_1V
                if DECAYS and s == 0:
                    S_KV *= _read_decay(decay + t * of_decay[3], i, in_K, DECAYS)[:, None]
                S_KV += added_KV
        for c in tl.static_range(TOKENS - 1, -1, -1):
            t = start + c
            in_K, in_V = (i < K) & (t < length), (j < V) & (t < length)
            r_K, d_y_V = read(r + t * of_r[3], in_K), read(d_y + t * of_d_y[3], in_V)
            for s in tl.static_range(STEPS - 1, -1, -1):
                m, before_KV = t * STEPS + s, before[c * STEPS + s]
                if s == STEPS - 1:
                    read_KV = before_KV if READS_BEFORE else S_KV
                    write(d_r + t * heads * K, tl.sum(read_KV * d_y_V[None, :], 1), in_K)
                    if not READS_BEFORE:
                        G_KV += r_K[:, None] * d_y_V[None, :]
                k_K, v_V = read(k + m * of_k[3], in_K), read(v + m * of_v[3], in_V)
                write(d_k + m * heads * K, tl.sum(G_KV * v_V[None, :], 1), in_K)
                write(d_v + m * heads * V, tl.sum(k_K[:, None] * G_KV, 0), in_V)
                d_before_KV = G_KV
                if DECAYS and s == 0:
                    d_before_KV *= _read_decay(decay + t * of_decay[3], i, in_K, DECAYS)[:, None]
                    d_decay_K = tl.sum(G_KV * before_KV, 1)
                    if DECAYS > 1:
                        tl.store(d_decay + t * heads * DECAYS + i, d_decay_K, mask=in_K)
                    else:
                        tl.store(d_decay + t * heads, tl.sum(d_decay_K, 0), mask=t < length)
                if ERASES:
                    f_K, g_K = read(f + m * of_f[3], in_K), read(g + m * of_g[3], in_K)
                    d_u_V = -tl.sum(g_K[:, None] * G_KV, 0)
                    write(d_g + m * heads * K, -tl.sum(G_KV * taken[c * STEPS + s], 1), in_K)
                    write(d_f + m * heads * K, tl.sum(before_KV * d_u_V[None, :], 1), in_K)
                    d_before_KV += f_K[:, None] * d_u_V[None, :]
                if READS_BEFORE and s == STEPS - 1:
                    d_before_KV += r_K[:, None] * d_y_V[None, :]
                G_KV, S_KV = d_before_KV, before_KV
    tl.store(d_first + row * K * V + at_KV, G_KV, mask=in_KV)
