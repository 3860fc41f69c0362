"""FP-Mamba against its equations, its state, and the iteration over whole strings that it replaces."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import silu, softplus

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.fp_mamba import FixedPointSSM, FPMambaConfig
from support.attentions import WIDTH, hold_parts_to_the_whole, hold_to_the_loop, stays_finite
from support.layers import close, lively

torch.set_num_threads(1)


def made(reflections: int = 2, iterations: int = 3) -> FixedPointSSM:
    return FixedPointSSM(FPMambaConfig(d_model=WIDTH, d_state=4, reflections=reflections, iterations=iterations))


def unit(x: Tensor) -> Tensor:
    return x / x.square().sum().sqrt()


def one_step(layer: FixedPointSSM, x: Tensor, read: Tensor, y: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    """Put a token's y in again: what it becomes, and the state [E, N]. `read` is the y before the token."""
    width, states = layer.A_log.shape
    v, z = layer.value_gate.weight.split(width)[0] @ x, layer.value_gate.weight.split(width)[1] @ x
    rank, B, C = (part @ v for part in layer.select.weight.split([layer.dt.in_features, states, states]))
    dt = softplus(layer.dt.weight @ rank + layer.dt.bias)
    U_B, U_C, U_u, U_a = layer.read.weight.split([states, states, layer.reflections * width, layer.reflections])
    B, C = unit(B + U_B @ read), unit(C + U_C @ read)
    mixed = layer.mix.weight @ v + layer.mix.bias + torch.cat([U_u, U_a]) @ read
    Q = torch.eye(width, dtype=x.dtype)
    for i in range(layer.reflections):
        u = unit(silu(mixed[i * width : (i + 1) * width]))
        strength = torch.sigmoid(mixed[layer.reflections * width + i])
        Q = (torch.eye(width, dtype=x.dtype) - 2 * strength * torch.outer(u, u)) @ Q
    s = Q @ (v - y) + y
    h = torch.exp(-dt[:, None] * layer.A_log.exp()) * h + torch.outer(dt * s, B)
    new = silu(z) * (h @ C + layer.D * s)
    new = (new - new.mean()) / (new.var(correction=0) + layer.norm.eps).sqrt()
    return new * layer.norm.weight + layer.norm.bias, h


def by_hand(layer: FixedPointSSM, x_LD: Tensor) -> Tensor:
    """Token by token: steps without a gradient, then one with it."""
    width, states = layer.A_log.shape
    read, h, rows = x_LD.new_zeros(width), x_LD.new_zeros(width, states), []
    for x in x_LD:
        y = torch.zeros_like(read)
        with torch.no_grad():
            for _ in range(layer.iterations):
                y = one_step(layer, x, read, y, h)[0]
        y, h = one_step(layer, x, read, y, h)
        rows.append(layer.out.weight @ y)
        read = y.detach()
    return torch.stack(rows)


@pytest.mark.parametrize("length", [1, 9])
def test_the_layer_is_its_equations(length: int) -> None:
    hold_to_the_loop(lively(made()), by_hand, length, tolerance=1e-10)


def test_parts_equal_the_whole() -> None:
    hold_parts_to_the_whole(lively(made()), 12, [[11], [3, 1, 5], [1] * 11])


def test_the_iteration_over_whole_strings_arrives_at_the_same_fixed_point() -> None:
    """The paper's way: all tokens start at zero, and each round reads the round before at the token before."""
    layer = made(iterations=400)
    layer.double().requires_grad_(requires_grad=False)
    layer.norm.weight.mul_(0.3)  # every step shortens distances, else some tokens go round in circles
    x_LD = torch.randn(10, WIDTH, dtype=torch.float64)
    width, states = layer.A_log.shape
    y_LE, moved = torch.zeros(len(x_LD), width, dtype=torch.float64), []
    for _ in range(400):
        h, rows, before_LE = y_LE.new_zeros(width, states), [], torch.cat([torch.zeros_like(y_LE[:1]), y_LE[:-1]])
        for x, read, y in zip(x_LD, before_LE, y_LE, strict=True):
            new, h = one_step(layer, x, read, y, h)
            rows.append(new)
        moved.append(float((torch.stack(rows) - y_LE).abs().max()))
        y_LE = torch.stack(rows)
    assert moved[0] > 1 and moved[-1] < 1e-9
    close(layer(x_LD[None], Context())[0], y_LE @ layer.out.weight.mT, 1e-8)


def test_without_reflection_there_is_nothing_to_solve() -> None:
    layer = made(iterations=1)
    lively(layer).requires_grad_(requires_grad=False)
    width = layer.A_log.shape[0]
    layer.mix.bias[layer.reflections * width :] = -1e3
    x_BLD = torch.randn(2, 6, WIDTH, dtype=torch.float64)
    once_BLD, layer.iterations = layer(x_BLD, Context()), 30
    close(layer(x_BLD, Context()), once_BLD)
    layer.mix.bias[layer.reflections * width :] = 0
    assert (layer(x_BLD, Context()) - once_BLD).abs().max() > 1e-2


def test_extreme_inputs_stay_finite() -> None:
    stays_finite(made(), (1e-20, 1.0, 1e4), 12)


def test_settings_are_refused_in_one_line() -> None:
    with pytest.raises(ValueError, match=r"^fp_mamba: iterations must be at least 1, not 0$"):
        FPMambaConfig(iterations=0)
    with pytest.raises(ValueError, match=r"^fp_mamba: dt_rank must not be negative$"):
        FPMambaConfig(dt_rank=-1)
