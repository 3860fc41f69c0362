"""The tape machine against a loop over plain arrays, what its tape does by hand, and what it knows of the input."""

import numpy as np
import pytest
import torch
from torch import nn

from chomsky_ladder.harness.conform.suite import check
from chomsky_ladder.models.block import Context
from chomsky_ladder.models.tape_rnn import TapeMachine, TapeRNNConfig
from support.machine_oracles import Told, Weights, assert_equal_to, controller, linear, softmax

torch.set_num_threads(1)

STAY, LEFT, RIGHT, FAR_LEFT, FAR_RIGHT = ([1e3 * (action == chosen) for action in range(5)] for chosen in range(5))


def naive(p: Weights, x_LD: np.ndarray, *, config: TapeRNNConfig) -> np.ndarray:
    """One cell at a time, as the equations stand."""
    tapes, cells = np.zeros((config.num_tapes, config.tape_cells, config.tape_cell)), config.tape_cells
    state, outputs = [np.zeros(config.d_model)] * 2, []
    for t, x in enumerate(x_LD):
        jump = t if config.jump == "past" else len(x_LD) - 1
        state = controller(p, x, np.concatenate([tape[0] for tape in tapes]), state, config.core)
        h = state[0]
        hidden = np.maximum(linear(p, "write.1", np.maximum(linear(p, "write.0", h), 0)), 0)
        tapes[:, 0] = linear(p, "write.2", hidden).reshape(config.num_tapes, config.tape_cell)
        after = np.zeros_like(tapes)
        for k, tape in enumerate(tapes):
            stay, left, right, far_left, far_right = softmax(linear(p, "action", h).reshape(-1, 5)[k])
            for n in range(cells):
                near = stay * tape[n] + left * tape[(n + 1) % cells] + right * tape[(n - 1) % cells]
                far = far_left * tape[(n + jump) % cells] + far_right * tape[(n - jump) % cells]
                after[k, n] = near + far
        tapes = after
        outputs.append(h)
    return np.stack(outputs)


@pytest.mark.parametrize("core", ["relu", "tanh", "lstm"])
@pytest.mark.parametrize(("cells", "length"), [(12, 1), (12, 2), (12, 9), (3, 9), (1, 4)])
def test_outputs_and_gradients_are_those_of_the_equations(core: str, cells: int, length: int) -> None:
    config = TapeRNNConfig(d_model=5, core=core, num_tapes=2, tape_cell=3, tape_cells=cells, write_width=4)
    machine = TapeMachine(config).double()
    assert_equal_to(lambda p, x: naive(p, x, config=config), machine, length=length)


def test_a_jump_by_the_inputs_length_is_that_of_the_equations() -> None:
    config = TapeRNNConfig(d_model=5, tape_cell=3, tape_cells=12, write_width=4, jump="input")
    assert_equal_to(lambda p, x: naive(p, x, config=config), TapeMachine(config).double(), length=9)


def cells_read(actions: list[list[float]], written: list[float], *, cells: int) -> list[list[float]]:
    """The tape after each token, from the head on."""
    machine = TapeMachine(TapeRNNConfig(d_model=2, tape_cell=1, tape_cells=cells))
    machine.action, machine.write = Told(actions), nn.ModuleList([Told([[value] for value in written])])
    state = machine.init_state(1, max_length=0, device=torch.device("cpu"), dtype=torch.float32)
    found = []
    for _ in actions:
        _, state = machine.step(torch.randn(1, 2), state, Context())
        found.append(state[1].flatten().tolist())
    return found


def test_by_hand_the_head_writes_and_moves() -> None:
    """The paper's left and right are the tape's: a tape moved left shows the head the next cell."""
    found = cells_read([STAY, LEFT, LEFT, RIGHT], [1, 2, 3, 4], cells=4)
    assert found == [[1, 0, 0, 0], [0, 0, 0, 2], [0, 0, 2, 3], [3, 4, 0, 2]]


def test_by_hand_a_far_move_rewinds_what_the_tokens_before_wrote() -> None:
    """Three symbols, each on a cell of its own, then at the fourth token a move back by three."""
    found = cells_read([LEFT, LEFT, LEFT, FAR_RIGHT, FAR_LEFT], [1, 2, 3, 0, 1], cells=8)
    assert found[3] == [1, 2, 3, 0, 0, 0, 0, 0]
    assert found[4] == [0, 0, 0, 0, 1, 2, 3, 0]  # the fifth token's far move is by four


def test_by_hand_a_tape_is_a_ring() -> None:
    assert cells_read([LEFT] * 3 + [FAR_LEFT], [1, 2, 3, 4], cells=2)[2:] == [[2, 3], [3, 4]]


def test_what_it_knows_of_the_input() -> None:
    """Each row with `jump=input` jumps by the tokens before its first answer. The default is told nothing."""
    x_BLD, prompt_B = torch.randn(3, 9, 4), torch.tensor([2, 9, 5])
    informed = TapeMachine(TapeRNNConfig(d_model=4, jump="input", tape_cells=11))
    assert informed.start(x_BLD, Context(prompt_B=prompt_B))[2].tolist() == [1, 8, 4]
    by_default = TapeMachine(TapeRNNConfig(d_model=4, tape_cells=11))
    same = [by_default(x_BLD, Context(prompt_B=prompt)) for prompt in (None, prompt_B)]
    assert torch.equal(*same)
    first = informed(x_BLD, Context(prompt_B=prompt_B))
    assert not torch.equal(first[:, :6], informed(x_BLD, Context(prompt_B=prompt_B + 2))[:, :6])


@pytest.mark.full
def test_the_informed_machine_sees_the_prompt_and_has_no_step() -> None:
    config = TapeRNNConfig(d_model=8, tape_cell=3, tape_cells=9, write_width=8, jump="input")
    assert config.sees == "prompt" and not config.stepwise
    outcomes = {outcome.check: outcome for outcome in check(config)}
    assert not [outcome for outcome in outcomes.values() if outcome.verdict == "FAIL"]
    assert outcomes["the future never changes the past"].verdict == "ok"
