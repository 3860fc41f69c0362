"""`gru_scan` (models/scans/recurrences.py) as two Triton kernels: all steps forward, all steps back.

    r, z = s(x W_rz + h U_rz^T)        m = h U_n^T + b_n        n = tanh(x W_n + r m)        h' = n + z (h - n)

As models/operations/recurrent/gpu_lstm.py, which says more: a program has 16 rows of one replica, h in registers.
Forward keeps r, z, n and m of each step in fp32 for the backward pass, which writes the gradient of the gates and that
of m; those of U and b_n are made of them outside.
"""
# pyright: reportIndexIssue=false
# (a kernel[grid] has no type where triton.jit has none)

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import linear

from chomsky_ladder.models.kernels.triton.recurrence import (
    ROWS,
    Precision,
    common_dtype,
    empty,
    load_four,
    load_matrix,
    recurrent_gradient,
    rows_together,
    settings,
    sigmoid,
    store_four,
    stream,
    tanh,
    to_multiply_by,
)
from chomsky_ladder.models.scans.replicas import fold_replicas, unfold_replicas


def triton_gru(
    x_BLD: Tensor, h_BD: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias: Tensor, bias_n: Tensor
) -> tuple[Tensor, Tensor]:
    """Compute `gru_layer`, with x W of all steps in one product; it stacks under vmap."""
    return triton_gru_scan(linear(x_BLD, weight_ih, bias), h_BD, weight_hh, bias_n)


def triton_gru_scan(
    gates_BLG: Tensor, h_BD: Tensor, weight_hh: Tensor, bias_n: Tensor, *, precision: Precision = "ieee"
) -> tuple[Tensor, Tensor]:
    """`gru_scan` in fp32 or bf16: all h and the last. Under autocast all inputs are cast to its type by hand."""
    dtype, kept = common_dtype(gates_BLG), torch.is_grad_enabled()
    inputs_R = (x.to(dtype).unsqueeze(0) for x in (gates_BLG, h_BD, weight_hh, bias_n))
    h_RBLD, _ = _scan(*inputs_R, kept, precision)
    h_BLD = h_RBLD.squeeze(0)
    return h_BLD, h_BLD[:, -1]


@torch.library.custom_op("chomsky_ladder::gru_scan", mutates_args=())
def _scan(
    gates_RBLG: Tensor, h_RBD: Tensor, U_RGD: Tensor, bias_RD: Tensor, kept: bool, precision: str
) -> tuple[Tensor, Tensor]:
    """All h and, if `kept`, what the backward pass reads: r, z, n and m.

    With an axis R of replicas in front, into which vmap folds its own.
    """
    replicas, batch, length, _ = gates_RBLG.shape
    constants, tiles = settings(U_RGD.shape[-1], U_RGD.dtype, precision), triton.cdiv(batch, ROWS.value)
    written, gates_RBLG = _written(gates_RBLG, h_RBD, U_RGD, bias_RD, kept, precision), rows_together(gates_RBLG)
    U, turn = to_multiply_by(U_RGD)
    with torch.cuda.device_of(gates_RBLG):
        _forward[tiles, replicas](
            *(gates_RBLG, h_RBD.contiguous(), U, bias_RD.contiguous(), *written),
            *(batch, length, *gates_RBLG.stride()[:3]),
            TURN=turn,
            KEPT=kept,
            **constants,
        )
    return written


@_scan.register_fake
def _written(
    gates_RBLG: Tensor, h_RBD: Tensor, U_RGD: Tensor, bias_RD: Tensor, kept: bool, precision: str
) -> tuple[Tensor, Tensor]:
    shape = (*gates_RBLG.shape[:3], U_RGD.shape[-1])
    act = (*shape[:3], 4 * shape[3]) if kept else (shape[0], 0)
    return empty(gates_RBLG, *shape), empty(gates_RBLG, *act, dtype=torch.float32)


