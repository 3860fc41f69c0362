"""All tokens of a machine with links as two Triton kernels: `linked_machine` of reference.py.

    i, f, g, o = x W + b + W_y [h, r]        c' = s(f) c + s(i) tanh(g)        h' = s(o) tanh(c')
    state', r' = turn(A h' + d, state)        y = [h', r']

As that of a Turing machine (models/operations/turing): a program goes through all tokens of one row.
Forward keeps of each token its gates, what was asked for, and what it found of c, memory, usage, the last write,
precedence, links and weightings; on the way back the turn is taken again.

The host code is by hand: in a declaration (in_triton.py) all inputs have rows, where weights are one for all of them,
and their gradients are products of all tokens.
"""
# pyright: reportIndexIssue=false
# (a kernel[grid] has no type where triton.jit has none)

from typing import Any, NamedTuple

import torch
from torch import Tensor

from chomsky_ladder.models.kernels.triton.controller import block_of, gradients_of_weights
from chomsky_ladder.models.kernels.triton.memory import together
from chomsky_ladder.models.operations.linked import gpu
from chomsky_ladder.models.operations.linked.gpu_machine_programs import backward_kernel, forward_kernel
from chomsky_ladder.models.scans.replicas import fold_replicas, unfold_replicas

Some = Tensor | None


