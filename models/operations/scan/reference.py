"""The selective scan of Mamba-1: a diagonal recurrence whose decay differs by channel, state and position.

    h_t = a_t h_{t-1} + (dt_t x_t) B_t        a_t = exp(dt_t A)        y_t = sum_n C_{t,n} h_{t,n} + D x_t

Gu and Dao 2023 (2312.00752), algorithm 2 with its Euler step for B. "signed" takes a_t = 2 exp(dt_t A) - 1 instead,
which lies in (-1, 1], and leaves the rest as it is: Grazzi et al. 2024 (2411.12537), section 4.

`scan_loop` is the definition. `scan_chunks` computes the same with less work for the machine: one product per position
instead of a dozen, base-2 exponentials (on a CPU torch's exp2 is four times as fast as its exp), and a backward pass
by hand that keeps one state of every `CHUNK` and computes those in between again. Forward and backward of [32, 256,
128] with 16 states on one core: 226 ms the loop, 163 the chunks.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from chomsky_ladder.models.scans.function import Function
from chomsky_ladder.models.scans.replicas import fold_replicas, unfold_replicas

CHUNK = 8
CACHED = 2**19  # elements of a chunk's states that still run at the speed of a CPU's cache; rows beyond wait their turn

Gradients = tuple[Tensor | None, ...]


def initial_dt_bias(
    count: int, *, smallest: float = 1e-3, largest: float = 0.1, dtype: torch.dtype = torch.float32
) -> Tensor:
    """What softplus turns into steps dt that are log-uniform between two bounds (Gu and Dao 2023, section 3.6).

    Of another `dtype` than fp32 it is that of the arithmetic alone: CPUs differ in the last bit of an fp32 logarithm.
    """
    dt = torch.empty(count, dtype=dtype).uniform_(math.log(smallest), math.log(largest)).exp()
    return (dt + torch.log(-torch.expm1(-dt))).float()


def at_least_fp32(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def scan_step(
    u_BE: Tensor, dt_BE: Tensor, A_NE: Tensor, B_BN: Tensor, C_BN: Tensor, h_BNE: Tensor, signed: bool
) -> tuple[Tensor, Tensor]:
    """One position of u = dt x: its y without the skip, and the state."""
    a_BNE = torch.exp(dt_BE[:, None] * A_NE)
    if signed:
        a_BNE = 2 * a_BNE - 1
    h_BNE = a_BNE * h_BNE + B_BN[..., None] * u_BE[:, None]
    return (C_BN[:, None] @ h_BNE)[:, 0], h_BNE


def scan_loop(
    u_BLE: Tensor, dt_BLE: Tensor, A_NE: Tensor, B_BLN: Tensor, C_BLN: Tensor, h_BNE: Tensor, signed: bool
) -> tuple[Tensor, Tensor]:
    """`scan_step` over a sequence."""
    outputs = []
    for u_BE, dt_BE, B_BN, C_BN in zip(*(z.unbind(1) for z in (u_BLE, dt_BLE, B_BLN, C_BLN)), strict=True):
        y_BE, h_BNE = scan_step(u_BE, dt_BE, A_NE, B_BN, C_BN, h_BNE, signed)
        outputs.append(y_BE)
    return torch.stack(outputs, 1), h_BNE


def gated_scan(
    v_BLE: Tensor,
    dt_BLE: Tensor,
    bias_E: Tensor,
    A_NE: Tensor,
    B_BLN: Tensor,
    C_BLN: Tensor,
    D_E: Tensor,
    z_BLE: Tensor,
    h_BNE: Tensor,
    signed: bool,
) -> tuple[Tensor, Tensor]:
    """All that Mamba has between its projections: softplus of the steps, the scan with its skip, and the gate."""
    dt_BLE = torch.nn.functional.softplus(dt_BLE + bias_E)
    y_BLE, h_BNE = scan_loop(dt_BLE * v_BLE, dt_BLE, A_NE, B_BLN, C_BLN, h_BNE, signed)
    return (y_BLE + D_E * v_BLE) * torch.nn.functional.silu(z_BLE), h_BNE


def scan_chunks(
    u_BLE: Tensor, dt_BLE: Tensor, A_NE: Tensor, B_BLN: Tensor, C_BLN: Tensor, h_BNE: Tensor, signed: bool
) -> tuple[Tensor, Tensor]:
    """`scan_loop`, on a CPU some rows at a time so that a chunk's states stay in its cache."""
    batch, length = u_BLE.shape[:2]
    rows = max(1, CACHED // (min(CHUNK, length) * A_NE.numel())) if u_BLE.device.type == "cpu" else batch
    parts = []
    for u, dt, B, C, h in zip(*(z.split(rows) for z in (u_BLE, dt_BLE, B_BLN, C_BLN, h_BNE)), strict=True):
        y_1BLE, h_1BNE, _ = _Chunks.apply(u[None], dt[None], A_NE[None], B[None], C[None], h[None], signed)
        parts.append((y_1BLE.squeeze(0), h_1BNE.squeeze(0)))
    y_BLE, h_BNE = parts[0] if len(parts) == 1 else (torch.cat(z) for z in zip(*parts, strict=True))
    return y_BLE, h_BNE


class _Chunks(Function):
    """The scan with an axis R in front, of replicas that differ in A too: what vmap adds folds into it."""

    @staticmethod
    def forward(
        u_RBLE: Tensor, dt_RBLE: Tensor, A_RNE: Tensor, B_RBLN: Tensor, C_RBLN: Tensor, h_RBNE: Tensor, signed: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        outputs, starts, room = [], [], _room(2, h_RBNE, u_RBLE.shape[2])
        for u, dt, B, C in zip(*(z.split(CHUNK, 2) for z in (u_RBLE, dt_RBLE, B_RBLN, C_RBLN)), strict=True):
            starts.append(h_RBNE)
            a_RBTNE, h_RBTNE = _fitted(room, u.shape[2], h_RBNE)
            _states(u, dt, A_RNE, B, h_RBNE, signed, a_RBTNE, h_RBTNE)
            outputs.append((C[..., None, :] @ h_RBTNE)[..., 0, :])
            h_RBNE = h_RBTNE[:, :, -1].clone()
        return torch.cat(outputs, 2), h_RBNE, torch.stack(starts, 2)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor, Tensor]) -> None:
        *tensors, _, ctx.signed = inputs
        ctx.mark_non_differentiable(output[2])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors, output[2])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gy_RBLE: Tensor | None, gh_RBNE: Tensor | None, _: None) -> Gradients:
        """From the last chunk to the first, with g_t = dL/dh_t = C_t gy_t + a_{t+1} g_{t+1}."""
        u_RBLE, dt_RBLE, A_RNE, B_RBLN, C_RBLN, starts_RBKNE = ctx.saved_tensors
        gy_RBLE = torch.zeros_like(u_RBLE) if gy_RBLE is None else gy_RBLE
        gh_RBNE = torch.zeros_like(starts_RBKNE[:, :, 0]) if gh_RBNE is None else gh_RBNE
        gA_RNE, of_chunks, room = torch.zeros_like(A_RNE), [], _room(3, gh_RBNE, u_RBLE.shape[2])
        chunks = zip(
            starts_RBKNE.unbind(2),
            *(z.split(CHUNK, 2) for z in (u_RBLE, dt_RBLE, B_RBLN, C_RBLN, gy_RBLE)),
            strict=True,
        )
        with torch.autocast(u_RBLE.device.type, enabled=False):
            for h_RBNE, u, dt, B, C, gy in reversed(list(chunks)):
                a_RBTNE, h_RBTNE, g_RBTNE = _fitted(room, u.shape[2], h_RBNE)
                _states(u, dt, A_RNE, B, h_RBNE, ctx.signed, a_RBTNE, h_RBTNE)
                torch.mul(C[..., None], gy[..., None, :], out=g_RBTNE)
                g_T, a_T = g_RBTNE.unbind(2), a_RBTNE.unbind(2)
                g_T[-1].add_(gh_RBNE)
                for t in range(len(g_T) - 2, -1, -1):
                    g_T[t].addcmul_(a_T[t + 1], g_T[t + 1])
                gh_RBNE = a_T[0] * g_T[0]
                gu = (B[..., None, :] @ g_RBTNE)[..., 0, :]
                gB = (u[..., None, :] @ g_RBTNE.mT)[..., 0, :]
                gC = (gy[..., None, :] @ h_RBTNE.mT)[..., 0, :]
                # Of the exponent dt A; a signed a has the slope 2 exp(dt A) = a + 1, a positive one a.
                slope_RBTNE = a_RBTNE.add_(1) if ctx.signed else a_RBTNE
                g_T[0].mul_(h_RBNE)
                g_RBTNE[:, :, 1:].mul_(h_RBTNE[:, :, :-1])
                g_RBTNE.mul_(slope_RBTNE)
                gdt = torch.mul(g_RBTNE, A_RNE[:, None, None], out=slope_RBTNE).sum(-2)
                gA_RNE += g_RBTNE.mul_(dt[..., None, :]).sum((1, 2))
                of_chunks.append((gu, gdt, gB, gC))
        gu_RBLE, gdt_RBLE, gB_RBLN, gC_RBLN = (torch.cat(z[::-1], 2) for z in zip(*of_chunks, strict=True))
        return gu_RBLE, gdt_RBLE, gA_RNE, gB_RBLN, gC_RBLN, gh_RBNE, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple]:
        *tensors, signed = inputs
        outputs = _Chunks.apply(*fold_replicas(tensors, in_dims[:-1], info.batch_size), signed)
        return unfold_replicas(outputs, info.batch_size)


