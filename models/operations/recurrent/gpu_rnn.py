"""`rnn_scan` (models/scans/recurrences.py) as two Triton kernels: all steps forward, all steps back.

    h' = f(x W + b + h U^T), f = tanh or max(0, .)

As models/operations/recurrent/gpu_lstm.py, which says more: a program has 16 rows of one replica. The backward pass has
the slope of f from h' alone, and nothing else is kept for it.
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
    load_matrix,
    recurrent_gradient,
    rows_together,
    settings,
    stream,
    tanh,
    to_multiply_by,
)
from chomsky_ladder.models.scans.recurrences import Activation
from chomsky_ladder.models.scans.replicas import fold_replicas


def triton_rnn(
    x_BLD: Tensor, h_BD: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias: Tensor, *, activation: Activation
) -> tuple[Tensor, Tensor]:
    """Compute `rnn_layer`, with x W of all steps in one product; it stacks under vmap."""
    return triton_rnn_scan(linear(x_BLD, weight_ih, bias), h_BD, weight_hh, activation=activation)


def triton_rnn_scan(
    gates_BLD: Tensor, h_BD: Tensor, weight_hh: Tensor, *, activation: Activation, precision: Precision = "ieee"
) -> tuple[Tensor, Tensor]:
    """`rnn_scan` in fp32 or bf16: all h and the last. Under autocast all inputs are cast to its type by hand."""
    dtype = common_dtype(gates_BLD)
    inputs_R = (x.to(dtype).unsqueeze(0) for x in (gates_BLD, h_BD, weight_hh))
    h_BLD = _scan(*inputs_R, activation == "relu", precision).squeeze(0)
    return h_BLD, h_BLD[:, -1]


@torch.library.custom_op("chomsky_ladder::rnn_scan", mutates_args=())
def _scan(gates_RBLD: Tensor, h_RBD: Tensor, U_RDD: Tensor, relu: bool, precision: str) -> Tensor:
    """With an axis R of replicas in front, into which vmap folds its own."""
    replicas, batch, length, width = gates_RBLD.shape
    constants, tiles = settings(width, U_RDD.dtype, precision), triton.cdiv(batch, ROWS.value)
    h_RBLD, gates_RBLD = _written(gates_RBLD, h_RBD, U_RDD, relu, precision), rows_together(gates_RBLD)
    U, turn = to_multiply_by(U_RDD)
    with torch.cuda.device_of(gates_RBLD):
        _forward[tiles, replicas](
            *(gates_RBLD, h_RBD.contiguous(), U, h_RBLD),
            *(batch, length, *gates_RBLD.stride()[:3]),
            TURN=turn,
            RELU=relu,
            **constants,
        )
    return h_RBLD


@_scan.register_fake
def _written(gates_RBLD: Tensor, h_RBD: Tensor, U_RDD: Tensor, relu: bool, precision: str) -> Tensor:
    return empty(gates_RBLD, *gates_RBLD.shape)


@torch.library.custom_op("chomsky_ladder::rnn_scan_back", mutates_args=())
def _scan_back(d_h_RBLD: Tensor, h_RBLD: Tensor, U_RDD: Tensor, relu: bool, precision: str) -> tuple[Tensor, Tensor]:
    """The gradients of the gates and of the first h."""
    written = _written_back(d_h_RBLD, h_RBLD, U_RDD, relu, precision)
    replicas, batch, length, width = h_RBLD.shape
    with torch.cuda.device_of(h_RBLD):
        _backward[triton.cdiv(batch, ROWS.value), replicas](
            *(d_h_RBLD.contiguous(), h_RBLD, U_RDD.contiguous(), *written, batch, length),
            RELU=relu,
            **settings(width, U_RDD.dtype, precision),
        )
    return written


@_scan_back.register_fake
def _written_back(d_h_RBLD: Tensor, h_RBLD: Tensor, U_RDD: Tensor, relu: bool, precision: str) -> tuple[Tensor, Tensor]:
    return empty(h_RBLD, *h_RBLD.shape), empty(h_RBLD, *h_RBLD.shape[:2], h_RBLD.shape[3])


def _keep(ctx: Any, inputs: tuple, output: Tensor) -> None:
    _, h_RBD, U_RDD, ctx.relu, ctx.precision = inputs
    ctx.save_for_backward(h_RBD, U_RDD, output)


def _gradients(ctx: Any, d_h_RBLD: Tensor) -> tuple[Tensor | None, ...]:
    h_RBD, U_RDD, h_RBLD = ctx.saved_tensors
    d_gates_RBLD, d_h_RBD = _scan_back(d_h_RBLD, h_RBLD, U_RDD, ctx.relu, ctx.precision)
    return d_gates_RBLD, d_h_RBD, recurrent_gradient(d_gates_RBLD, h_RBD, h_RBLD), None, None


_scan.register_autograd(_gradients, setup_context=_keep)


@_scan.register_vmap
def _replicated(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Tensor, int]:
    h_RBLD = _scan(*fold_replicas(inputs[:3], in_dims[:3], info.batch_size), *inputs[3:])
    return h_RBLD.unflatten(0, (info.batch_size, -1)), 0


@triton.jit
def _forward(
    gates: tl.tensor,
    h_first: tl.tensor,
    U: tl.tensor,
    h_all: tl.tensor,
    batch: tl.tensor,
    length: tl.tensor,
    by_replica: tl.tensor,
    by_row: tl.tensor,
    by_step: tl.tensor,
    RELU: tl.constexpr,
    WIDTH: tl.constexpr,
    PADDED: tl.constexpr,
    RESIDENT: tl.constexpr,
    TURN: tl.constexpr,
    PRECISION: tl.constexpr,
) -> None:
    first, replica = tl.program_id(0).to(tl.int64) * ROWS, tl.program_id(1).to(tl.int64)
    row, col = tl.arange(0, ROWS)[:, None], tl.arange(0, PADDED)[None, :]
    mask = (first + row < batch) & (col < WIDTH)
    start = replica * batch + first
    U += replica * (WIDTH * WIDTH)
    gates += replica * by_replica + first * by_row
    gates_at = row * by_row + col
    step = tl.zeros((), tl.int64) + by_step
    h_first += start * WIDTH
    h_all += start * length * WIDTH
    h_at = row * (length * WIDTH) + col

    h = tl.load(h_first + row * WIDTH + col, mask, 0.0)
    if RESIDENT:
        across = load_matrix(U, TURN, WIDTH, PADDED)
    now = tl.load(gates + gates_at, mask, 0.0)
    for t in range(length):
        later = tl.load(gates + (t + 1) * step + gates_at, mask & (t + 1 < length), 0.0)
        sums = now.to(tl.float32)
        if RESIDENT:
            sums = tl.dot(h, across, sums, input_precision=PRECISION)
        elif t == 0:
            sums = stream(sums, h_first, WIDTH, batch - first, U, TURN, WIDTH, PADDED, PRECISION)
        else:
            past = h_all + (t - 1) * WIDTH
            sums = stream(sums, past, length * WIDTH, batch - first, U, TURN, WIDTH, PADDED, PRECISION)
        if RELU:
            h = tl.maximum(sums, 0.0, propagate_nan=tl.PropagateNan.ALL).to(h_all.dtype.element_ty)
        else:
            h = tanh(sums).to(h_all.dtype.element_ty)
        tl.store(h_all + t * WIDTH + h_at, h, mask)
        if not RESIDENT:
            tl.debug_barrier()
        now = later


@triton.jit
def _backward(
    d_h_all: tl.tensor,
    h_all: tl.tensor,
    U: tl.tensor,
    d_gates: tl.tensor,
    d_h_first: tl.tensor,
    batch: tl.tensor,
    length: tl.tensor,
    RELU: tl.constexpr,
    WIDTH: tl.constexpr,
    PADDED: tl.constexpr,
    RESIDENT: tl.constexpr,
    PRECISION: tl.constexpr,
) -> None:
    first, replica = tl.program_id(0).to(tl.int64) * ROWS, tl.program_id(1).to(tl.int64)
    row, col = tl.arange(0, ROWS)[:, None], tl.arange(0, PADDED)[None, :]
    mask = (first + row < batch) & (col < WIDTH)
    start = replica * batch + first
    U += replica * (WIDTH * WIDTH)
    h_at = start * length * WIDTH + row * (length * WIDTH) + col

    d_h = tl.zeros((ROWS, PADDED), tl.float32)
    if RESIDENT:
        along = load_matrix(U, False, WIDTH, PADDED)
    d_out = tl.load(d_h_all + (length - 1) * WIDTH + h_at, mask, 0.0)
    h = tl.load(h_all + (length - 1) * WIDTH + h_at, mask, 0.0)
    for done in range(length):
        t = length - 1 - done
        more = mask & (t > 0)
        earlier = tl.load(d_h_all + (t - 1) * WIDTH + h_at, more, 0.0)
        h_earlier = tl.load(h_all + (t - 1) * WIDTH + h_at, more, 0.0)
        d_h += d_out.to(tl.float32)
        if RELU:
            d_h = tl.where(h > 0, d_h, 0.0)
        else:
            d_h *= 1 - h.to(tl.float32) * h.to(tl.float32)
        d = d_h.to(d_gates.dtype.element_ty)
        tl.store(d_gates + t * WIDTH + h_at, d, mask)
        d_h = tl.zeros((ROWS, PADDED), tl.float32)
        if RESIDENT:
            d_h = tl.dot(d.to(along.dtype), along, d_h, input_precision=PRECISION)
        else:
            tl.debug_barrier()
            written = d_gates + (start * length + t) * WIDTH
            d_h = stream(d_h, written, length * WIDTH, batch - first, U, False, WIDTH, PADDED, PRECISION)
        d_out, h = earlier, h_earlier
    tl.store(d_h_first + start * WIDTH + row * WIDTH + col, d_h.to(d_h_first.dtype.element_ty), mask)
