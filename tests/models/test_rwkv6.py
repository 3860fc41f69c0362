"""RWKV-6 against its equations token by token, against RWKV-5 where it falls back to it, its extremes, its start."""

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.harness.train.optim import declared
from chomsky_ladder.models.block import Context
from chomsky_ladder.models.rwkv5 import RWKV5Config
from chomsky_ladder.models.rwkv6 import DynamicTimeMix, RWKV6Config
from support.layers import close, gradients

torch.set_num_threads(1)

VOCAB = 11


def randomise(module: nn.Module) -> None:
    """Weights away from their start, where the maps of low rank are nearly zero."""
    for parameter in module.parameters():
        parameter.data += 0.4 * torch.randn_like(parameter)


def perturbed(*, num_heads: int = 2) -> DynamicTimeMix:
    config = RWKV6Config(d_model=8, num_blocks=3, num_heads=num_heads, mix_rank=3, decay_rank=2)
    layer = DynamicTimeMix(config, 1).double()
    randomise(layer)
    return layer


def by_hand(layer: DynamicTimeMix, x_LD: Tensor) -> Tensor:
    """One row, a token at a time; the order of the maps is r, k, v, g, w."""
    width, rank = x_LD.shape[1], layer.mix_up.shape[1]
    head_dim = width // layer.num_heads
    own_shares = [*layer.mix_4D, layer.mix_w_D]
    S = [torch.zeros(head_dim, head_dim, dtype=x_LD.dtype) for _ in range(layer.num_heads)]
    before, outputs = torch.zeros_like(x_LD[0]), []
    for x in x_LD:
        z = x + (before - x) * layer.mix_x_D
        mixed = []
        for i, share in enumerate(own_shares):
            low = torch.tanh(z @ layer.mix_down[:, i * rank : (i + 1) * rank])
            mixed.append(x + (before - x) * (share + low @ layer.mix_up[i]))
        projections = (layer.receptance, layer.key, layer.value, layer.gate)
        r, k, v, g = (p.weight @ m for p, m in zip(projections, mixed, strict=False))
        w = torch.exp(-torch.exp(layer.log_rate_D + torch.tanh(mixed[4] @ layer.rate_down) @ layer.rate_up))
        heads = []
        for head in range(layer.num_heads):
            at = slice(head * head_dim, (head + 1) * head_dim)
            kv = torch.outer(k[at], v[at])
            y = r[at] @ (S[head] + layer.bonus_D[at, None] * kv)
            S[head] = w[at, None] * S[head] + kv
            heads.append((y - y.mean()) / ((y - y.mean()).square().mean() + 64e-5).sqrt())
        y = torch.cat(heads) * layer.norm.weight + layer.norm.bias
        outputs.append(layer.out.weight @ (g * torch.sigmoid(g) * y))
        before = x
    return torch.stack(outputs)


@pytest.mark.parametrize(
    ("length", "num_heads"), [(1, 2), (2, 2), (15, 1), (16, 4), (17, 2), (33, 2), (64, 2), (130, 1)]
)
def test_time_mix_is_its_equations_in_value_and_gradient(length: int, num_heads: int) -> None:
    layer, x_BLD = perturbed(num_heads=num_heads), torch.randn(2, length, 8, dtype=torch.float64)
    inputs = [x_BLD.requires_grad_(), *layer.parameters()]
    found, expected = layer(x_BLD, Context()), torch.stack([by_hand(layer, x_LD) for x_LD in x_BLD])
    close(found, expected, 1e-11)
    for one, other in zip(gradients(found, inputs), gradients(expected, inputs), strict=True):
        close(one, other, 1e-9)


@pytest.mark.parametrize("cuts", [(1,), (16,), (5, 6, 32)])
def test_values_and_gradients_pass_through_a_carried_state(cuts: tuple[int, ...]) -> None:
    layer, x_BLD = perturbed(), torch.randn(2, 40, 8, dtype=torch.float64, requires_grad=True)
    state, parts = layer.init_state(2, max_length=40, device=torch.device("cpu"), dtype=torch.float64), []
    for part in x_BLD.tensor_split(cuts, 1):
        y_BLD, state = layer.extend(part, state, Context())
        parts.append(y_BLD)
    found, expected, inputs = torch.cat(parts, 1), layer(x_BLD, Context()), [x_BLD, *layer.parameters()]
    close(found, expected, 1e-11)
    for one, other in zip(gradients(found, inputs), gradients(expected, inputs), strict=True):
        close(one, other, 1e-10)


