"""Decayed linear attention of short strings as two Triton kernels, forward and backward: `decayed_pairs` of
models/scans/chunked.py.

    y_t = sum_{s <= t} D_ts (q_t . k_s) v_s        log D_ts the sum of log a over s < i <= t
    P = q k^T D, G = dy v^T        dv = P^T dy        dq = (G D) k        dk = (G D)^T q        dlog D = G P

A program has one head of one string, up to 64 tokens, so that nothing of pairs of tokens leaves the chip; q, k, v and
the decays alone are kept for the way back. Every pair has a sum of logarithms of its own, as in the plain form. Of bf16
y and the gradients of q, k and v are rounded, and P and G D are multiplied in two parts of 16 bits.

The host code is by hand: outputs of a declaration (in_triton.py) are in fp32, where y has the precision of v.
"""
# pyright: reportIndexIssue=false
# (a kernel[grid] has no type where triton.jit has none)

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from chomsky_ladder.models.kernels.triton.memory import by_token, read, together, write
from chomsky_ladder.models.kernels.triton.pairs import (
    BLOCK,
    MOST,
    WARPS,
    channels,
    in_parts,
    product,
    sums_between,
    sums_between_back,
    tokens_of,
)
from chomsky_ladder.models.scans.replicas import fold_replicas


def triton_decayed(q_BHLK: Tensor, k_BHLK: Tensor, v_BHLV: Tensor, log_decay_BHL: Tensor) -> Tensor:
    """Compute `decayed_pairs` with q, k and v in one of fp32 and bf16, and decays in fp32; it stacks under vmap."""
    assert q_BHLK.dtype == k_BHLK.dtype == v_BHLV.dtype in BLOCK, "the kernel takes fp32 and bf16 alone"
    assert log_decay_BHL.dtype == torch.float32, "decays are in fp32"
    assert q_BHLK.shape[2] <= MOST, f"the kernel takes no more than {MOST} tokens"
    rows = v_BHLV.shape[:2]
    q_BHLK, k_BHLK, log_decay_BHL = (x.expand(*rows, *x.shape[2:]) for x in (q_BHLK, k_BHLK, log_decay_BHL))
    return _attend(*(x[None] for x in (q_BHLK, k_BHLK, v_BHLV, log_decay_BHL)))[0]


@torch.library.custom_op("chomsky_ladder::decayed_pairs", mutates_args=())
def _attend(q_RBHLK: Tensor, k_RBHLK: Tensor, v_RBHLV: Tensor, decay_RBHL: Tensor) -> Tensor:
    """With an axis R in front, of replicas: what vmap adds folds into it."""
    given = [together(q_RBHLK), together(k_RBHLK), together(v_RBHLV), decay_RBHL]
    y_RBHLV = _written(*given)
    strides = [x.stride()[:4] for x in (*given, y_RBHLV)]
    with torch.cuda.device_of(y_RBHLV):
        forward_kernel[_grid(decay_RBHL)](*given, y_RBHLV, *strides, *_sizes(decay_RBHL), **_tiles(*given))
    return y_RBHLV


@_attend.register_fake
def _written(q_RBHLK: Tensor, k_RBHLK: Tensor, v_RBHLV: Tensor, decay_RBHL: Tensor) -> Tensor:
    return by_token(_room, v_RBHLV.shape, v_RBHLV)