@torch.library.custom_op("chomsky_ladder::gru_scan_back", mutates_args=())
def _scan_back(
    d_h_RBLD: Tensor, h_RBD: Tensor, h_RBLD: Tensor, act_RBLG: Tensor, U_RGD: Tensor, precision: str
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of the gates, of m and of the first h."""
    written = _written_back(d_h_RBLD, h_RBD, h_RBLD, act_RBLG, U_RGD, precision)
    replicas, batch, length, width = h_RBLD.shape
    with torch.cuda.device_of(h_RBLD):
        _backward[triton.cdiv(batch, ROWS.value), replicas](
            *(d_h_RBLD.contiguous(), h_RBD.contiguous(), h_RBLD, act_RBLG, U_RGD.contiguous(), *written, batch, length),
            **settings(width, U_RGD.dtype, precision),
        )
    return written


@_scan_back.register_fake
def _written_back(
    d_h_RBLD: Tensor, h_RBD: Tensor, h_RBLD: Tensor, act_RBLG: Tensor, U_RGD: Tensor, precision: str
) -> tuple[Tensor, Tensor, Tensor]:
    shape = h_RBLD.shape
    return empty(h_RBLD, *shape[:3], 3 * shape[3]), empty(h_RBLD, *shape), empty(h_RBLD, *h_RBD.shape)


def _keep(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:
    _, h_RBD, U_RGD, _, _, ctx.precision = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(h_RBD, U_RGD, *output)


def _gradients(ctx: Any, d_h_RBLD: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
    h_RBD, U_RGD, h_RBLD, act_RBLG = ctx.saved_tensors
    d_gates_RBLG, d_m_RBLD, d_h_RBD = _scan_back(d_h_RBLD, h_RBD, h_RBLD, act_RBLG, U_RGD, ctx.precision)
    of_h_RBLG = torch.cat([d_gates_RBLG[..., : 2 * h_RBD.shape[-1]], d_m_RBLD], -1)
    return d_gates_RBLG, d_h_RBD, recurrent_gradient(of_h_RBLG, h_RBD, h_RBLD), d_m_RBLD.sum((1, 2)), None, None


_scan.register_autograd(_gradients, setup_context=_keep)


@_scan.register_vmap
def _replicated(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    outputs = _scan(*fold_replicas(inputs[:4], in_dims[:4], info.batch_size), *inputs[4:])
    return unfold_replicas(outputs, info.batch_size)


@triton.jit
def _forward(
    gates: tl.tensor,
    h_first: tl.tensor,
    U: tl.tensor,
    bias: tl.tensor,
    h_all: tl.tensor,
    act_all: tl.tensor,
    batch: tl.tensor,
    length: tl.tensor,
    by_replica: tl.tensor,
    by_row: tl.tensor,
    by_step: tl.tensor,
    WIDTH: tl.constexpr,
    PADDED: tl.constexpr,
    RESIDENT: tl.constexpr,
    TURN: tl.constexpr,
    KEPT: tl.constexpr,
    PRECISION: tl.constexpr,
) -> None:
    SQUARE: tl.constexpr = WIDTH * WIDTH
    first, replica = tl.program_id(0).to(tl.int64) * ROWS, tl.program_id(1).to(tl.int64)
    row, col = tl.arange(0, ROWS)[:, None], tl.arange(0, PADDED)[None, :]
    mask = (first + row < batch) & (col < WIDTH)
    start = replica * batch + first
    rows = batch - first
    U += replica * (3 * SQUARE)
    gates += replica * by_replica + first * by_row
    gates_at = row * by_row + col
    step = tl.zeros((), tl.int64) + by_step
    h_first += start * WIDTH
    h_all += start * length * WIDTH
    h_at = row * (length * WIDTH) + col
    act_all += start * length * (4 * WIDTH)
    act_at = row * (length * 4 * WIDTH) + col

    to: tl.constexpr = h_all.dtype.element_ty
    h = tl.load(h_first + row * WIDTH + col, mask, 0.0).to(tl.float32)
    of_m = tl.load(bias + replica * WIDTH + col, col < WIDTH, 0.0).to(tl.float32)
    if RESIDENT:
        U_r = load_matrix(U, TURN, WIDTH, PADDED)
        U_z = load_matrix(U + SQUARE, TURN, WIDTH, PADDED)
        U_n = load_matrix(U + 2 * SQUARE, TURN, WIDTH, PADDED)
    past, by_past = h_first, tl.zeros((), tl.int32) + WIDTH
    for t in range(length):
        now = gates + t * step + gates_at
        r = tl.load(now, mask, 0.0).to(tl.float32)
        z = tl.load(now + WIDTH, mask, 0.0).to(tl.float32)
        n = tl.load(now + 2 * WIDTH, mask, 0.0).to(tl.float32)
        m = tl.zeros((ROWS, PADDED), tl.float32) + of_m
        if RESIDENT:
            r = tl.dot(h.to(to), U_r, r, input_precision=PRECISION)
            z = tl.dot(h.to(to), U_z, z, input_precision=PRECISION)
            m = tl.dot(h.to(to), U_n, m, input_precision=PRECISION)
        else:
            r = stream(r, past, by_past, rows, U, TURN, WIDTH, PADDED, PRECISION)
            z = stream(z, past, by_past, rows, U + SQUARE, TURN, WIDTH, PADDED, PRECISION)
            m = stream(m, past, by_past, rows, U + 2 * SQUARE, TURN, WIDTH, PADDED, PRECISION)
        r, z = sigmoid(r), sigmoid(z)
        n = tanh(n + r * m)
        h = n + z * (h - n)
        tl.store(h_all + t * WIDTH + h_at, h.to(to), mask)
        if KEPT:
            store_four(act_all + t * (4 * WIDTH) + act_at, (r, z, n, m), mask, WIDTH)
        if not RESIDENT:
            tl.debug_barrier()
        past, by_past = h_all + t * WIDTH, length * WIDTH


@triton.jit
def _backward(
    d_h_all: tl.tensor,
    h_first: tl.tensor,
    h_all: tl.tensor,
    act_all: tl.tensor,
    U: tl.tensor,
    d_gates: tl.tensor,
    d_m_all: tl.tensor,
    d_h_first: tl.tensor,
    batch: tl.tensor,
    length: tl.tensor,
    WIDTH: tl.constexpr,
    PADDED: tl.constexpr,
    RESIDENT: tl.constexpr,
    PRECISION: tl.constexpr,
) -> None:
    SQUARE: tl.constexpr = WIDTH * WIDTH
    first, replica = tl.program_id(0).to(tl.int64) * ROWS, tl.program_id(1).to(tl.int64)
    row, col = tl.arange(0, ROWS)[:, None], tl.arange(0, PADDED)[None, :]
    mask = (first + row < batch) & (col < WIDTH)
    start = replica * batch + first
    rows = batch - first
    U += replica * (3 * SQUARE)
    act_all += start * length * (4 * WIDTH)
    act_at = row * (length * 4 * WIDTH) + col
    d_gates += start * length * (3 * WIDTH)
    gates_at = row * (length * 3 * WIDTH) + col
    d_m_all += start * length * WIDTH
    h_all += start * length * WIDTH
    d_h_all += start * length * WIDTH
    h_at = row * (length * WIDTH) + col
    state_at = start * WIDTH + row * WIDTH + col

    to: tl.constexpr = d_gates.dtype.element_ty
    h_zero = tl.load(h_first + state_at, mask, 0.0).to(tl.float32)
    d_h = tl.zeros((ROWS, PADDED), tl.float32)
    if RESIDENT:
        U_r = load_matrix(U, False, WIDTH, PADDED)
        U_z = load_matrix(U + SQUARE, False, WIDTH, PADDED)
        U_n = load_matrix(U + 2 * SQUARE, False, WIDTH, PADDED)
    for done in range(length):
        t = length - 1 - done
        d_h += tl.load(d_h_all + t * WIDTH + h_at, mask, 0.0).to(tl.float32)
        h = tl.load(h_all + (t - 1) * WIDTH + h_at, mask & (t > 0), 0.0).to(tl.float32)
        h = tl.where(t > 0, h, h_zero)
        r, z, n, m = load_four(act_all + t * (4 * WIDTH) + act_at, mask, WIDTH)
        d_z = (d_h * (h - n) * z * (1 - z)).to(to)
        d_n = d_h * (1 - z) * (1 - n * n)
        d_r = (d_n * m * r * (1 - r)).to(to)
        d_m = (d_n * r).to(to)
        d_h *= z
        now = d_gates + t * (3 * WIDTH)
        tl.store(now + gates_at, d_r, mask)
        tl.store(now + WIDTH + gates_at, d_z, mask)
        tl.store(now + 2 * WIDTH + gates_at, d_n.to(to), mask)
        tl.store(d_m_all + t * WIDTH + h_at, d_m, mask)
        if RESIDENT:
            d_h = tl.dot(d_r, U_r, d_h, input_precision=PRECISION)
            d_h = tl.dot(d_z, U_z, d_h, input_precision=PRECISION)
            d_h = tl.dot(d_m, U_n, d_h, input_precision=PRECISION)
        else:
            tl.debug_barrier()
            by_row = length * 3 * WIDTH
            d_h = stream(d_h, now, by_row, rows, U, False, WIDTH, PADDED, PRECISION)
            d_h = stream(d_h, now + WIDTH, by_row, rows, U + SQUARE, False, WIDTH, PADDED, PRECISION)
            past = d_m_all + t * WIDTH
            d_h = stream(d_h, past, length * WIDTH, rows, U + 2 * SQUARE, False, WIDTH, PADDED, PRECISION)
    tl.store(d_h_first + state_at, d_h.to(d_h_first.dtype.element_ty), mask)
