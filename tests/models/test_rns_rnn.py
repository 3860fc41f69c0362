"""RNS-RNN against all runs of its automaton one by one, against the paper's table of weights, and by hand."""

from collections import defaultdict
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

from chomsky_ladder.harness.conform.suite import check
from chomsky_ladder.models.block import Context
from chomsky_ladder.models.layers.machine import Machine
from chomsky_ladder.models.rns_rnn import RNSMachine, RNSRNNConfig
from chomsky_ladder.models.scans.pushdown import Runs, first_runs, num_weights
from support.attentions import WIDTH, hold_parts_to_the_whole, stays_finite
from support.layers import close, gradients, lively
from support.machine_oracles import Told, Weights, assert_equal_to, controller, linear

torch.set_num_threads(1)

Configuration = tuple[int, tuple[tuple[int, int], ...]]
"""A state, and a stack of symbols, each with the time at which the one below it was last on top."""

FIRST: Configuration = (0, ((0, -1),))


def after_one(
    weights: dict[Configuration, float], action: np.ndarray, *, time: int, states: int, symbols: int, window: int
) -> dict[Configuration, float]:
    """Take every action in every configuration: push, replace or pop. Weights of equal configurations are added."""
    nodes = states * symbols
    found: dict[Configuration, float] = defaultdict(float)
    for (state, stack), weight in weights.items():
        top, below = stack[-1]
        row = action.reshape(2 * nodes + states, nodes)[:, top * states + state]
        for place in range(nodes):
            symbol, into = divmod(place, states)
            found[into, (*stack, (symbol, time - 1))] += weight * row[place]
            found[into, (*stack[:-1], (symbol, below))] += weight * row[nodes + place]
        for into in range(states) if len(stack) > 1 else ():
            found[into, stack[:-1]] += weight * row[2 * nodes + into]
    return {it: weight for it, weight in found.items() if not window or time - it[1][-1][1] <= window}


def reading_of(weights: dict[Configuration, float], *, states: int, symbols: int) -> np.ndarray:
    reading = np.zeros((symbols, states))
    for (state, stack), weight in weights.items():
        reading[stack[-1][0], state] += weight
    return reading.flatten() / reading.sum()


def naive(p: Weights, x_LD: np.ndarray, *, config: RNSRNNConfig) -> np.ndarray:
    sizes = {"states": config.num_states, "symbols": config.num_symbols}
    weights, state, outputs = {FIRST: 1.0}, [np.zeros(config.d_model)] * 2, []
    for time, x in enumerate(x_LD, 1):
        state = controller(p, x, reading_of(weights, **sizes), state, config.core)
        action = np.exp(linear(p, "weigh", state[0]))
        weights = after_one(weights, action, time=time, window=config.window, **sizes)
        outputs.append(state[0])
    return np.stack(outputs)


def by_table(logits_LX: np.ndarray, *, states: int, symbols: int, window: int) -> np.ndarray:
    """Return the readings after every token by the recurrences of the paper, a weight for each i, t and k."""
    nodes, length = states * symbols, len(logits_LX)
    gamma = np.zeros((length + 1, length + 1, symbols, states, symbols, states))  # of i + 1 and t: x q -> y r
    alpha = np.zeros((length + 2, symbols, states))
    gamma[0, 0, 0, 0, 0, 0] = alpha[0, 0, 0] = alpha[1, 0, 0] = 1
    readings = []
    for t, logits in enumerate(logits_LX, 1):
        action = np.exp(logits).reshape(2 * nodes + states, symbols, states)
        push, replace = action[: 2 * nodes].reshape(2, symbols, states, symbols, states)
        gamma[t, t] = np.einsum("yrxq->xqyr", push)
        for i in range(t):
            gamma[i, t] += np.einsum("xqzs,yrzs->xqyr", gamma[i, t - 1], replace)
            for k in range(i + 1, t):
                popped = np.einsum("yuzs,rzs->yur", gamma[k, t - 1], action[2 * nodes :])
                gamma[i, t] += np.einsum("xqyu,yur->xqyr", gamma[i, k - 1], popped)
        if window:
            gamma[: max(0, t + 1 - window), t] = 0
        alpha[t + 1] = np.einsum("ixq,ixqyr->yr", alpha[: t + 1], gamma[: t + 1, t])
        readings.append(alpha[t + 1].flatten() / alpha[t + 1].sum())
    return np.stack(readings)


