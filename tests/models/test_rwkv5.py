"""The chunked decayed attention against its recurrence; RWKV-5 against its equations, its extremes, its start."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.harness.train.optim import declared
from chomsky_ladder.models.block import Context
from chomsky_ladder.models.layers.token_shift import NormedEntry
from chomsky_ladder.models.rwkv5 import RWKV5Config, TimeMix
from chomsky_ladder.models.scans.decayed import decayed_past
from support.layers import close

torch.set_num_threads(1)

VOCAB = 11
LENGTHS = (1, 2, 15, 16, 17, 33, 64, 130)


def gradients(outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return the gradients of a scalar in which no element can hide another's error."""
    loss = sum((x * torch.linspace(-9, 9, x.numel(), dtype=x.dtype).sin().view_as(x)).sum() for x in outputs)
    return torch.autograd.grad(loss, inputs, materialize_grads=True)


def token_by_token(
    r_BHLK: Tensor, k_BHLK: Tensor, v_BHLV: Tensor, decay_BHLK: Tensor, state_BHKV: Tensor
) -> tuple[Tensor, Tensor]:
    outputs = []
    for t in range(r_BHLK.shape[2]):
        outputs.append((r_BHLK[:, :, t, :, None] * state_BHKV).sum(2))
        new_BHKV = k_BHLK[:, :, t, :, None] * v_BHLV[:, :, t, None, :]
        state_BHKV = decay_BHLK[:, :, t, :, None] * state_BHKV + new_BHKV
    return torch.stack(outputs, 2), state_BHKV


def random_decays(kind: str, shape: tuple[int, ...]) -> Tensor:
    usual = torch.exp(-torch.exp(2 * torch.randn(shape, dtype=torch.float64) - 1))
    if kind == "mixed":
        return torch.where(torch.rand(shape) < 0.2, torch.randint(2, shape).double(), usual)
    return {"usual": usual, "zero": torch.zeros_like(usual), "one": torch.ones_like(usual)}[kind]


@pytest.mark.parametrize("kind", ["usual", "mixed", "zero", "one"])
@pytest.mark.parametrize("length", LENGTHS)
def test_chunks_equal_the_recurrence_in_value_and_gradient(length: int, kind: str) -> None:
    r_BHLK, k_BHLK = torch.randn(2, 2, 3, length, 5, dtype=torch.float64)
    v_BHLV, state_BHKV = torch.randn(2, 3, length, 4).double(), torch.randn(2, 3, 5, 4).double()
    inputs = [r_BHLK, k_BHLK, v_BHLV, random_decays(kind, (2, 3, length, 5)), state_BHKV]
    inputs = [x.requires_grad_() for x in inputs]
    found, expected = decayed_past(*inputs), token_by_token(*inputs)
    pairs = zip((*found, *gradients(found, inputs)), (*expected, *gradients(expected, inputs)), strict=True)
    for one, other in pairs:
        close(one, other, 1e-11)


def test_decays_common_to_all_rows_need_no_batch() -> None:
    r, k, v = torch.randn(3, 4, 2, 33, 5, dtype=torch.float64)
    state, decay = torch.randn(4, 2, 5, 5).double(), random_decays("mixed", (1, 2, 33, 5)).requires_grad_()
    found = decayed_past(r, k, v, decay, state)
    expected = decayed_past(r, k, v, decay.expand(4, -1, -1, -1), state)
    pairs = zip((*found, *gradients(found, [decay])), (*expected, *gradients(expected, [decay])), strict=True)
    for one, other in pairs:
        close(one, other, 1e-12)


def test_fp32_keeps_its_precision_where_decays_are_far_apart() -> None:
    """After a decay of 1e-30, sums of logarithms would have lost the digits of the decays near 1 behind it."""
    r, k, v = torch.randn(3, 2, 2, 64, 8)
    decay = torch.where(torch.rand(2, 2, 64, 8) < 0.1, 1e-30, 1 - 1e-4 * torch.rand(2, 2, 64, 8))
    inputs = [x.requires_grad_() for x in (r, k, v, decay, torch.zeros(2, 2, 8, 8))]
    doubles = [x.detach().double().requires_grad_() for x in inputs]
    found, expected = decayed_past(*inputs), token_by_token(*doubles)
    pairs = zip((*found, *gradients(found, inputs)), (*expected, *gradients(expected, doubles)), strict=True)
    for one, other in pairs:
        close(one.double(), other, 1e-4)


