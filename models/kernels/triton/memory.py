"""How our Triton kernels for scans read and write: side by side, in fp32 inside, and nothing behind an end."""

from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl
from torch import Tensor


def together(x: Tensor | None) -> Any:
    """With the last axis side by side. Asked of the compiler first: what makes x can often write it so."""
    return x if x is None or x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def each_together(x: Tensor | None) -> Any:
    """With all axes but the first side by side: replicas of a weight lie among others, and need no copy."""
    return x if x is None or x[0].is_contiguous() else x.contiguous()


def by_token(room: Callable[[tuple[int, ...], Tensor], Tensor], shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Heads [.., H, L, X] that lie in memory as blocks put them together again: token by token."""
    *rows, heads, length, width = shape
    return room((*rows, length, heads, width), like).transpose(-3, -2)


@triton.jit
def begin(x: tl.tensor, strides: tl.tuple, row: tl.tensor, batch: tl.tensor) -> tl.tensor:
    """Where that string begins which is the `row`-th of all."""
    return x + row // batch * strides[0] + row % batch * strides[1]


@triton.jit
def begin_head(x: tl.tensor, strides: tl.tuple, row: tl.tensor, batch: tl.tensor, heads: tl.tensor) -> tl.tensor:
    """Where that head begins which is the `row`-th of all."""
    return begin(x, strides, row // heads, batch) + row % heads * strides[2]


@triton.jit
def read(at: tl.tensor, mask: tl.tensor) -> tl.tensor:
    return tl.load(at, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def write(at: tl.tensor, x: tl.tensor, mask: tl.tensor) -> None:
    tl.store(at, x.to(at.dtype.element_ty), mask=mask)