def triton_linked_machine(
    gates_BLG: Tensor, weights: tuple[Tensor, Tensor, Tensor, Tensor], state: tuple[Tensor, ...]
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Compute `linked_machine` in fp32; it stacks under vmap."""
    assert all(x.dtype == torch.float32 for x in (gates_BLG, *weights, *state)), "the kernel takes fp32 alone"
    (weight_hh, weight_rh, ask, bias), (h_BD, c_BD, memory_BWN, *rows, link_BNN, weight_BHN, read_BHW) = weights, state
    W_GK, y_BK = torch.cat([weight_hh, weight_rh], 1), torch.cat([h_BD, read_BHW.flatten(1)], 1)
    given = (gates_BLG, W_GK, ask, bias, y_BK, c_BD, memory_BWN, torch.stack(rows, 1), link_BNN, weight_BHN)
    y, c, memory, rows_B3N, link, weight, *_ = _machine([x[None] for x in given], torch.is_grad_enabled())
    y, c, memory, rows_B3N, link, weight = (x.squeeze(0) for x in (y, c, memory, rows_B3N, link, weight))
    h_BD, read_BR = y[:, -1].split([h_BD.shape[1], read_BHW[0].numel()], 1)
    return y, (h_BD, c, memory, *rows_B3N.unbind(1), link, weight, read_BR.unflatten(1, read_BHW.shape[1:]))


@torch.library.custom_op("chomsky_ladder::linked_machine", mutates_args=())
def _machine(given: list[Tensor], keep: bool) -> list[Tensor]:
    """All y, the last c, memory, usage with write and precedence, links and weightings, and of each token gates, what
    was asked for, and those five before it: of none but the last, unless a backward pass is to come.

    Given are gates, their weights, those and the bias of what is asked for, and the first y and those five, with an
    axis R in front, of replicas: what vmap adds folds into it.
    """
    written, plan = _written(given, keep), _Plan.of(given[2], given[6], given[9])
    gates_RBLG, others = together(given[0]), [x.contiguous() for x in given[1:]]
    with torch.cuda.device_of(gates_RBLG):
        forward_kernel[plan.grid](
            gates_RBLG, *others, *written, gates_RBLG.stride()[:3], *gates_RBLG.shape[1:3], *plan.sizes, keep,
            num_warps=plan.warps,
        )  # fmt: skip
    return written


@_machine.register_fake
def _written(given: list[Tensor], keep: bool) -> list[Tensor]:
    gates_RBLG, _, A_RXD, _, first_RBK, *state = given
    replicas, batch, length, gates = gates_RBLG.shape
    y_RBLK, last = _room((*gates_RBLG.shape[:3], first_RBK.shape[2]), first_RBK), [_room(x.shape, x) for x in state]
    made = [_room((replicas, batch, length if keep else 1, size), gates_RBLG) for size in (gates, A_RXD.shape[1])]
    kept = [_room((replicas, batch, length if keep else 0, *x.shape[2:]), x) for x in state[:-1]]
    weights = _room((replicas, batch, (length if keep else 1) + 1, *state[-1].shape[2:]), state[-1])
    return [y_RBLK, *last, *made, *kept, weights]


@torch.library.custom_op("chomsky_ladder::linked_machine_back", mutates_args=())
def _machine_back(
    d_y_RBLK: Tensor,
    d_c_RBD: Some,
    d_memory_RBWN: Some,
    d_rows_RB3N: Some,
    d_link_RBNN: Some,
    d_weight_RBHN: Some,
    given: list[Tensor],
) -> list[Tensor]:
    """The gradients of gates and of what was asked for, and of y and the five of the state before the first token.

    Given are the weights of the gates and of what is asked for, and what was kept of each token.
    """
    d_last = (d_c_RBD, d_memory_RBWN, d_rows_RB3N, d_link_RBNN, d_weight_RBHN)
    d_given = [d_y_RBLK.contiguous(), *(x if x is None else x.contiguous() for x in d_last)]
    given = [x.contiguous() for x in given]
    written = _written_back(d_y_RBLK, *d_last, given)
    plan = _Plan.of(given[1], given[5][:, :, 0], given[8][:, :, 0])
    with torch.cuda.device_of(d_y_RBLK):
        backward_kernel[plan.grid](*d_given, *given, *written, *d_y_RBLK.shape[1:3], *plan.sizes, num_warps=plan.warps)
    return written


@_machine_back.register_fake
def _written_back(
    d_y_RBLK: Tensor,
    d_c_RBD: Some,
    d_memory_RBWN: Some,
    d_rows_RB3N: Some,
    d_link_RBNN: Some,
    d_weight_RBHN: Some,
    given: list[Tensor],
) -> list[Tensor]:
    _, _, *made, c, memory, rows, link, weight = given
    before = [_room((*x.shape[:2], *x.shape[3:]), x) for x in (d_y_RBLK, c, memory, rows, link, weight)]
    return [*(_room(x.shape, x) for x in made), *before]


def _keep(ctx: Any, inputs: tuple, output: list[Tensor]) -> None:
    (_, W_RGK, A_RXD, _, first_RBK, *_), _ = inputs
    ctx.mark_non_differentiable(*output[6:])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(first_RBK, output[0], W_RGK, A_RXD, *output[6:])


def _gradients(ctx: Any, d_outputs: list[Some]) -> tuple[list[Tensor], None]:
    first_RBK, y_RBLK, *kept = ctx.saved_tensors
    d_y, *d_last = d_outputs[:6]
    d_y = torch.zeros_like(y_RBLK) if d_y is None else d_y
    d_gates, d_asked, *d_first = _machine_back(d_y, *d_last, kept)
    d_weights = gradients_of_weights(d_gates, d_asked, first_RBK, y_RBLK, kept[1].shape[2])
    return [d_gates, *d_weights, *d_first], None


_machine.register_autograd(_gradients, setup_context=_keep)


@_machine.register_vmap
def _replicated(info: Any, in_dims: tuple, given: list[Tensor], keep: bool) -> tuple[list[Tensor], list[int]]:
    outputs, places = unfold_replicas(
        _machine(fold_replicas(given, in_dims[0], info.batch_size), keep), info.batch_size
    )
    return list(outputs), list(places)


class _Plan(NamedTuple):
    grid: tuple[int]
    sizes: tuple[int, ...]  # of both kernels, in their order
    warps: int

    @classmethod
    def of(cls, A_RXD: Tensor, memory_RBWN: Tensor, weight_RBHN: Tensor) -> "_Plan":
        turned = gpu.Plan.of(memory_RBWN.flatten(0, 1), weight_RBHN.flatten(0, 1))
        width, (row_width, _, heads, *_) = A_RXD.shape[2], turned.sizes
        of_h, of_y = block_of(width), block_of(width + heads * row_width)
        sizes = (width, *turned.sizes, of_h[1], of_y[1], of_h[0], of_y[0])
        return cls(turned.grid, sizes, max(2, turned.warps // 2))


def _room(shape: tuple[int, ...], like: Tensor) -> Tensor:
    return like.new_empty(shape)
