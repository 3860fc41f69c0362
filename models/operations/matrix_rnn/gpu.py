"""M2RNN's recurrence as two Triton kernels: `matrix_rnn_loop` of reference.py has the equations.

A program walks through a string's tokens for one head, with h [K, V] in registers and W on the chip, forwards or from
the end. Kept for the way back are all h; z is made again of them, which is a product more and half the memory. What W's
gradient has of a string is summed by its program, and over strings outside.

The host code is by hand: in a declaration (in_triton.py) all inputs have rows, where W is one for all of them.
"""
# pyright: reportIndexIssue=false
# (a kernel[grid] has no type where triton.jit has none)

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from chomsky_ladder.models.kernels.triton.memory import read
from chomsky_ladder.models.kernels.triton.recurrence import tanh
from chomsky_ladder.models.scans.replicas import fold_replicas, unfold_replicas

LEAST = 16  # of an axis of a product
WARPS = 4
PLACES = (1, 1, 1, 1, 0, 1)  # where replicas go: to heads, of which each has a W of its own


def triton_matrix_rnn(
    q_BLHK: Tensor, k_BLHK: Tensor, v_BLHV: Tensor, f_BLH: Tensor, W_HVV: Tensor, h_BHKV: Tensor
) -> tuple[Tensor, Tensor]:
    """Compute `matrix_rnn_loop` in fp32; it stacks under vmap."""
    given = (*(x.transpose(1, 2) for x in (q_BLHK, k_BLHK, v_BLHV, f_BLH)), W_HVV, h_BHKV)
    assert all(x.dtype == torch.float32 for x in given), "the kernel takes fp32 alone"
    y_BHLV, h_BHMKV = _scan(*given, torch.is_grad_enabled())
    return y_BHLV.transpose(1, 2), h_BHMKV[:, :, -1]


@torch.library.custom_op("chomsky_ladder::matrix_rnn", mutates_args=())
def _scan(
    q_BHLK: Tensor, k_BHLK: Tensor, v_BHLV: Tensor, f_BHL: Tensor, W_HVV: Tensor, h_BHKV: Tensor, kept: bool
) -> tuple[Tensor, Tensor]:
    """All y; and, if `kept`, all h, that before the first token among them, or else the last alone."""
    given = [x.contiguous() for x in (q_BHLK, k_BHLK, v_BHLV, f_BHL, W_HVV, h_BHKV)]
    y_BHLV, h_BHMKV = _written(*given, kept)
    with torch.cuda.device_of(y_BHLV):
        forward_kernel[h_BHKV.shape[0], h_BHKV.shape[1]](
            *given, y_BHLV, h_BHMKV, q_BHLK.shape[2], KEPT=kept, **_tiles(h_BHKV)
        )  # fmt: skip
    return y_BHLV, h_BHMKV


@_scan.register_fake
def _written(
    q_BHLK: Tensor, k_BHLK: Tensor, v_BHLV: Tensor, f_BHL: Tensor, W_HVV: Tensor, h_BHKV: Tensor, kept: bool
) -> tuple[Tensor, Tensor]:
    batch, heads, length = f_BHL.shape
    states = length + 1 if kept else 1
    return _room(v_BHLV.shape, v_BHLV), _room((batch, heads, states, *h_BHKV.shape[2:]), v_BHLV)


