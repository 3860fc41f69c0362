"""The gated delta rule against a loop over tokens with explicit matrices, what its gate does, and its model."""

import math
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.harness.train.optim import declared
from chomsky_ladder.models.backbone import state_bytes
from chomsky_ladder.models.block import Context
from chomsky_ladder.models.gated_delta_net import GatedDeltaNetConfig, GatedDeltaRule
from chomsky_ladder.models.scans.delta import delta_rule
from chomsky_ladder.models.scans.gated_delta import LARGEST_CHUNK, gated_delta_rule
from support.layers import close

torch.set_num_threads(1)

VOCAB = 11
LENGTHS = (1, 2, 17, 64, 65, 130)


class Inputs(NamedTuple):
    q_BHLK: Tensor
    k_BHLK: Tensor
    v_BHLV: Tensor
    beta_BHL: Tensor
    log_decay_BHL: Tensor
    state_BHKV: Tensor


def inputs(length: int, beta: float | None = None, log_decay: float | None = None) -> Inputs:
    """Two rows of three heads, K = 4 and V = 5; beta anywhere in (0, 2) and any decay, or one number."""
    q_BHLK, k_BHLK = torch.randn(2, 2, 3, length, 4, dtype=torch.float64)
    v_BHLV, state_BHKV = torch.randn(2, 3, length, 5).double(), torch.randn(2, 3, 4, 5).double()
    beta_BHL, decay_BHL = torch.rand(2, 2, 3, length, dtype=torch.float64)
    beta_BHL = 2 * beta_BHL if beta is None else torch.full_like(beta_BHL, beta)
    log_decay_BHL = 2 * decay_BHL.log() if log_decay is None else torch.full_like(decay_BHL, log_decay)
    made = (q_BHLK, nn.functional.normalize(k_BHLK, dim=-1), v_BHLV, beta_BHL, log_decay_BHL, state_BHKV)
    return Inputs(*(x.detach().requires_grad_() for x in made))


