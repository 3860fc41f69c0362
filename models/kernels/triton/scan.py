"""The selective scan of Mamba-1 as two Triton kernels, forward and backward: `scan_loop` of models/scans/selective.py.

    h_t = a_t h_{t-1} + B_t u_t        a_t = exp(dt_t A), signed: 2 exp(dt_t A) - 1        y_t = sum_n C_{t,n} h_{t,n}

Gu and Dao 2023 (2312.00752), section 3.3. A program walks through time for one row and one tile of channels, its state
[N, tile] in registers. The forward pass writes the state before every `CHUNK` positions; the backward pass goes from
the last chunk to the first, computes a chunk's states again into registers, and takes the gradients off them:

    g_t = dL/dh_t = C_t gy_t + a_{t+1} g_{t+1}        gu_t = sum_n B_t g_t        gB_t = sum_e u_t g_t
    gC_t = sum_e gy_t h_t        w_t = g_t h_{t-1} da_t/d(dt_t A)        gdt_t = sum_n A w_t        gA = sum_t dt_t w_t

Sums over tiles (of gB and gC) and over rows (of gA) are added outside, so the result does not depend on the order in
which programs run. Positions behind the end count as dt = u = C = gy = 0, which leaves h and g as they are.
"""
# pyright: reportIndexIssue=false
# (a kernel[grid] has no type where triton.jit has none)

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from chomsky_ladder.models.scans.replicas import fold_replicas, unfold_replicas

CHUNK = 8
PER_WARP = 512  # elements of a state that one warp holds: 16 registers a thread, and 8 states of them going back
LOG2_E = tl.constexpr(1.4426950408889634)

Gradients = tuple[Tensor | None, ...]


def triton_selective_scan(
    u_BLE: Tensor, dt_BLE: Tensor, A_NE: Tensor, B_BLN: Tensor, C_BLN: Tensor, h_BNE: Tensor, signed: bool
) -> tuple[Tensor, Tensor]:
    """`scan_loop` in fp32 inside, for inputs of fp32 or bf16: y comes in the precision of u, the state in that of h."""
    tensors = (u_BLE, dt_BLE, A_NE, B_BLN, C_BLN, h_BNE)
    assert all(z.dtype in (torch.float32, torch.bfloat16) for z in tensors), "the kernel takes fp32 and bf16 alone"
    assert u_BLE.shape[1] >= 1, "the kernel takes one position or more"
    y_1BLE, h_1BNE, _ = _scan(*(z.contiguous()[None] for z in tensors), signed, torch.is_grad_enabled())
    return y_1BLE[0], h_1BNE[0]


