"""Preconditioned DeltaNet against its equations token by token, its state, its bounds and its extremes."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.preconditioned_delta_net import LARGEST, PreconditionedDeltaNetConfig, preconditioned
from support.attentions import WIDTH, hold_parts_to_the_whole, hold_to_the_loop, stays_finite
from support.layers import close, lively

torch.set_num_threads(1)

HEADS = 3
DECAYS = pytest.mark.parametrize("decay", ["head", "channel"])


def small(decay: str) -> Any:
    return PreconditionedDeltaNetConfig(d_model=WIDTH, num_heads=HEADS, decay=decay).mixer(0)  # pyright: ignore[reportArgumentType]


def moderate(decay: str) -> Any:
    """Decays near those of a model: moved from their start, the logarithms of A would be of any size."""
    layer: Any = lively(small(decay))
    layer.A_log.data.sub_(2)
    layer.curvature.A_log.data.sub_(2)
    return layer


def sigmoid(x: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-x))


def by_hand(layer: Any, x_LD: Tensor) -> Tensor:
    """The equations as they stand, token by token."""
    dim, curvature = WIDTH // HEADS, layer.curvature
    S, A = (torch.zeros(HEADS, *size, dtype=x_LD.dtype) for size in ((dim, dim), (dim,)))
    past, rows = [torch.zeros(3 * WIDTH, dtype=x_LD.dtype)] * 4, []
    for x in x_LD:
        past = [*past[1:], layer.query_key_value.weight @ x]
        mixed = torch.stack([w * u for w, u in zip(layer.convolution.weight.T, past, strict=True)]).sum(0)
        q, k, v = (mixed * sigmoid(mixed)).view(3, HEADS, dim)
        q, k = (z / (z.square().sum(-1, keepdim=True) + 1e-6).sqrt() for z in (q, k))
        if hasattr(layer, "dt"):
            number = (layer.dt.weight @ x + layer.dt_bias)[:, None]
            gate = layer.gate.weight @ x
            gate = gate * sigmoid(gate)
        else:
            number = (layer.decay[1].weight @ layer.decay[0].weight @ x + layer.dt_bias).view(HEADS, dim)
            gate = sigmoid(layer.gate[1].weight @ layer.gate[0].weight @ x + layer.gate[1].bias)
        w = torch.exp(-layer.A_log.exp()[:, None] * torch.log(1 + torch.exp(number))).expand(HEADS, dim)
        asked, strength = (curvature.asked.weight @ x).view(2, HEADS, 1)
        rate = curvature.A_log.exp() * torch.log(1 + torch.exp(asked[:, 0] + curvature.dt_bias))
        A = torch.exp(-rate)[:, None] * A + sigmoid(strength) * k**2
        r = torch.log(A + 1e-6) - curvature.centre[:, None]
        p = k * 1.5 ** (-r / (1 + r.abs()))
        b = sigmoid(layer.beta.weight @ x)[:, None, None]
        S = w[..., None] * S
        S = S + b * p[..., None] * (v - torch.einsum("hk,hkv->hv", k, S))[:, None]
        y = torch.einsum("hk,hkv->hv", q, S) / math.sqrt(dim)
        y = y / (y.square().mean(-1, keepdim=True) + 1e-5).sqrt() * layer.norm.weight
        rows.append(layer.out.weight @ (y.flatten() * gate))
    return torch.stack(rows)


@DECAYS
@pytest.mark.parametrize("length", [1, 2, 17])
def test_it_equals_the_loop(decay: str, length: int) -> None:
    hold_to_the_loop(moderate(decay), by_hand, length, tolerance=1e-8)


@DECAYS
def test_parts_equal_the_whole(decay: str) -> None:
    hold_parts_to_the_whole(moderate(decay), 20, [[19], [3, 1, 10], [1] * 19])


@DECAYS
def test_keys_used_much_are_written_less(decay: str) -> None:
    """A key of one channel, again and again: its factor falls, and stays between 1/1.5 and 1.5."""
    layer = moderate(decay)
    layer.curvature.asked.weight.data[:HEADS] = -40.0  # nothing of A decays for the ones below
    k_BHLK = torch.zeros(1, HEADS, 30, 4).double()
    k_BHLK[..., 1] = 1
    asked_BLX = layer.curvature.asked(torch.ones(1, 30, WIDTH).double())
    with torch.no_grad():
        p_BHLK, A_BHK = layer.curvature(asked_BLX, k_BHLK, torch.zeros(1, HEADS, 4).double(), Context())
    factors_HL = p_BHLK[0, ..., 1]
    assert bool((factors_HL.diff() < 0).all()) and bool((A_BHK[0, :, 1] > 0).all())
    assert float(factors_HL.min()) > 1 / LARGEST and float(factors_HL.max()) < LARGEST
    assert bool((p_BHLK[..., [0, 2, 3]] == 0).all())


def test_an_even_curvature_is_kdas_rule() -> None:
    """With the centre at the logarithm of A, m is 1 and one write is the delta rule's."""
    layer = moderate("head")
    q, k, v = torch.randn(3, 1, HEADS, 1, 4).double().unbind(0)
    k = torch.sign(k)  # of four equal channels, each .25 when squared
    asked, strength = torch.zeros(1, 1, 2 * HEADS).double(), 0.5
    layer.curvature.centre.data.fill_(math.log(strength * 0.25 + 1e-6))
    nothing = torch.zeros(1, HEADS, 4, 4).double(), torch.zeros(1, HEADS, 4).double()
    one = torch.ones(1, HEADS, 1, 1).double()
    y, (S, _) = preconditioned(layer.curvature, asked, (q, k, v, one, 0 * one), nothing, Context())
    close(S, (k / 2).mT @ v, 1e-6)
    close(y, (q / q.norm(dim=-1, keepdim=True) / 2) @ S, 1e-6)


@DECAYS
def test_extreme_inputs_stay_finite(decay: str) -> None:
    stays_finite(small(decay), (1e-20, 1.0, 1e4), 40)


def test_settings_are_refused_in_one_line() -> None:
    with pytest.raises(ValueError, match=r"^preconditioned_delta_net: eigenvalues=signed is not possible"):
        PreconditionedDeltaNetConfig(eigenvalues="signed")
