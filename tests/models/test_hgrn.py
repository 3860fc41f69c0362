"""HGRN against its equations in complex numbers, its bounds, its phases over a long sequence and its start."""

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.harness.train.optim import declared
from chomsky_ladder.models.block import Context
from chomsky_ladder.models.hgrn import GatedRecurrence, HGRNConfig, LowerBounds
from support.layers import close, gradients, lively

VOCAB = 11

torch.set_num_threads(1)


def small(form: str, *, layer: int = 2) -> tuple[GatedRecurrence, LowerBounds]:
    config = HGRNConfig(d_model=6, num_blocks=4, form=form)
    return lively(GatedRecurrence(config, layer)), lively(config.common_module())


def bound_by_hand(bounds: LowerBounds, layer: int) -> Tensor:
    weights_LD = torch.exp(bounds.share_LD)
    parts_LD = weights_LD / weights_LD.sum(0)
    total_D = torch.zeros_like(parts_LD[0])
    for earlier in range(1, layer + 1):
        total_D = total_D + parts_LD[earlier]
    return total_D


def by_hand(layer: GatedRecurrence, bounds: LowerBounds, x_LD: Tensor) -> Tensor:
    """One row, a token at a time, in complex numbers."""
    width, bound = x_LD.shape[1], bound_by_hand(bounds, layer.layer)
    h, outputs = torch.zeros(width, dtype=torch.complex128), []
    for x in x_LD:
        c, f, g = (p.weight @ x + p.bias for p in (layer.value, layer.forget, layer.gate))
        c = c * torch.sigmoid(c)
        keep = bound + (1 - bound) * torch.sigmoid(f)
        if layer.phase_D is None:
            h = keep * h + (1 - keep) * c
            seen = h.real
        else:
            h = keep * torch.exp(1j * layer.phase_D) * h + (1 - keep) * (c[:width] + 1j * c[width:])
            seen = torch.cat([h.real, h.imag])
        y = torch.sigmoid(g) * seen
        y = (y - y.mean()) / ((y - y.mean()).square().mean() + 1e-5).sqrt()
        outputs.append(layer.out.weight @ (y * layer.norm.weight + layer.norm.bias) + layer.out.bias)
    return torch.stack(outputs)


@pytest.mark.parametrize("layer", [0, 3])
@pytest.mark.parametrize("length", [1, 2, 17, 40])
@pytest.mark.parametrize("form", ["complex", "real"])
def test_it_is_its_equations_in_value_and_gradient(form: str, length: int, layer: int) -> None:
    recurrence, bounds = small(form, layer=layer)
    x_BLD = torch.randn(2, length, 6, dtype=torch.float64)
    inputs = [x_BLD.requires_grad_(), *recurrence.parameters(), *bounds.parameters()]
    found = recurrence(x_BLD, Context(common=bounds))
    expected = torch.stack([by_hand(recurrence, bounds, x_LD) for x_LD in x_BLD])
    close(found, expected, 1e-11)
    for one, other in zip(gradients(found, inputs), gradients(expected, inputs), strict=True):
        close(one, other, 1e-9)


@pytest.mark.parametrize("form", ["complex", "real"])
@pytest.mark.parametrize("cuts", [(1,), (5, 6, 32)])
def test_values_and_gradients_pass_through_a_carried_state(cuts: tuple[int, ...], form: str) -> None:
    recurrence, bounds = small(form)
    x_BLD, ctx = torch.randn(2, 40, 6, dtype=torch.float64, requires_grad=True), Context(common=bounds)
    state, parts = recurrence.init_state(2, max_length=40, device=torch.device("cpu"), dtype=torch.float64), []
    for part in x_BLD.tensor_split(cuts, 1):
        y_BLD, state = recurrence.extend(part, state, ctx)
        parts.append(y_BLD)
    inputs = [x_BLD, *recurrence.parameters(), *bounds.parameters()]
    found, expected = torch.cat(parts, 1), recurrence(x_BLD, ctx)
    close(found, expected, 1e-11)
    for one, other in zip(gradients(found, inputs), gradients(expected, inputs), strict=True):
        close(one, other, 1e-10)


