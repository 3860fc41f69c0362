"""All tokens of a machine whose cells move as two Triton kernels: both of models/operations/moves/machines.py.

    h' = controller(x, h, tops)        memory' = moved(memory, new cell and actions asked for by A h' + d)

A program goes through all tokens of one row, as that of a Turing machine (turing_machine.py) does. A tape's new cell
comes of a network, whose first layer's rows lie behind those of the actions in A. Forward keeps of each token gates,
what was asked for, what that network makes of it, and c and memory before it; on the way back shares are taken again.
The gradients of weights are products over all tokens outside.

The host code is by hand: in a declaration (in_triton.py) all inputs have rows, where weights are one for all of them,
and their gradients are products of all tokens.
"""
# pyright: reportIndexIssue=false
# (a kernel[grid] has no type where triton.jit has none)

from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from chomsky_ladder.models.kernels.triton.controller import block_of, gradient_of_weight, gradients_of_layer
from chomsky_ladder.models.kernels.triton.memory import together
from chomsky_ladder.models.operations.moves.gpu_machine_programs import backward_kernel, forward_kernel
from chomsky_ladder.models.scans.replicas import fold_replicas, unfold_replicas

PER_WARP = 512  # elements of a memory

Some = Tensor | None


class Kind(NamedTuple):
    """The settings: the controller, how far a far move goes at the first token, and whether by 1 more at each."""

    core: str
    jump: int = 0
    grows: bool = False


