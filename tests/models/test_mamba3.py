"""Mamba-3 against its complex recurrence token by token, its state, its extremes and its start."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.harness.conform import model as conform_model
from chomsky_ladder.harness.train.optim import declared
from chomsky_ladder.models.backbone import state_bytes
from chomsky_ladder.models.block import Context
from chomsky_ladder.models.mamba3 import Mamba3Config, TrapezoidalSSM
from support.layers import close, gradients, lively

torch.set_num_threads(1)

CPU = torch.device("cpu")
CONFIG = Mamba3Config(d_model=6, num_blocks=1, head_dim=4, d_state=8)
VARIANTS = {
    "half": CONFIG,
    "all": replace(CONFIG, rotation="all"),
    "none": replace(CONFIG, rotation="none", d_state=3),
    "rank 2": replace(CONFIG, mimo_rank=2),
    "rank 3": replace(CONFIG, mimo_rank=3, rotation="all", d_state=4),
}
CASES = [("half", length) for length in (1, 2, 63, 64, 65, 130)]
CASES += [("all", 65), ("none", 65), ("rank 2", 1), ("rank 2", 32), ("rank 2", 65), ("rank 3", 2), ("rank 3", 64)]


def layer_of(config: Mamba3Config) -> TrapezoidalSSM:
    (layer, _) = config.block(0).layers
    return layer


def by_hand(layer: TrapezoidalSSM, config: Mamba3Config, u_LD: Tensor) -> Tensor:
    """One row. Turning states are complex numbers, of h' = (-A + i w) h + B x; the rest are real."""
    heads, rank, states, turning = layer.heads, config.mimo_rank, config.d_state, config.num_angles
    sizes = [config.inner_width] * 2 + [rank * states] * 2 + [heads] * 3 + [turning]
    one = torch.ones(heads, 1, config.head_dim, dtype=u_LD.dtype)
    x_scale, z_scale, y_scale = (
        (layer.x_scale_HRK, layer.z_scale_HRK, layer.y_scale_HRK) if rank > 1 else (one, one, one)
    )
    complex_H = torch.zeros(heads, turning, config.head_dim, dtype=torch.complex128)
    real_H = torch.zeros(heads, states - 2 * turning, config.head_dim, dtype=u_LD.dtype)
    before, outputs = None, []
    for u in u_LD:
        z, x, B, C, dt, A, g, w = (layer.project.weight @ u).split(sizes)
        z, x = ((e.view(heads, 1, -1) * scale) for e, scale in ((z, z_scale), (x, x_scale)))
        B, C = (
            e.view(rank, -1) / (e.view(rank, -1).square().mean(1, keepdim=True) + 1e-5).sqrt() * norm.weight + bias
            for e, norm, bias in ((B, layer.B_norm, layer.B_bias_HRN), (C, layer.C_norm, layer.C_bias_HRN))
        )
        (b, c), (B, C) = (
            [torch.complex(e[..., :turning], e[..., turning : 2 * turning]) for e in (B, C)],
            [e[..., 2 * turning :] for e in (B, C)],
        )
        dt = torch.log1p(torch.exp(dt + layer.dt_bias))
        decay = torch.exp(-dt * torch.log1p(torch.exp(A)))
        turn = decay[:, None] * torch.exp(1j * math.pi * dt[:, None] * torch.tanh(w))
        g = 1 / (1 + torch.exp(-g))
        new = torch.einsum("hrn,hrk->hnk", b, x + 0j), torch.einsum("hrn,hrk->hnk", B, x)
        if before is not None:
            share = ((1 - g) * dt)[:, None, None]
            complex_H, real_H = complex_H + share * before[0], real_H + share * before[1]
        complex_H = turn[..., None] * complex_H + (g * dt)[:, None, None] * new[0]
        real_H = decay[:, None, None] * real_H + (g * dt)[:, None, None] * new[1]
        before = new
        y = torch.einsum("hrn,hnk->hrk", c.conj(), complex_H).real + torch.einsum("hrn,hnk->hrk", C, real_H)
        y = (y + layer.D[:, None, None] * x) * z / (1 + torch.exp(-z))
        outputs.append(layer.out.weight @ (y * y_scale).sum(1).flatten())
    return torch.stack(outputs)


@pytest.mark.parametrize(("variant", "length"), CASES)
def test_it_is_its_complex_recurrence_in_value_and_gradient(variant: str, length: int) -> None:
    config = VARIANTS[variant]
    layer, x_LD = lively(layer_of(config)), torch.randn(length, 6, dtype=torch.float64)
    inputs = [x_LD.requires_grad_(), *layer.parameters()]
    found, expected = layer(x_LD[None], Context())[0], by_hand(layer, config, x_LD)
    close(found, expected, 1e-11)
    for one, other in zip(gradients(found, inputs), gradients(expected, inputs), strict=True):
        close(one, other, 1e-9)


