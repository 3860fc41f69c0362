"""The stack machine against a loop over plain arrays, what a stack does by hand, and what is lost below it."""

import numpy as np
import pytest
import torch
from torch import Tensor

from chomsky_ladder.models import stack_rnn
from chomsky_ladder.models.block import Context, State
from chomsky_ladder.models.layers.machine import Machine
from chomsky_ladder.models.stack_rnn import StackMachine, StackRNNConfig
from support.layers import close, gradients, lively
from support.machine_oracles import Told, Weights, assert_equal_to, controller, linear, softmax

torch.set_num_threads(1)

PUSH, POP, STAY = ([1e3 * (action == chosen) for action in range(3)] for chosen in range(3))


def naive(p: Weights, x_LD: np.ndarray, *, config: StackRNNConfig) -> np.ndarray:
    """One cell at a time, as the equations stand."""
    stacks = np.zeros((config.num_stacks, config.stack_depth, config.stack_cell))
    state, outputs = [np.zeros(config.d_model)] * 2, []
    for x in x_LD:
        state = controller(p, x, np.concatenate([stack[0] for stack in stacks]), state, config.core)
        asked = linear(p, "action_value", state[0]).reshape(config.num_stacks, 3 + config.stack_cell)
        after = np.zeros_like(stacks)
        for k, stack in enumerate(stacks):
            push, pop, stay = softmax(asked[k, :3])
            for n in range(config.stack_depth):
                above = asked[k, 3:] if n == 0 else stack[n - 1]
                below = stack[n + 1] if n + 1 < config.stack_depth else 0.0
                after[k, n] = push * above + pop * below + stay * stack[n]
        stacks = after
        outputs.append(state[0])
    return np.stack(outputs)


@pytest.mark.parametrize("core", ["relu", "tanh", "lstm"])
@pytest.mark.parametrize(("depth", "length"), [(20, 1), (20, 2), (20, 9), (3, 9), (1, 5)])
def test_outputs_and_gradients_are_those_of_the_equations(core: str, depth: int, length: int) -> None:
    config = StackRNNConfig(d_model=5, core=core, num_stacks=2, stack_cell=3, stack_depth=depth)
    machine = StackMachine(config).double()
    assert_equal_to(lambda p, x: naive(p, x, config=config), machine, length=length)


def tops(depth: int, told: list[list[float]]) -> list[float]:
    """Return the top of one stack of single numbers after each action."""
    machine = StackMachine(StackRNNConfig(d_model=2, stack_cell=1, stack_depth=depth))
    machine.action_value = Told(told)
    state = machine.init_state(1, max_length=0, device=torch.device("cpu"), dtype=torch.float32)
    found = []
    for _ in told:
        _, state = machine.step(torch.randn(1, 2), state, Context())
        found.append(state[1][0, 0, 0].item())
    return found


def test_by_hand_last_in_first_out() -> None:
    told = [[*PUSH, 3], [*PUSH, 5], [*STAY, 9], [*POP, 9], [*PUSH, 7], [*POP, 9], [*POP, 9], [*POP, 9], [*PUSH, 2]]
    assert tops(4, told) == [3, 5, 5, 3, 7, 3, 0, 0, 2]


def test_by_hand_what_is_pushed_below_the_last_cell_is_lost() -> None:
    told = [*([*PUSH, value] for value in (1, 2, 3, 4, 5)), *[[*POP, 9]] * 5]
    assert tops(3, told)[5:] == [4, 3, 0, 0, 0]
    assert tops(5, told)[5:] == [4, 3, 2, 1, 0]


def test_by_hand_half_a_push_and_half_a_pop() -> None:
    half = [1e3, 1e3, 0.0]
    assert tops(4, [[*PUSH, 4], [*PUSH, 8], [*half, 2], [*POP, 9], [*POP, 9]]) == [4, 8, 3, 4, 2]


def test_a_stack_of_the_default_depth_holds_the_longest_strings_scored() -> None:
    """511 symbols: a transduction of length 1024."""
    pushed = [float(value) for value in range(1, 512)]
    found = tops(StackRNNConfig().stack_depth, [*([*PUSH, value] for value in pushed), *[[*POP, 0.0]] * 510])
    assert found[510:] == pushed[::-1]


@pytest.mark.parametrize("span", [1, 3, 64])
@pytest.mark.parametrize("depth", [1, 4, 7, 20])
def test_forward_keeps_no_more_cells_than_are_filled_and_asked_for(
    depth: int, span: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outputs and gradients equal those with all cells of the stack."""
    monkeypatch.setattr(stack_rnn, "SPAN", span)
    machine = lively(StackMachine(StackRNNConfig(d_model=4, core="tanh", num_stacks=2, stack_depth=depth)))
    x_BLD, cells, turns = torch.randn(2, 11, 4, dtype=torch.float64, requires_grad=True), [], machine.turns
    whole_BLD, _ = machine.extend(x_BLD, Machine.start(machine, x_BLD, Context()), Context())

    def counted(gates_BLG: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        cells.extend([state[1].shape[2]] * gates_BLG.shape[1])
        return turns(gates_BLG, state, ctx)

    monkeypatch.setattr(machine, "turns", counted)
    found_BLD = machine(x_BLD, Context())
    close(found_BLD, whole_BLD, 1e-12)
    close(*(gradients(y_BLD, [x_BLD])[0] for y_BLD in (found_BLD, whole_BLD)), 1e-12)
    ends = [min(11, t // span * span + span) for t in range(11)]
    assert cells == [min(depth, end, 11 - t // span * span) for t, end in enumerate(ends)]
