"""The Triton programs of PaTH's scores, forward and backward; gpu.py calls them.

A program has one head of one row and one tile of keys. What is read comes with its strides over replicas, rows, heads
and tokens; gradients of tokens are written token by token, every token's heads side by side, and those that all tiles
have a part in tile after tile. Behind the end w is 0, which turns nothing. `SPAN` is a multiple of `CHUNK`, the tokens
that are read at once.
"""
# pyright: reportAssignmentType=false, reportCallIssue=false, reportArgumentType=false, reportOperatorIssue=false
# (what a tuple holds that grows in a loop has no type)

import triton
import triton.language as tl

from chomsky_ladder.models.kernels.triton.memory import begin_head, read, write


@triton.jit(do_not_specialize=["batch", "heads", "length"])
def forward_kernel(
    q: tl.tensor,
    k: tl.tensor,
    w: tl.tensor,
    b: tl.tensor,
    scores: tl.tensor,
    along: tl.tensor,
    ends: tl.tensor,
    of_q: tl.tuple,
    of_k: tl.tuple,
    of_w: tl.tuple,
    of_b: tl.tuple,
    batch: tl.tensor,
    heads: tl.tensor,
    length: tl.tensor,
    K: tl.constexpr,
    KEYS: tl.constexpr,
    TILE: tl.constexpr,
    CHUNK: tl.constexpr,
    SPAN: tl.constexpr,
    KEEP: tl.constexpr,
) -> None:
    tiles = tl.cdiv(length, TILE)
    row, tile = (tl.program_id(0) // tiles).to(tl.int64), tl.program_id(0) % tiles
    s, i, c_C = tile * TILE + tl.arange(0, TILE), tl.arange(0, KEYS), tl.arange(0, CHUNK)
    at_SK, in_SK = tl.arange(0, TILE)[:, None] * K + i[None, :], (s < length)[:, None] & (i < K)[None, :]
    q, w = begin_head(q, of_q, row, batch, heads) + i, begin_head(w, of_w, row, batch, heads) + i
    b, k = begin_head(b, of_b, row, batch, heads), begin_head(k, of_k, row, batch, heads)
    scores, along = scores + row * length * length + s, along + row * length * length + s
    ends += (row * tiles + tile) * tl.cdiv(length, SPAN) * TILE * K + at_SK

    start = 0
    while start < tile * TILE:  # no range: under NumPy 2.4 Triton's interpreter has none of a number not known before
        at_CS, ahead_CS = (start + c_C)[:, None] * length, tl.full((CHUNK, TILE), float("-inf"), tl.float32)
        tl.store(scores[None, :] + at_CS, ahead_CS, mask=(c_C >= 0)[:, None] & (s < length)[None, :])
        start += CHUNK
    key_SK = read(k + s[:, None] * of_k[3] + i[None, :], in_SK)
    while start < length:
        given = ()  # read before anything is written, behind which no read is brought forward
        for c in tl.static_range(CHUNK):
            t = start + c
            in_K, there = (i < K) & (t < length), t < length
            given += ((read(q + t * of_q[3], in_K), read(w + t * of_w[3], in_K), read(b + t * of_b[3], there)),)
        for c in tl.static_range(CHUNK):
            t = start + c
            q_K, w_K, b_t = given[c]
            along_S = tl.where(s < t, tl.sum(key_SK * w_K[None, :], 1), 0.0)
            key_SK -= (b_t * along_S)[:, None] * w_K[None, :]
            score_S = tl.where(s <= t, tl.sum(key_SK * q_K[None, :], 1), float("-inf"))
            tl.store(scores + t * length, score_S, mask=(s < length) & (t < length))
            if KEEP:
                tl.store(along + t * length, along_S, mask=(s < length) & (t < length))
        start += CHUNK
        if KEEP and (start % SPAN == 0 or start >= length):
            tl.store(ends + (start - 1) // SPAN * TILE * K, key_SK, mask=in_SK)


@triton.jit(do_not_specialize=["batch", "heads", "length"])
def backward_kernel(
    q: tl.tensor,
    w: tl.tensor,
    b: tl.tensor,
    along: tl.tensor,
    ends: tl.tensor,
    d_scores: tl.tensor,
    d_q: tl.tensor,
    d_k: tl.tensor,
    d_w: tl.tensor,
    d_b: tl.tensor,
    of_q: tl.tuple,
    of_w: tl.tuple,
    of_b: tl.tuple,
    batch: tl.tensor,
    heads: tl.tensor,
    length: tl.tensor,
    K: tl.constexpr,
    KEYS: tl.constexpr,
    TILE: tl.constexpr,
    CHUNK: tl.constexpr,
    SPAN: tl.constexpr,
) -> None:
    tiles = tl.cdiv(length, TILE)
    row, tile = (tl.program_id(0) // tiles).to(tl.int64), (tl.program_id(0) % tiles).to(tl.int64)
    s, i, c_C = tile * TILE + tl.arange(0, TILE), tl.arange(0, KEYS), tl.arange(0, CHUNK)
    at_SK, in_SK = tl.arange(0, TILE)[:, None] * K + i[None, :], (s < length)[:, None] & (i < K)[None, :]
    q, w = begin_head(q, of_q, row, batch, heads) + i, begin_head(w, of_w, row, batch, heads) + i
    b = begin_head(b, of_b, row, batch, heads)
    lines = tl.num_programs(0) // tiles // heads
    by_token = (tile * lines + row // heads) * length * heads + row % heads  # of what is written tile after tile
    d_q, d_w, d_b = d_q + by_token * K + i, d_w + by_token * K + i, d_b + by_token
    d_k += (row // heads * length * heads + row % heads) * K
    d_scores, along = d_scores + row * length * length + s, along + row * length * length + s
    ends += (row * tiles + tile) * tl.cdiv(length, SPAN) * TILE * K + at_SK

    start = 0
    while start < tile * TILE:  # where none of its keys is seen
        at_C, nothing_CK = (start + c_C) * heads, tl.zeros((CHUNK, KEYS), tl.float32)
        in_CK = (c_C >= 0)[:, None] & (i < K)[None, :]
        tl.store(d_q[None, :] + at_C[:, None] * K, nothing_CK, mask=in_CK)
        tl.store(d_w[None, :] + at_C[:, None] * K, nothing_CK, mask=in_CK)
        tl.store(d_b + at_C, tl.zeros((CHUNK,), tl.float32))
        start += CHUNK

    G_SK, key_SK = tl.zeros((TILE, KEYS), tl.float32), tl.zeros((TILE, KEYS), tl.float32)
    start = tl.cdiv(length, CHUNK) * CHUNK
    while start > tile * TILE:
        if (
            start % SPAN == 0 or start >= length
        ):  # as nothing of what is turned back is off by more than a span's tokens
            key_SK = read(ends + (start - 1) // SPAN * TILE * K, in_SK)
        start -= CHUNK
        given = ()
        for c in tl.static_range(CHUNK):
            t = start + c
            in_K, there = (i < K) & (t < length), t < length
            seen_S = (s <= t) & (s < length) & there
            q_K, w_K, b_t = read(q + t * of_q[3], in_K), read(w + t * of_w[3], in_K), read(b + t * of_b[3], there)
            given += ((q_K, w_K, b_t, read(d_scores + t * length, seen_S), read(along + t * length, seen_S)),)
        for c in tl.static_range(CHUNK - 1, -1, -1):
            t = start + c
            in_K, there = (i < K) & (t < length), t < length
            q_K, w_K, b_t, d_S, along_S = given[c]
            write(d_q + t * heads * K, tl.sum(key_SK * d_S[:, None], 0), in_K)
            key_SK += (b_t * along_S)[:, None] * w_K[None, :]
            G_SK += d_S[:, None] * q_K[None, :]
            back_S = tl.where(s < t, tl.sum(G_SK * w_K[None, :], 1), 0.0)
            tl.store(d_b + t * heads, -tl.sum(back_S * along_S, 0), mask=there)
            d_w_K = -b_t * tl.sum(key_SK * back_S[:, None] + G_SK * along_S[:, None], 0)
            write(d_w + t * heads * K, d_w_K, in_K)
            G_SK -= (b_t * back_S)[:, None] * w_K[None, :]
    write(d_k + s[:, None] * heads * K + i[None, :], G_SK, in_SK)