def naive(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_decay: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """The equation as it stands: S [V, K] times an explicit transition, token by token."""
    S_BHVK, outputs, one_KK = state.mT, [], torch.eye(k.shape[-1], dtype=k.dtype)
    for t in range(k.shape[2]):
        a, b = torch.exp(log_decay[:, :, t, None, None]), beta[:, :, t, None, None]
        transition = a * (one_KK - b * torch.einsum("bhi,bhj->bhij", k[:, :, t], k[:, :, t]))
        written = b * torch.einsum("bhv,bhk->bhvk", v[:, :, t], k[:, :, t])
        S_BHVK = torch.einsum("bhvi,bhij->bhvj", S_BHVK, transition) + written
        outputs.append(torch.einsum("bhvk,bhk->bhv", S_BHVK, q[:, :, t]))
    return torch.stack(outputs, 2), S_BHVK.mT


def with_gradients(results: tuple[Tensor, Tensor], given: Inputs) -> list[Tensor]:
    """The results and the gradients of a scalar in which no element can hide another's error."""
    loss = sum((x * torch.linspace(-9, 9, x.numel(), dtype=x.dtype).sin().view_as(x)).sum() for x in results)
    return [*results, *torch.autograd.grad(loss, given)]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(
    ("beta", "log_decay"), [(None, None), (2.0, 0.0), (1.0, -1e-6), (2.0, -3000.0), (0.0, None), (1.5, float("-inf"))]
)
def test_chunks_equal_the_recurrence(length: int, beta: float | None, log_decay: float | None) -> None:
    given = inputs(length, beta, log_decay)
    found, expected = with_gradients(gated_delta_rule(*given), given), with_gradients(naive(*given), given)
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        close(one, other, 1e-10)


@pytest.mark.parametrize("length", [2, 65, 130])
def test_one_token_after_the_other_and_parts_equal_the_whole(length: int) -> None:
    given = inputs(length)
    whole_BHLV, last_BHKV = gated_delta_rule(*given)
    for cuts in (list(range(1, length)), [length // 2], [1], [length - 1]):
        state_BHKV, parts = given.state_BHKV, []
        for start, end in zip([0, *cuts], [*cuts, length], strict=True):
            part = (x[:, :, start:end] for x in given[:5])
            y_BHLV, state_BHKV = gated_delta_rule(*part, state_BHKV)
            parts.append(y_BHLV)
        close(torch.cat(parts, 2), whole_BHLV, 1e-12)
        close(state_BHKV, last_BHKV, 1e-12)


@pytest.mark.parametrize("length", [1, 40, 100])
def test_an_open_gate_leaves_the_delta_rule(length: int) -> None:
    given = inputs(length, log_decay=0.0)
    expected = delta_rule(*given[:4], given.state_BHKV)
    for one, other in zip(gated_delta_rule(*given), expected, strict=True):
        close(one, other, 1e-12)


def test_a_closed_gate_leaves_nothing_of_the_past_not_even_what_is_not_finite() -> None:
    given = inputs(100)
    with torch.no_grad():
        given.log_decay_BHL[:, :, 70] = float("-inf")
    y_BHLV, state_BHKV = gated_delta_rule(*given)
    alone = [x[:, :, 70:] for x in given[:5]]
    expected_BHLV, expected_BHKV = gated_delta_rule(*alone, torch.zeros_like(given.state_BHKV))
    close(y_BHLV[:, :, 70:], expected_BHLV, 1e-13)
    close(state_BHKV, expected_BHKV, 1e-13)


def test_by_hand_what_a_key_holds() -> None:
    """It halves, then b = 1 replaces, 1/2 averages with the half, and 2 reflects the half about the new value."""
    k_LK = torch.tensor([[1.0, 0], [0, 1], [1, 0], [1, 0]])
    v_L1, beta_L = torch.tensor([[8.0], [16], [4], [1]]), torch.tensor([1.0, 1, 0.5, 2])
    q_LK, halves_L = torch.tensor([[1.0, 0]]).expand(4, 2), torch.full((4,), math.log(0.5))
    given = (x[None, None] for x in (q_LK, k_LK, v_L1, beta_L, halves_L))
    y_BHLV, state_BHKV = gated_delta_rule(*given, torch.zeros(1, 1, 2, 1))
    close(y_BHLV.flatten(), torch.tensor([8.0, 4, 3, 0.5]), 1e-6)
    close(state_BHKV.flatten(), torch.tensor([0.5, 4]), 1e-6)


@pytest.mark.parametrize("beta", [1.0, 2.0])
def test_keys_all_alike_and_decays_of_any_strength_lose_no_digits(beta: float) -> None:
    """Single precision against the loop in double; most tokens keep all, some next to nothing."""
    given = inputs(260, beta)
    decays_BHL = torch.where(torch.rand(2, 3, 260) < 0.1, -300 * torch.rand(2, 3, 260), -1e-3).double()
    key_BHLK = torch.full_like(given.k_BHLK, 0.5)
    rounded = Inputs(*(x.detach().float() for x in given._replace(k_BHLK=key_BHLK, log_decay_BHL=decays_BHL)))
    y_BHLV, _ = gated_delta_rule(*rounded)
    expected_BHLV, _ = naive(*(x.double() for x in rounded))
    assert (y_BHLV - expected_BHLV).abs().max() < 1e-5 * expected_BHLV.abs().max()


def test_memory_is_linear_in_the_length() -> None:
    """Elements kept for the backward pass, as autograd packs them."""

    def kept(length: int) -> int:
        seen: dict[int, int] = {}
        given = inputs(length)
        with torch.autograd.graph.saved_tensors_hooks(
            lambda x: (seen.__setitem__(x.untyped_storage().data_ptr(), x.untyped_storage().nbytes()), x)[1],
            lambda x: x,
        ):
            y_BHLV, _ = gated_delta_rule(*given)
        del y_BHLV
        return sum(seen.values())

    assert kept(32 * LARGEST_CHUNK) < 4.2 * kept(8 * LARGEST_CHUNK)


def rms_norm(x: Tensor, weight: Tensor, eps: float = torch.finfo(torch.float64).eps) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight


def silu(x: Tensor) -> Tensor:
    return x / (1 + torch.exp(-x))


@pytest.mark.parametrize(("eigenvalues", "length"), [("positive", 2), ("signed", 1), ("signed", 65)])
def test_the_model_follows_its_docstring(eigenvalues: str, length: int) -> None:
    config = GatedDeltaNetConfig(d_model=8, num_heads=2, num_blocks=2, d_inner=5, eigenvalues=eigenvalues)
    model = config.build(VOCAB).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    tokens_BL = torch.randint(VOCAB, (3, length))
    x_BLD = model.embedding.weight[tokens_BL]
    for block in model.blocks:
        (rule, feed_forward), (rule_norm, feed_forward_norm) = block.layers, block.norms
        normed_BLD = rms_norm(x_BLD, rule_norm.weight)
        before = nn.functional.pad(normed_BLD @ rule.query_key_value.weight.T, (0, 0, 3, 0))
        activated_BLE = silu(sum(before[:, i : i + length] * rule.convolution.weight[:, i] for i in range(4)))
        q, k, v = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in activated_BLE.chunk(3, -1))
        q, k = (part / (part.square().sum(-1, keepdim=True) + 1e-6).sqrt() for part in (q, k))
        most = 2 if eigenvalues == "signed" else 1
        beta = most / (1 + torch.exp(-normed_BLD @ rule.beta.weight.T))
        dt = torch.log(1 + torch.exp(normed_BLD @ rule.dt.weight.T + rule.dt_bias))
        log_decay = -torch.exp(rule.A_log) * dt
        y, _ = naive(q, k, v, beta.mT, log_decay.mT, torch.zeros(3, 2, 4, 4, dtype=torch.float64))
        y = rms_norm(y, rule.norm.weight, 1e-5).transpose(1, 2).flatten(2)
        x_BLD = x_BLD + (y * silu(normed_BLD @ rule.gate.weight.T)) @ rule.out.weight.T
        gate, up = (rms_norm(x_BLD, feed_forward_norm.weight) @ feed_forward.gate_up.weight.T).chunk(2, -1)
        x_BLD = x_BLD + (silu(gate) * up) @ feed_forward.out.weight.T
    expected_BLV = rms_norm(x_BLD, model.norm.weight) @ model.head.weight.T
    logits_BLV = model(tokens_BL, Context())
    close(logits_BLV, expected_BLV, 1e-9)
    parameters, weights = list(model.parameters()), torch.randn_like(logits_BLV)
    found, expected = (torch.autograd.grad((y * weights).sum(), parameters) for y in (logits_BLV, expected_BLV))
    for one, other in zip(found, expected, strict=True):
        close(one, other, 1e-8)


@pytest.mark.parametrize("scale", [0.0, 1e-6, 1e4])
def test_extreme_inputs_stay_finite(scale: float) -> None:
    layer = GatedDeltaRule(GatedDeltaNetConfig(d_model=8, num_heads=2, eigenvalues="signed"))
    x_BLD = (scale * torch.randn(2, 130, 8)).requires_grad_()
    y_BLD = layer(x_BLD, Context())
    assert bool(torch.isfinite(y_BLD).all())
    for gradient in torch.autograd.grad(y_BLD.sum(), (x_BLD, *layer.parameters())):
        assert bool(torch.isfinite(gradient).all())


def test_the_start() -> None:
    """Decays as published, b at its middle, and only matrices are decayed."""
    for eigenvalues, middle in (("positive", 0.5), ("signed", 1.0)):
        config = GatedDeltaNetConfig(d_model=256, num_heads=256, num_blocks=1, eigenvalues=eigenvalues)
        layer = GatedDeltaRule(config)
        A_H, dt_H = layer.A_log.exp(), nn.functional.softplus(layer.dt_bias)
        assert 0 < A_H.min() < 1 and 15 < A_H.max() <= 16 and 7 < A_H.mean() < 9
        assert 0.00099 < dt_H.min() < 0.0012 and 0.08 < dt_H.max() < 0.101 and 0.007 < dt_H.median() < 0.0145
        x_BLD = torch.randn(4, 9, 256)
        beta_BLH = layer.largest_beta * torch.sigmoid(layer.beta(x_BLD))
        assert beta_BLH.mean().item() == pytest.approx(middle, rel=0.1)
    plain = {
        name for name, parameter in layer.named_parameters() for p, d, _ in declared(layer) if p is parameter and not d
    }
    assert plain == {"A_log", "dt_bias", "norm.weight"}


def test_the_state_is_what_its_docstring_says() -> None:
    model = GatedDeltaNetConfig(d_model=12, num_heads=3, num_blocks=2, conv_width=5).build(VOCAB)
    state = model.init_state(7, max_length=9, device=torch.device("cpu"), dtype=torch.float32)
    assert state_bytes(state) == 7 * 2 * 4 * (3 * 4 * 4 + 4 * 3 * 12)


def test_under_autocast_the_rule_runs_in_single_precision() -> None:
    model = GatedDeltaNetConfig(d_model=16, num_blocks=1, num_heads=2).build(VOCAB)
    tokens_BL = torch.randint(VOCAB, (3, 70))
    expected_BLV = model(tokens_BL, Context())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        close(model(tokens_BL, Context()), expected_BLV, 0.1)
        state = model.init_state(3, max_length=70, device=torch.device("cpu"), dtype=torch.bfloat16)
        _, state = model.extend(tokens_BL, state, Context())
    assert state[0][0][1].dtype == torch.float32


@pytest.mark.parametrize(
    ("settings", "field"),
    [({"num_heads": 3}, "heads"), ({"conv_width": 0}, "conv_width"), ({"d_inner": -1}, "d_inner")],
)
def test_impossible_settings_are_refused(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(ValueError, match=f"^gated_delta_net: .*{field}"):
        GatedDeltaNetConfig(**settings)
