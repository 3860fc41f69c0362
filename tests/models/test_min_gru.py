"""minGRU against its equations, against the log-space scan of its paper, its state and its extremes."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import softplus

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.min_gru import MinGRU, MinGRUConfig, positive
from support.layers import close, gradients, lively

torch.set_num_threads(1)


def small(*, candidate: str = "linear", expansion: int = 2, conv_width: int = 4) -> MinGRU:
    config = MinGRUConfig(d_model=4, candidate=candidate, expansion=expansion, conv_width=conv_width)
    return lively(MinGRU(config))


def convolved(layer: MinGRU, x_LD: Tensor) -> Tensor:
    taps, outputs = layer.convolution.weight.shape[1], []
    for t in range(len(x_LD)):
        y = layer.convolution.bias
        for lag in range(min(taps, t + 1)):
            y = y + layer.convolution.weight[:, taps - 1 - lag] * x_LD[t - lag]
        outputs.append(y)
    return torch.stack(outputs)


def by_hand(layer: MinGRU, x_LD: Tensor) -> Tensor:
    """One row, a token at a time."""
    linear = layer.candidate == "linear"
    h, outputs = torch.full((layer.width,), 0.0 if linear else 0.5, dtype=x_LD.dtype), []
    for x in convolved(layer, x_LD):
        z, c = (layer.gates_candidate.weight @ x + layer.gates_candidate.bias).chunk(2)
        z = 1 / (1 + torch.exp(-z))
        h = (1 - z) * h + z * (c if linear else torch.where(c >= 0, c + 0.5, 1 / (1 + torch.exp(-c))))
        outputs.append(layer.out.weight @ h)
    return torch.stack(outputs)


@pytest.mark.parametrize(("length", "expansion", "conv_width"), [(1, 2, 4), (2, 1, 4), (17, 3, 1), (40, 2, 5)])
@pytest.mark.parametrize("candidate", ["linear", "positive"])
def test_it_is_its_equations_in_value_and_gradient(
    candidate: str, length: int, expansion: int, conv_width: int
) -> None:
    layer = small(candidate=candidate, expansion=expansion, conv_width=conv_width)
    x_BLD = torch.randn(2, length, 4, dtype=torch.float64)
    inputs = [x_BLD.requires_grad_(), *layer.parameters()]
    found, expected = layer(x_BLD, Context()), torch.stack([by_hand(layer, x_LD) for x_LD in x_BLD])
    close(found, expected, 1e-11)
    for one, other in zip(gradients(found, inputs), gradients(expected, inputs), strict=True):
        close(one, other, 1e-9)


def test_it_is_the_scan_of_the_paper_in_log_space() -> None:
    """log h_t = s_t + logsumexp over r <= t of (log z_r c_r - s_r), s the sum of log(1 - z), from log g(0)."""
    layer, x_BLD = small(candidate="positive"), torch.randn(2, 50, 4, dtype=torch.float64)
    mixed_BLD = torch.stack([convolved(layer, x_LD) for x_LD in x_BLD])
    z_BLE, c_BLE = layer.gates_candidate(mixed_BLD).chunk(2, dim=-1)
    log_g_BLE = torch.where(c_BLE >= 0, torch.log(torch.relu(c_BLE) + 0.5), -softplus(-c_BLE))
    start_B1E = torch.full_like(z_BLE[:, :1], 0.5).log()
    decay_BLE = torch.cat([torch.zeros_like(start_B1E), -softplus(z_BLE).cumsum(1)], 1)
    values_BLE = torch.cat([start_B1E, -softplus(-z_BLE) + log_g_BLE], 1)
    h_BLE = (decay_BLE + torch.logcumsumexp(values_BLE - decay_BLE, 1)).exp()[:, 1:]
    close(layer(x_BLD, Context()), layer.out(h_BLE), 1e-11)


@pytest.mark.parametrize("cuts", [(1,), (5, 6, 32)])
@pytest.mark.parametrize("candidate", ["linear", "positive"])
def test_values_and_gradients_pass_through_a_carried_state(candidate: str, cuts: tuple[int, ...]) -> None:
    layer, x_BLD = small(candidate=candidate), torch.randn(2, 40, 4, dtype=torch.float64, requires_grad=True)
    state, parts = layer.init_state(2, max_length=40, device=torch.device("cpu"), dtype=torch.float64), []
    for part in x_BLD.tensor_split(cuts, 1):
        y_BLD, state = layer.extend(part, state, Context())
        parts.append(y_BLD)
    found, expected, inputs = torch.cat(parts, 1), layer(x_BLD, Context()), [x_BLD, *layer.parameters()]
    close(found, expected, 1e-11)
    for one, other in zip(gradients(found, inputs), gradients(expected, inputs), strict=True):
        close(one, other, 1e-10)


def test_g_is_continuous_positive_and_growing() -> None:
    x = torch.linspace(-700, 700, 100_001, dtype=torch.float64)
    y = positive(x)
    assert bool((y > 0).all()) and bool((y.diff() > 0).all())
    assert positive(torch.zeros(1)).item() == 0.5 and positive(torch.tensor([-1e-9])).item() == pytest.approx(0.5)


@pytest.mark.parametrize("gate", [-1e4, 1e4])
@pytest.mark.parametrize("candidate", ["linear", "positive"])
def test_saturated_gates_and_large_inputs_stay_finite(candidate: str, gate: float) -> None:
    layer = small(candidate=candidate).float()
    layer.gates_candidate.bias.data[: layer.width] = gate
    x_BLD = (1e3 * torch.randn(2, 40, 4)).requires_grad_()
    y_BLD = layer(x_BLD, Context())
    assert all(bool(torch.isfinite(x).all()) for x in (y_BLD, *gradients(y_BLD, [x_BLD, *layer.parameters()])))


def test_it_runs_under_autocast_with_its_state_in_fp32() -> None:
    layer, x_BLD = small().float(), torch.randn(2, 40, 4)
    state = layer.init_state(2, max_length=40, device=torch.device("cpu"), dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        y_BLD, (_, h_BE) = layer.extend(x_BLD, state, Context())
    assert h_BE.dtype == torch.float32
    close(y_BLD.float(), layer(x_BLD, Context()), 0.2)


def test_settings_are_refused_in_one_line() -> None:
    for setting, message in (
        ({"expansion": 0}, "^min_gru: expansion must be at least 1, not 0$"),
        ({"conv_width": 0}, "^min_gru: conv_width must be at least 1, not 0$"),
        ({"d_inner": -1}, "^min_gru: d_inner must not be negative$"),
    ):
        with pytest.raises(ValueError, match=message):
            MinGRUConfig(**setting)
