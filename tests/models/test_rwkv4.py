"""RWKV-4 against the quotient of sums that defines it, from start to logits; its state, its extremes, its start."""

import math

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.harness.train.optim import declared
from chomsky_ladder.models.block import Context
from chomsky_ladder.models.layers.token_shift import ChannelMix, NormedEntry
from chomsky_ladder.models.operations.shift.reference import token_before
from chomsky_ladder.models.operations.wkv import wkv
from chomsky_ladder.models.rwkv4 import RWKV4Config, TimeMix
from support.layers import close

torch.set_num_threads(1)

VOCAB = 11


def weighted_sum(x: Tensor) -> Tensor:
    """A scalar in which no element can hide another's error."""
    return (x * torch.linspace(-9, 9, x.numel(), dtype=x.dtype).sin().view_as(x)).sum()


def gradients(y: Tensor, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    return torch.autograd.grad(weighted_sum(y), inputs, materialize_grads=True)


def randomise(module: nn.Module) -> None:
    """Weights away from their start, where much is equal."""
    for name, parameter in module.named_parameters():
        spread = 0.5 if parameter.ndim > 1 and "mix" not in name else 0.2
        parameter.data += spread * torch.randn_like(parameter)


def fresh(batch: int, width: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    return torch.zeros(batch, 2, width, dtype=dtype), torch.full((batch, width), -1e30, dtype=dtype)


def quotient(k_BLD: Tensor, v_BLD: Tensor, rate_D: Tensor, bonus_D: Tensor) -> Tensor:
    """The two sums of the docstring, every term of them written out."""
    length = k_BLD.shape[1]
    t, s = torch.arange(length)[:, None], torch.arange(length)
    age_LM1 = (t - 1 - s).to(k_BLD.dtype)[..., None]
    exponent_BLMD = torch.where((s < t)[..., None], k_BLD[:, None] - age_LM1 * rate_D, -torch.inf)
    exponent_BLMD = torch.where((s == t)[..., None], k_BLD[:, None] + bonus_D, exponent_BLMD)
    return (exponent_BLMD.softmax(2) * v_BLD[:, None]).sum(2)


@pytest.mark.parametrize("length", [1, 2, 17, 63, 64, 65, 130])
def test_wkv_is_its_definition_and_so_are_its_gradients(length: int) -> None:
    k_BLD, v_BLD = (2 * torch.randn(2, length, 6, dtype=torch.float64) for _ in "kv")
    rate_D, bonus_D = torch.logspace(-3, 1.5, 6, dtype=torch.float64), torch.randn(6, dtype=torch.float64)
    inputs = [x.requires_grad_() for x in (k_BLD, v_BLD, rate_D, bonus_D)]
    found, expected = wkv(*inputs, fresh(2, 6), Context())[0], quotient(*inputs)
    close(found, expected, 1e-12)
    for one, other in zip(*(gradients(y, inputs) for y in (found, expected)), strict=True):
        close(one, other, 1e-11)


def test_three_tokens_by_hand() -> None:
    k, v, rate, bonus = [0.5, -1.0, 2.0], [1.0, 3.0, -2.0], 0.7, 0.3
    e = math.exp
    expected = [
        1.0,
        (e(0.5) * 1.0 + e(-1.0 + 0.3) * 3.0) / (e(0.5) + e(-0.7)),
        (e(0.5 - 0.7) * 1.0 + e(-1.0) * 3.0 + e(2.3) * -2.0) / (e(-0.2) + e(-1.0) + e(2.3)),
    ]
    k_BLD, v_BLD = (torch.tensor(x, dtype=torch.float64)[None, :, None] for x in (k, v))
    rate_D, bonus_D = (torch.tensor([x], dtype=torch.float64) for x in (rate, bonus))
    close(
        wkv(k_BLD, v_BLD, rate_D, bonus_D, fresh(1, 1), Context())[0].flatten(),
        torch.tensor(expected, dtype=torch.float64),
        1e-14,
    )


@pytest.mark.parametrize("cuts", [(1,), (16,), (5, 6, 32)])
def test_values_and_gradients_pass_through_a_carried_state(cuts: tuple[int, ...]) -> None:
    k_BLD, v_BLD = (3 * torch.randn(2, 33, 4, dtype=torch.float64) for _ in "kv")
    rate_D, bonus_D = torch.logspace(-2, 1, 4, dtype=torch.float64), torch.randn(4, dtype=torch.float64)
    inputs = [x.requires_grad_() for x in (k_BLD, v_BLD, rate_D, bonus_D)]
    state, parts = fresh(2, 4), []
    for k, v in zip(*(x.tensor_split(cuts, 1) for x in (k_BLD, v_BLD)), strict=True):
        y, state = wkv(k, v, rate_D, bonus_D, state, Context())
        parts.append(y)
    expected = quotient(*inputs)
    close(torch.cat(parts, 1), expected, 1e-12)
    for one, other in zip(*(gradients(y, inputs) for y in (torch.cat(parts, 1), expected)), strict=True):
        close(one, other, 1e-11)


def test_any_keys_and_any_rates_stay_finite_and_right() -> None:
    v_BLD = torch.randn(2, 40, 5)
    k_BLD = torch.randn(2, 40, 5) * torch.tensor([1.0, 30.0, 1e3, 1e4, 1.0])
    k_BLD[:, :20, 4] += 200  # far larger than all that follow, and forgotten slowly
    for rate in (0.0, 1e-3, 20.0, math.exp(8)):
        inputs = [x.clone().requires_grad_() for x in (k_BLD, v_BLD, torch.full((5,), rate), torch.randn(5))]
        y_BLD = wkv(*inputs, fresh(2, 5, torch.float32), Context())[0]
        close(y_BLD.double(), quotient(*(x.double() for x in inputs)), 2e-3)
        assert all(bool(torch.isfinite(g).all()) for g in gradients(y_BLD, inputs))


def test_a_constant_added_to_all_keys_changes_nothing() -> None:
    k_BLD, v_BLD = (torch.randn(2, 20, 4, dtype=torch.float64) for _ in "kv")
    rate_D, bonus_D = torch.rand(2, 4, dtype=torch.float64)
    one, other = (wkv(k_BLD + shift, v_BLD, rate_D, bonus_D, fresh(2, 4), Context())[0] for shift in (0.0, 4096.0))
    close(one, other, 1e-11)


@pytest.mark.parametrize("log_rate", [-200.0, 200.0])
def test_a_layer_with_saturated_rates_has_finite_gradients(log_rate: float) -> None:
    layer = TimeMix(8, layer=0, num_blocks=2)
    nn.init.constant_(layer.log_rate_D, log_rate)
    x_BLD = (1e3 * torch.randn(2, 40, 8)).requires_grad_()
    y_BLD = layer(x_BLD, Context())
    found = gradients(y_BLD, [x_BLD, *layer.parameters()])
    assert all(bool(torch.isfinite(x).all()) for x in (y_BLD, *found))


def layer_norm(x: Tensor, norm: nn.LayerNorm) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * norm.weight + norm.bias


def lerp(x_BLD: Tensor, past_share_D: Tensor) -> Tensor:
    before_BLD = torch.zeros_like(x_BLD)
    before_BLD[:, 1:] = x_BLD[:, :-1].clone()
    return (1 - past_share_D) * x_BLD + past_share_D * before_BLD


def by_hand(layer: TimeMix | ChannelMix, x_BLD: Tensor) -> Tensor:
    if isinstance(layer, ChannelMix):
        r_BLD = torch.sigmoid(lerp(x_BLD, layer.mix_2D[0]) @ layer.receptance.weight.T)
        return r_BLD * (torch.relu(lerp(x_BLD, layer.mix_2D[1]) @ layer.key.weight.T) ** 2 @ layer.out.weight.T)
    projections = (layer.receptance, layer.key, layer.value)
    r, k, v = (lerp(x_BLD, layer.mix_3D[i]) @ p.weight.T for i, p in enumerate(projections))
    return (torch.sigmoid(r) * quotient(k, v, layer.log_rate_D.exp(), layer.bonus_D)) @ layer.out.weight.T


def test_the_model_follows_its_docstring_from_embedding_to_logits() -> None:
    model = RWKV4Config(d_model=8, num_blocks=3, d_inner=10).build(VOCAB).double()
    randomise(model)
    tokens_BL = torch.randint(VOCAB, (3, 33))
    x_BLD = layer_norm(model.embedding.weight[tokens_BL], model.blocks[0].entry)
    for block in model.blocks:
        for layer, norm in zip(block.layers, block.norms, strict=True):
            x_BLD = x_BLD + by_hand(layer, layer_norm(x_BLD, norm))
    expected = layer_norm(x_BLD, model.norm) @ model.head.weight.T
    found = model(tokens_BL, Context())
    close(found, expected, 1e-10)
    parameters = list(model.parameters())
    for one, other in zip(*(gradients(y, parameters) for y in (found, expected)), strict=True):
        close(one, other, 1e-8)

    state = model.init_state(3, max_length=33, device=torch.device("cpu"), dtype=torch.float64)
    head, state = model.extend(tokens_BL[:, :16], state, Context())
    logits = [head]
    for token_B in tokens_BL[:, 16:].unbind(1):
        y, state = model.step(token_B, state, Context())
        logits.append(y[:, None])
    close(torch.cat(logits, 1), expected, 1e-10)


def test_only_the_first_block_norms_the_stream_it_is_given() -> None:
    blocks = RWKV4Config(d_model=8, num_blocks=3).blocks()
    assert [isinstance(block, NormedEntry) for block in blocks] == [True, False, False]
    assert all(isinstance(norm, nn.LayerNorm) for block in blocks for norm in block.norms)


def test_the_token_before_the_first_is_the_last_of_the_state() -> None:
    x_BLD, last_BD = torch.randn(2, 3, 4), torch.randn(2, 4)
    assert torch.equal(token_before(x_BLD, last_BD), torch.stack([last_BD, x_BLD[:, 0], x_BLD[:, 1]], 1))


def test_the_start_is_the_published_one() -> None:
    width, num_blocks = 8, 3
    for layer, block in enumerate(RWKV4Config(d_model=width, num_blocks=num_blocks).blocks()):
        time, channel = block.layers
        toward_1, toward_0 = layer / 2, 1 - layer / 3
        for i in range(width):
            x = i / width
            present = [x ** (0.5 * toward_0), x**toward_0, x**toward_0 + 0.3 * toward_1]
            close(1 - time.mix_3D[:, i], torch.tensor(present), 1e-6)
            close(1 - channel.mix_2D[:, i], torch.tensor([x**toward_0] * 2), 1e-6)
            assert time.log_rate_D[i].item() == pytest.approx(-5 + 8 * (i / 7) ** (0.7 + 1.3 * toward_1), abs=1e-5)
            assert time.bonus_D[i].item() == pytest.approx(math.log(0.3) + [0.0, 0.5, -0.5][i % 3], abs=1e-6)
        eye = torch.eye(width)
        for projection, gain in ((time.key, 0.1), (time.receptance, 0.1), (time.value, 1), (channel.receptance, 0.1)):
            close(projection.weight.T @ projection.weight, gain**2 * eye, 1e-5)
        close(channel.key.weight.T @ channel.key.weight, 4 * eye, 1e-5)
        assert time.out.weight.abs().max() <= width**-0.5 * 6**-0.5
        assert channel.out.weight.abs().max() <= (4 * width) ** -0.5 * 6**-0.5


def test_one_block_of_one_channel_starts_finite() -> None:
    model = RWKV4Config(d_model=1, num_blocks=1).build(VOCAB)
    assert all(bool(torch.isfinite(parameter).all()) for parameter in model.parameters())


def test_rates_and_decay_are_as_declared() -> None:
    model = RWKV4Config(d_model=8).build(VOCAB)
    names = {parameter: name.split(".")[-1] for name, parameter in model.named_parameters()}
    factors = {names[parameter]: multiplier for parameter, _, multiplier in declared(model)}
    assert {name: factor for name, factor in factors.items() if factor != 1} == {"log_rate_D": 2, "bonus_D": 3}
    assert {names[p] for p, decays, _ in declared(model) if decays} == {"weight"}


def test_sums_are_kept_in_fp32_under_autocast_and_in_low_precision_states() -> None:
    layer = TimeMix(8, layer=0, num_blocks=1)
    x_BLD = torch.randn(2, 20, 8)
    state = layer.init_state(2, max_length=20, device=torch.device("cpu"), dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        y_BLD, (_, (sums_B2D, top_BD)) = layer.extend(x_BLD, state, Context())
    assert sums_B2D.dtype == top_BD.dtype == torch.float32
    close(y_BLD.float(), layer(x_BLD, Context()), 0.05)


def test_settings_are_refused_in_one_line() -> None:
    with pytest.raises(ValueError, match="rwkv4: d_inner must not be negative"):
        RWKV4Config(d_inner=-1)
