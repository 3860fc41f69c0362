"""A short causal convolution with a silu behind it as two Triton kernels: `ShortConvolution` from the start.

    y_t = b + sum_k w_k x_{t - (W - 1) + k}        c_t = y_t s(y_t)
    dy_t = dc_t s(y_t) (1 + y_t (1 - s(y_t)))
    dx_t = sum_k w_k dy_{t + (W - 1) - k}        dw_k = sum_t dy_t x_{t - (W - 1) + k}

A program walks through time for one string and one tile of channels, forwards or from the end, and reads and writes
everything once: what is between taps and silu is made again from x on the way back. The gradients of taps and bias,
every string's, are summed outside. Inside all is fp32; c and dx have the precision of x.

The host code is by hand: in a declaration (in_triton.py) no input may be missing, as the bias may, and all have rows
and heads.
"""
# pyright: reportIndexIssue=false, reportAssignmentType=false, reportOperatorIssue=false
# (a kernel[grid] has no type where triton.jit has none, nor what a tuple holds that grows in a loop)

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from chomsky_ladder.models.kernels.triton.memory import begin, each_together, read, together, write
from chomsky_ladder.models.kernels.triton.recurrence import sigmoid
from chomsky_ladder.models.scans.replicas import fold_replicas

CHUNK = 4  # positions that are read before anything is written, behind which no read is brought forward
TILE = 128


def triton_silu_convolution(x_BLE: Tensor, weight_EW: Tensor, bias_E: Tensor | None) -> Tensor:
    """Convolve x in fp32 or bf16, with weights in fp32; it stacks under vmap."""
    assert x_BLE.dtype in (torch.float32, torch.bfloat16), "the kernel takes fp32 and bf16 alone"
    assert all(x is None or x.dtype == torch.float32 for x in (weight_EW, bias_E)), "weights are in fp32"
    return _convolve(x_BLE[None], weight_EW[None], None if bias_E is None else bias_E[None])[0]


@torch.library.custom_op("chomsky_ladder::silu_convolution", mutates_args=())
def _convolve(x_RBLE: Tensor, weight_REW: Tensor, bias_RE: Tensor | None) -> Tensor:
    """With an axis R in front, of replicas: what vmap adds folds into it."""
    x_RBLE, weight_REW, bias_RE = together(x_RBLE), each_together(weight_REW), each_together(bias_RE)
    written_RBLE = _written(x_RBLE, weight_REW, bias_RE)
    bias = weight_REW if bias_RE is None else bias_RE  # in its place, not read
    with torch.cuda.device_of(x_RBLE):
        forward_kernel[_grid(x_RBLE)](
            x_RBLE, weight_REW, bias, written_RBLE, x_RBLE.stride()[:3], weight_REW.stride(), bias.stride(),
            *x_RBLE.shape[1:], weight_REW.shape[2], bias_RE is not None, TILE, CHUNK, num_warps=1,
        )  # fmt: skip
    return written_RBLE


@_convolve.register_fake
def _written(x_RBLE: Tensor, weight_REW: Tensor, bias_RE: Tensor | None) -> Tensor:
    return _room(x_RBLE.shape, x_RBLE)


