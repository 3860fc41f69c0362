"""RWKV-7's rule and mixes against their equations token by token, its extremes, its state and its start."""

import math

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.harness.train.optim import declared
from chomsky_ladder.models.backbone import state_bytes
from chomsky_ladder.models.block import Context
from chomsky_ladder.models.rwkv7 import FIRST_VALUES, PlainChannelMix, RWKV7Config, TimeMix
from chomsky_ladder.models.scans.generalised_delta import CHUNK, generalised_delta_rule
from support.layers import close, gradients

torch.set_num_threads(1)

VOCAB = 11
LENGTHS = (1, 2, 17, CHUNK, CHUNK + 1, 2 * CHUNK + 1, 130)
RANKS = {"decay_rank": 3, "rate_rank": 2, "value_rank": 5, "gate_rank": 4}


def rule_inputs(length: int, rate: float | None = None, slowness: float | None = None) -> list[Tensor]:
    """r, f, g, k, v, log w and S of two rows and three heads, K = 4 and V = 5; any rates and decays, or one number."""
    r, f, k = torch.randn(3, 2, 3, length, 4, dtype=torch.float64)
    a, share = torch.rand(2, 2, 3, length, 4, dtype=torch.float64)
    f, a = nn.functional.normalize(f, dim=-1), a if rate is None else torch.full_like(a, rate)
    log_decay = -math.exp(-0.5) * (share if slowness is None else torch.full_like(share, slowness))
    v, state = torch.randn(2, 3, length, 5, dtype=torch.float64), torch.randn(2, 3, 4, 5, dtype=torch.float64)
    return [x.requires_grad_() for x in (r, f, a * f, k, v, log_decay, state)]


def naive(
    r: Tensor, f: Tensor, g: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """The equation as it stands: S [V, K] times an explicit transition, token by token."""
    S_BHVK, outputs = state.mT, []
    for t in range(r.shape[2]):
        transition = torch.diag_embed(log_decay[:, :, t].exp()) - f[:, :, t, :, None] * g[:, :, t, None, :]
        S_BHVK = S_BHVK @ transition + v[:, :, t, :, None] * k[:, :, t, None, :]
        outputs.append((S_BHVK @ r[:, :, t, :, None])[..., 0])
    return torch.stack(outputs, 2), S_BHVK.mT


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(("rate", "slowness"), [(None, None), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)])
def test_chunks_equal_the_recurrence(length: int, rate: float | None, slowness: float | None) -> None:
    given, results = rule_inputs(length, rate, slowness), []
    for rule in (generalised_delta_rule, naive):
        y_BHLV, state_BHKV = rule(*given)
        together = torch.cat([y_BHLV.flatten(), state_BHKV.flatten()])
        results.append([y_BHLV, state_BHKV, *gradients(together, given)])
    for one, other in zip(*results, strict=True):
        assert one.shape == other.shape
        close(one, other, 1e-10)


@pytest.mark.parametrize("slowness", [None, 0.0, 1.0])
def test_keys_all_alike_and_the_strongest_decays_lose_no_digits(slowness: float | None) -> None:
    """Single precision against the loop in double, values and gradients."""
    r, f, g, k, v, log_decay, state = (x.detach() for x in rule_inputs(260, 1.0, slowness))
    f = g = torch.full_like(f, 0.5)
    rounded = [x.float().requires_grad_() for x in (r, f, g, k, v, log_decay, state)]
    exact = [x.detach().double().requires_grad_() for x in rounded]
    found, expected = generalised_delta_rule(*rounded)[0], naive(*exact)[0]
    for one, other in zip((found, *gradients(found, rounded)), (expected, *gradients(expected, exact)), strict=True):
        assert (one - other).abs().max() < 3e-5 * other.abs().max()