@torch.library.custom_op("chomsky_ladder::selective_scan", mutates_args=())
def _scan(
    u_RBLE: Tensor,
    dt_RBLE: Tensor,
    A_RNE: Tensor,
    B_RBLN: Tensor,
    C_RBLN: Tensor,
    h_RBNE: Tensor,
    signed: bool,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """All y, the last state, and the states that start the chunks: none, unless a backward pass is to come.

    With an axis R in front, of replicas that differ in A too: what vmap adds folds into it.
    """
    tensors = (u_RBLE, dt_RBLE, A_RNE, B_RBLN, C_RBLN, h_RBNE)
    written = _written(*tensors, signed, keep)
    replicas, batch, length, channels = u_RBLE.shape
    states = A_RNE.shape[1]
    tiling = _Tiling.of(states, channels)
    sizes = (batch, length, states, channels, tiling.states, tiling.tile, CHUNK)
    with torch.cuda.device_of(u_RBLE):
        inputs, grid = (z.contiguous() for z in tensors), (replicas * batch * tiling.count,)
        forward_kernel[grid](*inputs, *written, *sizes, signed, keep, num_warps=tiling.warps)
    return written


@_scan.register_fake
def _written(
    u_RBLE: Tensor,
    dt_RBLE: Tensor,
    A_RNE: Tensor,
    B_RBLN: Tensor,
    C_RBLN: Tensor,
    h_RBNE: Tensor,
    signed: bool,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    replicas, batch, length, channels = u_RBLE.shape
    y_RBLE, last_RBNE = (_room(z.shape, z.dtype, u_RBLE.device) for z in (u_RBLE, h_RBNE))
    starts = (replicas, batch, triton.cdiv(length, CHUNK) if keep else 0, A_RNE.shape[1], channels)
    return y_RBLE, last_RBNE, _room(starts, torch.float32, u_RBLE.device)


@torch.library.custom_op("chomsky_ladder::selective_scan_back", mutates_args=())
def _scan_back(
    u_RBLE: Tensor,
    dt_RBLE: Tensor,
    A_RNE: Tensor,
    B_RBLN: Tensor,
    C_RBLN: Tensor,
    starts_RBKNE: Tensor,
    gy_RBLE: Tensor,
    gh_RBNE: Tensor,
    state_dtype: torch.dtype,
    signed: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The gradients of u and dt, of A by rows, of B and C by tiles, and of the first state."""
    tensors = (u_RBLE, dt_RBLE, A_RNE, B_RBLN, C_RBLN, starts_RBKNE, gy_RBLE, gh_RBNE)
    written = _written_back(*tensors, state_dtype, signed)
    replicas, batch, length, channels = u_RBLE.shape
    states = A_RNE.shape[1]
    tiling = _Tiling.of(states, channels)
    sizes = (batch, length, states, channels, tiling.states, tiling.tile, CHUNK)
    with torch.cuda.device_of(u_RBLE):
        inputs, grid = (z.contiguous() for z in tensors), (replicas * batch * tiling.count,)
        backward_kernel[grid](*inputs, *written, *sizes, signed, num_warps=tiling.warps)
    return written


@_scan_back.register_fake
def _written_back(
    u_RBLE: Tensor,
    dt_RBLE: Tensor,
    A_RNE: Tensor,
    B_RBLN: Tensor,
    C_RBLN: Tensor,
    starts_RBKNE: Tensor,
    gy_RBLE: Tensor,
    gh_RBNE: Tensor,
    state_dtype: torch.dtype,
    signed: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    replicas, batch, length, channels = u_RBLE.shape
    states, device = A_RNE.shape[1], u_RBLE.device
    tiles = _Tiling.of(states, channels).count
    gu_RBLE, gdt_RBLE = (_room(z.shape, z.dtype, device) for z in (u_RBLE, dt_RBLE))
    gA_RBNE = _room((replicas, batch, states, channels), torch.float32, device)
    gB_RBTLN, gC_RBTLN = (_room((replicas, batch, tiles, length, states), torch.float32, device) for _ in range(2))
    return gu_RBLE, gdt_RBLE, gA_RBNE, gB_RBTLN, gC_RBTLN, _room(gA_RBNE.shape, state_dtype, device)


def _keep(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor, Tensor]) -> None:
    *tensors, h_RBNE, ctx.signed, _ = inputs
    ctx.state_dtype = h_RBNE.dtype
    ctx.mark_non_differentiable(output[2])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors, output[2])


def _gradients(ctx: Any, gy_RBLE: Tensor | None, gh_RBNE: Tensor | None, _: None) -> Gradients:
    u_RBLE, _, A_RNE, B_RBLN, C_RBLN, starts_RBKNE = ctx.saved_tensors
    if gy_RBLE is None:
        gy_RBLE = torch.zeros_like(u_RBLE)
    if gh_RBNE is None:
        gh_RBNE = torch.zeros_like(starts_RBKNE[:, :, 0])
    found = _scan_back(*ctx.saved_tensors, gy_RBLE, gh_RBNE, ctx.state_dtype, ctx.signed)
    gu_RBLE, gdt_RBLE, gA_RBNE, gB_RBTLN, gC_RBTLN, first_RBNE = found
    gA_RNE = gA_RBNE.sum(1).to(A_RNE.dtype)
    gB_RBLN, gC_RBLN = gB_RBTLN.sum(2).to(B_RBLN.dtype), gC_RBTLN.sum(2).to(C_RBLN.dtype)
    return gu_RBLE, gdt_RBLE, gA_RNE, gB_RBLN, gC_RBLN, first_RBNE, None, None


_scan.register_autograd(_gradients, setup_context=_keep)


@_scan.register_vmap
def _replicated(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple]:
    *tensors, signed, keep = inputs
    outputs = _scan(*fold_replicas(tensors, in_dims[:-2], info.batch_size), signed, keep)
    return unfold_replicas(outputs, info.batch_size)


class _Tiling(NamedTuple):
    states: int  # padded to a power of two
    tile: int  # channels, a power of two
    count: int  # tiles
    warps: int

    @classmethod
    def of(cls, states: int, channels: int) -> "_Tiling":
        """One warp a tile if it holds all states, since none then waits for another at every position."""
        states = triton.next_power_of_2(states)
        tile = max(16, min(PER_WARP // states, triton.next_power_of_2(channels)))
        return cls(states, tile, triton.cdiv(channels, tile), min(8, max(1, states * tile // PER_WARP)))


def _room(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.empty(shape, dtype=dtype, device=device)


@triton.jit
def _read(at: tl.tensor, mask: tl.tensor) -> tl.tensor:
    return tl.load(at, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def _transition(dt_E: tl.tensor, A_NE: tl.tensor, SIGNED: tl.constexpr) -> tl.tensor:
    """From A over log 2: the machine's own exponential has the base 2."""
    a_NE = tl.exp2(dt_E[None, :] * A_NE)
    if SIGNED:
        a_NE = 2 * a_NE - 1
    return a_NE


@triton.jit(do_not_specialize=["batch", "length"])
def forward_kernel(
    u: tl.tensor,
    dt: tl.tensor,
    A: tl.tensor,
    B: tl.tensor,
    C: tl.tensor,
    first: tl.tensor,
    y: tl.tensor,
    last: tl.tensor,
    starts: tl.tensor,
    batch: tl.tensor,
    length: tl.tensor,
    N: tl.constexpr,
    E: tl.constexpr,
    STATES: tl.constexpr,
    TILE: tl.constexpr,
    CHUNK: tl.constexpr,
    SIGNED: tl.constexpr,
    KEEP: tl.constexpr,
) -> None:
    TILES: tl.constexpr = (E + TILE - 1) // TILE
    row = (tl.program_id(0) // TILES).to(tl.int64)
    n = tl.arange(0, STATES)
    e = tl.program_id(0) % TILES * TILE + tl.arange(0, TILE)
    at_NE, in_NE = n[:, None] * E + e[None, :], (n < N)[:, None] & (e < E)[None, :]
    u, dt, y = u + row * length * E + e, dt + row * length * E + e, y + row * length * E + e
    B, C = B + row * length * N + n, C + row * length * N + n
    starts += row * tl.cdiv(length, CHUNK) * N * E + at_NE

    A_NE = _read(A + row // batch * N * E + at_NE, in_NE) * LOG2_E
    h_NE = _read(first + row * N * E + at_NE, in_NE)
    start = 0
    while start < length:  # no range: under NumPy 2.4 Triton's interpreter has none of a number not known beforehand
        if KEEP:
            tl.store(starts + start // CHUNK * N * E, h_NE, mask=in_NE)
        for k in tl.static_range(CHUNK):
            t = start + k
            in_E, in_N = (e < E) & (t < length), (n < N) & (t < length)
            dt_E, u_E = _read(dt + t * E, in_E), _read(u + t * E, in_E)
            B_N, C_N = _read(B + t * N, in_N), _read(C + t * N, in_N)
            h_NE = _transition(dt_E, A_NE, SIGNED) * h_NE + B_N[:, None] * u_E[None, :]
            tl.store(y + t * E, tl.sum(C_N[:, None] * h_NE, 0), mask=in_E)
        start += CHUNK
    tl.store(last + row * N * E + at_NE, h_NE, mask=in_NE)


@triton.jit(do_not_specialize=["batch", "length"])
def backward_kernel(
    u: tl.tensor,
    dt: tl.tensor,
    A: tl.tensor,
    B: tl.tensor,
    C: tl.tensor,
    starts: tl.tensor,
    gy: tl.tensor,
    glast: tl.tensor,
    gu: tl.tensor,
    gdt: tl.tensor,
    gA: tl.tensor,
    gB: tl.tensor,
    gC: tl.tensor,
    gfirst: tl.tensor,
    batch: tl.tensor,
    length: tl.tensor,
    N: tl.constexpr,
    E: tl.constexpr,
    STATES: tl.constexpr,
    TILE: tl.constexpr,
    CHUNK: tl.constexpr,
    SIGNED: tl.constexpr,
) -> None:
    TILES: tl.constexpr = (E + TILE - 1) // TILE
    program = tl.program_id(0).to(tl.int64)
    row = program // TILES
    n = tl.arange(0, STATES)
    e = tl.program_id(0) % TILES * TILE + tl.arange(0, TILE)
    at_NE, in_NE = n[:, None] * E + e[None, :], (n < N)[:, None] & (e < E)[None, :]
    u, dt, gy = u + row * length * E + e, dt + row * length * E + e, gy + row * length * E + e
    gu, gdt = gu + row * length * E + e, gdt + row * length * E + e
    B, C = B + row * length * N + n, C + row * length * N + n
    gB, gC = gB + program * length * N + n, gC + program * length * N + n
    chunks = tl.cdiv(length, CHUNK)
    starts += row * chunks * N * E + at_NE

    A_NE = _read(A + row // batch * N * E + at_NE, in_NE) * LOG2_E
    g_NE = _read(glast + row * N * E + at_NE, in_NE)
    gA_NE = tl.zeros_like(A_NE)
    start = chunks * CHUNK
    while start > 0:
        start -= CHUNK
        h_NE = _read(starts + start // CHUNK * N * E, in_NE)
        before = ()
        for k in tl.static_range(CHUNK):
            t = start + k
            in_E, in_N = (e < E) & (t < length), (n < N) & (t < length)
            dt_E, u_E, B_N = _read(dt + t * E, in_E), _read(u + t * E, in_E), _read(B + t * N, in_N)
            before += (h_NE,)
            h_NE = _transition(dt_E, A_NE, SIGNED) * h_NE + B_N[:, None] * u_E[None, :]
        for back in tl.static_range(CHUNK):
            t = start + CHUNK - 1 - back
            in_E, in_N = (e < E) & (t < length), (n < N) & (t < length)
            dt_E, u_E, gy_E = _read(dt + t * E, in_E), _read(u + t * E, in_E), _read(gy + t * E, in_E)
            B_N, C_N = _read(B + t * N, in_N), _read(C + t * N, in_N)
            g_NE += C_N[:, None] * gy_E[None, :]
            tl.store(gC + t * N, tl.sum(gy_E[None, :] * h_NE, 1), mask=in_N)
            tl.store(gB + t * N, tl.sum(u_E[None, :] * g_NE, 1), mask=in_N)
            tl.store(gu + t * E, tl.sum(B_N[:, None] * g_NE, 0), mask=in_E)
            h_NE = before[CHUNK - 1 - back]
            a_NE = _transition(dt_E, A_NE, SIGNED)
            w_NE = g_NE * h_NE * (a_NE + 1 if SIGNED else a_NE)
            tl.store(gdt + t * E, tl.sum(w_NE * A_NE, 0) / LOG2_E, mask=in_E)
            gA_NE += w_NE * dt_E[None, :]
            g_NE *= a_NE
    tl.store(gA + row * N * E + at_NE, gA_NE, mask=in_NE)
    tl.store(gfirst + row * N * E + at_NE, g_NE, mask=in_NE)
