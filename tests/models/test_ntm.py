"""The Neural Turing machine against a loop over plain arrays, and what its heads do by hand."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.ntm import NTMConfig, NTMMachine
from support.machine_oracles import (
    Told,
    Weights,
    assert_equal_to,
    controller,
    cosine,
    linear,
    sigmoid,
    softmax,
    softplus,
)

torch.set_num_threads(1)


def addressed(asked: np.ndarray, before: np.ndarray, memory: np.ndarray, config: NTMConfig) -> np.ndarray:
    """Equations 5 to 9 of the paper for one head."""
    rows, width = memory.shape
    key, (strength, sharpness, gate), shift = asked[:width], asked[width : width + 3], softmax(asked[width + 3 :])
    content = softmax(softplus(strength) * np.array([cosine(key, row) for row in memory]))
    gated = sigmoid(gate) * content + (1 - sigmoid(gate)) * before
    moved, far = np.zeros(rows), config.shift_range
    for n in range(rows):
        for move in range(-far, far + 1):
            moved[(n + move) % rows] += gated[n] * shift[move + far]
    power = moved ** (1 + softplus(sharpness))
    return power / power.sum()


def naive(p: Weights, x_LD: np.ndarray, *, config: NTMConfig) -> np.ndarray:
    heads, rows, width = config.num_heads, config.memory_rows, config.memory_width
    memory, reads = np.full((rows, width), 1e-6), np.zeros((heads, width))
    weights = [np.eye(rows)[0]] * (2 * heads)
    state, outputs = [np.zeros(config.d_model)] * 2, []
    for x in x_LD:
        state = controller(p, x, reads.flatten(), state, config.core)
        asked = linear(p, "ask", state[0])
        each = width + 3 + 2 * config.shift_range + 1
        to_find, to_write = asked[: 2 * heads * each].reshape(-1, each), asked[2 * heads * each :]
        weights = [addressed(to_find[k], weights[k], memory, config) for k in range(2 * heads)]
        erases, adds = to_write.reshape(2, heads, width)
        for k in range(heads):
            memory = memory * (1 - np.outer(weights[heads + k], sigmoid(erases[k])))
        for k in range(heads):
            memory = memory + np.outer(weights[heads + k], adds[k])
        reads = np.stack([weights[k] @ memory for k in range(heads)])
        outputs.append(linear(p, "project", np.concatenate([state[0], reads.flatten()])))
    return np.stack(outputs)


@pytest.mark.parametrize("core", ["lstm", "feed_forward"])
@pytest.mark.parametrize(("heads", "rows", "shift_range"), [(1, 7, 1), (2, 5, 2), (3, 4, 0), (1, 1, 0)])
def test_outputs_and_gradients_are_those_of_the_equations(core: str, heads: int, rows: int, shift_range: int) -> None:
    config = NTMConfig(d_model=5, core=core, num_heads=heads, memory_rows=rows, memory_width=3, shift_range=shift_range)
    machine = NTMMachine(config).double()
    assert_equal_to(lambda p, x: naive(p, x, config=config), machine, length=9)


def test_the_first_token_and_the_second() -> None:
    config = NTMConfig(d_model=5, memory_rows=6, memory_width=3)
    machine = NTMMachine(config).double()
    for length in (1, 2):
        assert_equal_to(lambda p, x: naive(p, x, config=config), machine, length=length)


def states(machine: NTMMachine, told: list[list[float]]) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Memory, weightings and what was read, of one row after each token."""
    machine.ask = Told(told).double()
    state = machine.init_state(1, max_length=0, device=torch.device("cpu"), dtype=torch.float64)
    for _ in told:
        _, state = machine.step(torch.randn(1, 2, dtype=torch.float64), state, Context())
        yield tuple(x[0] for x in state[1:])


NEVER, ALWAYS = -1e3, 1e3
BACK, HOLD, ON = ([ALWAYS * (place == move) for place in range(3)] for move in range(3))


def head(shift: list[float], *, key: float = 0.0, strength: float = 0.0, content: float = NEVER) -> list[float]:
    """Return a head of a memory one number wide: key, strength, largest sharpness, gate, shifts."""
    return [key, strength, 10.0, content, *shift]


def test_by_hand_writing_row_after_row_and_reading_back_and_on() -> None:
    """Written 3, 5, 7 into rows 1, 2, 3; read from row 0 on; then the writing head holds still and changes nothing."""
    machine = NTMMachine(NTMConfig(d_model=2, memory_rows=5, memory_width=1)).double()
    write = [[*head(HOLD), *head(ON), ALWAYS, value] for value in (3.0, 5.0, 7.0)]
    read = [[*head(move), *head(HOLD), NEVER, 0.0] for move in (ON, ON, ON, BACK, HOLD)]
    found = [reads.item() for _, _, reads in states(machine, write + read)]
    assert found == pytest.approx([1e-6, 1e-6, 1e-6, 3, 5, 7, 5, 5])


def test_by_hand_rows_form_a_ring() -> None:
    machine = NTMMachine(NTMConfig(d_model=2, memory_rows=3, memory_width=1)).double()
    told = [[*head(move), *head(HOLD), NEVER, 0.0] for move in (BACK, ON, ON, ON, ON)]
    assert [weights[0].argmax().item() for _, weights, _ in states(machine, told)] == [2, 0, 1, 2, 0]


def test_by_hand_a_head_finds_a_row_by_its_content() -> None:
    """Rows 1 and 2 hold -3 and 5. A key of -1 finds row 1, which is halved, and 1 is added."""
    machine = NTMMachine(NTMConfig(d_model=2, memory_rows=4, memory_width=1)).double()
    write = [[*head(HOLD), *head(ON), ALWAYS, value] for value in (-3.0, 5.0)]
    sought = head(HOLD, key=-1.0, strength=50.0, content=ALWAYS)
    *_, (memory_NW, weights, reads) = states(machine, [*write, [*sought, *sought, 0.0, 1.0]])
    assert weights.argmax(-1).tolist() == [1, 1]
    assert memory_NW.flatten().tolist() == pytest.approx([1e-6, -0.5, 5, 1e-6], abs=1e-9)
    assert reads.item() == pytest.approx(-0.5)


@pytest.mark.parametrize("sharpness", [0.0, 300.0])
def test_the_sharpest_weighting_in_single_precision_is_finite_and_sums_to_one(sharpness: float) -> None:
    machine = NTMMachine(NTMConfig(d_model=2, memory_rows=128, memory_width=1))
    spread = [0.0, 0.0, sharpness, ALWAYS, 0.0, 0.0, 0.0]
    told = torch.tensor([[*spread, *spread, 0.0, 1.0]] * 5, requires_grad=True)
    state = machine.init_state(1, max_length=0, device=torch.device("cpu"), dtype=torch.float32)
    machine.ask = Told(told.unbind())
    for _ in told:
        y_BD, state = machine.step(torch.randn(1, 2), state, Context())
    torch.testing.assert_close(state[2].sum(-1), torch.ones(1, 2))
    (gradient,) = torch.autograd.grad(y_BD.sum(), told)
    assert bool(torch.isfinite(gradient).all())