def readings(logits_BLX: Tensor, *, states: int, symbols: int, window: int = 0) -> Tensor:
    first = first_runs(
        len(logits_BLX), states=states, symbols=symbols, places=1, device=logits_BLX.device, dtype=logits_BLX.dtype
    )
    runs, found = Runs(*first, places=window or logits_BLX.shape[1] + 1), []
    for logits_BX in logits_BLX.unbind(1):
        runs.advance(logits_BX)
        found.append(runs.reading)
    return torch.stack(found, 1)


@pytest.mark.parametrize("core", ["relu", "tanh", "lstm"])
@pytest.mark.parametrize(
    ("states", "symbols", "window", "length"),
    [(2, 3, 0, 1), (2, 3, 0, 5), (1, 2, 0, 8), (3, 1, 0, 7), (2, 2, 3, 6), (2, 2, 2, 6), (1, 3, 4, 7)],
)
def test_outputs_and_gradients_are_those_of_all_runs(
    core: str, states: int, symbols: int, window: int, length: int
) -> None:
    config = RNSRNNConfig(d_model=5, core=core, num_states=states, num_symbols=symbols, window=window)
    machine = lively(RNSMachine(config))
    assert_equal_to(lambda p, x: naive(p, x, config=config), machine, length=length)


@pytest.mark.parametrize("window", [0, 2, 5, 16, 17, 33])
def test_readings_are_those_of_the_papers_table(window: int) -> None:
    """At a length at which blocks of B are merged, full, and forgotten."""
    sizes = {"states": 2, "symbols": 3, "window": window}
    logits_BLX = 2 * torch.randn(2, 40, num_weights(2, 3), dtype=torch.float64)
    expected = torch.stack([torch.from_numpy(by_table(x.numpy(), **sizes)) for x in logits_BLX])
    close(readings(logits_BLX, **sizes), expected, 1e-9)


def test_a_common_factor_of_a_tokens_weights_changes_nothing() -> None:
    logits_BLX = torch.randn(2, 30, num_weights(2, 3), dtype=torch.float64)
    moved_BLX = logits_BLX + 300 * torch.randn(2, 30, 1, dtype=torch.float64)
    close(readings(moved_BLX, states=2, symbols=3), readings(logits_BLX, states=2, symbols=3), 1e-11)


def test_a_long_string_in_single_precision_keeps_its_digits() -> None:
    """300 tokens whose weights are e^6 apart: without the division by the sum, fp32 holds forty."""
    logits_BLX = (3 * torch.randn(2, 300, num_weights(2, 2), dtype=torch.float64)).requires_grad_()
    single_BLX = logits_BLX.detach().float().requires_grad_()
    exact, found = (readings(x, states=2, symbols=2) for x in (logits_BLX, single_BLX))
    assert (found - exact).abs().max() < 1e-4
    exact, found = gradients(exact, [logits_BLX])[0], gradients(found, [single_BLX])[0]
    assert (found - exact).abs().max() < 1e-3 * exact.abs().max()


@pytest.mark.parametrize("window", [0, 7])
def test_parts_equal_the_whole(window: int) -> None:
    machine = lively(RNSMachine(RNSRNNConfig(d_model=WIDTH, num_symbols=2, window=window)))
    hold_parts_to_the_whole(machine, 20, [[19], [3, 1, 10], [1] * 19])


def test_a_window_as_long_as_the_string_changes_nothing() -> None:
    logits_BLX = torch.randn(2, 21, num_weights(2, 2), dtype=torch.float64)
    whole = readings(logits_BLX, states=2, symbols=2)
    close(readings(logits_BLX, states=2, symbols=2, window=22), whole)
    assert (readings(logits_BLX, states=2, symbols=2, window=20) - whole).abs().max() > 1e-12


