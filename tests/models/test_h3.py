"""H3 against its two systems written as recurrences, its state and its start."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.harness.train.optim import declared
from chomsky_ladder.models.block import Context
from chomsky_ladder.models.h3 import H3, H3Config
from support.layers import close, gradients, lively

torch.set_num_threads(1)


def small(*, d_state: int = 6) -> H3:
    return lively(H3(H3Config(d_model=3, d_state=d_state)))


def by_hand(layer: H3, x_LD: Tensor) -> Tensor:
    """One row, a token at a time: the shift by its matrix, the diagonal system with all conjugates written out."""
    states, width = layer.shift_ND.shape
    shift_NN = torch.diag(torch.ones(states - 1, dtype=x_LD.dtype), -1)
    first_N = torch.eye(states, dtype=x_LD.dtype)[0]
    system = layer.diagonal
    a_HM = -system.log_decay_HM.exp() + 1j * system.frequency_HM
    B_HM, C_HM = (torch.complex(*pair_HM2.unbind(-1)) for pair_HM2 in (system.B_HM2, system.C_HM2))
    A_HN, B_HN, C_HN = (torch.cat([z, z.conj()], 1) for z in (a_HM, B_HM, C_HM))
    step_HN = torch.exp(system.log_dt_H.exp()[:, None] * A_HN)
    held_DN = torch.zeros(width, states, dtype=x_LD.dtype)
    h_DN, outputs = torch.zeros(width, states, dtype=torch.complex128), []
    for x in x_LD:
        q, k, v = (p.weight @ x + p.bias for p in (layer.query, layer.key, layer.value))
        held_DN = held_DN @ shift_NN.T + k[:, None] * first_N
        u = ((layer.shift_ND.T * held_DN).sum(1) + layer.present_D * k) * v
        h_DN = step_HN * h_DN + (step_HN - 1) / A_HN * B_HN * u[:, None]
        y = (C_HN * h_DN).sum(1)
        assert y.imag.abs().max() < 1e-9
        outputs.append(layer.out.weight @ (q * (y.real + system.D_H * u)) + layer.out.bias)
    return torch.stack(outputs)


@pytest.mark.parametrize(("length", "d_state"), [(1, 6), (2, 2), (5, 6), (6, 6), (7, 6), (40, 6), (33, 64)])
def test_it_is_its_recurrences_in_value_and_gradient(length: int, d_state: int) -> None:
    layer, x_BLD = small(d_state=d_state), torch.randn(2, length, 3, dtype=torch.float64)
    inputs = [x_BLD.requires_grad_(), *layer.parameters()]
    found, expected = layer(x_BLD, Context()), torch.stack([by_hand(layer, x_LD) for x_LD in x_BLD])
    close(found, expected, 1e-10)
    for one, other in zip(gradients(found, inputs), gradients(expected, inputs), strict=True):
        close(one, other, 1e-8)


@pytest.mark.parametrize("cuts", [(1,), (3, 4, 8), (5, 6, 32)])
def test_values_and_gradients_pass_through_a_carried_state(cuts: tuple[int, ...]) -> None:
    layer, x_BLD = small(), torch.randn(2, 40, 3, dtype=torch.float64, requires_grad=True)
    state, parts = layer.init_state(2, max_length=40, device=torch.device("cpu"), dtype=torch.float64), []
    for part in x_BLD.tensor_split(cuts, 1):
        y_BLD, state = layer.extend(part, state, Context())
        parts.append(y_BLD)
    found, expected, inputs = torch.cat(parts, 1), layer(x_BLD, Context()), [x_BLD, *layer.parameters()]
    close(found, expected, 1e-10)
    for one, other in zip(gradients(found, inputs), gradients(expected, inputs), strict=True):
        close(one, other, 1e-8)


def test_it_compares_a_token_with_the_one_before() -> None:
    """The mechanism of the paper: a shift by one place, then a sum of all products of neighbours so far."""
    layer = small(d_state=2)
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
    for projection in (layer.key, layer.value, layer.out):
        nn.init.eye_(projection.weight)
    nn.init.ones_(layer.query.bias)
    layer.shift_ND.data[1] = 1
    nn.init.constant_(layer.diagonal.log_decay_HM, -40.0)  # remembers for ever
    layer.diagonal.B_HM2.data[..., 0], layer.diagonal.C_HM2.data[..., 0] = 1, 0.5
    x_BLD = torch.randn(2, 20, 3, dtype=torch.float64)
    expected = torch.cat([torch.zeros_like(x_BLD[:, :1]), (x_BLD[:, 1:] * x_BLD[:, :-1]).cumsum(1)], 1)
    close(layer(x_BLD, Context()), expected, 1e-10)


def test_the_start_and_the_rates_are_the_published_ones() -> None:
    model = H3Config(d_model=64, num_blocks=1).build(5)
    (layer, mlp) = model.blocks[0].layers
    assert layer.shift_ND.shape == (64, 64) and mlp.inner.out_features == 256
    for normal in (layer.shift_ND, layer.present_D, layer.diagonal.D_H):
        assert normal.std().item() == pytest.approx(1, rel=0.3)
    close(layer.diagonal.frequency_HM[0].double(), torch.tensor(np.pi * np.arange(32)), 1e-5)
    names = {parameter: name for name, parameter in model.named_parameters()}
    slow = {names[p].split(".")[-1] for p, decays, rate in declared(model) if rate == 0.1 and not decays}
    assert slow == {"log_decay_HM", "frequency_HM", "B_HM2", "log_dt_H"}
    assert not any("diagonal.out" in name or "diagonal.gate" in name for name in names.values())


def test_single_precision_and_autocast_are_near_double() -> None:
    layer, x_BLD = H3(H3Config(d_model=8, d_state=16)).double(), torch.randn(2, 100, 8, dtype=torch.float64)
    expected_BLD = layer(x_BLD, Context())
    layer, scale = layer.float(), expected_BLD.std()
    close(layer(x_BLD.float(), Context()).double() / scale, expected_BLD / scale, 1e-4)
    with torch.autocast("cpu", torch.bfloat16):
        found_BLD = layer(x_BLD.float(), Context())
    assert (found_BLD - expected_BLD).std() / scale < 0.05


def test_settings_are_refused_in_one_line() -> None:
    for setting, message in (
        ({"d_state": 7}, "^h3: d_state must be even and at least 2, not 7$"),
        ({"d_state": 0}, "^h3: d_state"),
        ({"dt_min": 0.0}, "^h3: dt_min=0.0 must be above 0 and not above dt_max=0.1$"),
        ({"dt_max": float("inf")}, "^h3: dt_min"),
        ({"d_inner": -1}, "^h3: d_inner must not be negative$"),
    ):
        with pytest.raises(ValueError, match=message):
            H3Config(**setting)
