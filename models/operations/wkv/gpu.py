"""RWKV-4's weighted average as two Triton kernels: `wkv` of reference.py.

    y_t = (a_t n_{t-1} + b_t v_t) / (a_t d_{t-1} + b_t)        a_t = e^(m_{t-1} - p_t), b_t = e^(k_t + u - p_t)
    n_t = c_t n_{t-1} + e_t v_t, d_t = c_t d_{t-1} + e_t        c_t = e^(m_{t-1} - r - m_t), e_t = e^(k_t - m_t)

with p_t = max(m_{t-1}, k_t + u) and m_t = max(m_{t-1} - r, k_t), which cancel and get no gradient. A program walks
through time for one string and one tile of channels, forwards or from the end; kept are n, d and m before every `CHUNK`
tokens. Back, with N and D of y = N / D, and G, H the gradients of n_t and d_t:

    dN = dy / D, dD = -y dN        db = v dN + dD, de = v G + H, dc = n G + d H        dk = b db + e de, du = b db
    dv = b dN + e G        dr = -c dc        G <- c G + a dN, H <- c H + a dD

The gradients of r and u, every string's, are summed outside. Inside all is fp32; y has the precision of k.

The host code is by hand: in a declaration (in_triton.py) all inputs have rows, where rates and bonus are one for all of
them, and outputs are in fp32.
"""
# pyright: reportIndexIssue=false, reportAssignmentType=false, reportOptionalMemberAccess=false
# (a kernel[grid] has no type where triton.jit has none, nor what a tuple holds that grows in a loop)

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from chomsky_ladder.models.block import State
from chomsky_ladder.models.kernels.triton.memory import begin, each_together, read, together, write
from chomsky_ladder.models.scans.replicas import fold_replicas, unfold_replicas

CHUNK = 4  # tokens that are read before anything is written, behind which no read is brought forward
TILE = 128


def triton_wkv(
    k_BLD: Tensor, v_BLD: Tensor, rate_D: Tensor, bonus_D: Tensor, state: State
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Compute `wkv` of k and v in fp32 or bf16; it stacks under vmap."""
    given = (k_BLD, v_BLD, rate_D, bonus_D, *state)
    assert all(x.dtype in (torch.float32, torch.bfloat16) for x in given[:2]), "the kernel takes fp32 and bf16 alone"
    assert all(x.dtype == torch.float32 for x in given[2:]), "rates, bonus and state are in fp32"
    y_RBLD, sums_RB2D, top_RBD, _ = _average(*(x[None] for x in given), torch.is_grad_enabled())
    return y_RBLD[0], (sums_RB2D[0], top_RBD[0])


@torch.library.custom_op("chomsky_ladder::wkv", mutates_args=())
def _average(
    k_RBLD: Tensor, v_RBLD: Tensor, rate_RD: Tensor, bonus_RD: Tensor, sums_RB2D: Tensor, top_RBD: Tensor, keep: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """All y, the last state, and n, d and m before every chunk: none, unless a backward pass is to come.

    With an axis R in front, of replicas: what vmap adds folds into it.
    """
    k_RBLD, v_RBLD = together(k_RBLD), together(v_RBLD)
    of_all = [each_together(x) for x in (rate_RD, bonus_RD, sums_RB2D, top_RBD)]
    written = _written(k_RBLD, v_RBLD, *of_all, keep)
    with torch.cuda.device_of(k_RBLD):
        forward_kernel[_grid(k_RBLD)](
            k_RBLD, v_RBLD, *of_all, *written, k_RBLD.stride()[:3], v_RBLD.stride()[:3],
            *(x.stride()[:1] for x in of_all), *k_RBLD.shape[1:], keep, TILE, CHUNK, num_warps=1,
        )  # fmt: skip
    return written


@_average.register_fake
def _written(
    k_RBLD: Tensor, v_RBLD: Tensor, rate_RD: Tensor, bonus_RD: Tensor, sums_RB2D: Tensor, top_RBD: Tensor, keep: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    replicas, batch, length, channels = k_RBLD.shape
    starts = (replicas, batch, triton.cdiv(length, CHUNK) if keep else 0, 3, channels)
    return (
        _room(k_RBLD.shape, k_RBLD), _room(sums_RB2D.shape, top_RBD), _room(top_RBD.shape, top_RBD),
        _room(starts, top_RBD),
    )  # fmt: skip


@torch.library.custom_op("chomsky_ladder::wkv_back", mutates_args=())
def _average_back(
    k_RBLD: Tensor, v_RBLD: Tensor, rate_RD: Tensor, bonus_RD: Tensor, starts: Tensor, gy_RBLD: Tensor, glast: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of k, v, every string's rates and bonus, and of n and d before the first token."""
    k_RBLD, v_RBLD, gy_RBLD = together(k_RBLD), together(v_RBLD), together(gy_RBLD)
    rate_RD, bonus_RD, glast = each_together(rate_RD), each_together(bonus_RD), glast.contiguous()
    written = _written_back(k_RBLD, v_RBLD, rate_RD, bonus_RD, starts, gy_RBLD, glast)
    with torch.cuda.device_of(k_RBLD):
        backward_kernel[_grid(k_RBLD)](
            k_RBLD, v_RBLD, rate_RD, bonus_RD, starts, gy_RBLD, glast, *written,
            *(x.stride()[:3] for x in (k_RBLD, v_RBLD, gy_RBLD)), rate_RD.stride()[:1], bonus_RD.stride()[:1],
            *k_RBLD.shape[1:], TILE, CHUNK, num_warps=1,
        )  # fmt: skip
    return written


@_average_back.register_fake
def _written_back(
    k_RBLD: Tensor, v_RBLD: Tensor, rate_RD: Tensor, bonus_RD: Tensor, starts: Tensor, gy_RBLD: Tensor, glast: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    replicas, batch, _, channels = k_RBLD.shape
    of_each, first = (_room((replicas, batch, 2, channels), starts) for _ in range(2))
    return _room(k_RBLD.shape, k_RBLD), _room(v_RBLD.shape, v_RBLD), of_each, first


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    _, _, top_RBD, starts = output
    ctx.mark_non_differentiable(top_RBD, starts)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:4], starts)