@pytest.mark.parametrize("cuts", [(2, 3, 66), (5, 69), tuple(range(1, 70))])
@pytest.mark.parametrize("variant", ["half", "rank 3"])
def test_values_and_gradients_pass_through_a_carried_state(variant: str, cuts: tuple[int, ...]) -> None:
    """The last cuts are single steps."""
    layer, x_BLD = lively(layer_of(VARIANTS[variant])), torch.randn(2, 70, 6, dtype=torch.float64, requires_grad=True)
    state, parts = layer.init_state(2, max_length=70, device=CPU, dtype=torch.float64), []
    for part in x_BLD.tensor_split(cuts, 1):
        y_BLD, state = layer.extend(part, state, Context())
        parts.append(y_BLD)
    found, expected, inputs = torch.cat(parts, 1), layer(x_BLD, Context()), [x_BLD, *layer.parameters()]
    close(found, expected, 1e-11)
    for one, other in zip(gradients(found, inputs), gradients(expected, inputs), strict=True):
        close(one, other, 1e-9)


@pytest.mark.parametrize("settings", [{"rotation": "none"}, {"rotation": "all", "mimo_rank": 2}])
def test_other_settings_conform_too(settings: dict) -> None:
    config = replace(Mamba3Config.tiny(), **settings)
    for check in (
        conform_model.the_future_never_changes_the_past,
        conform_model.stepping_equals_forward,
        conform_model.every_parameter_learns,
        conform_model.a_step_never_waits_for_the_host,
        conform_model.stacked_replicas_equal_single_ones,
        conform_model.the_optimiser_understands_it,
    ):
        check(config)


def test_a_turning_state_holds_parity() -> None:
    """Weights set by hand write the state once, turn it by pi at every 1, and read its sign 2000 tokens later.

    It decays at the least rate there is.
    """
    layer = layer_of(Mamba3Config(d_model=3, num_blocks=1, head_dim=6, d_state=4)).double()
    z, x, _, _, dt, A, _, w = layer.project.weight.data.zero_().split(layer.parts)
    z[:], x[:, 0], dt[:, 2], A[:, 2], w[:, 1] = 1, 1, 1, -20, 20  # of start, bit and one
    layer.dt_bias.data[:] = math.log(math.e - 1) - 1  # dt = 1
    layer.C_bias_HRN.data[..., 2:] = 0
    nn.init.zeros_(layer.D)
    nn.init.ones_(layer.out.weight)
    bits_L = torch.randint(2, (2000,))
    start_L = torch.eye(1, 2000)[0]
    bits_L[0] = 0
    x_LD = torch.stack([start_L, bits_L.double(), torch.ones(2000)], 1).double()
    y_L = layer(x_LD[None], Context())[0, :, 0]
    assert torch.equal(y_L > 0, bits_L.cumsum(0) % 2 == 0)
    assert (y_L[-1] / y_L[1]).abs().item() == pytest.approx(math.exp(-1e-4 * 1998), rel=1e-9)


def test_a_sum_of_many_angles_keeps_its_digits() -> None:
    """A whole sequence in fp32 equals the same in parts, whose angles are small."""
    layer, x_BLD = lively(layer_of(CONFIG)).float(), torch.randn(1, 4000, 6)
    nn.init.constant_(layer.dt_bias, 3.0)  # turns of many radians, and much memory
    layer.project.weight.data[-layer.parts[-1] - 2 * layer.heads : -layer.parts[-1] - layer.heads] = 0
    layer.project.weight.data[-layer.parts[-1] :] = torch.rand(layer.parts[-1], 6)
    x_BLD = x_BLD.abs()
    state, parts = layer.init_state(1, max_length=4000, device=CPU, dtype=torch.float32), []
    for part in x_BLD.split(100, 1):
        y_BLD, state = layer.extend(part, state, Context())
        parts.append(y_BLD)
    y_BLD = torch.cat(parts, 1)
    assert state[0].min() >= 0 and state[0].max() <= 2 * math.pi + 1e-6
    assert (layer(x_BLD, Context()) - y_BLD).abs().max() < 1e-5 * y_BLD.abs().max()


@pytest.mark.parametrize("variant", ["half", "rank 2"])
@pytest.mark.parametrize("scale", [0.0, 1.0, 1e3, 1e6])
def test_extreme_steps_decays_and_angles_stay_finite(variant: str, scale: float) -> None:
    layer = layer_of(VARIANTS[variant])
    layer.project.weight.data[sum(layer.parts[:4]) :] *= scale  # dt, A, g and w
    x_BLD = torch.randn(2, 130, 6, requires_grad=True)
    y_BLD, state = layer.extend(x_BLD, layer.init_state(2, max_length=130, device=CPU, dtype=x_BLD.dtype), Context())
    found = gradients(torch.cat([y_BLD.flatten(), *(s.flatten() for s in state)]), [x_BLD, *layer.parameters()])
    assert all(bool(torch.isfinite(z).all()) for z in (y_BLD, *state, *found))


