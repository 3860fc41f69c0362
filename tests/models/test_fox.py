"""Attention that forgets against products of its gates, the parts of its Pro block by formula, and limits by hand."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.harness.conform.suite import check
from chomsky_ladder.models.block import Context
from chomsky_ladder.models.fox import NORM_EPS, ForgettingAttention, FoXConfig, ProAttention, log_forget
from chomsky_ladder.models.layers.attention import Attention
from support.attentions import LENGTHS, WIDTH, heads_of, hold_parts_to_the_whole, hold_to_the_loop, stays_finite
from support.cases import full
from support.layers import close, lively

torch.set_num_threads(1)

KINDS = (ForgettingAttention, ProAttention)


def normed(x_HLK: Tensor, weight_D: Tensor) -> Tensor:
    return x_HLK / (x_HLK.square().mean(-1, keepdim=True) + NORM_EPS).sqrt() * weight_D.unflatten(0, (3, 1, -1))


def by_hand(layer: Any, x_LD: Tensor) -> Tensor:
    """Every weight is a product of gates, no sum of logarithms."""
    q_HLK, k_HLK, v_HLK = (heads_of(x_LD, w, 3) for w in layer.query_key_value.weight.chunk(3))
    if isinstance(layer, ProAttention):
        a_HL, b_HL = torch.sigmoid(x_LD @ layer.shift.weight.mT).mT.chunk(2)
        k_HLK, v_HLK = (
            torch.stack([x[:, t] * (1 - a[:, t, None]) + (x[:, t - 1] * a[:, t, None] if t else 0)
                         for t in range(len(x_LD))], 1)
            for x, a in ((k_HLK, a_HL), (v_HLK, b_HL))
        )  # fmt: skip
        q_HLK, k_HLK = normed(q_HLK, layer.query_norm.weight), normed(k_HLK, layer.key_norm.weight)
    kept_HL = torch.sigmoid(x_LD @ layer.forget.weight.mT + layer.forget.bias).mT
    rows, product_HS = [], torch.ones(3, 0, dtype=x_LD.dtype)
    for here in range(len(x_LD)):
        product_HS = torch.cat([product_HS * kept_HL[:, here, None], torch.ones(3, 1, dtype=x_LD.dtype)], 1)
        share_HS = torch.einsum("hk,hsk->hs", q_HLK[:, here], k_HLK[:, : here + 1]) / layer.head_dim**0.5
        share_HS = share_HS.exp() * product_HS
        rows.append(torch.einsum("hs,hsk->hk", share_HS / share_HS.sum(1, keepdim=True), v_HLK[:, : here + 1]))
    y_HLK = torch.stack(rows, 1)
    if isinstance(layer, ProAttention):
        y_LD = normed(y_HLK, layer.out_norm.weight).transpose(0, 1).flatten(1)
        return (y_LD * torch.sigmoid(x_LD @ layer.gate.weight.mT)) @ layer.out.weight.mT
    return y_HLK.transpose(0, 1).flatten(1) @ layer.out.weight.mT


@pytest.mark.parametrize("length", [length if length <= 65 else full(length) for length in LENGTHS])
@pytest.mark.parametrize("kind", KINDS)
def test_it_equals_the_loop(kind: type[ForgettingAttention], length: int) -> None:
    hold_to_the_loop(lively(kind(WIDTH, 3)), by_hand, length, tolerance=1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_parts_equal_the_whole(kind: type[ForgettingAttention]) -> None:
    hold_parts_to_the_whole(lively(kind(WIDTH, 3)), 70, [[69], [1], [3, 1, 40], [1] * 69])


def test_what_forgets_nothing_is_attention_and_what_forgets_all_sees_itself() -> None:
    layer, plain = lively(ForgettingAttention(WIDTH, 3)), Attention(WIDTH, 3, positions="none").double()
    plain.load_state_dict({name: x for name, x in layer.state_dict().items() if "forget" not in name})
    x_BLD = torch.randn(2, 20, WIDTH, dtype=torch.float64)
    layer.forget.weight.data.zero_()
    layer.forget.bias.data.fill_(50)
    close(layer(x_BLD, Context()), plain(x_BLD, Context()))
    layer.forget.bias.data.fill_(-1e4)
    close(layer(x_BLD, Context()), x_BLD @ layer.query_key_value.weight.chunk(3)[2].mT @ layer.out.weight.mT)


@pytest.mark.parametrize("kind", KINDS)
def test_extreme_inputs_stay_finite(kind: type[ForgettingAttention]) -> None:
    stays_finite(kind(WIDTH, 3), (1e-20, 1.0, 1e4, 1e8))


@pytest.mark.full
def test_the_pro_block_conforms_and_half_is_kept_at_the_start() -> None:
    failed = [
        outcome for outcome in check(FoXConfig(d_model=16, num_heads=2, variant="pro")) if outcome.verdict == "FAIL"
    ]
    assert failed == []
    layer = FoXConfig(d_model=256).mixer(0)
    kept_BHL = log_forget(layer.forget, nn.functional.rms_norm(torch.randn(4, 50, 256), (256,))).detach().exp()
    assert 0.4 < float(kept_BHL.mean()) < 0.6