@torch.library.custom_op("chomsky_ladder::matrix_rnn_back", mutates_args=())
def _scan_back(
    q_BHLK: Tensor,
    k_BHLK: Tensor,
    v_BHLV: Tensor,
    f_BHL: Tensor,
    W_HVV: Tensor,
    h_BHMKV: Tensor,
    gy_BHLV: Tensor,
    gh_BHMKV: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The gradients of q, k, v, f, W and the first state; of all h the last alone is read by anybody else."""
    given = [x.contiguous() for x in (q_BHLK, k_BHLK, v_BHLV, f_BHL, W_HVV)]
    gq, gk, gv, gf = (_room(x.shape, x) for x in given[:4])
    of_each_BHVV, first = (_room((*h_BHMKV.shape[:2], *last), q_BHLK) for last in (W_HVV.shape[1:], h_BHMKV.shape[3:]))
    last_BHKV = gh_BHMKV[:, :, -1].contiguous()
    with torch.cuda.device_of(h_BHMKV):
        backward_kernel[h_BHMKV.shape[0], h_BHMKV.shape[1]](
            *given, W_HVV.mT.contiguous(), h_BHMKV, gy_BHLV.contiguous(), last_BHKV,
            *(gq, gk, gv, gf, of_each_BHVV, first, q_BHLK.shape[2]), **_tiles(last_BHKV),
        )  # fmt: skip
    return gq, gk, gv, gf, of_each_BHVV.sum(0), first


@_scan_back.register_fake
def _written_back(
    q_BHLK: Tensor,
    k_BHLK: Tensor,
    v_BHLV: Tensor,
    f_BHL: Tensor,
    W_HVV: Tensor,
    h_BHMKV: Tensor,
    gy_BHLV: Tensor,
    gh_BHMKV: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    q, k, v, f, W, h = (_room(x.shape, x) for x in (q_BHLK, k_BHLK, v_BHLV, f_BHL, W_HVV, h_BHMKV[:, :, 0]))
    return q, k, v, f, W, h


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs[:5], output[1])


def _gradients(ctx: Any, gy_BHLV: Tensor, gh_BHMKV: Tensor) -> tuple[Tensor | None, ...]:
    return *_scan_back(*ctx.saved_tensors, gy_BHLV, gh_BHMKV), None


_scan.register_autograd(_gradients, setup_context=_keep)


@_scan.register_vmap
def _replicated(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    """Replicas are so many more heads."""
    *tensors, kept = inputs
    outputs = _scan(*fold_replicas(tensors, in_dims[:-1], info.batch_size, places=PLACES), kept)
    return unfold_replicas(outputs, info.batch_size, places=(1, 1))


def _tiles(h_BHKV: Tensor) -> dict[str, int]:
    keys, values = h_BHKV.shape[2:]
    padded = {name: max(LEAST, triton.next_power_of_2(size)) for name, size in (("KP", keys), ("VP", values))}
    return {"K": keys, "V": values, **padded, "num_warps": WARPS}


def _room(shape: Sequence[int], like: Tensor) -> Tensor:
    return torch.empty(shape, dtype=torch.float32, device=like.device)


@triton.jit(do_not_specialize=["length"])
def forward_kernel(
    q: tl.tensor,
    k: tl.tensor,
    v: tl.tensor,
    f: tl.tensor,
    W: tl.tensor,
    first: tl.tensor,
    y: tl.tensor,
    h: tl.tensor,
    length: tl.tensor,
    K: tl.constexpr,
    V: tl.constexpr,
    KP: tl.constexpr,
    VP: tl.constexpr,
    KEPT: tl.constexpr,
) -> None:
    head = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * tl.num_programs(1) + head
    i, j = tl.arange(0, KP), tl.arange(0, VP)
    at = i[:, None] * V + j[None, :]
    there = (i < K)[:, None] & (j < V)[None, :]
    square = (j < V)[:, None] & (j < V)[None, :]
    W_VV = read(W + head * V * V + j[:, None] * V + j[None, :], square)
    h_KV = read(first + row * K * V + at, there)
    q, k = q + row * length * K + i, k + row * length * K + i
    v, y = v + row * length * V + j, y + row * length * V + j
    f += row * length
    if KEPT:
        h += row * (length + 1) * K * V + at
        tl.store(h, h_KV, mask=there)
    else:
        h += row * K * V + at
    t = 0
    while t < length:
        q_K, k_K, v_V = read(q + t * K, i < K), read(k + t * K, i < K), read(v + t * V, j < V)
        keeps = tl.load(f + t)
        z_KV = tanh(tl.dot(h_KV, W_VV, input_precision="ieee") + k_K[:, None] * v_V[None, :])
        h_KV = z_KV + keeps * (h_KV - z_KV)
        if KEPT:
            h += K * V
            tl.store(h, h_KV, mask=there)
        tl.store(y + t * V, tl.sum(q_K[:, None] * h_KV, 0), mask=j < V)
        t += 1
    if not KEPT:
        tl.store(h, h_KV, mask=there)


@triton.jit(do_not_specialize=["length"])
def backward_kernel(
    q: tl.tensor,
    k: tl.tensor,
    v: tl.tensor,
    f: tl.tensor,
    W: tl.tensor,
    turned: tl.tensor,
    h: tl.tensor,
    gy: tl.tensor,
    glast: tl.tensor,
    gq: tl.tensor,
    gk: tl.tensor,
    gv: tl.tensor,
    gf: tl.tensor,
    gW: tl.tensor,
    gfirst: tl.tensor,
    length: tl.tensor,
    K: tl.constexpr,
    V: tl.constexpr,
    KP: tl.constexpr,
    VP: tl.constexpr,
) -> None:
    head = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * tl.num_programs(1) + head
    i, j = tl.arange(0, KP), tl.arange(0, VP)
    at = i[:, None] * V + j[None, :]
    there = (i < K)[:, None] & (j < V)[None, :]
    of_W = j[:, None] * V + j[None, :]
    square = (j < V)[:, None] & (j < V)[None, :]
    W_VV, turned_VV = read(W + head * V * V + of_W, square), read(turned + head * V * V + of_W, square)
    gW_VV = tl.zeros((VP, VP), tl.float32)
    of_keys, of_values = row * length * K + i, row * length * V + j
    f, gf = f + row * length, gf + row * length
    h += (row * (length + 1) + length) * K * V + at
    h_KV = read(h, there)
    g_KV = read(glast + row * K * V + at, there)
    t = length
    while t > 0:
        t -= 1
        h -= K * V
        before_KV = read(h, there)
        q_K, k_K = read(q + of_keys + t * K, i < K), read(k + of_keys + t * K, i < K)
        v_V, gy_V = read(v + of_values + t * V, j < V), read(gy + of_values + t * V, j < V)
        keeps = tl.load(f + t)
        z_KV = tanh(tl.dot(before_KV, W_VV, input_precision="ieee") + k_K[:, None] * v_V[None, :])
        g_KV += q_K[:, None] * gy_V[None, :]
        d_KV = (1 - keeps) * (1 - z_KV * z_KV) * g_KV
        tl.store(gq + of_keys + t * K, tl.sum(h_KV * gy_V[None, :], 1), mask=i < K)
        tl.store(gk + of_keys + t * K, tl.sum(d_KV * v_V[None, :], 1), mask=i < K)
        tl.store(gv + of_values + t * V, tl.sum(d_KV * k_K[:, None], 0), mask=j < V)
        tl.store(gf + t, tl.sum(tl.sum((before_KV - z_KV) * g_KV, 1), 0))
        gW_VV = tl.dot(tl.trans(before_KV), d_KV, gW_VV, input_precision="ieee")
        g_KV = tl.dot(d_KV, turned_VV, keeps * g_KV, input_precision="ieee")
        h_KV = before_KV
    tl.store(gW + row * V * V + of_W, gW_VV, mask=square)
    tl.store(gfirst + row * K * V + at, g_KV, mask=there)
