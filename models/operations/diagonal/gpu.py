"""A linear recurrence in every channel as two Triton kernels: `scan_loop` of models/operations/diagonal/reference.py.

    h_t = a_t h_{t-1} + u_t        g_t = dL/dh_t + a_{t+1} g_{t+1}        dL/du_t = g_t        dL/da_t = g_t h_{t-1}

A program walks through time for one row and one tile of channels, forwards or from the end. What it reads may be a part
of something larger, or stand once for several rows: a position's channels alone must be side by side.

The host code is by hand: a declaration (in_triton.py) wants heads, where any axes may stand in front here.
"""
# pyright: reportIndexIssue=false, reportAssignmentType=false
# (a kernel[grid] has no type where triton.jit has none, nor what a tuple holds that grows in a loop)

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from chomsky_ladder.models.kernels.triton.memory import begin, read, together, write
from chomsky_ladder.models.scans.replicas import fold_replicas

CHUNK = 8  # positions that are read before anything is written, behind which no read is brought forward
TILE = 128


def triton_diagonal(a: Tensor, u: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    """Compute `scan_loop` in fp32 for fp32 or bf16, with any axes in front of [L, D]; it stacks under vmap."""
    assert all(x.dtype in (torch.float32, torch.bfloat16) for x in (a, u, h)), "the kernel takes fp32 and bf16 alone"
    a_RPLD, u_RPLD = (_two_in_front(together(x.expand_as(u))) for x in (a, u))
    h_RPLD = _scan(a_RPLD, u_RPLD, _two_in_front(h.expand(u.shape[:-2] + u.shape[-1:])[..., None, :])[..., 0, :])
    h_all = h_RPLD.reshape(u.shape)
    return h_all, h_all[..., -1, :]


@torch.library.custom_op("chomsky_ladder::diagonal", mutates_args=())
def _scan(a_RPLD: Tensor, u_RPLD: Tensor, h_RPD: Tensor) -> Tensor:
    """Replicas, which what vmap adds folds into, are so many more rows."""
    written_RPLD, a_RPLD, u_RPLD = _written(a_RPLD, u_RPLD, h_RPD), together(a_RPLD), together(u_RPLD)
    with torch.cuda.device_of(u_RPLD):
        forward_kernel[_grid(u_RPLD)](
            a_RPLD, u_RPLD, h_RPD.contiguous(), written_RPLD, a_RPLD.stride()[:3], u_RPLD.stride()[:3],
            *u_RPLD.shape[1:], TILE, CHUNK, num_warps=1,
        )  # fmt: skip
    return written_RPLD


@_scan.register_fake
def _written(a_RPLD: Tensor, u_RPLD: Tensor, h_RPD: Tensor) -> Tensor:
    return _room(u_RPLD, torch.float32)


@torch.library.custom_op("chomsky_ladder::diagonal_back", mutates_args=())
def _scan_back(
    a_RPLD: Tensor, h_RPD: Tensor, h_RPLD: Tensor, gh_RPLD: Tensor, u_dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of a, u and the first state."""
    written, a_RPLD = _written_back(a_RPLD, h_RPD, h_RPLD, gh_RPLD, u_dtype), together(a_RPLD)
    gh_RPLD = together(gh_RPLD)
    with torch.cuda.device_of(h_RPLD):
        backward_kernel[_grid(h_RPLD)](
            a_RPLD, h_RPD.contiguous(), h_RPLD, gh_RPLD, *written, a_RPLD.stride()[:3], gh_RPLD.stride()[:3],
            *h_RPLD.shape[1:], TILE, CHUNK, num_warps=1,
        )  # fmt: skip
    return written


@_scan_back.register_fake
def _written_back(
    a_RPLD: Tensor, h_RPD: Tensor, h_RPLD: Tensor, gh_RPLD: Tensor, u_dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    return _room(h_RPLD, a_RPLD.dtype), _room(h_RPLD, u_dtype), _room(h_RPLD[:, :, 0], h_RPD.dtype)


def _keep(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
    a_RPLD, u_RPLD, h_RPD = inputs
    ctx.u_dtype = u_RPLD.dtype
    ctx.save_for_backward(a_RPLD, h_RPD, output)


def _gradients(ctx: Any, gh_RPLD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return _scan_back(*ctx.saved_tensors, gh_RPLD, ctx.u_dtype)


_scan.register_autograd(_gradients, setup_context=_keep)


@_scan.register_vmap
def _replicated(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[Tensor, int]:
    return _scan(*fold_replicas(inputs, in_dims, info.batch_size)).unflatten(0, (info.batch_size, -1)), 0


def _two_in_front(x: Tensor) -> Tensor:
    """[R, P, L, D] of any number of axes in front, without a copy where there are one or two."""
    return x[:, None] if x.dim() == 3 else x.flatten(0, x.dim() - 4) if x.dim() > 4 else x


def _grid(x_RPLD: Tensor) -> tuple[int]:
    return (x_RPLD.shape[0] * x_RPLD.shape[1] * triton.cdiv(x_RPLD.shape[3], TILE),)


def _room(like: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.empty(like.shape, dtype=dtype, device=like.device)


@triton.jit(do_not_specialize=["parts", "length"])
def forward_kernel(
    a: tl.tensor,
    u: tl.tensor,
    first: tl.tensor,
    h: tl.tensor,
    of_a: tl.tuple,
    of_u: tl.tuple,
    parts: tl.tensor,
    length: tl.tensor,
    D: tl.constexpr,
    TILE: tl.constexpr,
    CHUNK: tl.constexpr,
) -> None:
    TILES: tl.constexpr = (D + TILE - 1) // TILE
    row = (tl.program_id(0) // TILES).to(tl.int64)
    d = tl.program_id(0) % TILES * TILE + tl.arange(0, TILE)
    a = begin(a, of_a, row, parts) + d
    u = begin(u, of_u, row, parts) + d
    h += row * length * D + d
    h_D = read(first + row * D + d, d < D)
    start = 0
    while start < length:  # no range: under NumPy 2.4 Triton's interpreter has none of a number not known beforehand
        given = ()
        for k in tl.static_range(CHUNK):
            t = start + k
            there = (d < D) & (t < length)
            given += ((read(a + t * of_a[2], there), read(u + t * of_u[2], there)),)
        for k in tl.static_range(CHUNK):
            a_D, u_D = given[k]
            h_D = a_D * h_D + u_D
            tl.store(h + (start + k) * D, h_D, mask=(d < D) & (start + k < length))
        start += CHUNK


@triton.jit(do_not_specialize=["parts", "length"])
def backward_kernel(
    a: tl.tensor,
    first: tl.tensor,
    h: tl.tensor,
    gh: tl.tensor,
    ga: tl.tensor,
    gu: tl.tensor,
    gfirst: tl.tensor,
    of_a: tl.tuple,
    of_gh: tl.tuple,
    parts: tl.tensor,
    length: tl.tensor,
    D: tl.constexpr,
    TILE: tl.constexpr,
    CHUNK: tl.constexpr,
) -> None:
    """Behind the end a and dL/dh count as 0, and so g stays 0 there."""
    TILES: tl.constexpr = (D + TILE - 1) // TILE
    row = (tl.program_id(0) // TILES).to(tl.int64)
    d = tl.program_id(0) % TILES * TILE + tl.arange(0, TILE)
    a = begin(a, of_a, row, parts) + d
    gh = begin(gh, of_gh, row, parts) + d
    h, ga, gu = h + row * length * D + d, ga + row * length * D + d, gu + row * length * D + d
    first_D = read(first + row * D + d, d < D)
    carried_D = tl.zeros_like(first_D)  # a_{t+1} g_{t+1}
    start = tl.cdiv(length, CHUNK) * CHUNK
    while start > 0:
        start -= CHUNK
        given = ()
        for k in tl.static_range(CHUNK):
            t = start + k
            there = (d < D) & (t < length)
            before_D = tl.where(t > 0, read(h + (t - 1) * D, there & (t > 0)), first_D)
            given += ((read(a + t * of_a[2], there), read(gh + t * of_gh[2], there), before_D),)
        for k in tl.static_range(CHUNK - 1, -1, -1):
            t = start + k
            there = (d < D) & (t < length)
            a_D, gh_D, before_D = given[k]
            g_D = gh_D + carried_D
            write(gu + t * D, g_D, there)
            write(ga + t * D, g_D * before_D, there)
            carried_D = a_D * g_D
    write(gfirst + row * D + d, carried_D, d < D)
