"""minLSTM against its equations, where both gates are shut, and against minGRU where its gates mirror."""

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.min_gru import MinGRU, MinGRUConfig
from chomsky_ladder.models.min_lstm import MinLSTM, MinLSTMConfig
from support.layers import close, gradients, lively

torch.set_num_threads(1)


def small(*, candidate: str = "positive", expansion: int = 2) -> MinLSTM:
    """Without a convolution: of one tap, which is one, and no bias."""
    layer = lively(MinLSTM(MinLSTMConfig(d_model=4, candidate=candidate, expansion=expansion, conv_width=1)))
    nn.init.ones_(layer.convolution.weight)
    nn.init.zeros_(layer.convolution.bias)
    return layer


def by_hand(layer: MinLSTM, x_LD: Tensor) -> Tensor:
    """One row, a token at a time."""
    linear = layer.candidate == "linear"
    h, outputs = torch.full((layer.width,), 0.0 if linear else 0.5, dtype=x_LD.dtype), []
    for x in x_LD:
        f, i, c = (layer.gates_candidate.weight @ x + layer.gates_candidate.bias).chunk(3)
        f, i = 1 / (1 + torch.exp(-f)), 1 / (1 + torch.exp(-i))
        c = c if linear else torch.where(c >= 0, c + 0.5, 1 / (1 + torch.exp(-c)))
        h = f / (f + i) * h + i / (f + i) * c
        outputs.append(layer.out.weight @ h)
    return torch.stack(outputs)


@pytest.mark.parametrize(("length", "expansion"), [(1, 2), (2, 1), (17, 3), (40, 2)])
@pytest.mark.parametrize("candidate", ["linear", "positive"])
def test_it_is_its_equations_in_value_and_gradient(candidate: str, length: int, expansion: int) -> None:
    layer, x_BLD = small(candidate=candidate, expansion=expansion), torch.randn(2, length, 4, dtype=torch.float64)
    inputs = [x_BLD.requires_grad_(), layer.gates_candidate.weight, layer.gates_candidate.bias, layer.out.weight]
    found, expected = layer(x_BLD, Context()), torch.stack([by_hand(layer, x_LD) for x_LD in x_BLD])
    close(found, expected, 1e-11)
    for one, other in zip(gradients(found, inputs), gradients(expected, inputs), strict=True):
        close(one, other, 1e-9)


def test_gates_of_opposite_logits_are_those_of_min_gru() -> None:
    """f = 1 - i, whose sum is 1."""
    lstm, gru = small(), MinGRU(MinGRUConfig(d_model=4, candidate="positive", conv_width=1)).double()
    gru.convolution.load_state_dict(lstm.convolution.state_dict())
    gru.out.load_state_dict(lstm.out.state_dict())
    for name in ("weight", "bias"):
        _, i, c = getattr(lstm.gates_candidate, name).data.chunk(3)
        getattr(lstm.gates_candidate, name).data = torch.cat([-i, i, c])
        getattr(gru.gates_candidate, name).data = torch.cat([i, c])
    x_BLD = torch.randn(2, 40, 4, dtype=torch.float64)
    close(lstm(x_BLD, Context()), gru(x_BLD, Context()), 1e-12)


@pytest.mark.parametrize(("forget", "opens"), [(-1e4, -1e4), (-1e4, 1e4), (1e4, -1e4), (1e4, 1e4)])
def test_gates_both_shut_or_open_stay_finite(forget: float, opens: float) -> None:
    layer = small().float()
    layer.gates_candidate.bias.data[: 2 * layer.width] = torch.tensor([forget, opens]).repeat_interleave(layer.width)
    x_BLD = (1e3 * torch.randn(2, 40, 4)).requires_grad_()
    y_BLD = layer(x_BLD, Context())
    assert all(bool(torch.isfinite(x).all()) for x in (y_BLD, *gradients(y_BLD, [x_BLD, *layer.parameters()])))


def test_shares_keep_their_ratio_where_both_gates_underflow() -> None:
    layer = small()
    nn.init.zeros_(layer.gates_candidate.weight)
    layer.gates_candidate.bias.data = torch.tensor([-900.0, -899.0, 2.5]).double().repeat_interleave(layer.width)
    share = torch.sigmoid(torch.tensor(1.0)).double()
    h_E = (1 - share) * 0.5 + share * 3.0
    y_BLD = layer(torch.zeros(1, 1, 4, dtype=torch.float64), Context())
    close(y_BLD[0, 0], layer.out.weight.sum(1) * h_E, 1e-6)


def test_settings_are_refused_in_its_own_name() -> None:
    with pytest.raises(ValueError, match=r"^min_lstm: expansion must be at least 1, not 0$"):
        MinLSTMConfig(expansion=0)
