"""All tokens of a Turing machine as two Triton kernels: `turing_machine` of reference.py.

    i, f, g, o = x W + b + W_y [h, r]        c' = s(f) c + s(i) tanh(g)        h' = s(o) tanh(c')
    memory', w', r' = turn(A h' + d, w, memory)        y = [h', r']

Every token waits for what the last one read, so a program goes through all tokens of one row: the controller's products
(models/kernels/triton/controller.py) and the turn (gpu_programs.py). Forward keeps of each token its gates, what was
asked for, and c, memory and weightings before it; on the way back the turn is taken again. The gradients of weights are
products over all tokens outside.

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
from chomsky_ladder.models.operations.turing import gpu
from chomsky_ladder.models.operations.turing.gpu_machine_programs import backward_kernel, forward_kernel
from chomsky_ladder.models.scans.replicas import fold_replicas, unfold_replicas

Some = Tensor | None
Nine = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]
Six = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


def triton_turing_machine(
    gates_BLG: Tensor,
    weights: tuple[Tensor, Tensor, Tensor, Tensor],
    state: tuple[Tensor, ...],
    *,
    shifts: int,
    core: str = "lstm",
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Compute `turing_machine` in fp32; it stacks under vmap."""
    assert core == "lstm"
    assert all(x.dtype == torch.float32 for x in (gates_BLG, *weights, *state)), "the kernel takes fp32 alone"
    (weight_hh, weight_rh, ask, bias), (h_BD, c_BD, memory_BWN, weight_BHN, read_BHW) = weights, state
    W_GK, y_BK = torch.cat([weight_hh, weight_rh], 1), torch.cat([h_BD, read_BHW.flatten(1)], 1)
    given = (x[None] for x in (gates_BLG, W_GK, ask, bias, y_BK, c_BD, memory_BWN, weight_BHN))
    y, c, memory, weight, *_ = (x.squeeze(0) for x in _machine(*given, shifts, torch.is_grad_enabled()))
    h_BD, read_BR = y[:, -1].split([h_BD.shape[1], read_BHW[0].numel()], 1)
    return y, (h_BD, c, memory, weight, read_BR.unflatten(1, read_BHW.shape[1:]))