def test_without_its_maps_it_is_rwkv5() -> None:
    sixth = RWKV6Config(d_model=8, num_blocks=2, mix_rank=3, decay_rank=2).build(VOCAB).double()
    fifth = RWKV5Config(d_model=8, num_blocks=2).build(VOCAB).double()
    missing, unexpected = fifth.load_state_dict(sixth.state_dict(), strict=False)
    assert not missing and len(unexpected) == 2 * 6
    for block in sixth.blocks:
        nn.init.zeros_(block.layers[0].mix_up)
        nn.init.zeros_(block.layers[0].rate_up)
    tokens_BL = torch.randint(VOCAB, (3, 40))
    close(sixth(tokens_BL, Context()), fifth(tokens_BL, Context()), 1e-12)


def test_the_decay_depends_on_the_data_in_every_channel() -> None:
    layer, x_BLD = perturbed(), torch.randn(2, 40, 8, dtype=torch.float64)
    *_, log_rate_BLD = layer.read(x_BLD, x_BLD.new_zeros(len(x_BLD), x_BLD.shape[-1]), Context())
    assert bool((log_rate_BLD.std(dim=(0, 1)) > 0.01).all())


@pytest.mark.parametrize("log_rate", [-200.0, 0.0, 200.0])
@pytest.mark.parametrize("scale", [0.0, 1.0, 1e4])
def test_saturated_decays_and_large_inputs_stay_finite(scale: float, log_rate: float) -> None:
    layer = DynamicTimeMix(RWKV6Config(d_model=8), 0)
    randomise(layer)
    nn.init.constant_(layer.log_rate_D, log_rate)
    nn.init.normal_(layer.rate_up, std=100.0)
    x_BLD = (scale * torch.randn(2, 40, 8)).requires_grad_()
    y_BLD = layer(x_BLD, Context())
    found = gradients(y_BLD, [x_BLD, *layer.parameters()])
    assert all(bool(torch.isfinite(x).all()) for x in (y_BLD, *found))


def test_the_start_is_the_published_one() -> None:
    for layer, block in enumerate(RWKV6Config(d_model=8, num_blocks=3).blocks()):
        time, share = block.layers[0], (torch.arange(8) / 8) ** (1 - layer / 3)
        close(1 - time.mix_x_D, share, 1e-6)
        close(1 - time.mix_w_D, share, 1e-6)
        assert time.mix_down.shape == (8, 160) and time.mix_up.shape == (5, 32, 8)
        assert time.rate_down.shape == (8, 64) and time.rate_up.shape == (64, 8)
        for matrix, bound in ((time.mix_down, 1e-4), (time.rate_down, 1e-4), (time.mix_up, 0.01), (time.rate_up, 0.01)):
            assert 0.9 * bound < matrix.abs().max() <= bound


def test_maps_of_low_rank_are_not_decayed() -> None:
    model = RWKV6Config(d_model=8).build(VOCAB)
    names = {parameter: name.split(".")[-1] for name, parameter in model.named_parameters()}
    assert {names[parameter] for parameter, decays, _ in declared(model) if decays} == {"weight"}
    assert {names[parameter] for parameter, _, multiplier in declared(model) if multiplier != 1} == {"log_rate_D"}


def test_it_runs_under_autocast_with_its_state_in_fp32() -> None:
    layer, x_BLD = DynamicTimeMix(RWKV6Config(d_model=8), 0), torch.randn(2, 40, 8)
    state = layer.init_state(2, max_length=40, device=torch.device("cpu"), dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        y_BLD, (_, state_BHKV) = layer.extend(x_BLD, state, Context())
    assert state_BHKV.dtype == torch.float32
    close(y_BLD.float(), layer(x_BLD, Context()), 0.05)


def test_settings_are_refused_in_one_line() -> None:
    for setting, message in (
        ({"mix_rank": 0}, "rwkv6: mix_rank must be at least 1, not 0"),
        ({"decay_rank": 0}, "rwkv6: decay_rank must be at least 1, not 0"),
        ({"d_model": 8, "num_heads": 3}, "rwkv6: d_model=8 does not split into 3 heads"),
    ):
        with pytest.raises(ValueError, match=message):
            RWKV6Config(**setting)
