"""BD-LRU against its blocks one by one, its bound, a group that it follows by hand, and its extremes."""

from typing import Any

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.bd_lru import EPS, BDLRUConfig, BlockDiagonalLRU, shares
from chomsky_ladder.models.block import Context
from support.attentions import WIDTH, hold_parts_to_the_whole, hold_to_the_loop, stays_finite
from support.layers import close, lively

torch.set_num_threads(1)

GATES = ("softmax", "sigmoid", "tanh")


def small(gates: Any = "softmax", block_size: int = 3) -> BlockDiagonalLRU:
    return BlockDiagonalLRU(BDLRUConfig(d_model=WIDTH, block_size=block_size, gates=gates))


def by_hand(layer: BlockDiagonalLRU, x_LD: Tensor) -> Tensor:
    """One row of one block at a time."""
    size, rows = layer.block_size, []
    h = torch.zeros_like(x_LD[0])
    for x in x_LD:
        gate, v, after = layer.gate.weight @ x + layer.gate.bias, layer.value.weight @ x, []
        for row, own in enumerate(gate.split(size + 1)):
            first = row // size * size
            if layer.gates == "softmax":
                own = own.exp() / own.exp().sum()
            else:
                own = own.sigmoid() if layer.gates == "sigmoid" else own.tanh()
                own = own / own.abs().sum()
            after.append(own[:size] @ h[first : first + size] + own[size] * v[row])
        h = torch.stack(after)
        rows.append(layer.out.weight @ h)
    return torch.stack(rows)


@pytest.mark.parametrize(("length", "block_size"), [(1, 3), (17, 1), (30, 3), (9, 12)])
@pytest.mark.parametrize("gates", GATES)
def test_it_equals_its_rows_one_by_one(gates: str, length: int, block_size: int) -> None:
    hold_to_the_loop(lively(small(gates, block_size)), by_hand, length, tolerance=1e-10)


def test_parts_equal_the_whole() -> None:
    hold_parts_to_the_whole(lively(small("tanh")), 30, [[29], [3, 1, 20], [1] * 29])


@pytest.mark.parametrize("gates", GATES)
def test_the_state_is_never_larger_than_the_largest_value(gates: str) -> None:
    layer = lively(small(gates))
    x_BLD = 3 * torch.randn(2, 60, WIDTH, dtype=torch.float64)
    layer.out = torch.nn.Linear(WIDTH, WIDTH, bias=False).double()
    layer.out.weight.data = torch.eye(WIDTH).double()
    assert layer(x_BLD, Context()).abs().max() <= layer.value(x_BLD).abs().max()


def test_it_follows_a_cycle_of_three_by_hand() -> None:
    """Token 0 writes 1, 2, 3 into a block; token 1 turns it. Softmaxes are saturated."""
    layer = small().double()
    for parameter in layer.parameters():
        parameter.data.zero_()
    gate_HKGD = layer.gate.weight.data.view(WIDTH // 3, 3, 4, WIDTH)
    gate_HKGD[:, :, 3, 0] = 1e3
    for row in range(3):
        gate_HKGD[:, row, (row - 1) % 3, 1] = 1e3
    layer.value.weight.data[:3, 0] = torch.tensor([1.0, 2.0, 3.0]).double()
    layer.out.weight.data[:] = torch.eye(WIDTH).double()
    x_BLD = torch.nn.functional.one_hot(torch.tensor([[0, 1, 1, 1, 1]]), WIDTH).double()
    found = layer(x_BLD, Context())[0, :, :3].tolist()
    assert found == [[1, 2, 3], [3, 1, 2], [2, 3, 1], [1, 2, 3], [3, 1, 2]]


def test_gates_that_vanish_divide_by_no_zero() -> None:
    found = shares(torch.zeros(1, 1, 1, 2, 3, dtype=torch.float64, requires_grad=True), "tanh")
    assert not found.any()
    close(torch.autograd.functional.jacobian(lambda x: shares(x, "tanh"), torch.zeros(1)), torch.ones(1, 1) / EPS, 1e-6)


@pytest.mark.parametrize("gates", GATES)
def test_extreme_inputs_stay_finite(gates: str) -> None:
    stays_finite(small(gates), (1e-20, 1.0, 1e4, 1e8), 40)


def test_settings_are_refused_in_one_line() -> None:
    for setting, message in (
        ({"d_model": 10}, "^bd_lru: d_model=10 does not split into blocks of 4$"),
        ({"block_size": 0}, "^bd_lru: d_model=128 does not split into blocks of 0$"),
        ({"d_inner": -1}, "^bd_lru: d_inner must not be negative$"),
    ):
        with pytest.raises(ValueError, match=message):
            BDLRUConfig(**setting)