def told(action: str, *, states: int, symbols: int) -> list[float]:
    """Return logits under which every run takes one action from state 0: a push of a symbol, or a pop."""
    nodes = states * symbols
    place = 2 * nodes if action == "pop" else int(action) * states
    return [60.0 * (row == place) for row in range(2 * nodes + states) for _ in range(nodes)]


def test_by_hand_last_in_first_out() -> None:
    """100 symbols, then as many pops."""
    pushed = [(7 * t * t + t) % 3 for t in range(100)]
    machine = RNSMachine(RNSRNNConfig(d_model=2))
    machine.weigh = Told([told(str(x), states=2, symbols=3) for x in pushed] + [told("pop", states=2, symbols=3)] * 100)
    state = Machine.start(machine, torch.zeros(1, 200, 2), Context())
    tops = []
    for _ in range(200):
        _, state = machine.step(torch.randn(1, 2), state, Context())
        reading_SQ = state[1].sum(-1)[0]
        assert reading_SQ.max() > 0.999
        tops.append(int(reading_SQ.flatten().argmax()) / 2)
    assert tops == [*pushed, *pushed[-2::-1], 0]


def test_by_hand_runs_guess_the_middle_of_a_palindrome() -> None:
    """State 0 pushes a token, or takes it for the first of the second half. No deterministic automaton does this."""
    states, symbols, nodes = 2, 3, 6
    logits_3EC = torch.full((symbols, 2 * nodes + states, symbols, states), -40.0, dtype=torch.float64)
    for token in (1, 2):
        logits_3EC[token, token * states, :, 0] = 0  # a push from state 0, whatever is on top
        logits_3EC[token, 2 * nodes + 1, token, :] = 0  # a pop to state 1 of an equal symbol
    for length in range(1, 9):
        tokens_BL = torch.tensor([*product((1, 2), repeat=length)])
        last_BC = readings(logits_3EC[tokens_BL].flatten(2), states=states, symbols=symbols)[:, -1]
        is_palindrome_B = (tokens_BL == tokens_BL.flip(1)).all(1) & (length % 2 == 0)
        assert torch.equal(last_BC[:, 1] > 1e-6, is_palindrome_B)  # the bottom in state 1


def test_extreme_inputs_stay_finite() -> None:
    stays_finite(RNSMachine(RNSRNNConfig(d_model=WIDTH, core="relu")), (1e-20, 1.0, 1e4, 1e8), 40)


def test_runs_that_all_pop_the_bottom_stay_finite() -> None:
    logits_BLX = torch.tensor(told("pop", states=2, symbols=3)).mul(1e4).expand(1, 50, -1).requires_grad_()
    found = readings(logits_BLX, states=2, symbols=3)
    assert bool(torch.isfinite(found).all()) and bool(torch.isfinite(gradients(found, [logits_BLX])[0]).all())


def test_without_a_window_it_conforms_but_for_the_growth_of_its_state() -> None:
    """The bytes of its state grow with the square of the length."""
    failed = [each for each in check(RNSRNNConfig(d_model=8, num_symbols=2)) if each.verdict == "FAIL"]
    assert [each.check for each in failed] == ["its state grows as declared"] and "nor linear" in failed[0].reason


def test_capabilities_follow_the_window() -> None:
    whole, near = RNSRNNConfig(), RNSRNNConfig(window=40)
    assert (whole.transition, whole.state_growth, whole.cost) == ("stack", "length", "unknown")
    assert (near.transition, near.state_growth, near.cost) == ("", "constant", "linear")


def test_settings_are_refused_in_one_line() -> None:
    for setting, message in (
        ({"num_states": 0}, "^rns_rnn: num_states must be at least 1, not 0$"),
        ({"num_symbols": 0}, "^rns_rnn: num_symbols must be at least 1, not 0$"),
        ({"window": 1}, "^rns_rnn: window is 0, or at least 2, not 1$"),
        ({"window": -3}, "^rns_rnn: window is 0, or at least 2, not -3$"),
    ):
        with pytest.raises(ValueError, match=message):
            RNSRNNConfig(**setting)
