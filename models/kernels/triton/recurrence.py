"""Parts of the fused recurrences: a step's product with the recurrent matrices, tile sizes, precision, replicas.

A program computes all steps of 16 rows for one matrix U [G, K] of a replica (and head), where G = 4 K holds an LSTM's
four gates, 3 K a GRU's, K an RNN's: on the way there h [16, K] U_g^T for each gate g, on the way back the sum over g of
d_g [16, K] U_g. Products and states are accumulated in fp32; K is padded to a power of two by masks.

Where the matrices fit, they stay on the chip for all steps ("resident"). Where not, each step reads them anew from the
L2 cache, a block of the inner dimension at a time, and the other factor from memory that the program has just written,
behind a barrier.

"ieee" multiplies fp32 exactly, on the ordinary cores, as the reference does on a CPU. "tf32" would use the tensor cores
and keep 10 of the 23 bits of each factor, an error of about 1e-3 a product that a recurrence then carries along;
"tf32x3" recovers nearly all bits from three such products. bf16 takes the tensor cores in any case.
"""

from typing import Any, Literal

import torch
import triton
import triton.language as tl
from torch import Tensor

Precision = Literal["ieee", "tf32x3", "tf32"]

ROWS = tl.constexpr(16)  # of a tile: the fewest for which a tensor core multiplies
BLOCK = tl.constexpr(16)  # of the inner dimension, where matrices are read anew
LOG2_E = tl.constexpr(1.4426950408889634)


