"""A turn of a Turing machine's memory as two Triton kernels: `turing_turn` of reference.py.

    c = softmax_n(b cos(k, M[n]))        g = s(.) c + (1 - s(.)) w       v[n] = sum_j p[j] g[n-j]
    w'[n] = v[n]^y / sum_m v[m]^y        M'[n] = M[n] prod_h (1 - w'_h[n] e_h) + sum_h w'_h[n] a_h
    r = sum_n w'[n] M'[n]

A program has one machine, whose memory is read once and written once: what heads found is found again on the way back,
from what came in and the weightings that came out. With d of w', M' and r, and G = dM' + sum_h dr_h w'_h there,

    dw'_h = d + dr_h M', of a head that reads        dw'_h = d + a_h G - e_h G M K_h, of one that writes
    da_h = sum_n w'_h G        de_h = -sum_n w'_h G M K_h        dM = G K, and what looking for content adds

where K is what all heads leave, K_h what all but that one do. From dw' on it is sharpening, shifts, gate and content
(models/kernels/triton/content.py) backwards, head by head.

The host code is by hand: a declaration (in_triton.py) has no options like `shifts`, and wants heads and tokens.
"""
# pyright: reportIndexIssue=false
# (a kernel[grid] has no type where triton.jit has none)

from typing import Any, NamedTuple

import torch
from torch import Tensor

from chomsky_ladder.models.kernels.triton.content import padded
from chomsky_ladder.models.operations.turing.gpu_programs import backward_kernel, forward_kernel
from chomsky_ladder.models.scans.replicas import fold_replicas, unfold_replicas

PER_WARP = 1024  # elements of a memory


def triton_turing(
    asked_BX: Tensor, weight_BHN: Tensor, memory_BWN: Tensor, *, shifts: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute `turing_turn` in fp32; it stacks under vmap."""
    assert all(x.dtype == torch.float32 for x in (asked_BX, weight_BHN, memory_BWN)), "the kernel takes fp32 alone"
    return _turn(asked_BX, weight_BHN, memory_BWN, shifts)


@torch.library.custom_op("chomsky_ladder::turing", mutates_args=())
def _turn(asked_BX: Tensor, weight_BHN: Tensor, memory_BWN: Tensor, shifts: int) -> tuple[Tensor, Tensor, Tensor]:
    """Every machine is by itself, so that replicas are more of them."""
    given = [x.contiguous() for x in (asked_BX, weight_BHN, memory_BWN)]
    written, plan = _written(*given, shifts), Plan.of(weight_BHN, memory_BWN, shifts)
    with torch.cuda.device_of(asked_BX):
        forward_kernel[plan.grid](*given, *written, *plan.sizes, num_warps=plan.warps)
    return written


@_turn.register_fake
def _written(asked_BX: Tensor, weight_BHN: Tensor, memory_BWN: Tensor, shifts: int) -> tuple[Tensor, Tensor, Tensor]:
    batch, heads = weight_BHN.shape[:2]
    shapes = weight_BHN.shape, memory_BWN.shape, (batch, heads // 2, memory_BWN.shape[1])
    weights_BHN, memories_BWN, reads_BHW = (_room(shape, memory_BWN) for shape in shapes)
    return weights_BHN, memories_BWN, reads_BHW


@torch.library.custom_op("chomsky_ladder::turing_back", mutates_args=())
def _turn_back(
    d_weights_BHN: Tensor,
    d_memories_BWN: Tensor,
    d_reads_BHW: Tensor,
    asked_BX: Tensor,
    weight_BHN: Tensor,
    memory_BWN: Tensor,
    weights_BHN: Tensor,
    shifts: int,
) -> tuple[Tensor, Tensor, Tensor]:
    d_given = [x.contiguous() for x in (d_weights_BHN, d_memories_BWN, d_reads_BHW)]
    given = [x.contiguous() for x in (asked_BX, weight_BHN, memory_BWN, weights_BHN)]
    written, plan = _written_back(*d_given, *given, shifts), Plan.of(weight_BHN, memory_BWN, shifts)
    with torch.cuda.device_of(asked_BX):
        backward_kernel[plan.grid](*d_given, *given, *written, *plan.sizes, num_warps=plan.warps)
    return written


@_turn_back.register_fake
def _written_back(
    d_weights_BHN: Tensor,
    d_memories_BWN: Tensor,
    d_reads_BHW: Tensor,
    asked_BX: Tensor,
    weight_BHN: Tensor,
    memory_BWN: Tensor,
    weights_BHN: Tensor,
    shifts: int,
) -> tuple[Tensor, Tensor, Tensor]:
    d_asked_BX, d_weight_BHN, d_memory_BWN = (_room(x.shape, x) for x in (asked_BX, weight_BHN, memory_BWN))
    return d_asked_BX, d_weight_BHN, d_memory_BWN


def _keep(ctx: Any, inputs: tuple, output: tuple[Tensor, ...]) -> None:
    *given, ctx.shifts = inputs
    ctx.save_for_backward(*given, output[0])


def _gradients(ctx: Any, *d_outputs: Tensor) -> tuple[Tensor | None, ...]:
    return *_turn_back(*d_outputs, *ctx.saved_tensors, ctx.shifts), None


_turn.register_autograd(_gradients, setup_context=_keep)


@_turn.register_vmap
def _replicated(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple]:
    *tensors, shifts = inputs
    return unfold_replicas(_turn(*fold_replicas(tensors, in_dims[:3], info.batch_size), shifts), info.batch_size)


class Plan(NamedTuple):
    grid: tuple[int]
    sizes: tuple[int, ...]  # of both kernels, in their order
    warps: int

    @classmethod
    def of(cls, weight_BHN: Tensor, memory_BWN: Tensor, shifts: int) -> "Plan":
        (batch, width, rows), heads = memory_BWN.shape, weight_BHN.shape[1] // 2
        tile = padded(width, rows)
        warps = max(1, min(16, tile[0] * tile[1] // PER_WARP))
        return cls((batch,), (width, rows, heads, shifts, *tile), warps)


def _room(shape: tuple[int, ...], like: Tensor) -> Tensor:
    return like.new_empty(shape)