@torch.library.custom_op("chomsky_ladder::decayed_pairs_back", mutates_args=())
def _attend_back(
    q_RBHLK: Tensor, k_RBHLK: Tensor, v_RBHLV: Tensor, decay_RBHL: Tensor, gy_RBHLV: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of q, k, v and the decays' logarithms."""
    given = [together(q_RBHLK), together(k_RBHLK), together(v_RBHLV), decay_RBHL]
    gy_RBHLV = together(gy_RBHLV)
    written = _written_back(*given, gy_RBHLV)
    strides = [x.stride()[:4] for x in (*given, gy_RBHLV, *written)]
    with torch.cuda.device_of(gy_RBHLV):
        backward_kernel[_grid(decay_RBHL)](
            *given, gy_RBHLV, *written, *strides, *_sizes(decay_RBHL), **_tiles(*given)
        )  # fmt: skip
    return written


@_attend_back.register_fake
def _written_back(
    q_RBHLK: Tensor, k_RBHLK: Tensor, v_RBHLV: Tensor, decay_RBHL: Tensor, gy_RBHLV: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    d_q, d_k, d_v = (by_token(_room, x.shape, x) for x in (q_RBHLK, k_RBHLK, v_RBHLV))
    return d_q, d_k, d_v, _room(decay_RBHL.shape, decay_RBHL)


def _keep(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _gradients(ctx: Any, gy_RBHLV: Tensor) -> tuple[Tensor, ...]:
    return _attend_back(*ctx.saved_tensors, gy_RBHLV)


_attend.register_autograd(_gradients, setup_context=_keep)


@_attend.register_vmap
def _replicated(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[Tensor, int]:
    return _attend(*fold_replicas(inputs, in_dims, info.batch_size)).unflatten(0, (info.batch_size, -1)), 0


def _grid(decay_RBHL: Tensor) -> tuple[int]:
    replicas, batch, heads, _ = decay_RBHL.shape
    return (replicas * batch * heads,)


def _sizes(decay_RBHL: Tensor) -> tuple[int, ...]:
    return tuple(decay_RBHL.shape[1:])


def _tiles(q_RBHLK: Tensor, k_RBHLK: Tensor, v_RBHLV: Tensor, decay_RBHL: Tensor) -> dict[str, int]:
    return tiles(q_RBHLK.shape[4], v_RBHLV.shape[4], q_RBHLK.shape[3], q_RBHLK.dtype)


def tiles(keys: int, values: int, length: int, dtype: torch.dtype) -> dict[str, int]:
    """The kernels' constants and warps."""
    constants = {"K": keys, "V": values, "BLOCK": BLOCK[dtype], "TOKENS": tokens_of(length)}
    return constants | {"num_warps": WARPS[dtype]}


def _room(shape: Sequence[int], like: Tensor) -> Tensor:
    return torch.empty(shape, dtype=like.dtype, device=like.device)


@triton.jit
def _at(x: tl.tensor, strides: tl.tuple, batch: tl.tensor, heads: tl.tensor, t: tl.tensor) -> tl.tensor:
    """Where this program's head has its tokens."""
    line, head = (tl.program_id(0) // heads).to(tl.int64), tl.program_id(0) % heads
    return x + line // batch * strides[0] + line % batch * strides[1] + head * strides[2] + t * strides[3]


@triton.jit(do_not_specialize=["batch", "heads", "length"])
def forward_kernel(
    q: tl.tensor,
    k: tl.tensor,
    v: tl.tensor,
    decay: tl.tensor,
    y: tl.tensor,
    of_q: tl.tuple,
    of_k: tl.tuple,
    of_v: tl.tuple,
    of_decay: tl.tuple,
    of_y: tl.tuple,
    batch: tl.tensor,
    heads: tl.tensor,
    length: tl.tensor,
    K: tl.constexpr,
    V: tl.constexpr,
    BLOCK: tl.constexpr,
    TOKENS: tl.constexpr,
) -> None:
    t = tl.arange(0, TOKENS)
    in_T = t < length
    q, k, v = _at(q, of_q, batch, heads, t), _at(k, of_k, batch, heads, t), _at(v, of_v, batch, heads, t)
    y = _at(y, of_y, batch, heads, t)
    pairs = tl.zeros((TOKENS, TOKENS), tl.float32)
    for start in tl.range(0, K, BLOCK, num_stages=1):
        at_q, there = channels(q, in_T, start, K, BLOCK)
        at_k, there = channels(k, in_T, start, K, BLOCK)
        pairs += product(tl.load(at_q, mask=there, other=0.0), tl.trans(tl.load(at_k, mask=there, other=0.0)))
    pairs *= tl.exp(sums_between(read(_at(decay, of_decay, batch, heads, t), in_T), t))
    for start in tl.range(0, V, BLOCK, num_stages=1):
        at_v, there = channels(v, in_T, start, V, BLOCK)
        at_y, there = channels(y, in_T, start, V, BLOCK)
        write(at_y, in_parts(pairs, tl.load(at_v, mask=there, other=0.0)), there)


@triton.jit(do_not_specialize=["batch", "heads", "length"])
def backward_kernel(
    q: tl.tensor,
    k: tl.tensor,
    v: tl.tensor,
    decay: tl.tensor,
    gy: tl.tensor,
    gq: tl.tensor,
    gk: tl.tensor,
    gv: tl.tensor,
    gdecay: tl.tensor,
    of_q: tl.tuple,
    of_k: tl.tuple,
    of_v: tl.tuple,
    of_decay: tl.tuple,
    of_gy: tl.tuple,
    of_gq: tl.tuple,
    of_gk: tl.tuple,
    of_gv: tl.tuple,
    of_gdecay: tl.tuple,
    batch: tl.tensor,
    heads: tl.tensor,
    length: tl.tensor,
    K: tl.constexpr,
    V: tl.constexpr,
    BLOCK: tl.constexpr,
    TOKENS: tl.constexpr,
) -> None:
    t = tl.arange(0, TOKENS)
    in_T = t < length
    q, k, v = _at(q, of_q, batch, heads, t), _at(k, of_k, batch, heads, t), _at(v, of_v, batch, heads, t)
    gq, gk, gv = _at(gq, of_gq, batch, heads, t), _at(gk, of_gk, batch, heads, t), _at(gv, of_gv, batch, heads, t)
    gy = _at(gy, of_gy, batch, heads, t)
    pairs, gpairs = tl.zeros((TOKENS, TOKENS), tl.float32), tl.zeros((TOKENS, TOKENS), tl.float32)
    for start in tl.range(0, K, BLOCK, num_stages=1):
        at_q, there = channels(q, in_T, start, K, BLOCK)
        at_k, there = channels(k, in_T, start, K, BLOCK)
        pairs += product(tl.load(at_q, mask=there, other=0.0), tl.trans(tl.load(at_k, mask=there, other=0.0)))
    for start in tl.range(0, V, BLOCK, num_stages=1):
        at_v, there = channels(v, in_T, start, V, BLOCK)
        at_gy, there = channels(gy, in_T, start, V, BLOCK)
        gpairs += product(tl.load(at_gy, mask=there, other=0.0), tl.trans(tl.load(at_v, mask=there, other=0.0)))
    D = tl.exp(sums_between(read(_at(decay, of_decay, batch, heads, t), in_T), t))
    pairs *= D
    tl.store(_at(gdecay, of_gdecay, batch, heads, t), sums_between_back(gpairs * pairs, t), mask=in_T)
    gpairs *= D
    for start in tl.range(0, V, BLOCK, num_stages=1):
        at_gy, there = channels(gy, in_T, start, V, BLOCK)
        at_gv, there = channels(gv, in_T, start, V, BLOCK)
        write(at_gv, in_parts(tl.trans(pairs), tl.load(at_gy, mask=there, other=0.0)), there)
    for start in tl.range(0, K, BLOCK, num_stages=1):
        at_q, there = channels(q, in_T, start, K, BLOCK)
        at_k, there = channels(k, in_T, start, K, BLOCK)
        at_gq, there = channels(gq, in_T, start, K, BLOCK)
        at_gk, there = channels(gk, in_T, start, K, BLOCK)
        write(at_gq, in_parts(gpairs, tl.load(at_k, mask=there, other=0.0)), there)
        write(at_gk, in_parts(tl.trans(gpairs), tl.load(at_q, mask=there, other=0.0)), there)
