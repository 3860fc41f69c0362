"""DeltaFormer against its equation token by token, parts against the whole, and what it does by hand."""

import pytest
import torch
from torch import Tensor

from chomsky_ladder.harness.conform.suite import check
from chomsky_ladder.models.block import Context
from chomsky_ladder.models.deltaformer import DeltaAttention, DeltaFormerConfig
from chomsky_ladder.models.layers.attention import Attention
from chomsky_ladder.models.operations.deltaformer.reference import delta_attention
from support.attentions import LENGTHS, WIDTH, heads_of, hold_parts_to_the_whole, hold_to_the_loop, stays_finite
from support.cases import full
from support.layers import close, lively

torch.set_num_threads(1)

HEADS = 3
FORMS = (("key", "sigmoid"), ("query", "free"))


def one_layer(asks: str = "key", beta: str = "sigmoid") -> DeltaAttention:
    config = DeltaFormerConfig(d_model=WIDTH, num_heads=HEADS, asks=asks, beta=beta)  # pyright: ignore[reportArgumentType]
    return lively(config.mixer(0))  # pyright: ignore[reportReturnType]


def turned(x_HK: Tensor, position: int) -> Tensor:
    """Apply RoPE, as complex numbers."""
    a_HK, b_HK = x_HK.chunk(2, -1)
    angle_K = position * 10_000.0 ** (-torch.arange(a_HK.shape[1], dtype=x_HK.dtype) / a_HK.shape[1])
    z_HK = torch.complex(a_HK, b_HK) * torch.polar(torch.ones_like(angle_K), angle_K)
    return torch.cat([z_HK.real, z_HK.imag], -1)


def by_hand(layer: DeltaAttention, x_LD: Tensor) -> Tensor:
    q_HLK, k_HLK, v_HLK = (heads_of(x_LD, weight, HEADS) for weight in layer.query_key_value.weight.chunk(3))
    q_HLK, k_HLK = (
        torch.stack([turned(x_HK, at) for at, x_HK in enumerate(x_HLK.unbind(1))], 1) for x_HLK in (q_HLK, k_HLK)
    )
    beta_HL = (x_LD @ layer.beta.weight.mT + layer.beta.bias).mT
    if layer.bounded:
        beta_HL = 1 / (1 + torch.exp(-beta_HL))
    written, rows = [], []
    for here in range(len(x_LD)):
        u_HK = v_HLK[:, here]
        if here:
            asked_HK = (k_HLK if layer.asks == "key" else q_HLK)[:, here]
            u_HK = u_HK - beta_HL[:, here, None] * read(asked_HK, k_HLK[:, :here], torch.stack(written, 1))
        written.append(u_HK)
        rows.append(read(q_HLK[:, here], k_HLK[:, : here + 1], torch.stack(written, 1)))
    return torch.stack(rows).flatten(1) @ layer.out.weight.mT


def read(q_HK: Tensor, k_HSK: Tensor, u_HSK: Tensor) -> Tensor:
    weight_HS = (torch.einsum("hk,hsk->hs", q_HK, k_HSK) / q_HK.shape[1] ** 0.5).exp()
    return torch.einsum("hs,hsk->hk", weight_HS / weight_HS.sum(1, keepdim=True), u_HSK)


@pytest.mark.parametrize("length", [length if length in (1, 2, 17, 65) else full(length) for length in LENGTHS])
@pytest.mark.parametrize(("asks", "beta"), FORMS)
def test_it_equals_the_loop(asks: str, beta: str, length: int) -> None:
    hold_to_the_loop(one_layer(asks, beta), by_hand, length, tolerance=1e-10)


@pytest.mark.parametrize(("asks", "beta"), FORMS)
def test_parts_equal_the_whole(asks: str, beta: str) -> None:
    hold_parts_to_the_whole(one_layer(asks, beta), 70, [[69], [1], [3, 1, 40], [1] * 69, [2, 65]])


def test_what_takes_nothing_out_is_attention() -> None:
    layer, plain = one_layer(), Attention(WIDTH, HEADS).double()
    plain.load_state_dict({name: x for name, x in layer.state_dict().items() if name in plain.state_dict()})
    x_BLD = torch.randn(2, 70, WIDTH, dtype=torch.float64)
    layer.beta.weight.data.zero_()
    layer.beta.bias.data.fill_(-800)
    close(layer(x_BLD, Context()), plain(x_BLD, Context()))


def test_what_stands_under_a_key_is_taken_out_of_its_next_value() -> None:
    """Keys far apart and b = 1: a value less the mean of what was written under its key."""
    keys = [0, 1, 0, 2, 1, 0, 0]
    k_BHLK = 100 * torch.eye(4, dtype=torch.float64)[keys][None, None]
    v_BHLK = torch.randn(1, 1, len(keys), 4, dtype=torch.float64)
    nothing_BH0K, beta_BHL = k_BHLK[:, :, :0], torch.ones(1, 1, len(keys), dtype=torch.float64)
    unseen_0 = torch.zeros(0, dtype=torch.bool)
    _, u_BHLK = delta_attention(k_BHLK, k_BHLK, k_BHLK, v_BHLK, beta_BHL, nothing_BH0K, nothing_BH0K, unseen_0)
    u, v = u_BHLK[0, 0], v_BHLK[0, 0]
    close(u[2], v[2] - u[0])
    close(u[4], v[4] - u[1])
    close(u[5], v[5] - (u[0] + u[2]) / 2)
    close(u[6], v[6] - (u[0] + u[2] + u[5]) / 3)


def test_extreme_inputs_stay_finite() -> None:
    stays_finite(DeltaFormerConfig(d_model=WIDTH, num_heads=HEADS).mixer(0), (1e-20, 1.0, 1e4, 1e8))


def test_the_first_token_which_asks_nobody_makes_no_nan_on_the_way_back() -> None:
    layer, x_BLD = one_layer(), torch.randn(2, 5, WIDTH, dtype=torch.float64)
    with torch.autograd.set_detect_anomaly(True):
        layer(x_BLD, Context()).sum().backward()


def test_in_fp32_a_long_chain_of_signs_loses_no_digits() -> None:
    """Each token takes out the last one whole: u = v_t - v_{t-1} + v_{t-2} - .. over 1000 tokens."""
    angle_L = torch.arange(1000, dtype=torch.float64) * 0.1
    k_BHLK = 60 * torch.stack([angle_L.cos(), angle_L.sin()], -1)[None, None]
    v_BHLK = torch.randn(1, 1, 1000, 2, dtype=torch.float64)
    given = [k_BHLK, k_BHLK, k_BHLK, v_BHLK, torch.ones(1, 1, 1000, dtype=torch.float64), *[k_BHLK[:, :, :0]] * 2]
    unseen_0 = torch.zeros(0, dtype=torch.bool)
    _, exact = delta_attention(*given, unseen_0)
    rounded = [x.float() for x in given]
    _, found = delta_attention(*rounded, unseen_0)
    assert (found.double() - exact).abs().max() < 1e-3 * exact.abs().max()


@pytest.mark.full
def test_the_public_form_conforms() -> None:
    config = DeltaFormerConfig(d_model=16, num_heads=2, asks="query", beta="free")
    assert [one for one in check(config) if one.verdict == "FAIL"] == []


def test_heads_are_of_even_dimension() -> None:
    with pytest.raises(ValueError, match="deltaformer: d_model=15 does not split into 5 heads of even dimension"):
        DeltaFormerConfig(d_model=15, num_heads=5)