def test_the_eigenvalues_of_a_transition() -> None:
    """Between the smallest w less 1 and 1, whatever f and the rates."""
    f_NK = nn.functional.normalize(torch.randn(500, 8, dtype=torch.float64), dim=-1)
    rate_NK, share_NK = torch.rand(2, 500, 8, dtype=torch.float64).round(decimals=1)
    w_NK = torch.exp(-math.exp(-0.5) * share_NK)
    values = torch.linalg.eigvals(torch.diag_embed(w_NK) - f_NK[:, :, None] * (rate_NK * f_NK)[:, None])
    assert values.imag.abs().max() < 1e-6 and values.real.max() < 1 + 1e-6
    assert math.exp(-math.exp(-0.5)) - 1 - 1e-6 < values.real.min() < -0.1


def randomise(module: nn.Module) -> None:
    """Weights away from their start, where the maps of low rank are nearly zero."""
    for parameter in module.parameters():
        parameter.data += 0.4 * torch.randn_like(parameter)


def perturbed(*, layer: int = 1, num_heads: int = 2) -> TimeMix:
    time = TimeMix(RWKV7Config(d_model=8, num_blocks=3, num_heads=num_heads, **RANKS), layer).double()
    randomise(time)
    return time


def sigmoid(x: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-x))


def by_hand(time: TimeMix, x_LD: Tensor, first_LD: Tensor) -> tuple[Tensor, Tensor]:
    """One row, a token at a time, with the values before they are mixed; the order of shifts is r, k, v, w, a, g."""
    head_dim = x_LD.shape[1] // time.num_heads
    S = [torch.zeros(head_dim, head_dim, dtype=x_LD.dtype) for _ in range(time.num_heads)]  # [V, K]
    before, outputs, values = torch.zeros_like(x_LD[0]), [], []
    for x, first in zip(x_LD, first_LD, strict=True):
        for_r, for_k, for_v, for_w, for_a, for_g = (x + (before - x) * share for share in time.mix_6D)
        r, k, v = time.receptance.weight @ for_r, time.key.weight @ for_k, time.value.weight @ for_v
        values.append(v)
        if hasattr(time, "to_share"):
            v = v + (first - v) * sigmoid(time.share_D + for_v @ time.to_share.down @ time.to_share.up)
        d = time.decay_D + torch.tanh(for_w @ time.to_decay.down) @ time.to_decay.up
        w = torch.exp(-math.exp(-0.5) * sigmoid(d))
        a = sigmoid(time.rate_D + for_a @ time.to_rate.down @ time.to_rate.up)
        g = sigmoid(for_g @ time.to_gate.down) @ time.to_gate.up
        scaled, k = k * time.out_key_D, k * (1 + (a - 1) * time.key_rate_D)
        heads = []
        for head in range(time.num_heads):
            at = slice(head * head_dim, (head + 1) * head_dim)
            f = scaled[at] / (scaled[at].square().sum() + 1e-6).sqrt()
            S[head] = S[head] @ (torch.diag(w[at]) - torch.outer(f, a[at] * f)) + torch.outer(v[at], k[at])
            y = S[head] @ r[at]
            y = (y - y.mean()) / ((y - y.mean()).square().mean() + 64e-5).sqrt()
            y = y * time.norm.weight[at] + time.norm.bias[at]
            heads.append(y + (r[at] * time.bonus_D[at] * k[at]).sum() * v[at])
        outputs.append(time.out.weight @ (g * torch.cat(heads)))
        before = x
    return torch.stack(outputs), torch.stack(values)


@pytest.mark.parametrize(("layer", "length", "num_heads"), [(0, 17, 2), (1, 1, 1), (1, 33, 4), (2, 40, 2)])
def test_time_mix_is_its_equations_in_value_and_gradient(layer: int, length: int, num_heads: int) -> None:
    time = perturbed(layer=layer, num_heads=num_heads)
    x_BLD, first_BLD = torch.randn(2, 2, length, 8, dtype=torch.float64).requires_grad_().unbind(0)
    inputs, ctx = [x_BLD, first_BLD, *time.parameters()], Context(shared={FIRST_VALUES: first_BLD})
    found, expected = time(x_BLD, ctx), [by_hand(time, *pair) for pair in zip(x_BLD, first_BLD, strict=True)]
    expected_BLD = torch.stack([y_LD for y_LD, _ in expected])
    close(found, expected_BLD, 1e-11)
    for one, other in zip(gradients(found, inputs), gradients(expected_BLD, inputs), strict=True):
        close(one, other, 1e-9)
    handed_on_BLD = torch.stack([v_LD for _, v_LD in expected]) if layer == 0 else first_BLD
    close(ctx.shared[FIRST_VALUES], handed_on_BLD, 1e-12)