def settings(width: int, dtype: torch.dtype, precision: str) -> dict[str, Any]:
    """A kernel's constants and warps, by plain rules, so that no call measures and a CUDA graph can capture it.

    Compiled for an H200, shared memory stays within 148 of its 227 KiB. Up to a width of 64 in fp32 and 128 in bf16 no
    register spills; beyond, up to 300 bytes a thread do of the LSTMs. A gate's matrix of more than 32 KiB is not
    resident: for four there is no room, and of one compilers hold what they read of it in registers there are not.
    """
    assert width <= 256, f"a width of {width} is the reference's"
    padded = max(16, triton.next_power_of_2(width))
    copies = 2 if precision == "tf32x3" and dtype == torch.float32 else 1
    return {
        "WIDTH": width,
        "PADDED": padded,
        "RESIDENT": padded**2 * dtype.itemsize * copies <= 2**15,
        "PRECISION": precision,
        "num_warps": min(16, padded // (8 if dtype == torch.float32 else 16)),
    }


def to_multiply_by(U_RGK: Tensor) -> tuple[Tensor, bool]:
    """The matrices that h is multiplied by on the way there, and whether a kernel has to turn them: those of fp32 not.

    A thread reads a factor of fp32 from shared memory along the axis that was contiguous. Of U as it is, eight threads
    at a time ask one bank: an sLSTM's heads of 32 took four times as long as on the way back, where none is turned.
    """
    if U_RGK.dtype != torch.float32:
        return U_RGK.contiguous(), True
    return U_RGK.unflatten(-2, (-1, U_RGK.shape[-1])).mT.contiguous(), False


def empty(like: Tensor, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
    """All memory that a kernel writes."""
    return like.new_empty(shape, dtype=dtype)


def common_dtype(x: Tensor) -> torch.dtype:
    """Return the type that autocast gives a product's factors, or else theirs."""
    device = x.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
    assert dtype in (torch.float32, torch.bfloat16), f"{dtype} is the reference's"
    return dtype


def rows_together(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()


def recurrent_gradient(d_RBLG: Tensor, first_RBD: Tensor, h_RBLD: Tensor) -> Tensor:
    """Return the gradient of U, where a step reads h U^T: over all steps one product, d^T times the h before."""
    with torch.autocast(h_RBLD.device.type, enabled=False):
        past_RBLD = torch.cat([first_RBD[:, :, None], h_RBLD[:, :, :-1]], 2)
        return d_RBLG.flatten(1, 2).mT @ past_RBLD.flatten(1, 2)


@triton.jit
def sigmoid(x: tl.tensor) -> tl.tensor:
    return 1 / (1 + tl.exp(-x))


@triton.jit
def tanh(x: tl.tensor) -> tl.tensor:
    return 2 / (1 + tl.exp(-2 * x)) - 1


@triton.jit
def log_sigmoid(x: tl.tensor) -> tl.tensor:
    return tl.minimum(x, 0.0) - tl.log(1 + tl.exp(-tl.abs(x)))


@triton.jit
def softplus(x: tl.tensor) -> tl.tuple:
    """And its slope. log(1 + e) = 2 artanh(s), s = e / (2 + e) <= 1/3, keeps its digits where e is small too."""
    e = tl.exp2(-tl.abs(x) * LOG2_E)
    s = e / (2 + e)
    q = s * s
    series = 1 + q * (1 / 3 + q * (1 / 5 + q * (1 / 7 + q * (1 / 9 + q * (1 / 11 + q * (1 / 13))))))
    return tl.maximum(x, 0.0) + 2 * s * series, tl.where(x > 0, 1.0, e) / (1 + e)


@triton.jit
def load_four(at: tl.tensor, mask: tl.tensor, stride: tl.constexpr) -> tl.tuple:
    """The same tile of each of the four gates."""
    return (
        tl.load(at, mask, 0.0),
        tl.load(at + stride, mask, 0.0),
        tl.load(at + 2 * stride, mask, 0.0),
        tl.load(at + 3 * stride, mask, 0.0),
    )


@triton.jit
def store_four(at: tl.tensor, four: tl.tuple, mask: tl.tensor, stride: tl.constexpr) -> None:
    to = at.dtype.element_ty
    tl.store(at, four[0].to(to), mask)
    tl.store(at + stride, four[1].to(to), mask)
    tl.store(at + 2 * stride, four[2].to(to), mask)
    tl.store(at + 3 * stride, four[3].to(to), mask)


@triton.jit
def dot_four(x: tl.tensor, U: tl.tuple, sums: tl.tuple, PRECISION: tl.constexpr) -> tl.tuple:
    return (
        tl.dot(x, U[0], sums[0], input_precision=PRECISION),
        tl.dot(x, U[1], sums[1], input_precision=PRECISION),
        tl.dot(x, U[2], sums[2], input_precision=PRECISION),
        tl.dot(x, U[3], sums[3], input_precision=PRECISION),
    )


@triton.jit
def load_matrices(U: tl.tensor, TRANSPOSED: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr) -> tl.tuple:
    """U_g of each gate, or its transpose."""
    one, other = tl.arange(0, PADDED)[:, None], tl.arange(0, PADDED)[None, :]
    at = U + (other * WIDTH + one if TRANSPOSED else one * WIDTH + other)
    return load_four(at, (one < WIDTH) & (other < WIDTH), WIDTH * WIDTH)


@triton.jit
def load_matrix(U: tl.tensor, TRANSPOSED: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr) -> tl.tensor:
    """One gate's U, or its transpose."""
    one, other = tl.arange(0, PADDED)[:, None], tl.arange(0, PADDED)[None, :]
    at = U + (other * WIDTH + one if TRANSPOSED else one * WIDTH + other)
    return tl.load(at, (one < WIDTH) & (other < WIDTH), 0.0)


@triton.jit
def stream(
    sums: tl.tensor,
    x: tl.tensor,
    by_row: tl.tensor,
    rows: tl.tensor,
    U: tl.tensor,
    TRANSPOSED: tl.constexpr,
    WIDTH: tl.constexpr,
    PADDED: tl.constexpr,
    PRECISION: tl.constexpr,
) -> tl.tensor:
    """sums + x U or x U^T of one gate, with x [rows, WIDTH] in memory."""
    row, n = tl.arange(0, ROWS)[:, None], tl.arange(0, PADDED)[None, :]
    for start in tl.range(0, WIDTH, BLOCK, num_stages=3):
        k = start + tl.arange(0, BLOCK)
        part = tl.load(x + row * by_row + k[None, :], (row < rows) & (k[None, :] < WIDTH), 0.0)
        at = U + (n * WIDTH + k[:, None] if TRANSPOSED else k[:, None] * WIDTH + n)
        sums = tl.dot(part, tl.load(at, (k[:, None] < WIDTH) & (n < WIDTH), 0.0), sums, input_precision=PRECISION)
    return sums


@triton.jit
def stream_there(
    sums: tl.tuple,
    h: tl.tensor,
    U: tl.tensor,
    TRANSPOSED: tl.constexpr,
    WIDTH: tl.constexpr,
    PADDED: tl.constexpr,
    PRECISION: tl.constexpr,
) -> tl.tuple:
    """sums_g + h U_g or h U_g^T, with h [ROWS, WIDTH] in memory."""
    i, f, z, o = sums
    row, n = tl.arange(0, ROWS)[:, None], tl.arange(0, PADDED)[None, :]
    for start in tl.range(0, WIDTH, BLOCK, num_stages=3):
        k = start + tl.arange(0, BLOCK)
        part = tl.load(h + row * WIDTH + k[None, :], k[None, :] < WIDTH, 0.0)
        at = U + (n * WIDTH + k[:, None] if TRANSPOSED else k[:, None] * WIDTH + n)
        across = load_four(at, (k[:, None] < WIDTH) & (n < WIDTH), WIDTH * WIDTH)
        i, f, z, o = dot_four(part, across, (i, f, z, o), PRECISION)
    return i, f, z, o


@triton.jit
def stream_back(
    d_gates: tl.tensor,
    by_row: tl.tensor,
    rows: tl.tensor,
    U: tl.tensor,
    WIDTH: tl.constexpr,
    PADDED: tl.constexpr,
    PRECISION: tl.constexpr,
) -> tl.tensor:
    """The sum over g of d_g U_g, with d [rows, 4 WIDTH] in memory."""
    d_h = tl.zeros((ROWS, PADDED), tl.float32)
    row, n = tl.arange(0, ROWS)[:, None], tl.arange(0, PADDED)[None, :]
    for start in tl.range(0, 4 * WIDTH, 2 * BLOCK, num_stages=3):
        k = start + tl.arange(0, 2 * BLOCK)
        part = tl.load(d_gates + row * by_row + k[None, :], (row < rows) & (k[None, :] < 4 * WIDTH), 0.0)
        along = tl.load(U + k[:, None] * WIDTH + n, (k[:, None] < 4 * WIDTH) & (n < WIDTH), 0.0)
        d_h = tl.dot(part, along, d_h, input_precision=PRECISION)
    return d_h


@triton.jit
def dot_back(d: tl.tuple, U: tl.tuple, PRECISION: tl.constexpr) -> tl.tensor:
    """The sum over g of d_g U_g."""
    to = U[0].dtype
    d_h = tl.dot(d[0].to(to), U[0], input_precision=PRECISION)
    d_h = tl.dot(d[1].to(to), U[1], d_h, input_precision=PRECISION)
    d_h = tl.dot(d[2].to(to), U[2], d_h, input_precision=PRECISION)
    return tl.dot(d[3].to(to), U[3], d_h, input_precision=PRECISION)
