"""SLiCE's recurrence as two Triton kernels: `block_steps` of reference.py.

    h_t = (1 + C_t / S) h_{t-1} + b_t        g_t = dL/dh_t + (1 + C_{t+1} / S)^T g_{t+1}
    dL/db_t = g_t                            dL/dC_t = g_t h_{t-1}^T / S

A program walks through time for one row and some of its heads, forwards or from the end: of a token it reads their
blocks, which lie side by side, and nothing else of their size is made on the way there. Blocks whose rows are no power
of two are filled up with zeros.

The host code is by hand: a declaration (in_triton.py) has no options like `steps`, and wants an axis of heads in all
inputs.
"""
# pyright: reportIndexIssue=false, reportAssignmentType=false, reportCallIssue=false, reportArgumentType=false
# (a kernel[grid] has no type where triton.jit has none, nor what a tuple holds that grows in a loop)

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from chomsky_ladder.models.kernels.triton.memory import begin, read, together, write
from chomsky_ladder.models.scans.replicas import fold_replicas

CHUNK = 4  # positions that are read before anything is written, behind which no read is brought forward
NUMBERS = 512  # of blocks that a program reads of a position
WARPS = 2


def triton_block_steps(c_BLX: Tensor, b_BLX: Tensor, h_BHK: Tensor, *, steps: int) -> tuple[Tensor, Tensor]:
    """Compute `block_steps` in fp32 for inputs of fp32 or bf16; it stacks under vmap."""
    given = (c_BLX, b_BLX, h_BHK)
    assert all(x.dtype in (torch.float32, torch.bfloat16) for x in given), "the kernel takes fp32 and bf16 alone"
    h_BLX = _scan(*(x[None] for x in given), steps)[0]
    return h_BLX, h_BLX[:, -1].unflatten(-1, h_BHK.shape[1:])


@torch.library.custom_op("chomsky_ladder::block_steps", mutates_args=())
def _scan(c_RBLX: Tensor, b_RBLX: Tensor, h_RBHK: Tensor, steps: int) -> Tensor:
    """Replicas, which what vmap adds folds into, are so many more rows."""
    written_RBLX, c_RBLX, b_RBLX = _written(c_RBLX, b_RBLX, h_RBHK, steps), together(c_RBLX), together(b_RBLX)
    with torch.cuda.device_of(b_RBLX):
        forward_kernel[_grid(h_RBHK)](
            c_RBLX, b_RBLX, h_RBHK.contiguous(), written_RBLX, c_RBLX.stride()[:3], b_RBLX.stride()[:3],
            *b_RBLX.shape[1:3], steps, *_shape(h_RBHK), CHUNK, num_warps=WARPS,
        )  # fmt: skip
    return written_RBLX


@_scan.register_fake
def _written(c_RBLX: Tensor, b_RBLX: Tensor, h_RBHK: Tensor, steps: int) -> Tensor:
    return _room(b_RBLX, torch.float32)


