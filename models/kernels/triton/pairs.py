"""Products, channels and sums between tokens, for Triton kernels with all pairs of a string's tokens on the chip.

Sums are products with zeros and ones: of Triton's own scans some have been wrong, the reversed ones among them.
"""

import torch
import triton
import triton.language as tl

MOST = 64  # tokens
BLOCK = {torch.bfloat16: 32, torch.float32: 16}  # channels at a time
WARPS = {torch.bfloat16: 4, torch.float32: 8}

LEAST = tl.constexpr(-1e30)  # of a logarithm: e^ it is 0, and times 0 it is 0, as that of 0 itself is not


def tokens_of(length: int) -> int:
    """Of a tile: 16 at least, as of any axis of a product."""
    return max(16, triton.next_power_of_2(length))


@triton.jit
def in_parts(a: tl.tensor, b: tl.tensor) -> tl.tensor:
    """a b, of a in fp32: with a b of 16 bits are multiplied the first 16 bits of a, and then the next."""
    if b.dtype == tl.float32:
        return tl.dot(a, b, input_precision="ieee")
    high = a.to(b.dtype)
    low = (a - high.to(tl.float32)).to(b.dtype)
    return tl.dot(low, b, tl.dot(high, b, input_precision="ieee"), input_precision="ieee")


@triton.jit
def product(a: tl.tensor, b: tl.tensor) -> tl.tensor:
    """a b of what both are rounded to already."""
    return tl.dot(a, b, input_precision="ieee")


@triton.jit
def channels(at_T: tl.tensor, in_T: tl.tensor, start: tl.tensor, WIDTH: tl.constexpr, BLOCK: tl.constexpr) -> tl.tuple:
    """Where a block of the channels of all tokens lies, and which there are."""
    x = start + tl.arange(0, BLOCK)
    return at_T[:, None] + x[None, :], in_T[:, None] & (x < WIDTH)[None, :]


@triton.jit
def _added(chosen: tl.tensor, x: tl.tensor) -> tl.tensor:
    """Sums of those rows of x that are chosen, with all bits: three parts of 16 have them."""
    ones = chosen.to(tl.float32).to(tl.bfloat16)
    high = x.to(tl.bfloat16)
    x -= high.to(tl.float32)
    middle = x.to(tl.bfloat16)
    low = (x - middle.to(tl.float32)).to(tl.bfloat16)
    sums = tl.dot(ones, middle, tl.dot(ones, low, input_precision="ieee"), input_precision="ieee")
    return tl.dot(ones, high, sums, input_precision="ieee")


@triton.jit
def sums_between(x_T: tl.tensor, t: tl.tensor) -> tl.tensor:
    """At [t, s] the sum of x over s < i <= t, each of its own; -inf for s > t. Less than `LEAST` counts as that."""
    after = t[:, None] > t[None, :]
    x_T = tl.where(x_T < LEAST, LEAST, x_T)  # so that what is no number stays to be seen
    sums = _added(t[:, None] >= t[None, :], tl.where(after, x_T[:, None], 0.0))
    return tl.where(t[:, None] >= t[None, :], sums, float("-inf"))


@triton.jit
def sums_between_back(gsums: tl.tensor, t: tl.tensor) -> tl.tensor:
    """The gradient of x: that of all sums it is a part of."""
    from_here_on = _added(t[None, :] >= t[:, None], gsums)
    return tl.sum(tl.where(t[:, None] > t[None, :], from_here_on, 0.0), 1)