@torch.library.custom_op("chomsky_ladder::turing_machine", mutates_args=())
def _machine(
    gates_RBLG: Tensor,
    W_RGK: Tensor,
    A_RXD: Tensor,
    bias_RX: Tensor,
    y_RBK: Tensor,
    c_RBD: Tensor,
    memory_RBWN: Tensor,
    weight_RBHN: Tensor,
    shifts: int,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """All y, the last c, memory and weightings, and of each token gates, what was asked for, and those three before it:
    of none but the last, unless a backward pass is to come.

    With an axis R in front, of replicas: what vmap adds folds into it.
    """
    given = (gates_RBLG, W_RGK, A_RXD, bias_RX, y_RBK, c_RBD, memory_RBWN, weight_RBHN)
    written, plan = _written(*given, shifts, keep), _Plan.of(A_RXD, memory_RBWN, weight_RBHN, shifts)
    gates_RBLG, others = together(gates_RBLG), [x.contiguous() for x in given[1:]]
    with torch.cuda.device_of(gates_RBLG):
        forward_kernel[plan.grid](
            gates_RBLG, *others, *written, gates_RBLG.stride()[:3], *gates_RBLG.shape[1:3], *plan.sizes, keep,
            num_warps=plan.warps_there,
        )  # fmt: skip
    return written


@_machine.register_fake
def _written(
    gates_RBLG: Tensor,
    W_RGK: Tensor,
    A_RXD: Tensor,
    bias_RX: Tensor,
    y_RBK: Tensor,
    c_RBD: Tensor,
    memory_RBWN: Tensor,
    weight_RBHN: Tensor,
    shifts: int,
    keep: bool,
) -> Nine:
    replicas, batch, length, gates = gates_RBLG.shape
    each = (replicas, batch, length if keep else 1)
    last_c, last_memory, last_weight = (_room(x.shape, x) for x in (c_RBD, memory_RBWN, weight_RBHN))
    c, memory = (_room((replicas, batch, length if keep else 0, *x.shape[2:]), x) for x in (c_RBD, memory_RBWN))
    weight = _room((replicas, batch, each[2] + 1, *weight_RBHN.shape[2:]), weight_RBHN)
    y_RBLK = _room((replicas, batch, length, y_RBK.shape[2]), y_RBK)
    asked = _room((*each, A_RXD.shape[1]), A_RXD)
    return y_RBLK, last_c, last_memory, last_weight, _room((*each, gates), gates_RBLG), asked, c, memory, weight


@torch.library.custom_op("chomsky_ladder::turing_machine_back", mutates_args=())
def _machine_back(
    d_y_RBLK: Tensor,
    d_c_RBD: Some,
    d_memory_RBWN: Some,
    d_weight_RBHN: Some,
    W_RGK: Tensor,
    A_RXD: Tensor,
    gates_RBLG: Tensor,
    asked_RBLX: Tensor,
    c_RBLD: Tensor,
    memory_RBLWN: Tensor,
    weight_RBLHN: Tensor,
    shifts: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The gradients of gates and of what was asked for, and of y, c, memory and weightings before the first token."""
    d_given = [x if x is None else x.contiguous() for x in (d_y_RBLK, d_c_RBD, d_memory_RBWN, d_weight_RBHN)]
    given = [x.contiguous() for x in (W_RGK, A_RXD, gates_RBLG, asked_RBLX, c_RBLD, memory_RBLWN, weight_RBLHN)]
    written = _written_back(*d_given, *given, shifts)
    plan = _Plan.of(A_RXD, memory_RBLWN[:, :, 0], weight_RBLHN[:, :, 0], shifts)
    with torch.cuda.device_of(gates_RBLG):
        backward_kernel[plan.grid](
            *d_given, *given, *written, *gates_RBLG.shape[1:3], *plan.sizes, num_warps=plan.warps_back
        )
    return written


@_machine_back.register_fake
def _written_back(
    d_y_RBLK: Tensor,
    d_c_RBD: Some,
    d_memory_RBWN: Some,
    d_weight_RBHN: Some,
    W_RGK: Tensor,
    A_RXD: Tensor,
    gates_RBLG: Tensor,
    asked_RBLX: Tensor,
    c_RBLD: Tensor,
    memory_RBLWN: Tensor,
    weight_RBLHN: Tensor,
    shifts: int,
) -> Six:
    d_gates, d_asked = _room(gates_RBLG.shape, gates_RBLG), _room(asked_RBLX.shape, asked_RBLX)
    kept = (d_y_RBLK, c_RBLD, memory_RBLWN, weight_RBLHN)
    d_y, d_c, d_memory, d_weight = (_room((*x.shape[:2], *x.shape[3:]), x) for x in kept)
    return d_gates, d_asked, d_y, d_c, d_memory, d_weight


def _keep(ctx: Any, inputs: tuple, output: tuple[Tensor, ...]) -> None:
    _, W_RGK, A_RXD, _, y_RBK, *_, ctx.shifts, _ = inputs
    ctx.mark_non_differentiable(*output[4:])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(W_RGK, A_RXD, y_RBK, output[0], *output[4:])


def _gradients(ctx: Any, *d_outputs: Some) -> tuple[Some, ...]:
    W_RGK, A_RXD, first_RBK, y_RBLK, *kept = ctx.saved_tensors
    d_y, *d_last = d_outputs[:4]
    d_y = torch.zeros_like(y_RBLK) if d_y is None else d_y
    d_gates, d_asked, *d_first = _machine_back(d_y, *d_last, W_RGK, A_RXD, *kept, ctx.shifts)
    d_weights = gradients_of_weights(d_gates, d_asked, first_RBK, y_RBLK, A_RXD.shape[2])
    return d_gates, *d_weights, *d_first, None, None


_machine.register_autograd(_gradients, setup_context=_keep)


@_machine.register_vmap
def _replicated(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple]:
    *tensors, shifts, keep = inputs
    outputs = _machine(*fold_replicas(tensors, in_dims[:-2], info.batch_size), shifts, keep)
    return unfold_replicas(outputs, info.batch_size)


class _Plan(NamedTuple):
    grid: tuple[int]
    sizes: tuple[int, ...]  # of both kernels, in their order
    warps_there: int
    warps_back: int

    @classmethod
    def of(cls, A_RXD: Tensor, memory_RBWN: Tensor, weight_RBHN: Tensor, shifts: int) -> "_Plan":
        """Fewer warps than of a turn alone, and spilled registers: of more programs at once fewer wait."""
        turned = gpu.Plan.of(weight_RBHN.flatten(0, 1), memory_RBWN.flatten(0, 1), shifts)
        width, (row_width, _, heads, *_) = A_RXD.shape[2], turned.sizes
        of_h, of_y = block_of(width), block_of(width + heads * row_width)
        sizes = (width, *turned.sizes, of_h[1], of_y[1], of_h[0], of_y[0])
        return cls(turned.grid, sizes, max(1, turned.warps // 4), max(1, turned.warps // 2))


def _room(shape: tuple[int, ...], like: Tensor) -> Tensor:
    return like.new_empty(shape)