def _room(count: int, h_RBNE: Tensor, length: int) -> Tensor:
    """Memory to be used for every chunk: fresh memory costs a CPU more in page faults than to fill."""
    return h_RBNE.new_empty(count, min(CHUNK, length) * h_RBNE.numel())


def _fitted(room: Tensor, length: int, h_RBNE: Tensor) -> tuple[Tensor, ...]:
    """Contiguous tensors [R, B, T, N, E] in that memory, for the last chunk smaller ones: products copy any other."""
    *rows, states, channels = h_RBNE.shape
    return room[:, : length * h_RBNE.numel()].view(-1, *rows, length, states, channels).unbind(0)


def _states(
    u_RBTE: Tensor,
    dt_RBTE: Tensor,
    A_RNE: Tensor,
    B_RBTN: Tensor,
    h_RBNE: Tensor,
    signed: bool,
    a_RBTNE: Tensor,
    h_RBTNE: Tensor,
) -> None:
    """Fill in the transitions and states of a chunk that starts from a state."""
    torch.mul(dt_RBTE[..., None, :], (A_RNE * math.log2(math.e))[:, None, None], out=a_RBTNE).exp2_()
    if signed:
        a_RBTNE.mul_(2).sub_(1)
    torch.mul(B_RBTN[..., None], u_RBTE[..., None, :], out=h_RBTNE)
    for a, h in zip(a_RBTNE.unbind(2), h_RBTNE.unbind(2), strict=True):
        h_RBNE = h.addcmul_(a, h_RBNE)
