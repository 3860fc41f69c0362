"""RG-LRU against its equations token by token, its state, its extremes and its start."""

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.rg_lru import RealGatedLRU, RGLRUConfig, initial_logits
from support.attentions import WIDTH, hold_parts_to_the_whole, hold_to_the_loop, stays_finite
from support.layers import lively

torch.set_num_threads(1)


def small() -> RealGatedLRU:
    return RealGatedLRU(RGLRUConfig(d_model=WIDTH, num_heads=3))


def by_hand(layer: RealGatedLRU, x_LD: Tensor) -> Tensor:
    """One token at a time, the gates' weights as whole matrices."""
    recurrent, entering = (torch.block_diag(*part).T for part in layer.gates_HKG.chunk(2, -1))
    bias_r, bias_i = (part.flatten() for part in layer.gates_bias_HG.chunk(2, -1))
    past, h, rows = [torch.zeros_like(x_LD[0])] * 3, torch.zeros_like(x_LD[0]), []
    for x in x_LD:
        past = [*past[-3:], layer.value.weight @ x + layer.value.bias]
        u = sum((w * v for w, v in zip(layer.convolution.weight.T, past, strict=True)), layer.convolution.bias)
        r, i = torch.sigmoid(recurrent @ u + bias_r), torch.sigmoid(entering @ u + bias_i)
        a = torch.sigmoid(layer.decay_D) ** (8 * r)
        h = a * h + (1 - a**2).sqrt() * i * u
        z = layer.gate.weight @ x + layer.gate.bias
        y = z * (1 + torch.erf(z / 2**0.5)) / 2 * h
        rows.append(layer.out.weight @ y + layer.out.bias)
    return torch.stack(rows)


@pytest.mark.parametrize("length", [1, 5, 40])
def test_it_equals_the_loop(length: int) -> None:
    hold_to_the_loop(lively(small()), by_hand, length, tolerance=1e-11)


def test_parts_equal_the_whole() -> None:
    hold_parts_to_the_whole(lively(small()), 30, [[29], [1, 2, 20], [1] * 29])


@pytest.mark.parametrize("logit", [-1e4, 0.0, 1e4])
def test_gates_that_are_shut_or_open_stay_finite(logit: float) -> None:
    layer = small()
    layer.gates_bias_HG.data.fill_(logit)
    stays_finite(layer, (1e-20, 1.0, 1e4), 20)


def test_a_shut_gate_keeps_the_state() -> None:
    layer = lively(small())
    layer.gates_bias_HG.data.fill_(-1e4)
    state = (torch.zeros(1, 3, WIDTH).double(), torch.ones(1, WIDTH).double())
    _, (_, h_BD) = layer.extend(torch.randn(1, 50, WIDTH).double(), state, Context())
    torch.testing.assert_close(h_BD, state[1], rtol=0, atol=1e-4)


def test_it_starts_with_the_released_decays() -> None:
    decay_D = torch.sigmoid(initial_logits(4096).double())
    assert 0.9 <= float(decay_D.min()) < 0.901 and 0.998 < float(decay_D.max()) <= 0.9991
    assert float(decay_D.square().mean()) == pytest.approx((0.9**2 + 0.999**2) / 2, abs=0.003)


def test_settings_are_refused_in_one_line() -> None:
    for setting, message in (
        ({"d_model": 10}, "^rg_lru: d_model=10 does not split into 4 heads$"),
        ({"conv_width": 0}, "^rg_lru: conv_width must be at least 1, not 0$"),
        ({"d_inner": -1}, "^rg_lru: d_inner must not be negative$"),
    ):
        with pytest.raises(ValueError, match=message):
            RGLRUConfig(**setting)
