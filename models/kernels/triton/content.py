"""Addressing by content in a Triton program: models/scans/addressing.py, forward and backward.

    c = softmax_n(s k . M[n] |k|^-1 |M[n]|^-1)

A program holds all of a memory [W, N], padded to powers of two: rows behind the last are zeros, and nothing is found
there. With C = s |k|^-1 the scale and z the logits,

    dz = c (dc - sum c dc)        d(k . M) = dz C |M|^-1        dk = M d(k . M) - C |k|^-2 k sum dz (k . M) |M|^-1
    dM = k d(k . M) - M |M|^-3 C (k . M) dz                     ds = |k|^-1 sum dz (k . M) |M|^-1
"""

import triton
import triton.language as tl

from chomsky_ladder.models.scans import addressing

LENGTH_EPS = tl.constexpr(addressing.LENGTH_EPS)


def padded(width: int, rows: int) -> tuple[int, int]:
    """The tile that holds a memory."""
    return triton.next_power_of_2(width), max(16, triton.next_power_of_2(rows))


@triton.jit
def softplus(x: tl.tensor) -> tl.tensor:
    return tl.maximum(x, 0.0) + tl.log(1 + tl.exp(-tl.abs(x)))


@triton.jit
def one_by_length(key_W: tl.tensor) -> tl.tensor:
    return tl.rsqrt(tl.sum(key_W * key_W, 0) + LENGTH_EPS)


@triton.jit
def one_by_lengths(M_WN: tl.tensor) -> tl.tensor:
    return tl.rsqrt(tl.sum(M_WN * M_WN, 0) + LENGTH_EPS)


@triton.jit
def find(
    key_W: tl.tensor, strength: tl.tensor, M_WN: tl.tensor, inverse_N: tl.tensor, in_N: tl.tensor
) -> tuple[tl.tensor, tl.tensor]:
    """k . M[n], and what is found."""
    dot_N = tl.sum(key_W[:, None] * M_WN, 0)
    z_N = tl.where(in_N, dot_N * inverse_N * (strength * one_by_length(key_W)), float("-inf"))
    found_N = tl.exp(z_N - tl.max(z_N, 0))
    return dot_N, found_N / tl.sum(found_N, 0)


@triton.jit
def find_back(
    d_N: tl.tensor,
    found_N: tl.tensor,
    dot_N: tl.tensor,
    key_W: tl.tensor,
    strength: tl.tensor,
    M_WN: tl.tensor,
    inverse_N: tl.tensor,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """The gradients of the strength, of the key and of the memory, from that of what was found."""
    by_length = one_by_length(key_W)
    scale = strength * by_length
    d_z_N = found_N * (d_N - tl.sum(found_N * d_N, 0))
    d_scale = tl.sum(d_z_N * dot_N * inverse_N, 0)
    d_dot_N = d_z_N * inverse_N * scale
    d_key_W = tl.sum(M_WN * d_dot_N[None, :], 1) - key_W * (d_scale * scale * by_length * by_length)
    shrunk_N = d_z_N * dot_N * scale * inverse_N * inverse_N * inverse_N
    return d_scale * by_length, d_key_W, key_W[:, None] * d_dot_N[None, :] - M_WN * shrunk_N[None, :]