def test_bounds_rise_from_0_with_the_layer_and_stay_below_1() -> None:
    for bounds in (LowerBounds(5, 7), lively(LowerBounds(5, 7))):
        bound_LD = torch.stack([bounds(layer) for layer in range(5)])
        assert bool((bound_LD[0] == 0).all()) and bool((bound_LD.diff(dim=0) > 0).all())
        assert bool((bound_LD[-1] < 1).all())
        for layer in range(5):
            close(bound_LD[layer], bound_by_hand(bounds, layer), 1e-6)
    close(torch.stack([LowerBounds(5, 7)(layer) for layer in range(5)])[:, 0], torch.arange(5) / 5, 1e-6)
    assert LowerBounds(1, 7)(0).tolist() == [0] * 7


def test_what_a_layer_holds_lasts_at_least_as_its_bound_says() -> None:
    recurrence, bounds = small("complex")
    nn.init.constant_(recurrence.forget.bias, -1e4)
    state = torch.randn(1, 2, 6, dtype=torch.float64)
    nothing_BLD = torch.zeros(1, 3, 6, dtype=torch.float64)
    nn.init.zeros_(recurrence.value.bias)
    _, after = recurrence.extend(nothing_BLD, state, Context(common=bounds))
    close(after.square().sum(1), state.square().sum(1) * bounds(2) ** 6, 1e-12)


def test_phases_keep_their_digits_over_a_long_sequence() -> None:
    """The angles reach 4,000; fp32 must agree with float64."""
    recurrence, bounds = small("complex")
    nn.init.constant_(recurrence.forget.bias, 8.0)
    x_BLD = torch.randn(1, 4000, 6, dtype=torch.float64)
    expected_BLD = recurrence(x_BLD, Context(common=bounds))
    found_BLD = recurrence.float()(x_BLD.float(), Context(common=bounds.float()))
    close(found_BLD.double(), expected_BLD, 2e-3)


@pytest.mark.parametrize("gate", [-1e4, 1e4])
def test_saturated_gates_and_large_inputs_stay_finite(gate: float) -> None:
    recurrence, bounds = (part.float() for part in small("complex", layer=0))
    nn.init.constant_(recurrence.forget.bias, gate)
    x_BLD = (1e4 * torch.randn(2, 40, 6)).requires_grad_()
    y_BLD = recurrence(x_BLD, Context(common=bounds))
    assert all(bool(torch.isfinite(x).all()) for x in (y_BLD, *gradients(y_BLD, [x_BLD, *recurrence.parameters()])))


def test_the_start_and_what_is_not_decayed() -> None:
    model = HGRNConfig(d_model=8, num_blocks=3).build(VOCAB)
    for block in model.blocks:
        phase_D = block.layers[0].phase_D.detach()
        close(phase_D, torch.tensor([10000 ** (-2 * d / 8) for d in range(8)]), 1e-6)
    assert bool((model.common.share_LD == 0).all())
    names = {parameter: name.split(".")[-1] for name, parameter in model.named_parameters()}
    assert {names[parameter] for parameter, decays, _ in declared(model) if decays} == {"weight"}


def test_the_state_is_one_complex_number_or_one_real_number_a_channel() -> None:
    for form, numbers in (("complex", 2), ("real", 1)):
        state = (
            HGRNConfig(d_model=8, form=form)
            .block(0)
            .init_state(3, max_length=5, device=torch.device("cpu"), dtype=torch.bfloat16)
        )
        assert state[0].shape == (3, numbers, 8) and state[0].dtype == torch.float32


def test_it_runs_under_autocast() -> None:
    recurrence, bounds = (part.float() for part in small("complex"))
    x_BLD, ctx = torch.randn(2, 40, 6), Context(common=bounds)
    with torch.autocast("cpu", torch.bfloat16):
        y_BLD = recurrence(x_BLD, ctx)
    close(y_BLD.float(), recurrence(x_BLD, ctx), 0.2)


def test_settings_are_refused_in_one_line() -> None:
    with pytest.raises(ValueError, match=r"^hgrn: d_inner must not be negative$"):
        HGRNConfig(d_inner=-1)