def test_a_long_step_ahead_costs_the_outputs_before_it_no_digits() -> None:
    layer, x_BLD = layer_of(CONFIG), torch.randn(2, 70, 6)
    dt = layer.project.weight.data.split(layer.parts)[4]
    dt[:] = torch.eye(6)[0]
    x_BLD[:, :, 0] = 0
    expected = layer(x_BLD, Context())
    x_BLD[:, 40, 0] = 1e6
    found = layer(x_BLD, Context())
    close(found[:, :40], expected[:, :40], 1e-6)
    assert (found[:, 40:] - expected[:, 40:]).abs().max() > 1


def test_memory_for_the_backward_pass_is_linear_in_the_length() -> None:
    layer, found = layer_of(CONFIG), []
    for length in (1024, 2048):
        kept: dict[int, int] = {}

        def keep(z: Tensor, kept: dict[int, int] = kept) -> Tensor:
            kept[z.untyped_storage().data_ptr()] = z.untyped_storage().nbytes()
            return z

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda z: z):
            layer(torch.randn(1, length, 6), Context()).sum().backward()
        found.append(sum(kept.values()))
    assert found[1] < 2.1 * found[0]


@pytest.mark.parametrize("variant", ["half", "none", "rank 2"])
def test_the_state_is_angles_a_matrix_a_head_and_the_last_input(variant: str) -> None:
    config = VARIANTS[variant]
    model = config.build(5)
    state = model.init_state(7, max_length=9, device=CPU, dtype=torch.bfloat16)
    numbers = config.num_angles + (config.mimo_rank + 4) * config.d_state + 4
    assert state_bytes(state) == 7 * 3 * 4 * numbers  # three heads of four channels, in fp32


def test_it_runs_under_autocast_with_its_state_in_fp32() -> None:
    layer, x_BLD = layer_of(Mamba3Config(d_model=16, head_dim=8, d_state=8, mimo_rank=2)), torch.randn(2, 70, 16)
    state = layer.init_state(2, max_length=70, device=CPU, dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        y_BLD, state = layer.extend(x_BLD, state, Context())
    assert {s.dtype for s in state} == {torch.float32}
    close(y_BLD.float(), layer(x_BLD, Context()), 0.05)


def test_the_start_is_the_published_one() -> None:
    config = Mamba3Config(d_model=512, num_blocks=2, head_dim=1, d_state=8, mimo_rank=4)
    layer, feed_forward = config.block(0).layers
    log_dt_H = nn.functional.softplus(layer.dt_bias.double()).log10()
    assert -3.001 < log_dt_H.min() < -2.98 and -1.02 < log_dt_H.max() < -0.999
    assert log_dt_H.mean().item() == pytest.approx(-2, abs=0.05)
    for ones in (layer.D, layer.B_bias_HRN, layer.C_bias_HRN, layer.B_norm.weight, layer.z_scale_HRK):
        assert bool((ones == 1).all())
    assert bool((layer.x_scale_HRK == 0.25).all()) and bool((layer.y_scale_HRK == 0.25).all())
    assert layer.B_bias_HRN.shape == (1024, 4, 8) and layer.x_scale_HRK.shape == (1024, 4, 1)
    assert layer.project.out_features == 2 * 1024 + 2 * 4 * 8 + 3 * 1024 + 2
    assert 0.99 * 512**-0.5 < layer.project.weight.abs().max() <= 512**-0.5
    assert 0.99 * 4096**-0.5 < layer.out.weight.abs().max() <= 4096**-0.5  # 1024 inputs, and four layers that write
    assert feed_forward.out.in_features == 1368


def test_what_is_decayed() -> None:
    model = Mamba3Config(d_model=16, num_blocks=1, head_dim=8, d_state=8, mimo_rank=2).build(7)
    names = {parameter: name for name, parameter in model.named_parameters()}
    decayed = {names[parameter].partition("parts.")[-1] for parameter, decays, _ in declared(model) if decays}
    assert decayed == {"1.project.weight", "1.out.weight", "3.gate_up.weight", "3.out.weight", ""}  # and the head


def test_settings_are_refused_in_one_line() -> None:
    for setting, message in (
        ({"expansion": 0}, "^mamba3: expansion must be at least 1, not 0$"),
        ({"mimo_rank": 0}, "^mamba3: mimo_rank must be at least 1, not 0$"),
        ({"d_state": 0}, "^mamba3: d_state"),
        ({"head_dim": 48}, "^mamba3: 256 channels do not split into heads of head_dim=48$"),
        ({"d_state": 6}, "^mamba3: rotation=half needs a d_state that 4 divides, not 6$"),
        ({"d_state": 5, "rotation": "all"}, "^mamba3: rotation=all needs a d_state that 2 divides, not 5$"),
        ({"dt_min": 0.0}, "^mamba3: dt_min=0.0 must be above 0 and not above dt_max=0.1$"),
        ({"dt_max": float("inf")}, "^mamba3: dt_min"),
        ({"d_inner": -1}, "^mamba3: d_inner must not be negative$"),
    ):
        with pytest.raises(ValueError, match=message):
            Mamba3Config(**setting)
