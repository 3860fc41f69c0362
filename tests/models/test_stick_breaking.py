"""Stick-breaking against the stick broken piece by piece, and what it does by hand."""

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.operations.sticks.reference import stick_breaking
from chomsky_ladder.models.stick_breaking import StickBreaking, StickBreakingConfig
from support.attentions import LENGTHS, WIDTH, heads_of, hold_parts_to_the_whole, hold_to_the_loop, stays_finite
from support.cases import full
from support.layers import close, lively

torch.set_num_threads(1)


def by_hand(layer: StickBreaking, x_LD: Tensor) -> Tensor:
    q_HLK, k_HLK, v_HLK = (heads_of(x_LD, w, layer.num_heads) for w in layer.query_key_value.weight.chunk(3))
    broken_HLL = torch.sigmoid(q_HLK @ k_HLK.mT / layer.head_dim**0.5)
    rows = []
    for here in range(len(x_LD)):
        left_H, y_HK = torch.ones(layer.num_heads, dtype=x_LD.dtype), torch.zeros_like(v_HLK[:, 0])
        for there in reversed(range(here)):
            y_HK = y_HK + (left_H * broken_HLL[:, here, there])[:, None] * v_HLK[:, there]
            left_H = left_H * (1 - broken_HLL[:, here, there])
        rows.append(y_HK.flatten())
    return torch.stack(rows) @ layer.out.weight.mT


@pytest.mark.parametrize("length", [length if length <= 65 else full(length) for length in LENGTHS])
def test_it_equals_the_loop(length: int) -> None:
    hold_to_the_loop(lively(StickBreaking(WIDTH, 3)), by_hand, length, tolerance=1e-11)


def test_parts_equal_the_whole() -> None:
    hold_parts_to_the_whole(lively(StickBreaking(WIDTH, 3)), 70, [[69], [1], [3, 1, 40], [1] * 69])


def test_shares_of_a_stick_by_hand() -> None:
    """Logits of 0 break off half of what is left; a large one takes all; nobody sees itself."""
    q, k = torch.tensor([[0.0], [0.0], [0.0], [200.0]]).double(), torch.tensor([[1.0], [1.0], [-1.0], [1.0]]).double()
    found = stick_breaking(q[None, None], k[None, None], torch.eye(4)[None, None].double(), *[torch.arange(4)] * 2)
    expected = [[0, 0, 0, 0], [0.5, 0, 0, 0], [0.25, 0.5, 0, 0], [0, 1, 0, 0]]
    close(found[0, 0], torch.tensor(expected, dtype=torch.float64))


def test_the_future_and_oneself_are_not_seen() -> None:
    layer = lively(StickBreaking(WIDTH, 3))
    x_BLD = torch.randn(1, 9, WIDTH, dtype=torch.float64, requires_grad=True)
    layer.query_key_value.weight.data[:WIDTH] = 0  # the same query everywhere: what is left is what is looked at
    for here in range(9):
        (gradient_BLD,) = torch.autograd.grad(layer(x_BLD, Context())[0, here].sum(), x_BLD)
        seen = [there for there in range(9) if bool(gradient_BLD[0, there].any())]
        assert seen == list(range(here))


def test_extreme_inputs_stay_finite() -> None:
    stays_finite(StickBreaking(WIDTH, 3), (1e-20, 1.0, 1e4, 1e8))


def test_fp32_is_as_exact_as_its_scores() -> None:
    """If one position takes nearly all, nearer ones are a sum of small numbers beside a large one."""
    q, k, v = torch.randn(3, 1, 1, 300, 4, dtype=torch.float64)
    at_L = torch.arange(300)
    expected = stick_breaking(20 * q, k, v, at_L, at_L)
    torch.testing.assert_close(
        stick_breaking(20 * q.float(), k.float(), v.float(), at_L, at_L).double(), expected, rtol=1e-4, atol=1e-4
    )


def test_its_state_is_the_keys_and_values() -> None:
    config = StickBreakingConfig.tiny()
    state = config.build(11).init_state(1, max_length=20, device=torch.device("cpu"), dtype=torch.float32)
    assert [cache.shape for ((cache, _), _) in state] == [(1, 2, 20, 16)] * 2
