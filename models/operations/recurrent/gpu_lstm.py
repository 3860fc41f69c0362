"""`lstm_scan` (models/scans/recurrences.py) as two Triton kernels: all steps forward, all steps back.

    i, f, g, o = x W + b + h U^T        c' = s(f) c + s(i) tanh(g)        h' = s(o) tanh(c')

A program takes 16 rows of one replica. It keeps h and c in registers and U on the chip where it fits
(models/kernels/triton/recurrence.py); the next step's gates are on their way while a step computes. Forward keeps
s(i), s(f), tanh(g), s(o) and c of each step in fp32 for the backward pass, which writes the gradient of the gates; that
of U is one product over all steps outside.
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
    dot_back,
    dot_four,
    empty,
    load_four,
    load_matrices,
    recurrent_gradient,
    rows_together,
    settings,
    sigmoid,
    store_four,
    stream_back,
    stream_there,
    tanh,
    to_multiply_by,
)
from chomsky_ladder.models.scans.replicas import fold_replicas, unfold_replicas


def triton_lstm(
    x_BLD: Tensor, h_BD: Tensor, c_BD: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute `lstm_layer`, with x W of all steps in one product; it stacks under vmap."""
    return triton_lstm_scan(linear(x_BLD, weight_ih, bias), h_BD, c_BD, weight_hh)


def triton_lstm_scan(
    gates_BLG: Tensor, h_BD: Tensor, c_BD: Tensor, weight_hh: Tensor, *, precision: Precision = "ieee"
) -> tuple[Tensor, Tensor, Tensor]:
    """`lstm_scan` in fp32 or bf16: all h and the last in the precision of the product, the last c in that of `c_BD`.

    Under autocast gates, h and weights are cast to its type by hand. `precision` is that of fp32 products: with "tf32"
    the result would differ from the reference's from the third decimal on.
    """
    dtype, kept = common_dtype(gates_BLG), torch.is_grad_enabled()
    assert c_BD.dtype in (torch.float32, torch.bfloat16), f"{c_BD.dtype} is the reference's"
    gates_BLG, h_BD, weight_hh = (x.to(dtype) for x in (gates_BLG, h_BD, weight_hh))
    inputs_R = (x.unsqueeze(0) for x in (gates_BLG, h_BD, c_BD, weight_hh))
    h_RBLD, c_RBD, *_ = _scan(*inputs_R, kept, precision)
    h_BLD = h_RBLD.squeeze(0)  # an index would cost the backward pass a copy
    return h_BLD, h_BLD[:, -1], c_RBD.squeeze(0)