def _gradients(ctx: Any, gy_RBLD: Tensor | None, glast_RB2D: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
    k_RBLD, *_, starts = ctx.saved_tensors
    gy_RBLD = torch.zeros_like(k_RBLD) if gy_RBLD is None else gy_RBLD
    glast_RB2D = torch.zeros_like(starts[:, :, 0, :2]) if glast_RB2D is None else glast_RB2D
    gk, gv, of_each, first = _average_back(*ctx.saved_tensors, gy_RBLD, glast_RB2D)
    return gk, gv, *of_each.sum(1).unbind(1), first, None, None


_average.register_autograd(_gradients, setup_context=_keep)


@_average.register_vmap
def _replicated(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    *tensors, keep = inputs
    outputs = _average(*fold_replicas(tensors, in_dims[:-1], info.batch_size), keep)
    return unfold_replicas(outputs, info.batch_size)


def _grid(k_RBLD: Tensor) -> tuple[int]:
    return (k_RBLD.shape[0] * k_RBLD.shape[1] * triton.cdiv(k_RBLD.shape[3], TILE),)


def _room(shape: Sequence[int], like: Tensor) -> Tensor:
    return torch.empty(shape, dtype=like.dtype, device=like.device)


@triton.jit
def _shares(k_D: tl.tensor, top_D: tl.tensor, rate_D: tl.tensor, bonus_D: tl.tensor) -> tl.tuple:
    """a and b of y, c and e of what is kept, and the largest exponent after the token."""
    peak_D = tl.maximum(top_D, k_D + bonus_D)
    after_D = tl.maximum(top_D - rate_D, k_D)
    of_y = tl.exp(top_D - peak_D), tl.exp(k_D + bonus_D - peak_D)
    return of_y[0], of_y[1], tl.exp(top_D - rate_D - after_D), tl.exp(k_D - after_D), after_D


@triton.jit(do_not_specialize=["batch", "length"])
def forward_kernel(
    k: tl.tensor,
    v: tl.tensor,
    rate: tl.tensor,
    bonus: tl.tensor,
    sums: tl.tensor,
    top: tl.tensor,
    y: tl.tensor,
    last: tl.tensor,
    last_top: tl.tensor,
    starts: tl.tensor,
    of_k: tl.tuple,
    of_v: tl.tuple,
    of_rate: tl.tuple,
    of_bonus: tl.tuple,
    of_sums: tl.tuple,
    of_top: tl.tuple,
    batch: tl.tensor,
    length: tl.tensor,
    D: tl.constexpr,
    KEEP: tl.constexpr,
    TILE: tl.constexpr,
    CHUNK: tl.constexpr,
) -> None:
    TILES: tl.constexpr = (D + TILE - 1) // TILE
    row = (tl.program_id(0) // TILES).to(tl.int64)
    d = tl.program_id(0) % TILES * TILE + tl.arange(0, TILE)
    in_D = d < D
    k, v = begin(k, of_k, row, batch) + d, begin(v, of_v, row, batch) + d
    y += row * length * D + d
    starts += row * tl.cdiv(length, CHUNK) * 3 * D + d
    rate_D = read(rate + row // batch * of_rate[0] + d, in_D)
    bonus_D = read(bonus + row // batch * of_bonus[0] + d, in_D)
    sums += row // batch * of_sums[0] + row % batch * 2 * D + d
    n_D, d_D = read(sums, in_D), read(sums + D, in_D)
    top_D = read(top + row // batch * of_top[0] + row % batch * D + d, in_D)
    start = 0
    while start < length:  # no range: under NumPy 2.4 Triton's interpreter has none of a number not known beforehand
        if KEEP:
            at = starts + start // CHUNK * 3 * D
            tl.store(at, n_D, mask=in_D)
            tl.store(at + D, d_D, mask=in_D)
            tl.store(at + 2 * D, top_D, mask=in_D)
        given = ()
        for j in tl.static_range(CHUNK):
            t = start + j
            there = in_D & (t < length)
            given += ((read(k + t * of_k[2], there), read(v + t * of_v[2], there)),)
        for j in tl.static_range(CHUNK):
            k_D, v_D = given[j]
            there = in_D & (start + j < length)
            a_D, b_D, c_D, e_D, after_D = _shares(k_D, top_D, rate_D, bonus_D)
            write(y + (start + j) * D, (a_D * n_D + b_D * v_D) / (a_D * d_D + b_D), there)
            n_D = tl.where(there, c_D * n_D + e_D * v_D, n_D)
            d_D = tl.where(there, c_D * d_D + e_D, d_D)
            top_D = tl.where(there, after_D, top_D)
        start += CHUNK
    tl.store(last + row * 2 * D + d, n_D, mask=in_D)
    tl.store(last + (row * 2 + 1) * D + d, d_D, mask=in_D)
    tl.store(last_top + row * D + d, top_D, mask=in_D)


@triton.jit(do_not_specialize=["batch", "length"])
def backward_kernel(
    k: tl.tensor,
    v: tl.tensor,
    rate: tl.tensor,
    bonus: tl.tensor,
    starts: tl.tensor,
    gy: tl.tensor,
    glast: tl.tensor,
    gk: tl.tensor,
    gv: tl.tensor,
    gboth: tl.tensor,
    gfirst: tl.tensor,
    of_k: tl.tuple,
    of_v: tl.tuple,
    of_gy: tl.tuple,
    of_rate: tl.tuple,
    of_bonus: tl.tuple,
    batch: tl.tensor,
    length: tl.tensor,
    D: tl.constexpr,
    TILE: tl.constexpr,
    CHUNK: tl.constexpr,
) -> None:
    """Tokens behind the end leave the gradients of n and d as they are."""
    TILES: tl.constexpr = (D + TILE - 1) // TILE
    row = (tl.program_id(0) // TILES).to(tl.int64)
    d = tl.program_id(0) % TILES * TILE + tl.arange(0, TILE)
    in_D = d < D
    k, v = begin(k, of_k, row, batch) + d, begin(v, of_v, row, batch) + d
    gy = begin(gy, of_gy, row, batch) + d
    gk, gv = gk + row * length * D + d, gv + row * length * D + d
    starts += row * tl.cdiv(length, CHUNK) * 3 * D + d
    rate_D = read(rate + row // batch * of_rate[0] + d, in_D)
    bonus_D = read(bonus + row // batch * of_bonus[0] + d, in_D)
    gn_D, gd_D = read(glast + row * 2 * D + d, in_D), read(glast + (row * 2 + 1) * D + d, in_D)
    grate_D, gbonus_D = tl.zeros((TILE,), tl.float32), tl.zeros((TILE,), tl.float32)
    start = tl.cdiv(length, CHUNK) * CHUNK
    while start > 0:
        start -= CHUNK
        at = starts + start // CHUNK * 3 * D
        n_D, d_D, top_D = read(at, in_D), read(at + D, in_D), read(at + 2 * D, in_D)
        given, before = (), ()
        for j in tl.static_range(CHUNK):
            t = start + j
            there = in_D & (t < length)
            given += ((read(k + t * of_k[2], there), read(v + t * of_v[2], there), read(gy + t * of_gy[2], there)),)
        for j in tl.static_range(CHUNK):
            k_D, v_D, _ = given[j]
            before += ((n_D, d_D, top_D),)
            _, _, c_D, e_D, top_D = _shares(k_D, top_D, rate_D, bonus_D)
            n_D, d_D = c_D * n_D + e_D * v_D, c_D * d_D + e_D
        for j in tl.static_range(CHUNK - 1, -1, -1):
            k_D, v_D, gy_D = given[j]
            n_D, d_D, top_D = before[j]
            there = in_D & (start + j < length)
            a_D, b_D, c_D, e_D, _ = _shares(k_D, top_D, rate_D, bonus_D)
            over_D = 1 / (a_D * d_D + b_D)
            of_n_D = gy_D * over_D
            of_d_D = -of_n_D * (a_D * n_D + b_D * v_D) * over_D
            of_b_D, of_e_D = b_D * (v_D * of_n_D + of_d_D), e_D * (v_D * gn_D + gd_D)
            write(gk + (start + j) * D, of_b_D + of_e_D, there)
            write(gv + (start + j) * D, b_D * of_n_D + e_D * gn_D, there)
            gbonus_D += tl.where(there, of_b_D, 0.0)
            grate_D -= tl.where(there, c_D * (n_D * gn_D + d_D * gd_D), 0.0)
            gn_D = tl.where(there, c_D * gn_D + a_D * of_n_D, gn_D)
            gd_D = tl.where(there, c_D * gd_D + a_D * of_d_D, gd_D)
    tl.store(gboth + row * 2 * D + d, grate_D, mask=in_D)
    tl.store(gboth + (row * 2 + 1) * D + d, gbonus_D, mask=in_D)
    tl.store(gfirst + row * 2 * D + d, gn_D, mask=in_D)
    tl.store(gfirst + (row * 2 + 1) * D + d, gd_D, mask=in_D)