def test_channel_mix_is_its_equation() -> None:
    mix = PlainChannelMix(8, 5, layer=0, num_blocks=2).double()
    randomise(mix)
    x_BLD = torch.randn(2, 9, 8, dtype=torch.float64)
    before_BLD = torch.cat([torch.zeros(2, 1, 8), x_BLD[:, :-1]], 1)
    mixed_BLD = (1 - mix.mix_D) * x_BLD + mix.mix_D * before_BLD
    close(mix(x_BLD, Context()), torch.relu(mixed_BLD @ mix.key.weight.T) ** 2 @ mix.out.weight.T, 1e-12)


@pytest.mark.parametrize("cuts", [(1,), (16,), (5, 6, 32)])
def test_gradients_pass_through_a_carried_state(cuts: tuple[int, ...]) -> None:
    time, x_BLD = perturbed(layer=0), torch.randn(2, 40, 8, dtype=torch.float64, requires_grad=True)
    state, parts = time.init_state(2, max_length=40, device=torch.device("cpu"), dtype=torch.float64), []
    for part in x_BLD.tensor_split(cuts, 1):
        y_BLD, state = time.extend(part, state, Context())
        parts.append(y_BLD)
    found, expected, inputs = torch.cat(parts, 1), time(x_BLD, Context()), [x_BLD, *time.parameters()]
    close(found, expected, 1e-11)
    for one, other in zip(gradients(found, inputs), gradients(expected, inputs), strict=True):
        close(one, other, 1e-10)


def test_the_first_layers_values_reach_the_others() -> None:
    """Both in parallel and in steps, where each token has its own first values."""
    model = RWKV7Config(d_model=8, num_blocks=3, **RANKS).build(VOCAB).double()
    for block in model.blocks[1:]:
        nn.init.constant_(block.layers[0].share_D, 100.0)
        nn.init.zeros_(block.layers[0].to_share.down)
    tokens_BL = torch.randint(VOCAB, (2, 5))
    before_BLV = model(tokens_BL, Context())
    for block in model.blocks[1:]:
        nn.init.normal_(block.layers[0].value.weight)  # of no use where only the first layer's count
    close(model(tokens_BL, Context()), before_BLV, 1e-12)
    state, ctx = model.init_state(2, max_length=5, device=torch.device("cpu"), dtype=torch.float64), Context()
    for position, token_B in enumerate(tokens_BL.unbind(1)):
        logits_BV, state = model.step(token_B, state, ctx)
        close(logits_BV, before_BLV[:, position], 1e-10)