@torch.library.custom_op("chomsky_ladder::block_steps_back", mutates_args=())
def _scan_back(
    c_RBLX: Tensor, h_RBHK: Tensor, h_RBLX: Tensor, gh_RBLX: Tensor, b_dtype: torch.dtype, steps: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of c, b and the first state."""
    written = _written_back(c_RBLX, h_RBHK, h_RBLX, gh_RBLX, b_dtype, steps)
    c_RBLX, gh_RBLX = together(c_RBLX), together(gh_RBLX)
    with torch.cuda.device_of(h_RBLX):
        backward_kernel[_grid(h_RBHK)](
            c_RBLX, h_RBHK.contiguous(), h_RBLX, gh_RBLX, *written, c_RBLX.stride()[:3], gh_RBLX.stride()[:3],
            *h_RBLX.shape[1:3], steps, *_shape(h_RBHK), CHUNK, num_warps=WARPS,
        )  # fmt: skip
    return written


@_scan_back.register_fake
def _written_back(
    c_RBLX: Tensor, h_RBHK: Tensor, h_RBLX: Tensor, gh_RBLX: Tensor, b_dtype: torch.dtype, steps: int
) -> tuple[Tensor, Tensor, Tensor]:
    return _room(c_RBLX, c_RBLX.dtype), _room(h_RBLX, b_dtype), _room(h_RBHK, h_RBHK.dtype)


def _keep(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, int], output: Tensor) -> None:
    c_RBLX, b_RBLX, h_RBHK, ctx.steps = inputs
    ctx.b_dtype = b_RBLX.dtype
    ctx.save_for_backward(c_RBLX, h_RBHK, output)


def _gradients(ctx: Any, gh_RBLX: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
    return *_scan_back(*ctx.saved_tensors, gh_RBLX, ctx.b_dtype, ctx.steps), None


_scan.register_autograd(_gradients, setup_context=_keep)


@_scan.register_vmap
def _replicated(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Tensor, int]:
    *tensors, steps = inputs
    return _scan(*fold_replicas(tensors, in_dims[:3], info.batch_size), steps).unflatten(0, (info.batch_size, -1)), 0


def _shape(h_RBHK: Tensor) -> tuple[int, int, int, int]:
    """H, K, the K that is a power of two, and how many heads a program has."""
    heads, block = h_RBHK.shape[2:]
    whole = triton.next_power_of_2(block)
    return heads, block, whole, max(1, min(triton.next_power_of_2(heads), NUMBERS // whole**2))


def _grid(h_RBHK: Tensor) -> tuple[int]:
    heads, _, _, tile = _shape(h_RBHK)
    return (h_RBHK.shape[0] * h_RBHK.shape[1] * triton.cdiv(heads, tile),)


def _room(like: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.empty(like.shape, dtype=dtype, device=like.device)


@triton.jit
def places(
    H: tl.constexpr, K: tl.constexpr, WHOLE: tl.constexpr, TILE: tl.constexpr
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """The row, where a program's blocks [heads, K, K] and numbers [heads, K] lie in a token's, and which are there."""
    TILES: tl.constexpr = (H + TILE - 1) // TILE
    head = tl.program_id(0) % TILES * TILE + tl.arange(0, TILE)
    k = tl.arange(0, WHOLE)
    at_b = head[:, None] * K + k[None, :]
    at_c = (head[:, None, None] * K + k[None, :, None]) * K + k[None, None, :]
    in_b = (head[:, None] < H) & (k[None, :] < K)
    in_c = (head[:, None, None] < H) & (k[None, :, None] < K) & (k[None, None, :] < K)
    return (tl.program_id(0) // TILES).to(tl.int64), at_c, at_b, in_c, in_b


@triton.jit(do_not_specialize=["parts", "length"])
def forward_kernel(
    c: tl.tensor,
    b: tl.tensor,
    first: tl.tensor,
    h: tl.tensor,
    of_c: tl.tuple,
    of_b: tl.tuple,
    parts: tl.tensor,
    length: tl.tensor,
    STEPS: tl.constexpr,
    H: tl.constexpr,
    K: tl.constexpr,
    WHOLE: tl.constexpr,
    TILE: tl.constexpr,
    CHUNK: tl.constexpr,
) -> None:
    row, at_c, at_b, in_c, in_b = places(H, K, WHOLE, TILE)
    c = begin(c, of_c, row, parts) + at_c
    b = begin(b, of_b, row, parts) + at_b
    h += row * length * H * K + at_b
    h_TK = read(first + row * H * K + at_b, in_b)
    start = 0
    while start < length:  # no range: under NumPy 2.4 Triton's interpreter has none of a number not known beforehand
        given = ()
        for k in tl.static_range(CHUNK):
            t = start + k
            given += ((read(c + t * of_c[2], in_c & (t < length)), read(b + t * of_b[2], in_b & (t < length))),)
        for k in tl.static_range(CHUNK):
            c_TKK, b_TK = given[k]
            h_TK += tl.sum(c_TKK * h_TK[:, None, :], 2) / STEPS + b_TK
            tl.store(h + (start + k) * H * K, h_TK, mask=in_b & (start + k < length))
        start += CHUNK


@triton.jit(do_not_specialize=["parts", "length"])
def backward_kernel(
    c: tl.tensor,
    first: tl.tensor,
    h: tl.tensor,
    gh: tl.tensor,
    gc: tl.tensor,
    gb: tl.tensor,
    gfirst: tl.tensor,
    of_c: tl.tuple,
    of_gh: tl.tuple,
    parts: tl.tensor,
    length: tl.tensor,
    STEPS: tl.constexpr,
    H: tl.constexpr,
    K: tl.constexpr,
    WHOLE: tl.constexpr,
    TILE: tl.constexpr,
    CHUNK: tl.constexpr,
) -> None:
    """Behind the end c and dL/dh count as 0, and so g stays 0 there."""
    row, at_c, at_b, in_c, in_b = places(H, K, WHOLE, TILE)
    c = begin(c, of_c, row, parts) + at_c
    gh = begin(gh, of_gh, row, parts) + at_b
    h, gb, gc = h + row * length * H * K + at_b, gb + row * length * H * K + at_b, gc + row * length * H * K * K + at_c
    first_TK = read(first + row * H * K + at_b, in_b)
    g_TK = tl.zeros_like(first_TK)  # (1 + C_{t+1} / S)^T g_{t+1}
    start = tl.cdiv(length, CHUNK) * CHUNK
    while start > 0:
        start -= CHUNK
        given = ()
        for k in tl.static_range(CHUNK):
            t = start + k
            there = t < length
            before_TK = tl.where(t > 0, read(h + (t - 1) * H * K, in_b & there & (t > 0)), first_TK)
            given += ((read(c + t * of_c[2], in_c & there), read(gh + t * of_gh[2], in_b & there), before_TK),)
        for k in tl.static_range(CHUNK - 1, -1, -1):
            t = start + k
            c_TKK, gh_TK, before_TK = given[k]
            g_TK += gh_TK
            write(gb + t * H * K, g_TK, in_b & (t < length))
            share_TK = g_TK / STEPS
            write(gc + t * H * K * K, share_TK[:, :, None] * before_TK[:, None, :], in_c & (t < length))
            g_TK += tl.sum(c_TKK * share_TK[:, :, None], 1)
    write(gfirst + row * H * K + at_b, g_TK, in_b)
