"""All that Mamba-1 has between its projections as two Triton kernels: `gated_scan` of reference.py.

    h_t = a_t h_{t-1} + B_t dt_t v_t        a_t = exp(dt_t A), signed: 2 exp(dt_t A) - 1        dt_t = softplus(x_t + b)
    y_t = (p_t + D v_t) silu(z_t)           p_t = sum_n C_{t,n} h_{t,n}

Gu and Dao 2023 (2312.00752), section 3.3. A program walks through time for one row and one tile of channels, its state
[N, tile] in registers. The forward pass writes the state before every `CHUNK` positions; the backward pass goes from
the last chunk to the first, computes a chunk's states again into registers, and takes the gradients off them, with
gp_t = gy_t silu(z_t) and u_t = dt_t v_t:

    g_t = dL/dh_t = C_t gp_t + a_{t+1} g_{t+1}        gu_t = sum_n B_t g_t        gB_t = sum_e u_t g_t
    gC_t = sum_e gp_t h_t        w_t = g_t h_{t-1} da_t/d(dt_t A)        gdt_t = v_t gu_t + sum_n A w_t
    gv_t = D gp_t + dt_t gu_t        gz_t = gy_t (p_t + D v_t) silu'(z_t)        gA = sum_t dt_t w_t

Sums over tiles (of gB and gC) and over rows (of gA, gD and gb) are added outside, so the result does not depend on the
order in which programs run. Positions behind the end count as dt = v = C = gy = 0, which leave h and g as they are.

The host code is by hand: a declaration (in_triton.py) has no options like `signed`, no outputs in an input's precision
and no sums over rows.
"""
# pyright: reportIndexIssue=false
# (a kernel[grid] has no type where triton.jit has none)

from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from chomsky_ladder.models.kernels.triton.memory import each_together, together
from chomsky_ladder.models.operations.scan.gpu_programs import backward_kernel, forward_kernel
from chomsky_ladder.models.scans.replicas import fold_replicas, unfold_replicas

CHUNK = 4  # as many states as one warp holds going back
PER_WARP = 512  # elements of a state: 16 registers a thread

Gradients = tuple[Tensor | None, ...]


