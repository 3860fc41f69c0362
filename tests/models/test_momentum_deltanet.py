"""Momentum DeltaNet against its equations token by token, its state, its gates' bounds and its extremes."""

from typing import Any

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.momentum_deltanet import MomentumDeltaNetConfig, MomentumDeltaRule
from support.attentions import WIDTH, hold_parts_to_the_whole, hold_to_the_loop, stays_finite
from support.layers import close, lively

torch.set_num_threads(1)

HEADS = 3


def small() -> MomentumDeltaRule:
    return MomentumDeltaRule(MomentumDeltaNetConfig(d_model=WIDTH, num_heads=HEADS))


def by_hand(layer: MomentumDeltaRule, x_LD: Tensor) -> Tensor:
    """The equations as they stand, a head at a time, with M and b apart."""
    dim = WIDTH // HEADS
    S, M = torch.zeros(2, HEADS, dim, dim, dtype=x_LD.dtype).unbind(0)
    past, rows = [torch.zeros(3 * WIDTH, dtype=x_LD.dtype)] * 4, []

    def rate(log: Tensor, number: Tensor, bias: Tensor) -> Tensor:
        return torch.exp(-log.exp() * torch.log(1 + torch.exp(number + bias)))

    for x in x_LD:
        past = [*past[1:], layer.query_key_value.weight @ x]
        mixed = torch.stack([w * u for w, u in zip(layer.convolution.weight.T, past, strict=True)]).sum(0)
        q, k, v = (mixed * torch.sigmoid(mixed)).view(3, HEADS, dim)
        q = q - layer.less_log.exp()[:, None] * k
        q, k = (z / (z.square().sum(-1, keepdim=True) + 1e-6).sqrt() for z in (q, k))
        w_a, w_b, w_m, w_n = (layer.gates.weight @ x).view(4, HEADS)
        n = 1 + torch.tanh(w_n / WIDTH**0.5)
        angle = torch.arctan(layer.factor_log.exp() * n)
        a = angle.cos() ** 2 * rate(layer.A_log, w_a, layer.dt_bias)
        b = angle.sin() ** 2 * torch.sigmoid(w_b)
        m = rate(layer.momentum_log, w_m, layer.momentum_bias).clamp_min(torch.tensor(-2.0).double().exp())
        error = a[:, None] * torch.einsum("hk,hkv->hv", k, S) - v
        M = m[:, None, None] * M + n[:, None, None] * k[..., None] * error[:, None]
        S = a[:, None, None] * S - b[:, None, None] * M
        y = torch.einsum("hk,hkv->hv", q, S)
        y = y / (y.square().mean(-1, keepdim=True) + 1e-5).sqrt() * layer.norm.weight
        rows.append(layer.out.weight @ (y.flatten() * torch.sigmoid(layer.gate.weight @ x)))
    return torch.stack(rows)


def moderate() -> MomentumDeltaRule:
    """Decays near those of a model: moved from their start, the logarithms of A would be of any size."""
    layer: Any = lively(small())
    layer.A_log.data.sub_(2)
    layer.momentum_log.data.sub_(2)
    return layer


@pytest.mark.parametrize("length", [1, 2, 17])
def test_it_equals_the_loop(length: int) -> None:
    hold_to_the_loop(moderate(), by_hand, length, tolerance=1e-8)


def test_parts_equal_the_whole() -> None:
    hold_parts_to_the_whole(moderate(), 20, [[19], [3, 1, 10], [1] * 19])


def test_gates_are_bounded() -> None:
    layer = small()
    for scale in (1.0, 1e4):
        a, b, m, n = layer.logarithms(scale * torch.randn(2, 50, WIDTH), torch.float32)
        assert a.max() <= 0 and b.max() <= 0 and m.max() <= 0 and float(n.detach().exp().max()) <= 2.00001
        assert a.min() >= -30 and b.min() >= -30 and m.min() >= -2


def test_what_is_kept_and_written_sum_to_at_most_1() -> None:
    layer = small()
    layer.A_log.data.fill_(-1e4)  # nothing decays but by the angle
    layer.gates.weight.data.view(4, HEADS, WIDTH)[1] = 0
    a, b, _, _ = layer.logarithms(torch.randn(2, 9, WIDTH), torch.float32)
    close(a.exp() + 2 * b.exp(), torch.ones(2, HEADS, 9), 1e-5)


def test_extreme_inputs_stay_finite() -> None:
    stays_finite(small(), (1e-20, 1.0, 1e4), 40)


def test_settings_are_refused_in_one_line() -> None:
    for setting, message in (
        ({"d_model": 10}, "^momentum_deltanet: d_model=10 does not split into 4 heads$"),
        ({"conv_width": 0}, "^momentum_deltanet: conv_width must be at least 1, not 0$"),
        ({"d_inner": -1}, "^momentum_deltanet: d_inner must not be negative$"),
    ):
        with pytest.raises(ValueError, match=message):
            MomentumDeltaNetConfig(**setting)
