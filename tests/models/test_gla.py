"""GLA against its equations token by token, its state, its extremes and its start."""

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.gla import GatedLinearAttention, GLAConfig
from support.layers import close, gradients, lively

torch.set_num_threads(1)


def small(*, num_heads: int = 2, d_key: int = 0, temperature: float = 16.0) -> GatedLinearAttention:
    config = GLAConfig(d_model=8, num_heads=num_heads, d_key=d_key, decay_rank=3, temperature=temperature)
    return lively(GatedLinearAttention(config))


def by_hand(layer: GatedLinearAttention, x_LD: Tensor) -> Tensor:
    """One row, a token and a head at a time."""
    key_dim, value_dim = layer.key.out_features // layer.num_heads, x_LD.shape[1] // layer.num_heads
    S = [torch.zeros(key_dim, value_dim, dtype=x_LD.dtype) for _ in range(layer.num_heads)]
    outputs = []
    for x in x_LD:
        q, k, v = (p.weight @ x for p in (layer.query, layer.key, layer.value))
        logit = layer.decay_up.weight @ (layer.decay_down.weight @ x) + layer.decay_up.bias
        a = (1 / (1 + torch.exp(-logit))) ** (1 / layer.temperature)
        heads = []
        for head in range(layer.num_heads):
            keys = slice(head * key_dim, (head + 1) * key_dim)
            values = slice(head * value_dim, (head + 1) * value_dim)
            S[head] = torch.diag(a[keys]) @ S[head] + torch.outer(k[keys], v[values])
            y = q[keys] / key_dim**0.5 @ S[head]
            y = (y - y.mean()) / ((y - y.mean()).square().mean() + 1e-5).sqrt()
            heads.append(y * layer.norm.weight + layer.norm.bias)
        r = layer.gate.weight @ x + layer.gate.bias
        outputs.append(layer.out.weight @ (r * torch.sigmoid(r) * torch.cat(heads)))
    return torch.stack(outputs)


@pytest.mark.parametrize(
    ("length", "num_heads", "d_key", "temperature"),
    [(1, 2, 0, 16.0), (2, 1, 0, 1.0), (15, 4, 0, 16.0), (17, 2, 6, 0.1), (33, 1, 8, 16.0), (65, 2, 12, 2.0)],
)
def test_it_is_its_equations_in_value_and_gradient(length: int, num_heads: int, d_key: int, temperature: float) -> None:
    layer = small(num_heads=num_heads, d_key=d_key, temperature=temperature)
    x_BLD = torch.randn(2, length, 8, dtype=torch.float64)
    inputs = [x_BLD.requires_grad_(), *layer.parameters()]
    found, expected = layer(x_BLD, Context()), torch.stack([by_hand(layer, x_LD) for x_LD in x_BLD])
    close(found, expected, 1e-11)
    for one, other in zip(gradients(found, inputs), gradients(expected, inputs), strict=True):
        close(one, other, 1e-9)


@pytest.mark.parametrize("cuts", [(1,), (5, 6, 32)])
def test_values_and_gradients_pass_through_a_carried_state(cuts: tuple[int, ...]) -> None:
    layer, x_BLD = small(), torch.randn(2, 40, 8, dtype=torch.float64, requires_grad=True)
    state, parts = layer.init_state(2, max_length=40, device=torch.device("cpu"), dtype=torch.float64), []
    for part in x_BLD.tensor_split(cuts, 1):
        y_BLD, state = layer.extend(part, state, Context())
        parts.append(y_BLD)
    found, expected, inputs = torch.cat(parts, 1), layer(x_BLD, Context()), [x_BLD, *layer.parameters()]
    close(found, expected, 1e-11)
    for one, other in zip(gradients(found, inputs), gradients(expected, inputs), strict=True):
        close(one, other, 1e-10)


@pytest.mark.parametrize("bias", [-1e4, 0.0, 1e4])
@pytest.mark.parametrize("scale", [0.0, 1.0, 1e4])
def test_decays_of_0_and_1_and_large_inputs_stay_finite(scale: float, bias: float) -> None:
    layer = small(temperature=1.0).float()
    nn.init.constant_(layer.decay_up.bias, bias)
    x_BLD = (scale * torch.randn(2, 40, 8)).requires_grad_()
    y_BLD = layer(x_BLD, Context())
    assert all(bool(torch.isfinite(x).all()) for x in (y_BLD, *gradients(y_BLD, [x_BLD, *layer.parameters()])))


def test_a_strong_decay_costs_the_later_tokens_of_its_chunk_no_digits() -> None:
    layer, x_BLD = small(temperature=1.0), torch.randn(2, 40, 8, dtype=torch.float64)
    layer.decay_up.weight.data *= 100
    close(layer.float()(x_BLD.float(), Context()).double(), layer.double()(x_BLD, Context()), 1e-4)


def test_sizes_and_start_are_the_published_ones() -> None:
    config = GLAConfig(d_model=64)
    attention, feed_forward = config.block(0).layers
    assert attention.query.weight.shape == attention.key.weight.shape == (32, 64)
    assert attention.value.weight.shape == attention.gate.weight.shape == attention.out.weight.shape == (64, 64)
    assert attention.decay_down.weight.shape == (16, 64) and attention.decay_up.weight.shape == (32, 16)
    state_BHKV = attention.init_state(1, max_length=1, device=torch.device("cpu"), dtype=torch.bfloat16)
    assert state_BHKV.shape == (1, 4, 8, 16) and state_BHKV.dtype == torch.float32
    assert feed_forward.gate_up.weight.shape == (2 * 176, 64)
    logit_BLE = attention.decay_up(attention.decay_down(torch.randn(2, 99, 64)))
    decay_BLE = torch.sigmoid(logit_BLE) ** (1 / attention.temperature)
    assert decay_BLE.mean().item() == pytest.approx(0.5 ** (1 / 16), abs=0.01)


def test_it_runs_under_autocast_with_its_state_in_fp32() -> None:
    layer, x_BLD = GatedLinearAttention(GLAConfig(d_model=8)), torch.randn(2, 40, 8)
    state = layer.init_state(2, max_length=40, device=torch.device("cpu"), dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        y_BLD, state_BHKV = layer.extend(x_BLD, state, Context())
    assert state_BHKV.dtype == torch.float32
    close(y_BLD.float(), layer(x_BLD, Context()), 0.05)


def test_settings_are_refused_in_one_line() -> None:
    for setting, message in (
        ({"d_model": 12, "num_heads": 8}, "^gla: a width of 12 does not split into 8 heads$"),
        ({"d_model": 12, "num_heads": 4}, "^gla: a width of queries and keys of 6 does not split into 4 heads$"),
        ({"num_heads": 0}, "^gla: num_heads must be at least 1, not 0$"),
        ({"d_key": -1}, "^gla: d_key"),
        ({"decay_rank": 0}, "^gla: decay_rank must be at least 1, not 0$"),
        ({"temperature": 0.0}, "^gla: temperature must be positive, not 0.0$"),
        ({"d_inner": -1}, "^gla: d_inner"),
    ):
        with pytest.raises(ValueError, match=message):
            GLAConfig(**setting)
