"""Differential attention against the difference of two softmaxes, its state, and what it cancels."""

import math

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.diff_transformer import NORM_EPS, DifferentialAttention, DiffTransformerConfig
from chomsky_ladder.models.layers.positions import rotate
from support.attentions import WIDTH, heads_of, hold_parts_to_the_whole, hold_to_the_loop, stays_finite
from support.layers import close, lively

torch.set_num_threads(1)

HEADS = 2


def small() -> DifferentialAttention:
    layer = DifferentialAttention(WIDTH, HEADS)
    layer.start = 0.3
    return layer


def by_hand(layer: DifferentialAttention, x_LD: Tensor) -> Tensor:
    """One query at a time, with one pair of heads."""
    q_HLK, k_HLK, v_HLK = (heads_of(x_LD, part, HEADS) for part in layer.query_key_value.weight.chunk(3))
    at_L = torch.arange(len(x_LD))
    q_HLK, k_HLK = rotate(q_HLK, at_L), rotate(k_HLK, at_L)
    v_LV = torch.cat([v_HLK[0], v_HLK[1]], -1)
    a, b, c, d = layer.share_4K
    share = (a @ b).exp() - (c @ d).exp() + layer.start
    rows = []
    for t in range(len(x_LD)):
        first_S, second_S = (
            torch.softmax(k_LK[: t + 1] @ q_LK[t] / layer.head_dim**0.5, 0)
            for q_LK, k_LK in zip(q_HLK, k_HLK, strict=True)
        )
        y_V = (first_S - share * second_S) @ v_LV[: t + 1]
        rows.append((1 - layer.start) * y_V / (y_V.square().mean() + NORM_EPS).sqrt())
    return torch.stack(rows) @ layer.out.weight.T


@pytest.mark.parametrize("length", [1, 2, 17, 65])
def test_it_equals_the_difference_of_two_softmaxes(length: int) -> None:
    hold_to_the_loop(lively(small()), by_hand, length, tolerance=1e-10)


def test_parts_equal_the_whole() -> None:
    hold_parts_to_the_whole(lively(small()), 30, [[29], [3, 1, 20], [1] * 29])


def test_equal_softmaxes_cancel_when_the_share_is_1() -> None:
    layer = lively(small())
    q_BHLK, k_BHLK, v_BHLK = torch.randn(3, 1, HEADS, 9, WIDTH // HEADS, dtype=torch.float64)
    q_BHLK, k_BHLK = q_BHLK[:, :1].expand_as(q_BHLK), k_BHLK[:, :1].expand_as(k_BHLK)
    layer.share_4K.data.zero_()
    layer.start = 1.0
    assert not layer.read(q_BHLK, k_BHLK, v_BHLK, torch.arange(9)).any()
    layer.start = 0.5  # half of a softmax is left, whose size the norm takes away
    y_BHLV = layer.read(q_BHLK, k_BHLK, v_BHLK, torch.arange(9))
    close(y_BHLV.square().mean(-1), torch.full((1, 1, 9), 0.25, dtype=torch.float64), 1e-3)


def test_extreme_inputs_stay_finite() -> None:
    stays_finite(small(), (1e-20, 1.0, 1e4, 1e8))


def test_the_share_starts_by_the_layer() -> None:
    blocks = DiffTransformerConfig(num_blocks=3).blocks()
    starts = [block.layers[0].start for block in blocks]  # pyright: ignore[reportAttributeAccessIssue]
    assert starts == [0.8 - 0.6 * math.exp(-0.3 * layer) for layer in range(3)]
    assert starts[0] == pytest.approx(0.2)
    assert blocks[0].layers[0](torch.randn(1, 3, 128), Context()).shape == (1, 3, 128)  # pyright: ignore[reportAttributeAccessIssue]


def test_one_head_is_one_pair() -> None:
    assert DiffTransformerConfig(d_model=8, num_heads=1).mixer(0).num_heads == 2


def test_settings_are_refused_in_one_line() -> None:
    for setting, message in (
        ({"d_model": 12, "num_heads": 3}, "^diff_transformer: num_heads=3 must be even, or 1$"),
        (
            {"d_model": 12, "num_heads": 4},
            "^diff_transformer: d_model=12 does not split into 4 heads of even dimension$",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            DiffTransformerConfig(**setting)
