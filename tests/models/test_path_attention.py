"""PaTH against products of reflections token by token, what its steps hold, and what it does by hand."""

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.harness.conform.suite import check
from chomsky_ladder.models.block import Context
from chomsky_ladder.models.layers.attention import Attention
from chomsky_ladder.models.operations.path.reference import CHUNK, path_scores
from chomsky_ladder.models.path_attention import PaTHAttention, PaTHConfig
from chomsky_ladder.models.scans.delta import LENGTH_EPS
from support.attentions import LENGTHS, WIDTH, heads_of, hold_parts_to_the_whole, hold_to_the_loop, stays_finite
from support.cases import full
from support.layers import close, gradients, lively

torch.set_num_threads(1)

GATES = ("none", "forget")


def one_layer(**settings: object) -> PaTHAttention:
    return lively(PaTHConfig(d_model=WIDTH, num_heads=3, rank=5, **settings).mixer(0))  # pyright: ignore[reportArgumentType, reportReturnType]


def by_hand(layer: PaTHAttention, x_LD: Tensor) -> Tensor:
    """Every key is reflected by each token after it, one after the other; nothing is a sum of logarithms."""
    q_HLK, k_HLK, v_HLK = (heads_of(x_LD, weight, 3) for weight in layer.query_key_value.weight.chunk(3))
    inner_LD = x_LD @ layer.path[0].weight.mT @ layer.path[1].weight.mT  # pyright: ignore[reportCallIssue, reportArgumentType]
    taps = layer.convolution.weight.shape[1]
    w_LD = torch.stack([
        sum((inner_LD[t - back] * layer.convolution.weight[:, taps - 1 - back] for back in range(min(t + 1, taps))),
            torch.zeros_like(x_LD[0]))
        for t in range(len(x_LD))
    ])  # fmt: skip
    w_HLK = (w_LD * torch.sigmoid(w_LD)).unflatten(-1, (3, -1)).transpose(0, 1)
    w_HLK = w_HLK / (w_HLK.square().sum(-1, keepdim=True) + LENGTH_EPS).sqrt()
    beta_LH = 2 * torch.sigmoid(x_LD @ layer.beta.weight.mT + layer.beta.bias)
    kept_LH = torch.ones_like(beta_LH)
    if layer.forget is not None:
        kept_LH = torch.sigmoid(x_LD @ layer.forget.weight.mT + layer.forget.bias)
    rows, keys_HSK, product_HS = [], k_HLK[:, :0], k_HLK[:, :0, 0]
    for here in range(len(x_LD)):
        w_HK1 = w_HLK[:, here, :, None]
        turn_HKK = torch.eye(w_HK1.shape[1], dtype=x_LD.dtype) - beta_LH[here, :, None, None] * w_HK1 @ w_HK1.mT
        keys_HSK = torch.cat([keys_HSK @ turn_HKK.mT, k_HLK[:, here, None]], 1)
        product_HS = torch.cat([product_HS * kept_LH[here, :, None], torch.ones(3, 1, dtype=x_LD.dtype)], 1)
        share_HS = torch.einsum("hk,hsk->hs", q_HLK[:, here], keys_HSK).exp() * product_HS
        share_HS = share_HS**layer.head_dim**-0.5
        rows.append(torch.einsum("hs,hsk->hk", share_HS / share_HS.sum(1, keepdim=True), v_HLK[:, : here + 1]))
    return torch.stack(rows).flatten(1) @ layer.out.weight.mT


@pytest.mark.parametrize("length", [length if length in (1, 2, 17, 65) else full(length) for length in LENGTHS])
@pytest.mark.parametrize("gate", GATES)
def test_it_equals_the_loop(gate: str, length: int) -> None:
    hold_to_the_loop(one_layer(gate=gate), by_hand, length, tolerance=1e-10)


@pytest.mark.parametrize("gate", GATES)
def test_parts_equal_the_whole(gate: str) -> None:
    hold_parts_to_the_whole(one_layer(gate=gate), 70, [[69], [1], [3, 1, 40], [1] * 69, [2, 65]])


def test_without_reflections_it_is_attention_without_positions() -> None:
    layer, plain = one_layer(), Attention(WIDTH, 3, positions="none").double()
    plain.load_state_dict({name: x for name, x in layer.state_dict().items() if name in plain.state_dict()})
    x_BLD = torch.randn(2, 70, WIDTH, dtype=torch.float64)
    layer.beta.weight.data.zero_()
    layer.beta.bias.data.fill_(-800)
    close(layer(x_BLD, Context()), plain(x_BLD, Context()))


