"""A turn of a memory with links as two Triton kernels: `linked_turn` of reference.py.

    u' = (u + w - u w) prod_h (1 - f_h r_h)        a[n] = (1 - u'[n]) prod_{m before n} u'[m]
    w' = g (g_a a + (1 - g_a) content(k_w))        M' = M (1 - w' e) + w' v
    L'[n,m] = (1 - w'[n] - w'[m]) L[n,m] + w'[n] p[m], 0 for n = m        p' = (1 - sum w') p + w'
    r' = back L'^T r + content(k_r) + forth L' r        reads M'^T r'

A program has one machine, whose memory and links are read once and written once: a turn is taken again on the way back,
from what came in and the weightings that came out. Nothing is sorted: which rows come before which is a comparison of
all pairs, of equal usage the first, and a product over those. Its gradient is that product without a factor, which is
divided by it, unless it is so near 0 that without it there is another product to take, of the others alone.

The host code is by hand: a declaration (in_triton.py) wants heads and tokens, where a turn has rows alone.
"""
# pyright: reportIndexIssue=false
# (a kernel[grid] has no type where triton.jit has none)

from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from chomsky_ladder.models.kernels.triton.content import padded
from chomsky_ladder.models.operations.linked.gpu_programs import backward_kernel, forward_kernel
from chomsky_ladder.models.scans.replicas import fold_replicas, unfold_replicas

PER_WARP = 768  # elements of memory and links: of more registers spill on the way back
Seven = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


def triton_linked(asked_BX: Tensor, *state: Tensor) -> Seven:
    """Compute `linked_turn` in fp32; it stacks under vmap."""
    assert all(x.dtype == torch.float32 for x in (asked_BX, *state)), "the kernel takes fp32 alone"
    return _turn(asked_BX, *state)


@torch.library.custom_op("chomsky_ladder::linked", mutates_args=())
def _turn(
    asked_BX: Tensor,
    memory_BWN: Tensor,
    usage_BN: Tensor,
    write_BN: Tensor,
    precedence_BN: Tensor,
    link_BNN: Tensor,
    weight_BHN: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Every machine is by itself, so that replicas are more of them."""
    state = (memory_BWN, usage_BN, write_BN, precedence_BN, link_BNN, weight_BHN)
    given = [x.contiguous() for x in (asked_BX, *state)]
    written, plan = _written(*given), Plan.of(memory_BWN, weight_BHN)
    with torch.cuda.device_of(asked_BX):
        forward_kernel[plan.grid](*given, *written, *plan.sizes, num_warps=plan.warps)
    return written


@_turn.register_fake
def _written(asked_BX: Tensor, *state: Tensor) -> Seven:
    memory_BWN, weight_BHN = state[0], state[-1]
    memory, usage, write, precedence, link, weight = (_room(x.shape, x) for x in state)
    read = _room((*weight_BHN.shape[:2], memory_BWN.shape[1]), memory_BWN)
    return memory, usage, write, precedence, link, weight, read


@torch.library.custom_op("chomsky_ladder::linked_back", mutates_args=())
def _turn_back(d_outputs: list[Tensor], given: list[Tensor], weights_BHN: Tensor) -> list[Tensor]:
    """The gradients of all that was given."""
    d_outputs, given = [x.contiguous() for x in d_outputs], [x.contiguous() for x in given]
    written, plan = _written_back(d_outputs, given, weights_BHN), Plan.of(given[1], weights_BHN)
    with torch.cuda.device_of(weights_BHN):
        backward_kernel[plan.grid](
            *d_outputs, *given, weights_BHN.contiguous(), *written, *plan.sizes, num_warps=plan.warps
        )
    return written


@_turn_back.register_fake
def _written_back(d_outputs: list[Tensor], given: list[Tensor], weights_BHN: Tensor) -> list[Tensor]:
    return [_room(x.shape, x) for x in given]


def _keep(ctx: Any, inputs: tuple, output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs, output[5])


def _gradients(ctx: Any, *d_outputs: Tensor) -> tuple[Tensor, ...]:
    *given, weights_BHN = ctx.saved_tensors
    return tuple(_turn_back(list(d_outputs), given, weights_BHN))


_turn.register_autograd(_gradients, setup_context=_keep)


@_turn.register_vmap
def _replicated(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple]:
    return unfold_replicas(_turn(*fold_replicas(inputs, in_dims, info.batch_size)), info.batch_size)


class Plan(NamedTuple):
    grid: tuple[int]
    sizes: tuple[int, ...]  # of both kernels, in their order
    warps: int

    @classmethod
    def of(cls, memory_BWN: Tensor, weight_BHN: Tensor) -> "Plan":
        batch, width, rows = memory_BWN.shape
        tile = padded(width, rows)
        warps = triton.next_power_of_2(triton.cdiv((tile[0] + tile[1]) * tile[1], PER_WARP))
        return cls((batch,), (width, rows, weight_BHN.shape[1], *tile), warps)


def _room(shape: tuple[int, ...], like: Tensor) -> Tensor:
    return like.new_empty(shape)