@pytest.mark.parametrize("num_heads", [1, 2, 8])
def test_the_state_is_a_square_a_head_and_two_tokens(num_heads: int) -> None:
    model = RWKV7Config(d_model=16, num_heads=num_heads, num_blocks=3, **RANKS).build(VOCAB)
    state = model.init_state(5, max_length=9, device=torch.device("cpu"), dtype=torch.float32)
    assert state_bytes(state) == 5 * 3 * 4 * (num_heads * (16 // num_heads) ** 2 + 2 * 16)


@pytest.mark.parametrize("offset", [-200.0, 0.0, 200.0])
@pytest.mark.parametrize("scale", [0.0, 1.0, 1e4])
def test_saturated_gates_and_large_inputs_stay_finite(scale: float, offset: float) -> None:
    time = TimeMix(RWKV7Config(d_model=8), 0)
    randomise(time)
    nn.init.constant_(time.decay_D, offset)
    nn.init.constant_(time.rate_D, offset)
    x_BLD = (scale * torch.randn(2, 70, 8)).requires_grad_()
    y_BLD = time(x_BLD, Context())
    found = gradients(y_BLD, [x_BLD, *time.parameters()])
    assert all(bool(torch.isfinite(x).all()) for x in (y_BLD, *found))


def test_the_start_is_the_published_one() -> None:
    """Channel by channel, as the published code loops over them."""
    for layer, block in enumerate(RWKV7Config(d_model=12, num_heads=3, num_blocks=3).blocks()):
        time, channel = block.layers
        for n in range(12):
            share, within = n / 11 - 0.5, (n % 4 - 1.5) / 1.5
            zigzag = within * abs(within)
            decay = -6 + 6 * (n / 11) ** (1 + (layer / 2) ** 0.3) + 0.5 + 2.5 * zigzag
            assert time.decay_D[n].item() == pytest.approx(decay, abs=1e-5)
            assert time.rate_D[n].item() == pytest.approx(-0.19 + 0.3 * zigzag + 0.4 * share, abs=1e-5)
            assert time.out_key_D[n].item() == pytest.approx(0.71 - 0.1 * share, abs=1e-5)
            if layer:
                assert time.share_D[n].item() == pytest.approx(0.73 - 0.4 * share, abs=1e-5)
            for power, mix in zip((0.2, 0.7, 0.7, 0.9, 0.9, 0.2), time.mix_6D[:, n].tolist(), strict=True):
                assert mix == pytest.approx(1 - (n / 12) ** (power * (1 - layer / 3)), abs=1e-5)
            assert channel.mix_D[n].item() == pytest.approx(1 - (n / 12) ** ((1 - layer / 3) ** 4), abs=1e-5)
        assert bool((time.key_rate_D == 1.02).all()) and bool((time.bonus_D == -0.04).all())
        close(time.norm.weight, torch.full((12,), ((1 + layer) / 3) ** 0.7), 1e-6)
        for weight, gain in ((time.receptance.weight, 1), (time.value.weight, 1), (time.key.weight, 0.1)):
            close(weight @ weight.T, gain**2 * torch.eye(12), 1e-5)
        close(channel.key.weight.T @ channel.key.weight, torch.eye(12), 1e-5)
        assert channel.key.weight.shape == (48, 12)
        for low_rank in (time.to_decay, time.to_rate, time.to_gate):
            assert low_rank.down.shape == (12, 32) and 0 < low_rank.down.abs().max() <= 1e-4
            close(low_rank.up.T @ low_rank.up, 0.01 * 32 / 12 * torch.eye(12), 1e-5)


def test_what_is_decayed_and_what_learns_faster() -> None:
    model = RWKV7Config(d_model=8).build(VOCAB)
    names = {parameter: name.split(".")[-1] for name, parameter in model.named_parameters()}
    assert {names[parameter] for parameter, decays, _ in declared(model) if decays} == {"weight"}
    assert {(names[p], factor) for p, _, factor in declared(model) if factor != 1} == {("decay_D", 2.0)}


def test_it_runs_under_autocast_with_its_state_in_fp32() -> None:
    time, x_BLD = TimeMix(RWKV7Config(d_model=8), 0), torch.randn(2, 40, 8)
    state = time.init_state(2, max_length=40, device=torch.device("cpu"), dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        y_BLD, (_, state_BHKV) = time.extend(x_BLD, state, Context())
    assert state_BHKV.dtype == torch.float32
    close(y_BLD.float(), time(x_BLD, Context()), 0.05)


def test_settings_are_refused_in_one_line() -> None:
    for setting, message in (
        ({"decay_rank": 0}, "rwkv7: decay_rank must be at least 1, not 0"),
        ({"gate_rank": -1}, "rwkv7: gate_rank must be at least 1, not -1"),
        ({"d_inner": -1}, "rwkv7: d_inner must not be negative"),
        ({"d_model": 8, "num_heads": 3}, "rwkv7: d_model=8 does not split into 3 heads"),
    ):
        with pytest.raises(ValueError, match=message):
            RWKV7Config(**setting)
