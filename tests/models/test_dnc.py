"""The differentiable neural computer against a loop over plain arrays, and what its memory does by hand."""

import numpy as np
import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.dnc import DNCConfig, DNCMachine
from chomsky_ladder.models.operations.linked.reference import allocation, linked
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


def free_rows(usage: np.ndarray) -> np.ndarray:
    """The allocation weighting, each product written out; Python's sort is stable."""
    weighting, fuller = np.zeros(len(usage)), 1.0
    for n in sorted(range(len(usage)), key=lambda n: usage[n]):
        weighting[n] = (1 - usage[n]) * fuller
        fuller *= usage[n]
    return weighting


def by_content(key: np.ndarray, strength: float, memory: np.ndarray) -> np.ndarray:
    return softmax((1 + softplus(strength)) * np.array([cosine(key, row) for row in memory]))


def naive(p: Weights, x_LD: np.ndarray, *, config: DNCConfig) -> np.ndarray:
    """The paper's methods in its order, an element of the links at a time."""
    heads, rows, width = config.num_reads, config.memory_rows, config.memory_width
    memory, reads, weights = np.zeros((rows, width)), np.zeros((heads, width)), np.zeros((heads, rows))
    usage, write, precedence, link = np.zeros(rows), np.zeros(rows), np.zeros(rows), np.zeros((rows, rows))
    state, outputs = [np.zeros(config.d_model)] * 2, []
    for x in x_LD:
        state = controller(p, x, reads.flatten(), state, "lstm")
        asked = linear(p, "ask", state[0])
        of_heads, of_write = asked[: heads * (width + 5)].reshape(heads, -1), asked[heads * (width + 5) :]
        key, erase, vector = of_write[: 3 * width].reshape(3, width)
        strength, write_gate, allocation_gate = of_write[3 * width :]

        kept = np.ones(rows)
        for k in range(heads):
            kept *= 1 - sigmoid(of_heads[k, width + 1]) * weights[k]
        usage = (usage + write - usage * write) * kept
        share = sigmoid(allocation_gate)
        write = share * free_rows(usage) + (1 - share) * by_content(key, strength, memory)
        write = sigmoid(write_gate) * write
        memory = memory * (1 - np.outer(write, sigmoid(erase))) + np.outer(write, vector)

        before, link = link, np.zeros((rows, rows))
        for n in range(rows):
            for m in range(rows):
                if n != m:
                    link[n, m] = (1 - write[n] - write[m]) * before[n, m] + write[n] * precedence[m]
        precedence = (1 - write.sum()) * precedence + write

        for k in range(heads):
            back, content, forth = softmax(of_heads[k, width + 2 :])
            found = by_content(of_heads[k, :width], of_heads[k, width], memory)
            weights[k] = back * (link.T @ weights[k]) + content * found + forth * (link @ weights[k])
        reads = weights @ memory
        outputs.append(linear(p, "project", np.concatenate([state[0], reads.flatten()])))
    return np.stack(outputs)


@pytest.mark.parametrize(("heads", "rows", "length"), [(1, 6, 1), (1, 6, 2), (2, 6, 9), (3, 3, 9), (1, 1, 4)])
def test_outputs_and_gradients_are_those_of_the_equations(heads: int, rows: int, length: int) -> None:
    config = DNCConfig(d_model=5, num_reads=heads, memory_rows=rows, memory_width=3)
    machine = DNCMachine(config).double()
    with torch.no_grad():
        machine.ask.weight *= 3  # further from the start, where all rows are nearly alike
    assert_equal_to(lambda p, x: naive(p, x, config=config), machine, length=length, tolerance=1e-10)


def test_allocation_is_the_paper_s_and_its_gradient_that_at_a_fixed_order() -> None:
    usage_BN = torch.rand(4, 7, dtype=torch.float64)
    usage_BN[1, [1, 4, 6]] = 0.0
    usage_BN[2] = 1.0
    usage_BN[3] = 0.5
    usage_BN.requires_grad_()
    found_BN, mix_BN = allocation(usage_BN), torch.randn(4, 7, dtype=torch.float64)
    np.testing.assert_allclose(found_BN.detach(), [free_rows(u) for u in usage_BN.detach().numpy()], atol=1e-14)
    (gradient_BN,) = torch.autograd.grad((found_BN * mix_BN).sum(), usage_BN)
    assert bool(torch.isfinite(gradient_BN).all())
    usage, mix = usage_BN[0].detach().numpy(), mix_BN[0].numpy()
    for n in range(7):
        step = 1e-6 * np.eye(7)[n]
        difference = (free_rows(usage + step) - free_rows(usage - step)) @ mix / 2e-6
        assert gradient_BN[0, n].item() == pytest.approx(difference, abs=1e-8)