@torch.library.custom_op("chomsky_ladder::silu_convolution_back", mutates_args=())
def _convolve_back(
    x_RBLE: Tensor, weight_REW: Tensor, bias_RE: Tensor | None, gc_RBLE: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradients of x, and of every string's taps with its bias behind them."""
    x_RBLE, weight_REW, bias_RE = together(x_RBLE), each_together(weight_REW), each_together(bias_RE)
    gc_RBLE = together(gc_RBLE)
    written = _written_back(x_RBLE, weight_REW, bias_RE, gc_RBLE)
    bias = weight_REW if bias_RE is None else bias_RE
    with torch.cuda.device_of(x_RBLE):
        backward_kernel[_grid(x_RBLE)](
            x_RBLE, weight_REW, bias, gc_RBLE, *written, x_RBLE.stride()[:3], weight_REW.stride(), bias.stride(),
            gc_RBLE.stride()[:3], *x_RBLE.shape[1:], weight_REW.shape[2], bias_RE is not None, TILE, CHUNK,
            num_warps=1,
        )  # fmt: skip
    return written


@_convolve_back.register_fake
def _written_back(x_RBLE: Tensor, weight_REW: Tensor, bias_RE: Tensor | None, gc_RBLE: Tensor) -> tuple[Tensor, Tensor]:
    replicas, batch, _, channels = x_RBLE.shape
    return _room(x_RBLE.shape, x_RBLE), _room((replicas, batch, weight_REW.shape[2] + 1, channels), weight_REW)


def _keep(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _gradients(ctx: Any, gc_RBLE: Tensor) -> tuple[Tensor | None, ...]:
    gx_RBLE, of_each_RBXE = _convolve_back(*ctx.saved_tensors, gc_RBLE)
    taps_RXE = of_each_RBXE.sum(1)
    return gx_RBLE, taps_RXE[:, :-1].mT, None if ctx.saved_tensors[2] is None else taps_RXE[:, -1]


_convolve.register_autograd(_gradients, setup_context=_keep)


@_convolve.register_vmap
def _replicated(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor | None) -> tuple[Tensor, int]:
    *others, bias_RE = inputs
    there = others if bias_RE is None else inputs
    folded = fold_replicas(there, in_dims[: len(there)], info.batch_size)  # pyright: ignore[reportArgumentType]
    return _convolve(*folded, *([None] if bias_RE is None else [])).unflatten(0, (info.batch_size, -1)), 0


def _grid(x_RBLE: Tensor) -> tuple[int]:
    return (x_RBLE.shape[0] * x_RBLE.shape[1] * triton.cdiv(x_RBLE.shape[3], TILE),)


def _room(shape: Sequence[int], like: Tensor) -> Tensor:
    return torch.empty(shape, dtype=like.dtype, device=like.device)


@triton.jit
def _taps(weight: tl.tensor, e: tl.tensor, E: tl.constexpr, W: tl.constexpr) -> tl.tuple:
    taps = ()
    for k in tl.static_range(W):
        taps += (read(weight + e * W + k, e < E),)
    return taps


@triton.jit
def _sum(taps: tl.tuple, bias_E: tl.tensor, window: tl.tuple, at: tl.constexpr, W: tl.constexpr) -> tl.tensor:
    """y of the window's place `at`, where it begins W - 1 positions before its first."""
    y_E = bias_E
    for k in tl.static_range(W):
        y_E += taps[k] * window[at + k]
    return y_E


@triton.jit(do_not_specialize=["batch", "length"])
def forward_kernel(
    x: tl.tensor,
    weight: tl.tensor,
    bias: tl.tensor,
    c: tl.tensor,
    of_x: tl.tuple,
    of_weight: tl.tuple,
    of_bias: tl.tuple,
    batch: tl.tensor,
    length: tl.tensor,
    E: tl.constexpr,
    W: tl.constexpr,
    BIAS: tl.constexpr,
    TILE: tl.constexpr,
    CHUNK: tl.constexpr,
) -> None:
    TILES: tl.constexpr = (E + TILE - 1) // TILE
    row = (tl.program_id(0) // TILES).to(tl.int64)
    e = tl.program_id(0) % TILES * TILE + tl.arange(0, TILE)
    x = begin(x, of_x, row, batch) + e
    c += row * length * E + e
    taps = _taps(weight + row // batch * of_weight[0], e, E, W)
    bias_E = tl.zeros((TILE,), tl.float32)
    if BIAS:
        bias_E += read(bias + row // batch * of_bias[0] + e, e < E)
    start = 0
    while start < length:  # no range: under NumPy 2.4 Triton's interpreter has none of a number not known beforehand
        window = ()
        for k in tl.static_range(1 - W, CHUNK):
            t = start + k
            window += (read(x + t * of_x[2], (e < E) & (t >= 0) & (t < length)),)
        for k in tl.static_range(CHUNK):
            y_E = _sum(taps, bias_E, window, k, W)
            write(c + (start + k) * E, y_E * sigmoid(y_E), (e < E) & (start + k < length))
        start += CHUNK


@triton.jit(do_not_specialize=["batch", "length"])
def backward_kernel(
    x: tl.tensor,
    weight: tl.tensor,
    bias: tl.tensor,
    gc: tl.tensor,
    gx: tl.tensor,
    gtaps: tl.tensor,
    of_x: tl.tuple,
    of_weight: tl.tuple,
    of_bias: tl.tuple,
    of_gc: tl.tuple,
    batch: tl.tensor,
    length: tl.tensor,
    E: tl.constexpr,
    W: tl.constexpr,
    BIAS: tl.constexpr,
    TILE: tl.constexpr,
    CHUNK: tl.constexpr,
) -> None:
    """Behind the end dc counts as 0, and so does dy."""
    TILES: tl.constexpr = (E + TILE - 1) // TILE
    row = (tl.program_id(0) // TILES).to(tl.int64)
    e = tl.program_id(0) % TILES * TILE + tl.arange(0, TILE)
    x = begin(x, of_x, row, batch) + e
    gc = begin(gc, of_gc, row, batch) + e
    gx += row * length * E + e
    taps = _taps(weight + row // batch * of_weight[0], e, E, W)
    bias_E = tl.zeros((TILE,), tl.float32)
    if BIAS:
        bias_E += read(bias + row // batch * of_bias[0] + e, e < E)
    later, of_taps, of_bias_E = (), (), tl.zeros((TILE,), tl.float32)
    for _ in tl.static_range(W - 1):
        later += (tl.zeros((TILE,), tl.float32),)
    for _ in tl.static_range(W):
        of_taps += (tl.zeros((TILE,), tl.float32),)
    start = tl.cdiv(length, CHUNK) * CHUNK
    while start > 0:
        start -= CHUNK
        window, slopes = (), ()
        for k in tl.static_range(1 - W, CHUNK):
            t = start + k
            window += (read(x + t * of_x[2], (e < E) & (t >= 0) & (t < length)),)
        for k in tl.static_range(CHUNK):
            slopes += (read(gc + (start + k) * of_gc[2], (e < E) & (start + k < length)),)
        for k in tl.static_range(CHUNK - 1, -1, -1):
            y_E = _sum(taps, bias_E, window, k, W)
            s_E = sigmoid(y_E)
            gy_E = slopes[k] * s_E * (1 + y_E * (1 - s_E))
            of_bias_E += gy_E
            summed, gx_E = (), taps[W - 1] * gy_E
            for w in tl.static_range(W):
                summed += (of_taps[w] + gy_E * window[k + w],)
            for w in tl.static_range(W - 1):
                gx_E += taps[W - 2 - w] * later[w]
            of_taps = summed
            if W > 1:
                shifted = (gy_E,)
                for w in tl.static_range(W - 2):
                    shifted += (later[w],)
                later = shifted
            write(gx + (start + k) * E, gx_E, (e < E) & (start + k < length))
    gtaps += row * (W + 1) * E + e
    for w in tl.static_range(W):
        tl.store(gtaps + w * E, of_taps[w], mask=e < E)
    tl.store(gtaps + W * E, of_bias_E, mask=e < E)