def saved_bytes(length: int) -> int:
    """Return the bytes that one call keeps for its backward pass, each storage once: most of its peak memory."""
    kept: dict[int, int] = {}
    alive = []

    def keep(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        alive.append(x)  # or its address is used again
        return x

    inputs = [torch.rand(1, 1, length, 16).requires_grad_() for _ in range(4)]
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        y_BHLV, _ = decayed_past(*inputs, torch.zeros(1, 1, 16, 16))
    y_BHLV.sum().backward()
    assert all(bool(torch.isfinite(x.grad).all()) for x in inputs)
    return sum(kept.values())


def test_memory_is_linear_in_the_length_up_to_16k() -> None:
    per_token = [saved_bytes(length) / length for length in (1024, 4096, 16384)]
    assert max(per_token) < 1.05 * min(per_token)
    assert max(per_token) < 40 * 4 * 16  # fewer than 40 numbers of fp32 for each of 16 channels


def randomise(module: nn.Module) -> None:
    """Weights away from their start, where much is equal."""
    for name, parameter in module.named_parameters():
        spread = 0.5 if parameter.ndim > 1 and "mix" not in name else 0.2
        parameter.data += spread * torch.randn_like(parameter)


def lerp(x_BLD: Tensor, past_share: Tensor) -> Tensor:
    before_BLD = torch.cat([torch.zeros_like(x_BLD[:, :1]), x_BLD[:, :-1]], 1)
    return (1 - past_share) * x_BLD + past_share * before_BLD


def time_mix_by_hand(layer: TimeMix, x_BLD: Tensor) -> Tensor:
    """One head, row and token at a time."""
    projections = (layer.receptance, layer.key, layer.value, layer.gate)
    r, k, v, g = (lerp(x_BLD, share_D) @ p.weight.T for share_D, p in zip(layer.mix_4D, projections, strict=True))
    w, u = torch.exp(-torch.exp(layer.log_rate_D)), layer.bonus_D
    rows, head_dim = [], x_BLD.shape[2] // layer.num_heads
    for row in range(x_BLD.shape[0]):
        heads = []
        for start in range(0, x_BLD.shape[2], head_dim):
            at = slice(start, start + head_dim)
            S, outputs = torch.zeros(head_dim, head_dim, dtype=x_BLD.dtype), []
            for t in range(x_BLD.shape[1]):
                kv = torch.outer(k[row, t, at], v[row, t, at])
                y = r[row, t, at] @ (S + u[at, None] * kv)
                S = w[at, None] * S + kv
                centred = y - y.mean()
                outputs.append(centred / (centred.square().mean() + 64e-5).sqrt())
            heads.append(torch.stack(outputs))
        rows.append(torch.cat(heads, 1) * layer.norm.weight + layer.norm.bias)
    return (g * torch.sigmoid(g) * torch.stack(rows)) @ layer.out.weight.T


def perturbed_time_mix(*, num_heads: int = 2) -> TimeMix:
    layer = TimeMix(RWKV5Config(d_model=8, num_blocks=3, num_heads=num_heads), 1).double()
    randomise(layer)
    return layer


@pytest.mark.parametrize("num_heads", [1, 2, 4])
@pytest.mark.parametrize("length", [1, 2, 17, 33])
def test_time_mix_is_its_equations_in_value_and_gradient(length: int, num_heads: int) -> None:
    layer, x_BLD = perturbed_time_mix(num_heads=num_heads), torch.randn(2, length, 8, dtype=torch.float64)
    inputs = [x_BLD.requires_grad_(), *layer.parameters()]
    found, expected = layer(x_BLD, Context()), time_mix_by_hand(layer, x_BLD)
    close(found, expected, 1e-11)
    for one, other in zip(gradients([found], inputs), gradients([expected], inputs), strict=True):
        close(one, other, 1e-9)


@pytest.mark.parametrize("cuts", [(1,), (16,), (5, 6, 32)])
def test_values_and_gradients_pass_through_a_carried_state(cuts: tuple[int, ...]) -> None:
    layer, x_BLD = perturbed_time_mix(), torch.randn(2, 40, 8, dtype=torch.float64, requires_grad=True)
    state, parts = layer.init_state(2, max_length=40, device=torch.device("cpu"), dtype=torch.float64), []
    for part in x_BLD.tensor_split(cuts, 1):
        y_BLD, state = layer.extend(part, state, Context())
        parts.append(y_BLD)
    found, expected, inputs = torch.cat(parts, 1), layer(x_BLD, Context()), [x_BLD, *layer.parameters()]
    close(found, expected, 1e-11)
    for one, other in zip(gradients([found], inputs), gradients([expected], inputs), strict=True):
        close(one, other, 1e-10)


@pytest.mark.parametrize("log_rate", [-200.0, 0.0, 200.0])
@pytest.mark.parametrize("scale", [0.0, 1.0, 1e4])
def test_saturated_decays_and_large_inputs_stay_finite(scale: float, log_rate: float) -> None:
    layer = TimeMix(RWKV5Config(d_model=8), 0)
    nn.init.constant_(layer.log_rate_D, log_rate)
    x_BLD = (scale * torch.randn(2, 40, 8)).requires_grad_()
    y_BLD = layer(x_BLD, Context())
    found = gradients([y_BLD], [x_BLD, *layer.parameters()])
    assert all(bool(torch.isfinite(x).all()) for x in (y_BLD, *found))


def test_blocks_are_time_mix_and_channel_mix_behind_layer_norms() -> None:
    model = RWKV5Config(d_model=8, num_blocks=2).build(VOCAB).double()
    randomise(model)
    tokens_BL = torch.randint(VOCAB, (2, 20))
    x_BLD = model.blocks[0].entry(model.embedding.weight[tokens_BL])
    for block in model.blocks:
        (time, channel), norms = block.layers, block.norms
        assert all(isinstance(norm, nn.LayerNorm) for norm in norms)
        x_BLD = x_BLD + time_mix_by_hand(time, norms[0](x_BLD))
        y_BLD = norms[1](x_BLD)
        key_BLE = torch.relu(lerp(y_BLD, channel.mix_2D[1]) @ channel.key.weight.T) ** 2
        gate_BLD = torch.sigmoid(lerp(y_BLD, channel.mix_2D[0]) @ channel.receptance.weight.T)
        x_BLD = x_BLD + gate_BLD * (key_BLE @ channel.out.weight.T)
    assert isinstance(model.norm, nn.LayerNorm)
    close(model(tokens_BL, Context()), model.norm(x_BLD) @ model.head.weight.T, 1e-10)
    assert [isinstance(block, NormedEntry) for block in model.blocks] == [True, False]


def test_the_start_is_the_published_one() -> None:
    for layer, block in enumerate(RWKV5Config(d_model=8, num_blocks=3).blocks()):
        time, channel = block.layers
        toward_1, toward_0 = layer / 2, 1 - layer / 3
        for i in range(8):
            x = i / 8
            present = [x ** (0.5 * toward_0), x**toward_0, x**toward_0 + 0.3 * toward_1, x ** (0.5 * toward_0)]
            close(1 - time.mix_4D[:, i], torch.tensor(present), 1e-6)
            assert time.log_rate_D[i].item() == pytest.approx(-6 + 5 * (i / 7) ** (0.7 + 1.3 * toward_1), abs=1e-5)
            bonus = toward_1 * (1 - i / 7) + [0.0, 0.1, -0.1][i % 3]
            assert time.bonus_D[i].item() == pytest.approx(bonus, abs=1e-6)
        close(time.norm.weight, torch.full((8,), ((1 + layer) / 3) ** 0.7), 1e-6)
        eye = torch.eye(8)
        for projection, gain in ((time.receptance, 1), (time.key, 0.1), (time.value, 1), (time.gate, 0.1)):
            close(projection.weight.T @ projection.weight, gain**2 * eye, 1e-5)
        close(channel.key.weight.T @ channel.key.weight, eye, 1e-5)
        assert channel.key.weight.shape == (28, 8)
        assert time.out.weight.abs().max() <= 8**-0.5 * 6**-0.5
        assert channel.out.weight.abs().max() <= 28**-0.5 * 6**-0.5


def test_rates_and_decay_are_as_declared() -> None:
    model = RWKV5Config(d_model=8).build(VOCAB)
    names = {parameter: name.split(".")[-1] for name, parameter in model.named_parameters()}
    assert {names[parameter] for parameter, _, multiplier in declared(model) if multiplier != 1} == {"log_rate_D"}
    assert {names[parameter] for parameter, decays, _ in declared(model) if decays} == {"weight"}


def test_the_state_is_kept_in_fp32_under_autocast() -> None:
    layer, x_BLD = TimeMix(RWKV5Config(d_model=8), 0), torch.randn(2, 40, 8)
    state = layer.init_state(2, max_length=40, device=torch.device("cpu"), dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        y_BLD, (_, state_BHKV) = layer.extend(x_BLD, state, Context())
    assert state_BHKV.dtype == torch.float32
    close(y_BLD.float(), layer(x_BLD, Context()), 0.05)


def test_settings_are_refused_in_one_line() -> None:
    with pytest.raises(ValueError, match="rwkv5: d_model=8 does not split into 3 heads"):
        RWKV5Config(d_model=8, num_heads=3)
    with pytest.raises(ValueError, match="rwkv5: d_inner must not be negative"):
        RWKV5Config(d_inner=-1)
