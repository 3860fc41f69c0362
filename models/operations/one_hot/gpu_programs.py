"""The Triton programs that gpu.py calls: maps a row at a time, states a token at a time.

Complex numbers are pairs of reals side by side. Replicas are in front of everything; x counts a replica's tokens, of
one string after the other. What is padded, maps to KP, places to NP, has shares, numbers and gradients of 0.
"""
# pyright: reportAssignmentType=false

import triton
import triton.language as tl

from chomsky_ladder.models.kernels.triton.memory import read


@triton.jit(do_not_specialize=["tokens", "span"])
def places_kernel(
    share: tl.tensor,
    maps: tl.tensor,
    place: tl.tensor,
    tokens: tl.tensor,
    span: tl.tensor,
    K: tl.constexpr,
    N: tl.constexpr,
    KP: tl.constexpr,
    NP: tl.constexpr,
    T: tl.constexpr,
) -> None:
    """Where the row m of each token's map is largest, at the first of equals."""
    row = tl.program_id(0).to(tl.int64)
    replica, m = row // N, row % N
    A_KN = _row_of_maps(maps, replica, m, K, N, KP, NP)
    start = tl.program_id(1) * span
    end = tl.minimum(start + span, tokens)
    while start < end:
        x = start + tl.arange(0, T)
        score_TN = _scores(_shares(share, replica * tokens + x, x < end, K, KP), A_KN, N, NP)
        tl.store(place + (replica * tokens + x) * N + m, tl.argmax(score_TN, 1).to(tl.int32), mask=x < end)
        start += T