@pytest.mark.parametrize("length", [CHUNK, 4 * CHUNK + 3])
def test_signs_count_modulo_two(length: int) -> None:
    """One direction and b = 2 at every bit 1: the score of a token is the parity of what came after it."""
    bits_L = torch.randint(2, (length,)).double()
    one_BHLK = torch.ones(1, 1, length, 1, dtype=torch.float64)
    scores_LL = path_scores(one_BHLK, one_BHLK, one_BHLK, 2 * bits_L[None, None], one_BHLK[:, :, :0])[0][0, 0]
    expected_LL = 1 - 2 * ((bits_L.cumsum(0)[:, None] - bits_L.cumsum(0)) % 2)
    close(scores_LL.tril(), expected_LL.tril())
    assert bool((scores_LL.triu(1)[torch.ones(length, length).triu(1) > 0] == -torch.inf).all())


def test_swaps_carry_five_things_around() -> None:
    """b = 2 and w = (e_i - e_j) / sqrt(2) swap i and j: the key of the first token is where its thing stands by now."""
    swaps = [torch.randperm(5)[:2].tolist() for _ in range(100)]
    w_BHLK = torch.zeros(1, 1, 101, 5, dtype=torch.float64)
    places, expected = list(range(5)), [0]
    for at, (i, j) in enumerate(swaps, 1):
        w_BHLK[..., at, i], w_BHLK[..., at, j] = 0.5**0.5, -(0.5**0.5)
        places[i], places[j] = places[j], places[i]
        expected.append(places.index(0))
    k_BHLK = torch.zeros_like(w_BHLK)
    k_BHLK[..., 0, 0] = 1
    beta_BHL = torch.full((1, 1, 101), 2.0, dtype=torch.float64)
    for query in range(5):
        q_BHLK = torch.eye(5, dtype=torch.float64)[query].expand_as(w_BHLK)
        scores_BHLL, _ = path_scores(q_BHLK, k_BHLK, w_BHLK, beta_BHL, k_BHLK[:, :, :0])
        close(scores_BHLL[0, 0, :, 0], torch.tensor([float(place == query) for place in expected]).double())


def test_extreme_inputs_stay_finite() -> None:
    for gate in GATES:
        stays_finite(PaTHConfig(d_model=WIDTH, num_heads=3, gate=gate).mixer(0), (1e-20, 1.0, 1e4, 1e8))


def test_in_fp32_many_equal_reflections_lose_no_digits() -> None:
    """Every token reflects about the same direction (beta 2), or removes it (beta 1)."""
    q, k, w = torch.randn(3, 1, 2, 1000, 8, dtype=torch.float64)
    w = nn.functional.normalize(w[:, :, :1] + 1e-3 * w, dim=-1)
    for beta in (1.0, 2.0):
        beta_BHL = torch.full((1, 2, 1000), beta, dtype=torch.float64)
        exact, rounded = (
            path_scores(*(x.to(dtype) for x in (q, k, w, beta_BHL, k[:, :, :0])))[0].tril()
            for dtype in (torch.float64, torch.float32)
        )
        assert (rounded.double() - exact).abs().max() < 1e-4 * exact.abs().max()


def test_a_key_that_was_handed_in_has_its_gradient() -> None:
    q, k, w = torch.randn(3, 1, 2, 67, 4, dtype=torch.float64)
    given = [
        x.requires_grad_() for x in (q, k, nn.functional.normalize(w, dim=-1).detach(), torch.rand(1, 2, 67).double())
    ]
    whole_BHLX, held_BHXK = path_scores(*given, k[:, :, :0])
    _, past_BHSK = path_scores(*(x[:, :, :40] for x in given), k[:, :, :0])
    part_BHLX, after_BHXK = path_scores(*(x[:, :, 40:] for x in given), past_BHSK)
    close(part_BHLX, whole_BHLX[:, :, 40:])
    close(after_BHXK, held_BHXK)
    for one, other in zip(gradients(after_BHXK, given[1:]), gradients(held_BHXK, given[1:]), strict=True):
        close(one, other)


@pytest.mark.full
def test_its_gate_conforms() -> None:
    failed = [one for one in check(PaTHConfig(d_model=16, num_heads=2, gate="forget")) if one.verdict == "FAIL"]
    assert failed == []
