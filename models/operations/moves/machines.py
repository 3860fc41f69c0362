"""All tokens of a machine whose cells move, as one operation: a controller with its stacks, or with its tapes.

    h' = controller(x, h, tops)        memory' = moved(memory, new cell and actions that h' asks for)

Weights are those of h and of the tops [H W] in the controller's gates, then of what is asked for. A state is the
controller's h, or h and c, and the memory. `moves` takes the actions of one token.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from chomsky_ladder.models.operations.moves.reference import mixed, moved, of_ring, of_stack, rolled
from chomsky_ladder.models.scans.products import product
from chomsky_ladder.models.scans.recurrences import Core, controller_step

ACTIONS = 3  # of a stack


def stack_machine(
    gates_BLG: Tensor,
    weights: tuple[Tensor, ...],
    state: tuple[Tensor, ...],
    *,
    core: Core,
    moves: Callable[..., Tensor] = moved,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return all h [B, L, D], and the last state. Of each stack h asks for push, pop and stay, and the new cell."""
    *of_core, ask, bias = weights
    *controller, stack_BHNW = state
    actions, outputs = of_stack(stack_BHNW.shape[2]), []
    for gates_BG in gates_BLG.unbind(1):
        h_BD, controller = controller_step(gates_BG, stack_BHNW[:, :, 0].flatten(1), controller, *of_core, core=core)
        asked_BHX = product(h_BD, ask, bias).unflatten(-1, (stack_BHNW.shape[1], -1))
        action_BH3, value_BHW = asked_BHX.split([ACTIONS, stack_BHNW.shape[3]], -1)
        stack_BHNW = moves(value_BHW, stack_BHNW, torch.softmax(action_BH3, -1), actions, replaces=False)
        outputs.append(h_BD)
    return torch.stack(outputs, 1), (*controller, stack_BHNW)


def tape_machine(
    gates_BLG: Tensor,
    weights: tuple[Tensor, ...],
    state: tuple[Tensor, ...],
    *,
    core: Core,
    jump: int | Tensor,
    grows: bool,
    moves: Callable[..., Tensor] = moved,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return all h [B, L, D], and the last state. h asks for five moves of each tape. A network of three layers, whose
    weights and biases follow, makes the new cells of it. A far move is by `jump` cells, or of each row its own, which
    `grows` by 1 a token or does not.
    """
    weight_hh, weight_rh, ask, bias, *layers = weights
    *controller, tape_BHNW = state
    heads, cells, cell = tape_BHNW.shape[1:]
    outputs = []
    for gates_BG in gates_BLG.unbind(1):
        tops_BX = tape_BHNW[:, :, 0].flatten(1)
        h_BD, controller = controller_step(gates_BG, tops_BX, controller, weight_hh, weight_rh, core=core)
        written_BX = h_BD
        for weight, add in zip(layers[:-2:2], layers[1:-2:2], strict=True):
            written_BX = torch.relu(product(written_BX, weight, add))
        written_BHW = product(written_BX, *layers[-2:]).unflatten(-1, (heads, cell))
        share_BH5 = torch.softmax(product(h_BD, ask, bias).unflatten(-1, (heads, -1)), -1)
        if isinstance(jump, int):
            actions = of_ring(cells, (0, -1, 1, -jump, jump))
            tape_BHNW = moves(written_BHW, tape_BHNW, share_BH5, actions, replaces=True)
        else:
            tape_BHNW = torch.cat([written_BHW[:, :, None], tape_BHNW[:, :, 1:]], 2)
            tape_BHNW = mixed(share_BH5, [rolled(tape_BHNW, shift) for shift in (0, -1, 1, -jump, jump)])
        jump = jump + 1 if grows else jump
        outputs.append(h_BD)
    return torch.stack(outputs, 1), (*controller, tape_BHNW)
