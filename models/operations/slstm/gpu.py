"""`slstm_scan` (models/operations/slstm/reference.py) as two Triton kernels: all steps forward, all steps back.

    i, f, z, o = W x + b + R h        u = i - log s(f) - a        y' = y + s(u) (tanh(z) - y)        a' = i - log s(u)

and h' = s(o) y'. W x of all steps is one product outside. A program takes 16 rows of one head of one replica, keeps h,
y and a in registers and the head's R on the chip where it fits (models/kernels/triton/recurrence.py); the next step's
gates are on their way while a step computes. Forward keeps s(f), tanh(z), s(o), s(u) and y of each step in fp32 for the
backward pass, which writes the gradient of the gates; those of W, R and b are sums over all steps outside.

The host code is by hand: a backward pass of a declaration (in_triton.py) does not end in products.
"""
# pyright: reportIndexIssue=false
# (a kernel[grid] has no type where triton.jit has none)

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from chomsky_ladder.models.kernels.triton.recurrence import (
    ROWS,
    Precision,
    common_dtype,
    dot_back,
    dot_four,
    empty,
    load_four,
    load_matrices,
    log_sigmoid,
    rows_together,
    settings,
    sigmoid,
    store_four,
    stream_back,
    stream_there,
    tanh,
    to_multiply_by,
)
from chomsky_ladder.models.operations.slstm.reference import Carried, Read, Weights, from_input
from chomsky_ladder.models.scans.replicas import fold_replicas, unfold_replicas


def triton_slstm_scan(
    read: Read, state: Carried, weights: Weights, *, precision: Precision = "ieee"
) -> tuple[Tensor, Carried]:
    """`slstm_scan` in fp32 or bf16: all h and the last in the precision of the products, y and a in their own.

    Under autocast x, h, W and R are cast to its type by hand. `precision` is that of the fp32 products in the kernels:
    with "tf32" the result would differ from the reference's from the third decimal on.
    """
    (h_BHK, *held), (W_HGJ, R_HGK, b_HG) = state, weights
    dtype, kept = common_dtype(read[0]), torch.is_grad_enabled()
    assert all(x.dtype in (torch.float32, torch.bfloat16) for x in (*held, b_HG)), "float64 is the reference's"
    h_BHK, W_HGJ, R_HGK, *read = (x.to(dtype) for x in (h_BHK, W_HGJ, R_HGK, *read))  # pyright: ignore[reportAssignmentType]
    with torch.autocast(h_BHK.device.type, enabled=False):
        gates_BLHG = from_input(tuple(read), W_HGJ)
    inputs_R = (x.unsqueeze(0) for x in (gates_BLHG, h_BHK, *held, R_HGK, b_HG))
    h_RBLHK, y_RBHK, a_RBHK, *_ = _scan(*inputs_R, kept, precision)
    h_BLHK = h_RBLHK.squeeze(0)  # an index would cost the backward pass a copy
    return h_BLHK, (h_BLHK[:, -1], y_RBHK.squeeze(0), a_RBHK.squeeze(0))


