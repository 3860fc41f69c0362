"""D-LinOSS against its oscillators in complex numbers, its damping by hand, its start and its extremes."""

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.d_linoss import DLinOSSConfig, Oscillators, highest, initial_oscillators, lowest
from support.attentions import WIDTH, hold_parts_to_the_whole, hold_to_the_loop, stays_finite
from support.layers import close, lively

torch.set_num_threads(1)

COUNT = 5


def by_hand(layer: Oscillators, x_LD: Tensor) -> Tensor:
    """The equations as they stand, solved for the new speed, which is on both sides."""
    B = torch.complex(*layer.drive.weight.chunk(2))
    C = torch.complex(*(part * sign for part, sign in zip(layer.read.weight.chunk(2, 1), (1, -1), strict=True)))
    dt, G = torch.sigmoid(layer.step_P), layer.damping_P.clamp_min(0)
    root = (1 + dt * G).sqrt()
    A = torch.minimum(torch.maximum(layer.stiffness_P, ((root - 1) / dt) ** 2), ((root + 1) / dt) ** 2)
    z = p = torch.zeros(COUNT, dtype=torch.complex128)
    rows = []
    for x in x_LD:
        z = (z + dt * (B @ x.to(B.dtype) - A * p)) / (1 + dt * G)
        p = p + dt * z
        v = (C @ p).real + layer.past_D * x
        g = v * (1 + torch.erf(v / 2**0.5)) / 2
        rows.append((layer.out.weight @ g + layer.out.bias) * torch.sigmoid(layer.gate.weight @ g + layer.gate.bias))
    return torch.stack(rows)


@pytest.mark.parametrize("length", [1, 2, 17])
def test_it_equals_its_oscillators(length: int) -> None:
    hold_to_the_loop(lively(Oscillators(WIDTH, COUNT)), by_hand, length, tolerance=1e-10)


def test_parts_equal_the_whole() -> None:
    hold_parts_to_the_whole(lively(Oscillators(WIDTH, COUNT)), 20, [[19], [3, 1, 10], [1] * 19])


def test_an_update_shrinks_by_the_damping_alone_whatever_is_learnt() -> None:
    layer = Oscillators(WIDTH, 400).double()
    for parameter in (layer.stiffness_P, layer.damping_P, layer.step_P):
        parameter.data = 5 * torch.randn(400, dtype=torch.float64)
    transition_P22, _ = layer.discrete(torch.float64)
    sizes_P2 = torch.linalg.eigvals(transition_P22).abs()
    dt_P, G_P = torch.sigmoid(layer.step_P), torch.relu(layer.damping_P)
    usual_P = dt_P > 1e-3  # below, A's upper bound is that of a larger dt
    close(sizes_P2[usual_P], (1 + dt_P * G_P).rsqrt()[usual_P, None].expand(-1, 2), 1e-6)


def test_it_starts_with_oscillators_that_turn() -> None:
    A_P, G_P, step_P = initial_oscillators(2000)
    dt_P = torch.sigmoid(step_P)
    assert bool(((G_P - dt_P * A_P) ** 2 < 4 * A_P).all())
    assert bool((lowest(dt_P, G_P) < A_P).all()) and bool((highest(dt_P, G_P) > A_P).all())
    assert 0.45 < float(G_P.mean()) < 0.55 and 0.45 < float(A_P.mean()) < 0.6 and abs(float(step_P.mean())) < 0.05


def test_extreme_inputs_stay_finite() -> None:
    stays_finite(Oscillators(WIDTH, COUNT), (1e-20, 1.0, 1e4), 90)


def test_settings_are_refused_in_one_line() -> None:
    assert [DLinOSSConfig(d_model=8, d_state=each).block(0).layers[0].drive.out_features for each in (0, 3)] == [16, 6]  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(ValueError, match=r"^d_linoss: d_state must not be negative$"):
        DLinOSSConfig(d_state=-1)