@torch.library.custom_op("chomsky_ladder::lstm_scan", mutates_args=())
def _scan(
    gates_RBLG: Tensor, h_RBD: Tensor, c_RBD: Tensor, U_RGD: Tensor, kept: bool, precision: str
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """All h, the last c and, if `kept`, what the backward pass reads: the four activations and all c.

    With an axis R of replicas in front, into which vmap folds its own.
    """
    replicas, batch, length, _ = gates_RBLG.shape
    width = U_RGD.shape[-1]
    tiles = triton.cdiv(batch, ROWS.value)
    constants = settings(width, U_RGD.dtype, precision)
    written = _written(gates_RBLG, h_RBD, c_RBD, U_RGD, kept, precision)
    h_RBLD, last_RBD, act_RBLG, c_RBLD = written
    past = None if constants["RESIDENT"] else empty(gates_RBLG, replicas, tiles, 2, ROWS.value, width)
    gates_RBLG, (U, turn) = rows_together(gates_RBLG), to_multiply_by(U_RGD)
    with torch.cuda.device_of(gates_RBLG):
        _forward[tiles, replicas](
            *(gates_RBLG, h_RBD.contiguous(), c_RBD.contiguous(), U),
            *(h_RBLD, last_RBD, past, act_RBLG, c_RBLD),
            *(batch, length, *gates_RBLG.stride()[:3]),
            TURN=turn,
            KEPT=kept,
            **constants,
        )
    return written


@_scan.register_fake
def _written(
    gates_RBLG: Tensor, h_RBD: Tensor, c_RBD: Tensor, U_RGD: Tensor, kept: bool, precision: str
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    replicas, batch, length, _ = gates_RBLG.shape
    width = U_RGD.shape[-1]
    h_RBLD, last_RBD = empty(gates_RBLG, replicas, batch, length, width), empty(c_RBD, *c_RBD.shape)
    sizes = ((batch, length, 4 * width), (batch, length + 1, width)) if kept else ((0,), (0,))
    act_RBLG, c_RBLD = (empty(gates_RBLG, replicas, *size, dtype=torch.float32) for size in sizes)
    return h_RBLD, last_RBD, act_RBLG, c_RBLD


@torch.library.custom_op("chomsky_ladder::lstm_scan_back", mutates_args=())
def _scan_back(
    d_h_RBLD: Tensor | None,
    d_c_RBD: Tensor | None,
    act_RBLG: Tensor,
    c_RBLD: Tensor,
    U_RGD: Tensor,
    c_dtype: torch.dtype,
    precision: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of the gates, of the first h and of the first c."""
    written = _written_back(d_h_RBLD, d_c_RBD, act_RBLG, c_RBLD, U_RGD, c_dtype, precision)
    replicas, batch, length, _ = act_RBLG.shape
    with torch.cuda.device_of(act_RBLG):
        _backward[triton.cdiv(batch, ROWS.value), replicas](
            *(None if d is None else d.contiguous() for d in (d_h_RBLD, d_c_RBD)),
            *(act_RBLG, c_RBLD, U_RGD.contiguous(), *written, batch, length),
            **settings(U_RGD.shape[-1], U_RGD.dtype, precision),
        )
    return written


@_scan_back.register_fake
def _written_back(
    d_h_RBLD: Tensor | None,
    d_c_RBD: Tensor | None,
    act_RBLG: Tensor,
    c_RBLD: Tensor,
    U_RGD: Tensor,
    c_dtype: torch.dtype,
    precision: str,
) -> tuple[Tensor, Tensor, Tensor]:
    replicas, batch, length, gates = act_RBLG.shape
    first = (replicas, batch, U_RGD.shape[-1])
    return empty(U_RGD, replicas, batch, length, gates), empty(U_RGD, *first), empty(U_RGD, *first, dtype=c_dtype)


def _keep(ctx: Any, inputs: tuple, output: tuple[Tensor, ...]) -> None:
    _, h_RBD, c_RBD, U_RGD, _, ctx.precision = inputs
    ctx.mark_non_differentiable(*output[2:])
    ctx.set_materialize_grads(False)
    ctx.c_dtype = c_RBD.dtype
    ctx.save_for_backward(h_RBD, U_RGD, output[0], *output[2:])


def _gradients(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    h_RBD, U_RGD, h_RBLD, act_RBLG, c_RBLD = ctx.saved_tensors
    d_gates_RBLG, d_h_RBD, d_c_RBD = _scan_back(*grads[:2], act_RBLG, c_RBLD, U_RGD, ctx.c_dtype, ctx.precision)
    return d_gates_RBLG, d_h_RBD, d_c_RBD, recurrent_gradient(d_gates_RBLG, h_RBD, h_RBLD), None, None


_scan.register_autograd(_gradients, setup_context=_keep)


@_scan.register_vmap
def _replicated(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    outputs = _scan(*fold_replicas(inputs[:4], in_dims[:4], info.batch_size), *inputs[4:])
    return unfold_replicas(outputs, info.batch_size)


@triton.jit
def _forward(
    gates: tl.tensor,
    h_first: tl.tensor,
    c_first: tl.tensor,
    U: tl.tensor,
    h_all: tl.tensor,
    c_last: tl.tensor,
    past: tl.tensor,
    act_all: tl.tensor,
    c_all: tl.tensor,
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
    first, replica = tl.program_id(0).to(tl.int64) * ROWS, tl.program_id(1).to(tl.int64)
    row, col = tl.arange(0, ROWS)[:, None], tl.arange(0, PADDED)[None, :]
    mask = (first + row < batch) & (col < WIDTH)
    start = replica * batch + first
    U += replica * (4 * WIDTH * WIDTH)
    gates += replica * by_replica + first * by_row
    gates_at = row * by_row + col
    step = tl.zeros((), tl.int64) + by_step
    h_all += start * length * WIDTH
    h_at = row * (length * WIDTH) + col
    act_all += start * length * (4 * WIDTH)
    act_at = row * (length * 4 * WIDTH) + col
    c_all += start * (length + 1) * WIDTH
    c_at = row * ((length + 1) * WIDTH) + col
    state_at = start * WIDTH + row * WIDTH + col

    h = tl.load(h_first + state_at, mask, 0.0)
    c = tl.load(c_first + state_at, mask, 0.0).to(tl.float32)
    if KEPT:
        tl.store(c_all + c_at, c, mask)
    if RESIDENT:
        across = load_matrices(U, TURN, WIDTH, PADDED)
    else:
        past += (replica * tl.num_programs(0) + tl.program_id(0)) * (2 * ROWS * WIDTH)
        tl.store(past + row * WIDTH + col, h, col < WIDTH)
        tl.debug_barrier()
    i, f, g, o = load_four(gates + gates_at, mask, WIDTH)
    for t in range(length):
        later = load_four(gates + (t + 1) * step + gates_at, mask & (t + 1 < length), WIDTH)
        sums = (i.to(tl.float32), f.to(tl.float32), g.to(tl.float32), o.to(tl.float32))
        if RESIDENT:
            i, f, g, o = dot_four(h, across, sums, PRECISION)
        else:
            i, f, g, o = stream_there(sums, past + t % 2 * (ROWS * WIDTH), U, TURN, WIDTH, PADDED, PRECISION)
        i, f, g, o = sigmoid(i), sigmoid(f), tanh(g), sigmoid(o)
        c = f * c + i * g
        h = (o * tanh(c)).to(h_all.dtype.element_ty)
        tl.store(h_all + t * WIDTH + h_at, h, mask)
        if not RESIDENT:
            tl.store(past + (t + 1) % 2 * (ROWS * WIDTH) + row * WIDTH + col, h, col < WIDTH)
            tl.debug_barrier()
        if KEPT:
            store_four(act_all + t * (4 * WIDTH) + act_at, (i, f, g, o), mask, WIDTH)
            tl.store(c_all + (t + 1) * WIDTH + c_at, c, mask)
        i, f, g, o = later
    tl.store(c_last + state_at, c.to(c_last.dtype.element_ty), mask)


@triton.jit
def _backward(
    d_h_all: tl.tensor | None,
    d_c_last: tl.tensor | None,
    act_all: tl.tensor,
    c_all: tl.tensor,
    U: tl.tensor,
    d_gates: tl.tensor,
    d_h_first: tl.tensor,
    d_c_first: tl.tensor,
    batch: tl.tensor,
    length: tl.tensor,
    WIDTH: tl.constexpr,
    PADDED: tl.constexpr,
    RESIDENT: tl.constexpr,
    PRECISION: tl.constexpr,
) -> None:
    first, replica = tl.program_id(0).to(tl.int64) * ROWS, tl.program_id(1).to(tl.int64)
    row, col = tl.arange(0, ROWS)[:, None], tl.arange(0, PADDED)[None, :]
    mask = (first + row < batch) & (col < WIDTH)
    start = replica * batch + first
    U += replica * (4 * WIDTH * WIDTH)
    act_all += start * length * (4 * WIDTH)
    d_gates += start * length * (4 * WIDTH)
    act_at = row * (length * 4 * WIDTH) + col
    c_all += start * (length + 1) * WIDTH
    c_at = row * ((length + 1) * WIDTH) + col
    h_at = start * length * WIDTH + row * (length * WIDTH) + col
    state_at = start * WIDTH + row * WIDTH + col

    d_h = tl.zeros((ROWS, PADDED), tl.float32)
    d_c = tl.zeros((ROWS, PADDED), tl.float32)
    if d_c_last is not None:
        d_c = tl.load(d_c_last + state_at, mask, 0.0).to(tl.float32)
    d_out = tl.zeros((ROWS, PADDED), tl.float32)
    if d_h_all is not None:
        d_out = tl.load(d_h_all + (length - 1) * WIDTH + h_at, mask, 0.0).to(tl.float32)
    if RESIDENT:
        along = load_matrices(U, False, WIDTH, PADDED)
    c = tl.load(c_all + length * WIDTH + c_at, mask, 0.0)
    c_past = tl.load(c_all + (length - 1) * WIDTH + c_at, mask, 0.0)
    i, f, g, o = load_four(act_all + (length - 1) * (4 * WIDTH) + act_at, mask, WIDTH)
    for done in range(length):
        t = length - 1 - done
        more = mask & (t > 0)
        earlier = load_four(act_all + (t - 1) * (4 * WIDTH) + act_at, more, WIDTH)
        c_earlier = tl.load(c_all + (t - 1) * WIDTH + c_at, more, 0.0)
        d_h += d_out
        if d_h_all is not None:
            d_out = tl.load(d_h_all + (t - 1) * WIDTH + h_at, more, 0.0).to(tl.float32)
        squashed = tanh(c)
        d_c += d_h * o * (1 - squashed * squashed)
        d_o = d_h * squashed * o * (1 - o)
        d_i = d_c * g * i * (1 - i)
        d_f = d_c * c_past * f * (1 - f)
        d_g = d_c * i * (1 - g * g)
        d_c *= f
        store_four(d_gates + t * (4 * WIDTH) + act_at, (d_i, d_f, d_g, d_o), mask, WIDTH)
        if RESIDENT:
            d_h = dot_back((d_i, d_f, d_g, d_o), along, PRECISION)
        else:
            tl.debug_barrier()
            d_h = stream_back(d_gates + t * (4 * WIDTH), length * 4 * WIDTH, batch - first, U, WIDTH, PADDED, PRECISION)
        c, c_past = c_past, c_earlier
        i, f, g, o = earlier
    tl.store(d_h_first + state_at, d_h.to(d_h_first.dtype.element_ty), mask)
    tl.store(d_c_first + state_at, d_c.to(d_c_first.dtype.element_ty), mask)