@torch.library.custom_op("chomsky_ladder::slstm_scan", mutates_args=())
def _scan(
    gates_RBLHG: Tensor,
    h_RBHK: Tensor,
    y_RBHK: Tensor,
    a_RBHK: Tensor,
    R_RHGK: Tensor,
    b_RHG: Tensor,
    kept: bool,
    precision: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """All h, the last y and a and, if `kept`, what the backward pass reads: the four activations and all y.

    With an axis R of replicas in front, into which vmap folds its own.
    """
    replicas, batch, length, heads, _ = gates_RBLHG.shape
    width = R_RHGK.shape[-1]
    tiles = triton.cdiv(batch, ROWS.value)
    constants = settings(width, R_RHGK.dtype, precision)
    gates_RBLHG, (U, turn) = rows_together(gates_RBLHG), to_multiply_by(R_RHGK)
    written = _written(gates_RBLHG, h_RBHK, y_RBHK, a_RBHK, R_RHGK, b_RHG, kept, precision)
    h_RBLHK, last_y_RBHK, last_a_RBHK, act_RBLHG, y_RBLHK = written
    past = None if constants["RESIDENT"] else empty(gates_RBLHG, replicas * heads, tiles, 2, ROWS.value, width)
    with torch.cuda.device_of(gates_RBLHG):
        _forward[tiles, replicas * heads](
            gates_RBLHG,
            *(x.contiguous() for x in (h_RBHK, y_RBHK, a_RBHK, U, b_RHG)),
            *(h_RBLHK, last_y_RBHK, last_a_RBHK, past, act_RBLHG, y_RBLHK),
            *(batch, length, heads, *gates_RBLHG.stride()[:4]),
            TURN=turn,
            KEPT=kept,
            **constants,
        )
    return written


@_scan.register_fake
def _written(
    gates_RBLHG: Tensor,
    h_RBHK: Tensor,
    y_RBHK: Tensor,
    a_RBHK: Tensor,
    R_RHGK: Tensor,
    b_RHG: Tensor,
    kept: bool,
    precision: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    replicas, batch, length, heads, _ = gates_RBLHG.shape
    width = R_RHGK.shape[-1]
    h_RBLHK = empty(gates_RBLHG, replicas, batch, length, heads, width)
    last_y_RBHK, last_a_RBHK = empty(y_RBHK, *y_RBHK.shape), empty(a_RBHK, *a_RBHK.shape)
    sizes = ((batch, length, heads, size * width) if kept else (0,) for size in (4, 1))
    act_RBLHG, y_RBLHK = (empty(gates_RBLHG, replicas, *size, dtype=torch.float32) for size in sizes)
    return h_RBLHK, last_y_RBHK, last_a_RBHK, act_RBLHG, y_RBLHK


@torch.library.custom_op("chomsky_ladder::slstm_scan_back", mutates_args=())
def _scan_back(
    d_h_RBLHK: Tensor | None,
    d_y_RBHK: Tensor | None,
    d_a_RBHK: Tensor | None,
    act_RBLHG: Tensor,
    y_RBLHK: Tensor,
    R_RHGK: Tensor,
    strides: list[int],
    y_dtype: torch.dtype,
    a_dtype: torch.dtype,
    precision: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of the gates, with these strides, and of the first h, y and a."""
    d_state = (d_h_RBLHK, d_y_RBHK, d_a_RBHK)
    written = _written_back(*d_state, act_RBLHG, y_RBLHK, R_RHGK, strides, y_dtype, a_dtype, precision)
    replicas, batch, length, heads, width = y_RBLHK.shape
    with torch.cuda.device_of(y_RBLHK):
        _backward[triton.cdiv(batch, ROWS.value), replicas * heads](
            *(None if d is None else d.contiguous() for d in d_state),
            *(act_RBLHG, y_RBLHK, R_RHGK.contiguous(), *written),
            *(batch, length, heads, *strides[:4]),
            **settings(width, R_RHGK.dtype, precision),
        )
    return written


@_scan_back.register_fake
def _written_back(
    d_h_RBLHK: Tensor | None,
    d_y_RBHK: Tensor | None,
    d_a_RBHK: Tensor | None,
    act_RBLHG: Tensor,
    y_RBLHK: Tensor,
    R_RHGK: Tensor,
    strides: list[int],
    y_dtype: torch.dtype,
    a_dtype: torch.dtype,
    precision: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    replicas, batch, _, heads, width = y_RBLHK.shape
    first = (replicas, batch, heads, width)
    d_gates_RBLHG = R_RHGK.new_empty_strided(act_RBLHG.shape, strides)
    d_y_RBHK, d_a_RBHK = (empty(R_RHGK, *first, dtype=dtype) for dtype in (y_dtype, a_dtype))
    return d_gates_RBLHG, empty(R_RHGK, *first), d_y_RBHK, d_a_RBHK


def _keep(ctx: Any, inputs: tuple, output: tuple[Tensor, ...]) -> None:
    gates_RBLHG, h_RBHK, y_RBHK, a_RBHK, R_RHGK, b_RHG, _, ctx.precision = inputs
    ctx.mark_non_differentiable(*output[3:])
    ctx.set_materialize_grads(False)
    ctx.strides = rows_together(torch.empty_like(gates_RBLHG, device="meta")).stride()  # dense, in the same order
    ctx.dtypes = y_RBHK.dtype, a_RBHK.dtype, b_RHG.dtype
    ctx.save_for_backward(h_RBHK, R_RHGK, output[0], *output[3:])


def _gradients(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    h_RBHK, R_RHGK, h_RBLHK, act_RBLHG, y_RBLHK = ctx.saved_tensors
    *state_dtypes, b_dtype = ctx.dtypes
    found = _scan_back(*grads[:3], act_RBLHG, y_RBLHK, R_RHGK, list(ctx.strides), *state_dtypes, ctx.precision)
    d_gates_RBLHG, *d_state = found
    with torch.autocast(h_RBLHK.device.type, enabled=False):
        past_RBLHK = torch.cat([h_RBHK[:, :, None], h_RBLHK[:, :, :-1]], 2)
        d_R_RHGK = torch.einsum("rblhg,rblhk->rhgk", d_gates_RBLHG, past_RBLHK)
        d_b_RHG = d_gates_RBLHG.sum((1, 2), dtype=b_dtype)
    return d_gates_RBLHG, *d_state, d_R_RHGK, d_b_RHG, None, None


_scan.register_autograd(_gradients, setup_context=_keep)


@_scan.register_vmap
def _replicated(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    outputs = _scan(*fold_replicas(inputs[:6], in_dims[:6], info.batch_size), *inputs[6:])
    return unfold_replicas(outputs, info.batch_size)


@triton.jit
def _forward(
    gates: tl.tensor,
    h_first: tl.tensor,
    y_first: tl.tensor,
    a_first: tl.tensor,
    U: tl.tensor,
    bias: tl.tensor,
    h_all: tl.tensor,
    y_last: tl.tensor,
    a_last: tl.tensor,
    past: tl.tensor,
    act_all: tl.tensor,
    y_all: tl.tensor,
    batch: tl.tensor,
    length: tl.tensor,
    heads: tl.tensor,
    by_replica: tl.tensor,
    by_row: tl.tensor,
    by_step: tl.tensor,
    by_head: tl.tensor,
    WIDTH: tl.constexpr,
    PADDED: tl.constexpr,
    RESIDENT: tl.constexpr,
    TURN: tl.constexpr,
    KEPT: tl.constexpr,
    PRECISION: tl.constexpr,
) -> None:
    first, matrix = tl.program_id(0).to(tl.int64) * ROWS, tl.program_id(1)
    replica, head = (matrix // heads).to(tl.int64), matrix % heads
    row, col = tl.arange(0, ROWS)[:, None], tl.arange(0, PADDED)[None, :]
    mask = (first + row < batch) & (col < WIDTH)
    start = replica * batch + first
    U += matrix.to(tl.int64) * (4 * WIDTH * WIDTH)
    gates += replica * by_replica + head * by_head + first * by_row
    gates_at = row * by_row + col
    step = tl.zeros((), tl.int64) + by_step
    across_heads = heads * WIDTH
    h_all += start * length * across_heads + head * WIDTH
    y_all += start * length * across_heads + head * WIDTH
    h_at = row * (length * across_heads) + col
    act_all += (start * length * across_heads + head * WIDTH) * 4
    act_at = row * (length * across_heads * 4) + col
    state_at = start * across_heads + head * WIDTH + row * across_heads + col

    b_i, b_f, b_z, b_o = load_four(bias + matrix * (4 * WIDTH) + col, col < WIDTH, WIDTH)
    h = tl.load(h_first + state_at, mask, 0.0)
    y = tl.load(y_first + state_at, mask, 0.0).to(tl.float32)
    a = tl.load(a_first + state_at, mask, 0.0).to(tl.float32)
    if RESIDENT:
        across = load_matrices(U, TURN, WIDTH, PADDED)
    else:
        past += (matrix.to(tl.int64) * tl.num_programs(0) + tl.program_id(0)) * (2 * ROWS * WIDTH)
        tl.store(past + row * WIDTH + col, h, col < WIDTH)
        tl.debug_barrier()
    i, f, z, o = load_four(gates + gates_at, mask, WIDTH)
    for t in range(length):
        later = load_four(gates + (t + 1) * step + gates_at, mask & (t + 1 < length), WIDTH)
        sums = (i.to(tl.float32) + b_i, f.to(tl.float32) + b_f, z.to(tl.float32) + b_z, o.to(tl.float32) + b_o)
        if RESIDENT:
            i, f, z, o = dot_four(h, across, sums, PRECISION)
        else:
            i, f, z, o = stream_there(sums, past + t % 2 * (ROWS * WIDTH), U, TURN, WIDTH, PADDED, PRECISION)
        u = i - log_sigmoid(f) - a
        f, z, o, w = sigmoid(f), tanh(z), sigmoid(o), sigmoid(u)
        y += w * (z - y)
        a = i - log_sigmoid(u)
        h = (o * y).to(h_all.dtype.element_ty)
        tl.store(h_all + t * across_heads + h_at, h, mask)
        if not RESIDENT:
            tl.store(past + (t + 1) % 2 * (ROWS * WIDTH) + row * WIDTH + col, h, col < WIDTH)
            tl.debug_barrier()
        if KEPT:
            store_four(act_all + t * across_heads * 4 + act_at, (f, z, o, w), mask, WIDTH)
            tl.store(y_all + t * across_heads + h_at, y, mask)
        i, f, z, o = later
    tl.store(y_last + state_at, y.to(y_last.dtype.element_ty), mask)
    tl.store(a_last + state_at, a.to(a_last.dtype.element_ty), mask)


@triton.jit
def _backward(
    d_h_all: tl.tensor | None,
    d_y_last: tl.tensor | None,
    d_a_last: tl.tensor | None,
    act_all: tl.tensor,
    y_all: tl.tensor,
    U: tl.tensor,
    d_gates: tl.tensor,
    d_h_first: tl.tensor,
    d_y_first: tl.tensor,
    d_a_first: tl.tensor,
    batch: tl.tensor,
    length: tl.tensor,
    heads: tl.tensor,
    by_replica: tl.tensor,
    by_row: tl.tensor,
    by_step: tl.tensor,
    by_head: tl.tensor,
    WIDTH: tl.constexpr,
    PADDED: tl.constexpr,
    RESIDENT: tl.constexpr,
    PRECISION: tl.constexpr,
) -> None:
    first, matrix = tl.program_id(0).to(tl.int64) * ROWS, tl.program_id(1)
    replica, head = (matrix // heads).to(tl.int64), matrix % heads
    row, col = tl.arange(0, ROWS)[:, None], tl.arange(0, PADDED)[None, :]
    mask = (first + row < batch) & (col < WIDTH)
    start = replica * batch + first
    U += matrix.to(tl.int64) * (4 * WIDTH * WIDTH)
    d_gates += replica * by_replica + head * by_head + first * by_row
    gates_at = row * by_row + col
    step = tl.zeros((), tl.int64) + by_step
    across_heads = heads * WIDTH
    y_all += start * length * across_heads + head * WIDTH
    h_at = row * (length * across_heads) + col
    act_all += (start * length * across_heads + head * WIDTH) * 4
    act_at = row * (length * across_heads * 4) + col
    state_at = start * across_heads + head * WIDTH + row * across_heads + col

    d_h = tl.zeros((ROWS, PADDED), tl.float32)
    d_y = tl.zeros((ROWS, PADDED), tl.float32)
    d_a = tl.zeros((ROWS, PADDED), tl.float32)
    if d_y_last is not None:
        d_y = tl.load(d_y_last + state_at, mask, 0.0).to(tl.float32)
    if d_a_last is not None:
        d_a = tl.load(d_a_last + state_at, mask, 0.0).to(tl.float32)
    d_out = tl.zeros((ROWS, PADDED), tl.float32)
    if d_h_all is not None:
        d_h_all += start * length * across_heads + head * WIDTH
        d_out = tl.load(d_h_all + (length - 1) * across_heads + h_at, mask, 0.0).to(tl.float32)
    if RESIDENT:
        along = load_matrices(U, False, WIDTH, PADDED)
    f, z, o, w = load_four(act_all + (length - 1) * across_heads * 4 + act_at, mask, WIDTH)
    y = tl.load(y_all + (length - 1) * across_heads + h_at, mask, 0.0)
    for done in range(length):
        t = length - 1 - done
        more = mask & (t > 0)
        earlier = load_four(act_all + (t - 1) * across_heads * 4 + act_at, more, WIDTH)
        y_earlier = tl.load(y_all + (t - 1) * across_heads + h_at, more, 0.0)
        d_h += d_out
        if d_h_all is not None:
            d_out = tl.load(d_h_all + (t - 1) * across_heads + h_at, more, 0.0).to(tl.float32)
        d_y += d_h * o
        d_o = d_h * y * o * (1 - o)
        # d_y w is tanh's share; (1 - w)(tanh(z) - y_{t-1}) = tanh(z) - y_t.
        share = d_y * w
        d_i = share * (z - y) + d_a * w
        d_z = share * (1 - z * z)
        d_y -= share
        d_a -= d_i
        d_f = d_a * (1 - f)
        store_four(d_gates + t * step + gates_at, (d_i, d_f, d_z, d_o), mask, WIDTH)
        if RESIDENT:
            d_h = dot_back((d_i, d_f, d_z, d_o), along, PRECISION)
        else:
            tl.debug_barrier()
            d_h = stream_back(d_gates + t * step, by_row, batch - first, U, WIDTH, PADDED, PRECISION)
        f, z, o, w = earlier
        y = y_earlier
    tl.store(d_h_first + state_at, d_h.to(d_h_first.dtype.element_ty), mask)
    tl.store(d_y_first + state_at, d_y.to(d_y_first.dtype.element_ty), mask)
    tl.store(d_a_first + state_at, d_a.to(d_a_first.dtype.element_ty), mask)