@pytest.mark.parametrize("rows", [7, 64, 200])
def test_rows_of_equal_usage_are_filled_in_their_own_order(rows: int) -> None:
    """An unstable sort of many equal keys would pick any."""
    for used in (0.0, 0.5):
        assert allocation(torch.full((3, rows), used)).argmax(-1).tolist() == [0, 0, 0]
    filled_N = (torch.arange(rows) < 3).float()
    assert allocation(filled_N[None]).argmax().item() == 3


def test_links_by_hand() -> None:
    """Rows 2, 0, 1 written one after the other; then row 0 again, which takes it out of its old place."""
    link_BNN, precedence_BN = torch.zeros(1, 4, 4), torch.zeros(1, 4)
    for row in (2, 0, 1, 0):
        write_BN = torch.eye(4)[row][None]
        link_BNN = linked(link_BNN, write_BN, precedence_BN)
        precedence_BN = write_BN
        if row == 1:
            assert link_BNN[0].nonzero().tolist() == [[0, 2], [1, 0]]
    assert link_BNN[0].nonzero().tolist() == [[0, 1]]


NEVER, ALWAYS = -1e3, 1e3
BACK, CONTENT, FORTH = ([ALWAYS * (mode == chosen) for mode in range(3)] for chosen in range(3))


def read(mode: list[float], *, key: float = 0.0, free: float = NEVER) -> list[float]:
    """Return a reading head of a memory one number wide: key, strength, free gate, modes."""
    return [key, 50.0, free, *mode]


def write(value: float) -> list[float]:
    """Into the freest row: key, erasure, vector, strength, gates of writing and of allocation."""
    return [0.0, ALWAYS, value, 0.0, ALWAYS, ALWAYS]


NO_WRITE = [0.0, 0.0, 9.0, 0.0, NEVER, ALWAYS]


def run(told: list[list[float]], *, rows: int) -> list[tuple[Tensor, ...]]:
    """Memory, usage, ..., what was read: the state of one row after each token."""
    machine = DNCMachine(DNCConfig(d_model=2, memory_rows=rows, memory_width=1)).double()
    machine.ask = Told(told).double()
    state = machine.init_state(1, max_length=0, device=torch.device("cpu"), dtype=torch.float64)
    found = []
    for _ in told:
        _, state = machine.step(torch.randn(1, 2, dtype=torch.float64), state, Context())
        found.append(tuple(x[0].detach() for x in state[1:]))
    return found


def test_by_hand_what_was_written_is_followed_forth_and_back() -> None:
    """-3, 5, -7, 2 fill rows 0 to 3. A key of 1 finds 5 and 2 alike, half of each; only 5 has a follower, -7."""
    told = [[*read(CONTENT, key=1.0), *write(value)] for value in (-3.0, 5.0, -7.0, 2.0)]
    told += [[*read(mode), *NO_WRITE] for mode in (FORTH, BACK, BACK)]
    found = run(told, rows=6)
    np.testing.assert_allclose(found[3][0].flatten(), [-3, 5, -7, 2, 0, 0], atol=1e-12)
    assert [state[-1].item() for state in found[3:]] == pytest.approx([3.5, -3.5, 2.5, -1.5], abs=1e-5)


def test_by_hand_a_row_set_free_is_written_again() -> None:
    """Three rows full; the row of -5 is read and set free at the next token, and the new value goes there."""
    told = [[*read(CONTENT, key=-1.0), *write(value)] for value in (3.0, -5.0, 7.0)]
    told.append([*read(CONTENT, key=-1.0, free=ALWAYS), *write(9.0)])
    found = run(told, rows=3)
    np.testing.assert_allclose(found[2][0].flatten(), [3, -5, 7], atol=1e-12)
    np.testing.assert_allclose(found[3][0].flatten(), [3, 9, 7], atol=1e-12)
    kept = run([*told[:3], [*read(CONTENT, key=-1.0), *write(9.0)]], rows=3)
    np.testing.assert_allclose(kept[3][0].flatten(), [3, -5, 7], atol=1e-12)  # no row is free: nothing is written
