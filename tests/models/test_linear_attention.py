"""Linear attention and Based against sums over pairs, their states, their features and the layers of their blocks."""

from typing import Any

import pytest
import torch
from torch import Tensor

from chomsky_ladder.harness.conform.suite import check
from chomsky_ladder.models import linear_attention as module
from chomsky_ladder.models.based import BasedConfig, GatedConvolution
from chomsky_ladder.models.layers.attention import Attention
from chomsky_ladder.models.linear_attention import EPS, LinearAttention, LinearAttentionConfig, taylor
from support.attentions import WIDTH, heads_of, hold_parts_to_the_whole, hold_to_the_loop, stays_finite
from support.layers import close, lively

torch.set_num_threads(1)

MAPS = ("elu", "taylor")


def small(feature_map: Any) -> LinearAttention:
    return LinearAttention(WIDTH, 3, key_dim=5, feature_map=feature_map)


def by_hand(layer: LinearAttention, x_LD: Tensor) -> Tensor:
    """Every pair has its own weight."""
    q_HLK, k_HLK, v_HLV = (heads_of(x_LD, part.weight, 3) for part in (layer.query, layer.key, layer.value))
    z_HLS = torch.einsum("hlk,hsk->hls", q_HLK, k_HLK) / 5**0.5
    weight_HLS = 1 + z_HLS + z_HLS**2 / 2
    if layer.feature_map == "elu":
        f, g = (torch.where(x > 0, x + 1, x.clamp(max=0).exp()) for x in (q_HLK, k_HLK))
        weight_HLS = torch.einsum("hlk,hsk->hls", f, g)
    rows = []
    for t in range(len(x_LD)):
        sums_HV = torch.einsum("hs,hsv->hv", weight_HLS[:, t, : t + 1], v_HLV[:, : t + 1])
        rows.append((sums_HV / (weight_HLS[:, t, : t + 1].sum(1, keepdim=True) + EPS)).flatten())
    return torch.stack(rows) @ layer.out.weight.T


@pytest.mark.parametrize("length", [1, 2, 17, 130])
@pytest.mark.parametrize("feature_map", MAPS)
def test_it_equals_the_sum_over_pairs(feature_map: str, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", 16)
    hold_to_the_loop(lively(small(feature_map)), by_hand, length, tolerance=1e-10)


@pytest.mark.parametrize("feature_map", MAPS)
def test_parts_equal_the_whole(feature_map: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", 8)
    hold_parts_to_the_whole(lively(small(feature_map)), 30, [[29], [3, 1, 20], [1] * 29])


def test_products_of_features_are_the_first_terms_of_an_exponential() -> None:
    q, k = torch.randn(2, 40, 7, dtype=torch.float64)
    z = (q * k).sum(-1)
    close((taylor(q) * taylor(k)).sum(-1), 1 + z + z**2 / 2)


@pytest.mark.parametrize("feature_map", MAPS)
def test_extreme_inputs_stay_finite(feature_map: str) -> None:
    stays_finite(small(feature_map), (1e-20, 1.0, 1e4), 90)


def test_based_alternates_the_layers_of_its_pattern() -> None:
    released = "convolution, linear, window, convolution, convolution"
    config = BasedConfig(d_model=32, num_blocks=7, pattern=released, window=9)
    mixers = [config.mixer(layer) for layer in range(7)]
    convolution = GatedConvolution
    assert [type(mixer) for mixer in mixers] == [
        *(convolution, LinearAttention, Attention, convolution, convolution, convolution, LinearAttention)
    ]
    linear, window = mixers[1:3]
    assert isinstance(linear, LinearAttention) and isinstance(window, Attention)
    assert (linear.key_dim, linear.feature_map, window.window) == (16, "taylor", 9)
    assert linear.init_state(1, max_length=1, device=torch.device("meta"), dtype=torch.float32).shape == (1, 4, 273, 9)
    assert BasedConfig().transition == "fixed diagonal + window" and config.transition == ""


def test_a_gated_convolution_is_its_formula() -> None:
    layer = lively(GatedConvolution(WIDTH))

    def formula(_: object, x_LD: Tensor) -> Tensor:
        u_LE, by_LE = layer.read(x_LD).chunk(2, -1)
        past_LE = torch.cat([torch.zeros(2, 2 * WIDTH, dtype=x_LD.dtype), u_LE])
        v_LE = torch.stack([(past_LE[t : t + 3] * layer.convolution.weight.T).sum(0) for t in range(len(x_LD))])
        return layer.out(v_LE * torch.sigmoid(v_LE) * by_LE)

    hold_to_the_loop(layer, formula, 7, tolerance=1e-11)
    hold_parts_to_the_whole(layer, 9, [[8], [1] * 8])


@pytest.mark.full
@pytest.mark.parametrize(
    "config",
    [
        LinearAttentionConfig(d_model=16, positions="sinusoidal", feature_map="taylor"),
        BasedConfig(d_model=16, num_blocks=3, pattern="convolution,linear,window"),
    ],
)
def test_other_settings_conform(config: LinearAttentionConfig) -> None:
    assert [outcome for outcome in check(config) if outcome.verdict == "FAIL"] == []


def test_settings_are_refused_in_one_line() -> None:
    for config, setting, message in (
        (LinearAttentionConfig, {"d_model": 10}, "^linear_attention: d_model=10 does not split into 4 heads$"),
        (LinearAttentionConfig, {"key_dim": -1}, "^linear_attention: key_dim must not be negative$"),
        (LinearAttentionConfig, {"d_inner": -1}, "^linear_attention: d_inner must not be negative$"),
        (BasedConfig, {"pattern": "linear,lstm"}, "^based: pattern has 'lstm'; there are linear, window, convolution$"),
        (BasedConfig, {"window": 0}, "^based: window must be at least 1, not 0$"),
        (BasedConfig, {"d_model": 12}, "^based: windows need heads of even dimension, not 3$"),
    ):
        with pytest.raises(ValueError, match=message):
            config(**setting)