@triton.jit(do_not_specialize=["length"])
def states_kernel(
    place: tl.tensor,
    d: tl.tensor,
    b: tl.tensor,
    first: tl.tensor,
    h: tl.tensor,
    length: tl.tensor,
    N: tl.constexpr,
    NP: tl.constexpr,
    GATHERS: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    n = tl.arange(0, NP)
    re, im = _pair(first + (row * N + n) * 2, n < N)
    at = row * length * N + n
    t = 0
    while t < length:
        moved = _moved(tl.load(place + at, mask=n < N, other=0), n)
        d_re, d_im = _pair(d + at * 2, n < N)
        b_re, b_im = _pair(b + at * 2, n < N)
        if GATHERS:
            re, im = _read(re, moved), _read(im, moved)
            re, im = d_re * re - d_im * im, d_re * im + d_im * re
        else:
            re, im = d_re * re - d_im * im, d_re * im + d_im * re
            re, im = _written(re, moved), _written(im, moved)
        re, im = re + b_re, im + b_im
        _put(h + at * 2, re, im, n < N)
        at += N
        t += 1


@triton.jit(do_not_specialize=["length"])
def back_kernel(
    place: tl.tensor,
    d: tl.tensor,
    first: tl.tensor,
    h: tl.tensor,
    gh: tl.tensor,
    g: tl.tensor,
    gd: tl.tensor,
    gfirst: tl.tensor,
    length: tl.tensor,
    N: tl.constexpr,
    NP: tl.constexpr,
    GATHERS: tl.constexpr,
) -> None:
    """g_t = dL/dh_t from the last token to the first, which is b's gradient, too, and d's."""
    row = tl.program_id(0).to(tl.int64)
    n = tl.arange(0, NP)
    first += (row * N + n) * 2
    first_re, first_im = _pair(first, n < N)
    re, im = tl.zeros_like(first_re), tl.zeros_like(first_re)  # of the state before
    at = (row + 1) * length * N + n
    t = length
    while t > 0:
        t -= 1
        at -= N
        moved = _moved(tl.load(place + at, mask=n < N, other=0), n)
        d_re, d_im = _pair(d + at * 2, n < N)
        gh_re, gh_im = _pair(gh + at * 2, n < N)
        h_re, h_im = _pair(h + (at - N) * 2, (n < N) & (t > 0))
        h_re, h_im = tl.where(t > 0, h_re, first_re), tl.where(t > 0, h_im, first_im)
        re, im = re + gh_re, im + gh_im
        _put(g + at * 2, re, im, n < N)
        if GATHERS:
            h_re, h_im = _read(h_re, moved), _read(h_im, moved)
        else:
            re, im = _read(re, moved), _read(im, moved)
        _put(gd + at * 2, re * h_re + im * h_im, im * h_re - re * h_im, n < N)
        re, im = d_re * re + d_im * im, d_re * im - d_im * re
        if GATHERS:
            re, im = _written(re, moved), _written(im, moved)
    _put(gfirst + (row * N + n) * 2, re, im, n < N)


@triton.jit(do_not_specialize=["batch", "length", "span"])
def maps_kernel(
    share: tl.tensor,
    maps: tl.tensor,
    d: tl.tensor,
    first: tl.tensor,
    h: tl.tensor,
    g: tl.tensor,
    gshare: tl.tensor,
    gmaps: tl.tensor,
    batch: tl.tensor,
    length: tl.tensor,
    span: tl.tensor,
    GATHERS: tl.constexpr,
    K: tl.constexpr,
    N: tl.constexpr,
    KP: tl.constexpr,
    NP: tl.constexpr,
    T: tl.constexpr,
) -> None:
    """From dL/dP = Re(row conj(column)) and the softmax of row m: what the maps have of a program's tokens, and what
    each of those tokens' shares have of that row."""
    row = tl.program_id(0).to(tl.int64)
    replica, m = row // N, row % N
    A_KN = _row_of_maps(maps, replica, m, K, N, KP, NP)
    gA_KTN = tl.zeros([KP, T, NP], dtype=tl.float32)
    tokens = batch * length
    n, k = tl.arange(0, NP), tl.arange(0, KP)
    start = tl.program_id(1) * span
    end = tl.minimum(start + span, tokens)
    while start < end:
        x = start + tl.arange(0, T)
        there, at = x < end, replica * tokens + x
        every = there[:, None] & (n < N)[None, :]
        d_re, d_im = _pair(d + (at * N + m) * 2, there)
        strings = replica * batch + x // length
        if GATHERS:  # row = g conj(d), column = h_{t-1}
            g_re, g_im = _pair(g + (at * N + m) * 2, there)
            row_re, row_im = g_re * d_re + g_im * d_im, g_im * d_re - g_re * d_im
            of_h = (at[:, None] - 1) * N + n[None, :]
            h_re, h_im = _pair(h + of_h * 2, every & (x % length > 0)[:, None])
            first_re, first_im = _pair(
                first + (strings[:, None] * N + n[None, :]) * 2, every & (x % length == 0)[:, None]
            )
            column_re, column_im = h_re + first_re, h_im + first_im  # one of them is 0
        else:  # row = d h_{t-1}, column = g
            h_re, h_im = _pair(h + ((at - 1) * N + m) * 2, there & (x % length > 0))
            first_re, first_im = _pair(first + (strings * N + m) * 2, there & (x % length == 0))
            h_re, h_im = h_re + first_re, h_im + first_im
            row_re, row_im = d_re * h_re - d_im * h_im, d_re * h_im + d_im * h_re
            column_re, column_im = _pair(g + (at[:, None] * N + n[None, :]) * 2, every)

        share_KT = _shares(share, at, there, K, KP)
        score_TN = _scores(share_KT, A_KN, N, NP)
        soft_TN = tl.exp(score_TN - tl.max(score_TN, 1)[:, None])
        soft_TN /= tl.sum(soft_TN, 1)[:, None]
        gP_TN = row_re[:, None] * column_re + row_im[:, None] * column_im
        gM_TN = soft_TN * (gP_TN - tl.sum(soft_TN * gP_TN, 1)[:, None])
        gshare_KT = tl.sum(gM_TN[None, :, :] * A_KN[:, None, :], 2)
        of_share = (row * tokens + x)[None, :] * K + k[:, None]
        tl.store(gshare + of_share, gshare_KT, mask=there[None, :] & (k < K)[:, None])
        gA_KTN += share_KT[:, :, None] * gM_TN[None, :, :]
        start += T
    replicas = tl.num_programs(0) // N
    split = tl.program_id(1) * replicas + replica
    of_maps = ((split * K + k)[:, None] * N + m) * N + n[None, :]
    tl.store(gmaps + of_maps, tl.sum(gA_KTN, 1), mask=(k < K)[:, None] & (n < N)[None, :])


@triton.jit
def _row_of_maps(
    maps: tl.tensor,
    replica: tl.tensor,
    m: tl.tensor,
    K: tl.constexpr,
    N: tl.constexpr,
    KP: tl.constexpr,
    NP: tl.constexpr,
) -> tl.tensor:
    n, k = tl.arange(0, NP), tl.arange(0, KP)
    return read(maps + ((replica * K + k)[:, None] * N + m) * N + n[None, :], (k < K)[:, None] & (n < N)[None, :])


@triton.jit
def _shares(share: tl.tensor, at: tl.tensor, there: tl.tensor, K: tl.constexpr, KP: tl.constexpr) -> tl.tensor:
    """[K, T]"""
    k = tl.arange(0, KP)
    return read(share + at[None, :] * K + k[:, None], there[None, :] & (k < K)[:, None])


@triton.jit
def _scores(share_KT: tl.tensor, A_KN: tl.tensor, N: tl.constexpr, NP: tl.constexpr) -> tl.tensor:
    """A row of each token's map; no product by tensor cores: a rounded score may take another map. Summed along the
    first axis, as Triton makes such a product of x[:, :, None] * y[None, :, :] summed along the second, in TF32."""
    score_TN = tl.sum(share_KT[:, :, None] * A_KN[:, None, :], 0)
    return tl.where((tl.arange(0, NP) < N)[None, :], score_TN, -float("inf"))


@triton.jit
def _moved(place_N: tl.tensor, n: tl.tensor) -> tl.tensor:
    """[N, M], whether a place n is told of a place m."""
    return place_N[:, None] == n[None, :]


@triton.jit
def _read(x_N: tl.tensor, moved_NM: tl.tensor) -> tl.tensor:
    return tl.sum(tl.where(moved_NM, x_N[None, :], 0.0), 1)


@triton.jit
def _written(x_N: tl.tensor, moved_NM: tl.tensor) -> tl.tensor:
    return tl.sum(tl.where(moved_NM, x_N[:, None], 0.0), 0)


@triton.jit
def _pair(at: tl.tensor, mask: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
    return read(at, mask), read(at + 1, mask)


@triton.jit
def _put(at: tl.tensor, re: tl.tensor, im: tl.tensor, mask: tl.tensor) -> None:
    tl.store(at, re, mask=mask)
    tl.store(at + 1, im, mask=mask)