def triton_gated_scan(
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
    """In fp32 inside, for inputs of fp32 or bf16, each as it comes: y has the precision of the gate, as under autocast
    the product behind it wants it, the state that of h.
    """
    tensors = (v_BLE, dt_BLE, bias_E, A_NE, B_BLN, C_BLN, D_E, z_BLE, h_BNE)
    assert all(x.dtype in (torch.float32, torch.bfloat16) for x in tensors), "the kernel takes fp32 and bf16 alone"
    assert v_BLE.shape[1] >= 1, "the kernel takes one position or more"
    y_1BLE, h_1BNE, _ = _scan(*(together(x)[None] for x in tensors), signed, torch.is_grad_enabled())
    return y_1BLE[0], h_1BNE[0]


@torch.library.custom_op("chomsky_ladder::gated_scan", mutates_args=())
def _scan(
    v_RBLE: Tensor,
    dt_RBLE: Tensor,
    bias_RE: Tensor,
    A_RNE: Tensor,
    B_RBLN: Tensor,
    C_RBLN: Tensor,
    D_RE: Tensor,
    z_RBLE: Tensor,
    h_RBNE: Tensor,
    signed: bool,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """All y, the last state, and the states that start the chunks: none, unless a backward pass is to come.

    With an axis R in front, of replicas that differ in their weights too: what vmap adds folds into it.
    """
    tensors = (v_RBLE, dt_RBLE, bias_RE, A_RNE, B_RBLN, C_RBLN, D_RE, z_RBLE, h_RBNE)
    written, tiling = _written(*tensors, signed, keep), _Tiling.of(*A_RNE.shape[1:])
    h_RBNE = each_together(h_RBNE)
    given, strides = _given(*tensors[:-1])
    with torch.cuda.device_of(v_RBLE):
        forward_kernel[(written[1].shape[0] * written[1].shape[1] * tiling.count,)](
            *given, h_RBNE, *written, *strides, h_RBNE.stride()[:1], *_sizes(v_RBLE, tiling, A_RNE), signed, keep,
            num_warps=tiling.warps,
        )  # fmt: skip
    return written


@_scan.register_fake
def _written(
    v_RBLE: Tensor,
    dt_RBLE: Tensor,
    bias_RE: Tensor,
    A_RNE: Tensor,
    B_RBLN: Tensor,
    C_RBLN: Tensor,
    D_RE: Tensor,
    z_RBLE: Tensor,
    h_RBNE: Tensor,
    signed: bool,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    replicas, batch, length, channels = v_RBLE.shape
    starts = (replicas, batch, triton.cdiv(length, CHUNK) if keep else 0, A_RNE.shape[1], channels)
    return _room(v_RBLE.shape, z_RBLE), _room(h_RBNE.shape, h_RBNE), _room(starts, v_RBLE, torch.float32)


@torch.library.custom_op("chomsky_ladder::gated_scan_back", mutates_args=())
def _scan_back(
    v_RBLE: Tensor,
    dt_RBLE: Tensor,
    bias_RE: Tensor,
    A_RNE: Tensor,
    B_RBLN: Tensor,
    C_RBLN: Tensor,
    D_RE: Tensor,
    z_RBLE: Tensor,
    starts_RBKNE: Tensor,
    gy_RBLE: Tensor,
    gh_RBNE: Tensor,
    signed: bool,
) -> list[Tensor]:
    """The gradients of v, dt and z and the first state, of the bias, A and D by rows, of B and C by tiles."""
    tensors = (v_RBLE, dt_RBLE, bias_RE, A_RNE, B_RBLN, C_RBLN, D_RE, z_RBLE)
    written = _written_back(*tensors, starts_RBKNE, gy_RBLE, gh_RBNE, signed)
    tiling = _Tiling.of(*A_RNE.shape[1:])
    given, strides = _given(*tensors)
    with torch.cuda.device_of(v_RBLE):
        backward_kernel[(gh_RBNE.shape[0] * gh_RBNE.shape[1] * tiling.count,)](
            *given, starts_RBKNE, gy_RBLE.contiguous(), gh_RBNE.contiguous(), *written, *strides,
            *_sizes(v_RBLE, tiling, A_RNE), signed, num_warps=tiling.warps,
        )  # fmt: skip
    return written


@_scan_back.register_fake
def _written_back(
    v_RBLE: Tensor,
    dt_RBLE: Tensor,
    bias_RE: Tensor,
    A_RNE: Tensor,
    B_RBLN: Tensor,
    C_RBLN: Tensor,
    D_RE: Tensor,
    z_RBLE: Tensor,
    starts_RBKNE: Tensor,
    gy_RBLE: Tensor,
    gh_RBNE: Tensor,
    signed: bool,
) -> list[Tensor]:
    replicas, batch, length, channels = v_RBLE.shape
    states, tiles = A_RNE.shape[1], _Tiling.of(*A_RNE.shape[1:]).count
    by_row = [(replicas, batch, channels), (replicas, batch, channels), (replicas, batch, states, channels)]
    by_tile = [(replicas, batch, tiles, length, states)] * 2
    return [
        *(_room(x.shape, x) for x in (v_RBLE, dt_RBLE, z_RBLE, gh_RBNE)),
        *(_room(shape, v_RBLE, torch.float32) for shape in (*by_row, *by_tile)),
    ]


def _keep(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor, Tensor]) -> None:
    *tensors, h_RBNE, ctx.signed, _ = inputs
    ctx.state_dtype = h_RBNE.dtype
    ctx.mark_non_differentiable(output[2])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors, output[2])


def _gradients(ctx: Any, gy_RBLE: Tensor | None, gh_RBNE: Tensor | None, _: None) -> Gradients:
    *tensors, starts_RBKNE = ctx.saved_tensors
    if gy_RBLE is None:
        gy_RBLE = torch.zeros_like(tensors[7])
    if gh_RBNE is None:
        gh_RBNE = torch.zeros_like(starts_RBKNE[:, :, 0], dtype=ctx.state_dtype)
    gv, gdt, gz, first, gbias, gD, gA, gB, gC = _scan_back(*tensors, starts_RBKNE, gy_RBLE, gh_RBNE, ctx.signed)
    _, _, bias, A, B, C, D, _ = (x.dtype for x in tensors)
    of_weights = gbias.sum(1).to(bias), gA.sum(1).to(A), gB.sum(2).to(B), gC.sum(2).to(C), gD.sum(1).to(D)
    return gv, gdt, *of_weights, gz, first, None, None


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
        """One warp a tile if it holds all states: sums over them then wait for no other."""
        padded = triton.next_power_of_2(states)
        tile = max(16, min(PER_WARP // padded, triton.next_power_of_2(channels)))
        return cls(padded, tile, triton.cdiv(channels, tile), min(8, max(1, padded * tile // PER_WARP)))


def _given(*tensors: Tensor) -> tuple[list[Tensor], list[tuple[int, ...]]]:
    """Strides over replicas, rows and positions of what may be parts of a product, and over replicas of weights."""
    given = [together(x) if x.dim() == 4 else each_together(x) for x in tensors]
    of_parts, of_weights = ([x.stride() for x in given if (x.dim() == 4) == parts] for parts in (True, False))
    return given, [*(strides[:3] for strides in of_parts), *(strides[:1] for strides in of_weights)]


def _sizes(v_RBLE: Tensor, tiling: _Tiling, A_RNE: Tensor) -> tuple[int, ...]:
    return (*v_RBLE.shape[1:3], *A_RNE.shape[1:], tiling.states, tiling.tile, CHUNK)


def _room(shape: tuple[int, ...], like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    return torch.empty(shape, dtype=dtype or like.dtype, device=like.device)