def triton_stack_machine(
    gates_BLG: Tensor, weights: tuple[Tensor, ...], state: tuple[Tensor, ...], *, core: str
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Compute `stack_machine` in fp32; it stacks under vmap."""
    no_network = [gates_BLG.new_empty(shape) for shape in ((0, 0), (0,)) * 2]
    return _called(gates_BLG, (*weights, *no_network), state, None, Kind(core))


def triton_tape_machine(
    gates_BLG: Tensor,
    weights: tuple[Tensor, ...],
    state: tuple[Tensor, ...],
    *,
    core: str,
    jump: int | Tensor,
    grows: bool,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Compute `tape_machine` in fp32, with a network of three layers; it stacks under vmap."""
    weight_hh, weight_rh, ask, bias, first, first_bias, *others = weights
    asks = torch.cat([ask, first]), torch.cat([bias, first_bias])
    far, jumps_B = (jump, None) if isinstance(jump, int) else (0, jump)
    return _called(gates_BLG, (weight_hh, weight_rh, *asks, *others), state, jumps_B, Kind(core, far, grows))


def _called(
    gates_BLG: Tensor, weights: tuple[Tensor, ...], state: tuple[Tensor, ...], jumps_B: Some, kind: Kind
) -> tuple[Tensor, tuple[Tensor, ...]]:
    assert all(x.dtype == torch.float32 for x in (gates_BLG, *weights, *state)), "the kernel takes fp32 alone"
    (weight_hh, weight_rh, *others), (h_BD, *c, memory_BHNW) = weights, state
    c_BD = c[0] if c else h_BD.new_empty(h_BD.shape[0], 0)
    given = [gates_BLG, torch.cat([weight_hh, weight_rh], 1), *others, h_BD, c_BD, memory_BHNW]
    jumps_RB = jumps_B if jumps_B is None else jumps_B[None]
    outputs = _machine([x[None] for x in given], jumps_RB, *kind, torch.is_grad_enabled())
    y_BLD, c_BD, memory_BHNW = (x.squeeze(0) for x in outputs[:3])
    return y_BLD, (y_BLD[:, -1], *([c_BD] if c else []), memory_BHNW)


@torch.library.custom_op("chomsky_ladder::moving_machine", mutates_args=())
def _machine(given: list[Tensor], jumps_RB: Some, core: str, jump: int, grows: bool, keep: bool) -> list[Tensor]:
    """All h, the last c and memory, and of each token gates, what was asked for, the network's second layer and what it
    writes, the c before it, and memories: of none but the last, unless a backward pass is to come.

    Given are gates, their weights, weights and biases of what is asked for and of the network's other two layers, and
    the first h, c and memory, with an axis R in front, of replicas: what vmap adds folds into it.
    """
    written, plan = _written(given, jumps_RB, core, jump, grows, keep), _Plan.of(given[2], given[4], given[10])
    gates_RBLG, others = together(given[0]), [x.contiguous() for x in given[1:]]
    with torch.cuda.device_of(gates_RBLG):
        forward_kernel[plan.grid](
            gates_RBLG, *others, jumps_RB if jumps_RB is None else jumps_RB.contiguous(), *written,
            gates_RBLG.stride()[:3], *gates_RBLG.shape[1:3], jump, grows, core, *plan.sizes, keep,
            num_warps=plan.warps,
        )  # fmt: skip
    return written


@_machine.register_fake
def _written(given: list[Tensor], jumps_RB: Some, core: str, jump: int, grows: bool, keep: bool) -> list[Tensor]:
    gates_RBLG, _, A_RXD, _, W_RHH, _, W_RZH, _, h_RBD, c_RBD, memory_RBHNW = given
    rows, length = gates_RBLG.shape[:2], gates_RBLG.shape[2]
    kept, ends = (length, length + 1) if keep else (1, 2)
    widths = (gates_RBLG.shape[3], A_RXD.shape[1], W_RHH.shape[1], W_RZH.shape[1])
    made = [_room((*rows, kept, width), h_RBD) for width in widths]
    c_RBLD = _room((*rows, kept, c_RBD.shape[2]), h_RBD)
    memories = _room((*rows, ends, *memory_RBHNW.shape[2:]), h_RBD)
    y_RBLD = _room((*rows, length, h_RBD.shape[2]), h_RBD)
    return [y_RBLD, _room(c_RBD.shape, h_RBD), _room(memory_RBHNW.shape, h_RBD), *made, c_RBLD, memories]


@torch.library.custom_op("chomsky_ladder::moving_machine_back", mutates_args=())
def _machine_back(
    d_y_RBLD: Tensor,
    d_c_RBD: Some,
    d_memory_RBHNW: Some,
    given: list[Tensor],
    jumps_RB: Some,
    core: str,
    jump: int,
    grows: bool,
) -> list[Tensor]:
    """The gradients of gates, of what was asked for, of the network's second layer and of what it writes, and of h, c
    and memory before the first token, behind which is room for two more memories.

    Given are the weights of gates, of what is asked for and of the network's other two layers, all h, and what was kept
    of each token.
    """
    d_given = [x if x is None else x.contiguous() for x in (d_y_RBLD, d_c_RBD, d_memory_RBHNW)]
    given = [x.contiguous() for x in given]
    written = _written_back(*d_given, given, jumps_RB, core, jump, grows)
    plan = _Plan.of(given[1], given[2], given[10][:, :, 0])
    with torch.cuda.device_of(d_y_RBLD):
        backward_kernel[plan.grid](
            *d_given, *given, jumps_RB if jumps_RB is None else jumps_RB.contiguous(), *written,
            *d_y_RBLD.shape[1:3], jump, grows, core, *plan.sizes, num_warps=plan.warps,
        )  # fmt: skip
    return written


@_machine_back.register_fake
def _written_back(
    d_y_RBLD: Tensor,
    d_c_RBD: Some,
    d_memory_RBHNW: Some,
    given: list[Tensor],
    jumps_RB: Some,
    core: str,
    jump: int,
    grows: bool,
) -> list[Tensor]:
    *_, y_RBLD, gates, asked, hidden, written, c_RBLD, memories_RBLHNW = given
    first = [_room((*x.shape[:2], *x.shape[3:]), x) for x in (y_RBLD, c_RBLD, memories_RBLHNW)]
    two = _room((*memories_RBLHNW.shape[:2], 2, *memories_RBLHNW.shape[3:]), memories_RBLHNW)
    return [*(_room(x.shape, x) for x in (gates, asked, hidden, written)), *first, two]


def _keep(ctx: Any, inputs: tuple, output: list[Tensor]) -> None:
    (_, W_RGK, A_RXD, _, W_RHH, _, W_RZH, _, h_RBD, *_), jumps_RB, *ctx.kind, _ = inputs
    ctx.mark_non_differentiable(*output[3:])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(h_RBD, jumps_RB, W_RGK, A_RXD, W_RHH, W_RZH, output[0], *output[3:])


def _gradients(ctx: Any, d_outputs: list[Some]) -> tuple[Any, ...]:
    first_RBD, jumps_RB, *kept = ctx.saved_tensors
    *_, y_RBLD, _, asked, hidden, _, _, memories_RBLHNW = kept
    d_y, d_c, d_memory, *_ = d_outputs
    d_y = torch.zeros_like(y_RBLD) if d_y is None else d_y
    d_gates, d_asked, d_hidden, d_written, *d_first, _ = _machine_back(d_y, d_c, d_memory, kept, jumps_RB, *ctx.kind)
    past_RBLD = torch.cat([first_RBD[:, :, None], y_RBLD[:, :, :-1]], 2)
    past_RBLK = torch.cat([past_RBLD, memories_RBLHNW[:, :, :-1, :, 0].flatten(3)], 3)
    layers = (asked[..., asked.shape[-1] - hidden.shape[-1] :], hidden)
    d_weights = [gradient_of_weight(d_gates, past_RBLK), *gradients_of_layer(d_asked, y_RBLD)]
    for d_made, layer_RBLH in zip((d_hidden, d_written), layers, strict=True):
        d_weights += gradients_of_layer(d_made, torch.relu(layer_RBLH))
    return [d_gates, *d_weights, *d_first], None, None, None, None, None


_machine.register_autograd(_gradients, setup_context=_keep)


@_machine.register_vmap
def _replicated(
    info: Any, in_dims: tuple, given: list[Tensor], jumps_RB: Some, *others: Any
) -> tuple[list[Tensor], list[int]]:
    given = fold_replicas(given, in_dims[0], info.batch_size)
    if jumps_RB is not None:
        jumps_RB = fold_replicas([jumps_RB], in_dims[1:2], info.batch_size)[0]
    outputs, places = unfold_replicas(_machine(given, jumps_RB, *others), info.batch_size)
    return list(outputs), list(places)


class _Plan(NamedTuple):
    grid: tuple[int]
    sizes: tuple[int, ...]  # of both kernels, in their order
    warps: int

    @classmethod
    def of(cls, A_RXD: Tensor, W_RHH: Tensor, memory_RBHNW: Tensor) -> "_Plan":
        (replicas, batch, heads, cells, cell), width, hidden = memory_RBHNW.shape, A_RXD.shape[2], W_RHH.shape[1]
        tile = triton.next_power_of_2(cells), triton.next_power_of_2(cell)
        blocks, columns = zip(*(block_of(size) for size in (width, width + heads * cell, max(1, hidden))), strict=True)
        warps = max(1, min(16, tile[0] * tile[1] // PER_WARP))
        return cls((replicas * batch,), (width, hidden, cells, cell, heads, *tile, *columns, *blocks), warps)


def _room(shape: tuple[int, ...], like: Tensor) -> Tensor:
    return like.new_empty(shape)
