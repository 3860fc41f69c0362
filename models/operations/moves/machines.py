"""All tokens of a machine whose cells move, as one operation: a controller with its stacks, or with its tapes.

    h' = controller(x, h, tops)        memory' = moved(memory, new cell and actions that h' asks for)

What one token is stands with the models (models/stack_rnn.py, models/tape_rnn.py). Weights are those of h and of the
tops [H W] in the controller's gates, then of what is asked for; a state is the controller's h, or h and c, and memory.
"""

import torch
from torch import Tensor
from torch.nn.functional import linear

from chomsky_ladder.models.operations.moves.reference import mixed, moved, of_ring, of_stack, rolled
from chomsky_ladder.models.scans.recurrences import lstm_step, rnn_step

ACTIONS = 3  # of a stack


def stack_machine(
    gates_BLG: Tensor, weights: tuple[Tensor, ...], state: tuple[Tensor, ...], *, core: str
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """All h [B, L, D], and the last state. Of each stack h asks for push, pop and stay, and the new cell."""
    *of_core, ask, bias = weights
    *controller, stack_BHNW = state
    moves, outputs = of_stack(stack_BHNW.shape[2]), []
    for gates_BG in gates_BLG.unbind(1):
        controller = _controlled(gates_BG, controller, stack_BHNW, of_core, core)
        asked_BHX = linear(controller[0], ask, bias).unflatten(-1, (stack_BHNW.shape[1], -1))
        share_BH3, value_BHW = torch.softmax(asked_BHX[..., :ACTIONS], -1), asked_BHX[..., ACTIONS:]
        stack_BHNW = moved(value_BHW, stack_BHNW, share_BH3, moves, replaces=False)
        outputs.append(controller[0])
    return torch.stack(outputs, 1), (*controller, stack_BHNW)


def tape_machine(
    gates_BLG: Tensor,
    weights: tuple[Tensor, ...],
    state: tuple[Tensor, ...],
    *,
    core: str,
    jump: int | Tensor,
    grows: bool,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """All h [B, L, D], and the last state. h asks for five moves of each tape; a network of three layers, whose weights
    and biases follow, makes the new cells of it. A far move is by `jump` cells, or of each row its own, which `grows`
    by 1 a token or does not."""
    weight_hh, weight_rh, ask, bias, *layers = weights
    *controller, tape_BHNW = state
    heads, cells, cell = tape_BHNW.shape[1:]
    outputs = []
    for gates_BG in gates_BLG.unbind(1):
        controller = _controlled(gates_BG, controller, tape_BHNW, [weight_hh, weight_rh], core)
        share_BH5 = torch.softmax(linear(controller[0], ask, bias).unflatten(-1, (heads, -1)), -1)
        written_BX = controller[0]
        for weight, add in zip(layers[:-2:2], layers[1:-2:2], strict=True):
            written_BX = torch.relu(linear(written_BX, weight, add))
        written_BHW = linear(written_BX, *layers[-2:]).unflatten(-1, (heads, cell))
        if isinstance(jump, int):
            moves = of_ring(cells, (0, -1, 1, -jump, jump))
            tape_BHNW = moved(written_BHW, tape_BHNW, share_BH5, moves, replaces=True)
        else:
            tape_BHNW = torch.cat([written_BHW[:, :, None], tape_BHNW[:, :, 1:]], 2)
            tape_BHNW = mixed(share_BH5, [rolled(tape_BHNW, shift) for shift in (0, -1, 1, -jump, jump)])
        jump = jump + 1 if grows else jump
        outputs.append(controller[0])
    return torch.stack(outputs, 1), (*controller, tape_BHNW)


def _controlled(
    gates_BG: Tensor, controller: list[Tensor], memory_BHNW: Tensor, weights: list[Tensor], core: str
) -> list[Tensor]:
    gates_BG = torch.addmm(gates_BG, memory_BHNW[:, :, 0].flatten(1), weights[1].T)
    if core == "lstm":
        return list(lstm_step(gates_BG, controller[0], controller[1], weights[0]))
    return [rnn_step(gates_BG, controller[0], weights[0], activation="tanh" if core == "tanh" else "relu")]
