"""The delta rule against a loop over tokens with explicit matrices, what it does by hand, and the model around it."""

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.models.backbone import state_bytes
from chomsky_ladder.models.block import Context
from chomsky_ladder.models.comba import CombaConfig
from chomsky_ladder.models.delta_net import DeltaNetConfig, DeltaRule
from chomsky_ladder.models.gated_delta_net import GatedDeltaNetConfig
from chomsky_ladder.models.gated_delta_net2 import GatedDeltaNet2Config
from chomsky_ladder.models.gated_delta_product import GatedDeltaProductConfig
from chomsky_ladder.models.kda import KDAConfig
from chomsky_ladder.models.scans.delta import CHUNK, delta_rule
from support.layers import close, lively

torch.set_num_threads(1)

VOCAB = 11
LENGTHS = (1, 2, 17, 63, 64, 65, 130)


class Inputs(NamedTuple):
    q_BHLK: Tensor
    k_BHLK: Tensor
    v_BHLV: Tensor
    beta_BHL: Tensor
    state_BHKV: Tensor


def inputs(length: int, beta: float | None = None, *, dtype: torch.dtype = torch.float64) -> Inputs:
    """Two rows of three heads, K = 4 and V = 5; beta anywhere in (0, 2), or one number."""
    k_BHLK = nn.functional.normalize(torch.randn(2, 3, length, 4, dtype=dtype), dim=-1)
    beta_BHL = 2 * torch.rand(2, 3, length, dtype=dtype) if beta is None else torch.full((2, 3, length), beta).to(dtype)
    q_BHLK, v_BHLV = torch.randn(2, 3, length, 4, dtype=dtype), torch.randn(2, 3, length, 5, dtype=dtype)
    made = Inputs(q_BHLK, k_BHLK, v_BHLV, beta_BHL, torch.randn(2, 3, 4, 5, dtype=dtype))
    return Inputs(*(x.requires_grad_() for x in made))


def naive(
    q_BHLK: Tensor, k_BHLK: Tensor, v_BHLV: Tensor, beta_BHL: Tensor, state_BHKV: Tensor
) -> tuple[Tensor, Tensor]:
    """The equation as it stands: S [V, K] times an explicit transition, token by token."""
    S_BHVK, outputs, one_KK = state_BHKV.mT, [], torch.eye(k_BHLK.shape[-1], dtype=k_BHLK.dtype)
    for t in range(k_BHLK.shape[2]):
        k, v, b = k_BHLK[:, :, t], v_BHLV[:, :, t], beta_BHL[:, :, t, None, None]
        transition = one_KK - b * torch.einsum("bhi,bhj->bhij", k, k)
        S_BHVK = torch.einsum("bhvi,bhij->bhvj", S_BHVK, transition) + b * torch.einsum("bhv,bhk->bhvk", v, k)
        outputs.append(torch.einsum("bhvk,bhk->bhv", S_BHVK, q_BHLK[:, :, t]))
    return torch.stack(outputs, 2), S_BHVK.mT


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("beta", [None, 0.0, 1e-6, 1.0, 2 - 1e-6, 2.0])
def test_chunks_equal_the_recurrence(length: int, beta: float | None) -> None:
    given = inputs(length, beta)
    found, expected = delta_rule(*given), naive(*given)
    weights = [torch.randn_like(x) for x in found]
    gradients, expected_gradients = (
        torch.autograd.grad(sum((x * w).sum() for x, w in zip(pair, weights, strict=True)), given)
        for pair in (found, expected)
    )
    for one, other in zip((*found, *gradients), (*expected, *expected_gradients), strict=True):
        assert one.shape == other.shape
        close(one, other, 1e-10)


@pytest.mark.parametrize("length", [2, 65, 130])
def test_one_token_after_the_other_and_parts_equal_the_whole(length: int) -> None:
    given = inputs(length)
    whole_BHLV, last_BHKV = delta_rule(*given)
    for cuts in (list(range(1, length)), [length // 2], [1], [length - 1]):
        state_BHKV, parts = given.state_BHKV, []
        for start, end in zip([0, *cuts], [*cuts, length], strict=True):
            part = (x[:, :, start:end] for x in given[:4])
            y_BHLV, state_BHKV = delta_rule(*part, state_BHKV)
            parts.append(y_BHLV)
        close(torch.cat(parts, 2), whole_BHLV, 1e-12)
        close(state_BHKV, last_BHKV, 1e-12)


def test_by_hand_what_one_key_holds() -> None:
    """b = 1 replaces, 1/2 averages, 0 keeps, 2 reflects about the new value; an orthogonal key is left alone."""
    k_LK = torch.tensor([[1.0, 0], [0, 1], [1, 0], [1, 0], [1, 0], [1, 0]])
    v_L1 = torch.tensor([[3.0], [5], [7], [100], [0], [1]])
    beta_L = torch.tensor([1.0, 1, 0.5, 0, 2, 2])
    q_LK = torch.eye(2)[[0, 0, 0, 0, 0, 0]]
    y_BHLV, state_BHKV = delta_rule(*(x[None, None] for x in (q_LK, k_LK, v_L1, beta_L)), torch.zeros(1, 1, 2, 1))
    assert y_BHLV.flatten().tolist() == [3, 3, 5, 5, -5, 7]
    assert state_BHKV.flatten().tolist() == [7, 5]


def test_reflections_of_one_key_hold_their_sign_over_a_thousand_tokens() -> None:
    """Parity: with b = 2 for a one, 0 for a zero, v = 0 and one key, the state's sign is that of the count of ones."""
    ones_L = torch.randint(2, (1000,))
    zeros = torch.zeros(1, 1, 1000, 1)
    y_BHLV, _ = delta_rule(zeros + 1, zeros + 1, zeros, 2.0 * ones_L.view(1, 1, -1), torch.ones(1, 1, 1, 1))
    assert torch.equal(y_BHLV.flatten(), (1 - 2 * (ones_L.cumsum(0) % 2)).float())


@pytest.mark.parametrize("beta", [1.0, 2.0])
def test_keys_all_alike_or_nearly_lose_no_digits(beta: float) -> None:
    """The hardest triangular systems: single precision against the loop in double."""
    given = inputs(260, beta)
    key_K = nn.functional.normalize(torch.ones(4, dtype=torch.float64), dim=-1)
    near_BHLK = nn.functional.normalize(key_K + 1e-3 * torch.randn_like(given.k_BHLK), dim=-1)
    for k_BHLK in (key_K.expand_as(near_BHLK), near_BHLK):
        given = given._replace(k_BHLK=k_BHLK)
        y_BHLV, _ = delta_rule(*(x.detach().float() for x in given))
        expected_BHLV = naive(*given)[0].detach()
        assert (y_BHLV - expected_BHLV).abs().max() < 4e-5 * expected_BHLV.abs().max()


def test_memory_is_linear_in_the_length() -> None:
    """Elements kept for the backward pass, as autograd packs them."""

    def kept(length: int) -> int:
        seen: dict[int, int] = {}
        given = inputs(length, dtype=torch.float32)
        with torch.autograd.graph.saved_tensors_hooks(
            lambda x: (seen.__setitem__(x.untyped_storage().data_ptr(), x.untyped_storage().nbytes()), x)[1],
            lambda x: x,
        ):
            y_BHLV, _ = delta_rule(*given)
        del y_BHLV
        return sum(seen.values())

    assert kept(64 * CHUNK) < 4.2 * kept(16 * CHUNK)


def rms_norm(x: Tensor, weight: Tensor, eps: float = 0.0) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight


@pytest.mark.parametrize("eigenvalues", ["positive", "signed"])
@pytest.mark.parametrize("length", [1, 2, 17, 65])
def test_the_model_follows_its_docstring(eigenvalues: str, length: int) -> None:
    config = DeltaNetConfig(d_model=8, num_heads=2, num_blocks=2, d_inner=5, eigenvalues=eigenvalues)
    model = config.build(VOCAB).double()
    for norm in (module for module in model.modules() if isinstance(module, nn.RMSNorm)):
        nn.init.uniform_(norm.weight, 0.5, 1.5)
    tokens_BL = torch.randint(VOCAB, (3, length))
    x_BLD = model.embedding.weight[tokens_BL]
    for block in model.blocks:
        (rule, feed_forward), (rule_norm, feed_forward_norm) = block.layers, block.norms
        normed_BLD = rms_norm(x_BLD, rule_norm.weight, torch.finfo(torch.float64).eps)
        mapped_BLE = normed_BLD @ rule.query_key_value.weight.T
        before = nn.functional.pad(mapped_BLE, (0, 0, 3, 0))
        taps = rule.convolution.weight
        mixed_BLE = sum(before[:, i : i + length] * taps[:, i] for i in range(4))
        activated_BLE = mixed_BLE / (1 + torch.exp(-mixed_BLE))
        q, k, v = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in activated_BLE.chunk(3, -1))
        q, k = (part / (part.square().sum(-1, keepdim=True) + 1e-6).sqrt() for part in (q, k))
        most = 2 if eigenvalues == "signed" else 1
        beta = (most / (1 + torch.exp(-normed_BLD @ rule.beta.weight.T))).transpose(1, 2)
        y, _ = naive(q, k, v, beta, torch.zeros(3, 2, 4, 4, dtype=torch.float64))
        y = rms_norm(y, rule.norm.weight, 1e-5).transpose(1, 2).flatten(2)
        x_BLD = x_BLD + y @ rule.out.weight.T
        gate, up = (rms_norm(x_BLD, feed_forward_norm.weight) @ feed_forward.gate_up.weight.T).chunk(2, -1)
        x_BLD = x_BLD + (gate / (1 + torch.exp(-gate)) * up) @ feed_forward.out.weight.T
    expected_BLV = rms_norm(x_BLD, model.norm.weight) @ model.head.weight.T
    logits_BLV = model(tokens_BL, Context())
    close(logits_BLV, expected_BLV, 1e-9)
    parameters, weights = list(model.parameters()), torch.randn_like(logits_BLV)
    found, expected = (torch.autograd.grad((y * weights).sum(), parameters) for y in (logits_BLV, expected_BLV))
    for one, other in zip(found, expected, strict=True):
        close(one, other, 1e-8)


@pytest.mark.parametrize("scale", [0.0, 1e-6, 1e4])
@pytest.mark.parametrize("eigenvalues", ["positive", "signed"])
def test_extreme_inputs_stay_finite_and_the_state_bounded(eigenvalues: str, scale: float) -> None:
    layer = DeltaRule(DeltaNetConfig(d_model=8, num_heads=2, eigenvalues=eigenvalues))
    x_BLD = (scale * torch.randn(2, 130, 8)).requires_grad_()
    y_BLD = layer(x_BLD, Context())
    assert bool(torch.isfinite(y_BLD).all())
    for gradient in torch.autograd.grad(y_BLD.sum(), (x_BLD, *layer.parameters())):
        assert bool(torch.isfinite(gradient).all())


def test_at_the_start_beta_is_at_its_middle_and_outputs_are_of_the_order_of_inputs() -> None:
    for eigenvalues, middle in (("positive", 0.5), ("signed", 1.0)):
        layer = DeltaRule(DeltaNetConfig(d_model=128, eigenvalues=eigenvalues))
        x_BLD = torch.randn(4, 256, 128)
        beta_BLH = layer.largest_beta * torch.sigmoid(layer.beta(x_BLD))
        assert beta_BLH.mean().item() == pytest.approx(middle, rel=0.1)
        for position in (0, 10, 255):
            assert 0.3 < layer(x_BLD, Context())[:, position].std() < 1
    assert layer.convolution.weight.shape == (384, 4) and layer.convolution.bias is None
    assert DeltaNetConfig().eigenvalues == "positive" and DeltaNetConfig().conv_width == 4


def test_under_autocast_the_rule_runs_in_single_precision() -> None:
    model = DeltaNetConfig(d_model=16, num_blocks=1, num_heads=2).build(VOCAB)
    tokens_BL = torch.randint(VOCAB, (3, 70))
    expected_BLV = model(tokens_BL, Context())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        close(model(tokens_BL, Context()), expected_BLV, 0.1)
        state = model.init_state(3, max_length=70, device=torch.device("cpu"), dtype=torch.bfloat16)
        _, state = model.extend(tokens_BL, state, Context())
    assert state[0][0][1].dtype == torch.float32


@pytest.mark.parametrize("cls", [DeltaNetConfig, GatedDeltaNetConfig, GatedDeltaProductConfig])
def test_values_may_be_wider_than_keys(cls: type[DeltaNetConfig]) -> None:
    """The state, the norm and what is read of it grow with them; keys stay. Token by token it is the same."""
    model = lively(cls(d_model=12, num_heads=3, num_blocks=1, expand_v=3).build(VOCAB))
    layer, steps = model.blocks[0].layers[0], 2 if cls is GatedDeltaProductConfig else 1
    assert layer.norm.weight.shape == (12,) and layer.out.weight.shape == (12, 36)
    assert len(layer.query_key_value.weight) == 12 + steps * (12 + 36)
    tokens_BL = torch.randint(VOCAB, (2, 21))
    state = model.init_state(2, max_length=21, device=torch.device("cpu"), dtype=torch.float64)
    assert state_bytes(state) == 2 * 8 * (3 * 4 * 12 + 3 * len(layer.query_key_value.weight))
    whole_BLV = model(tokens_BL, Context())
    for place, tokens_B in enumerate(tokens_BL.unbind(1)):
        logits_BV, state = model.step(tokens_B, state, Context())
        close(logits_BV, whole_BLV[:, place], 1e-10)


FAMILY = (DeltaNetConfig, GatedDeltaNetConfig, GatedDeltaProductConfig, KDAConfig, GatedDeltaNet2Config, CombaConfig)


@pytest.mark.parametrize("cls", FAMILY)
def test_heads_may_be_of_any_width(cls: type[DeltaNetConfig]) -> None:
    """The width of heads does not depend on the stream's. Token by token gives the same."""
    config = cls(d_model=16, num_heads=3, num_blocks=1, head_dim=5, expand_v=2)
    model, steps = lively(config.build(VOCAB)), 2 if cls is GatedDeltaProductConfig else 1
    layer, channels = model.blocks[0].layers[0], 15 + steps * (15 + 30)
    assert layer.norm.weight.shape == (10,) and layer.out.weight.shape == (16, 30)
    assert layer.query_key_value.weight.shape == (channels, 16)
    tokens_BL = torch.randint(VOCAB, (2, 21))
    state = model.init_state(2, max_length=21, device=torch.device("cpu"), dtype=torch.float64)
    assert state_bytes(state) == 2 * 8 * (3 * 5 * 10 + 3 * channels)
    whole_BLV = model(tokens_BL, Context())
    for place, tokens_B in enumerate(tokens_BL.unbind(1)):
        logits_BV, state = model.step(tokens_B, state, Context())
        close(logits_BV, whole_BLV[:, place], 1e-10)


@pytest.mark.parametrize("cls", FAMILY)
def test_heads_of_the_usual_width_are_the_same_model(cls: type[DeltaNetConfig]) -> None:
    made = []
    for head_dim in (0, 4):
        torch.default_generator.manual_seed(0)
        made.append(cls(d_model=12, num_heads=3, num_blocks=2, head_dim=head_dim).build(VOCAB))
    for (name, one), (other_name, other) in zip(*(m.state_dict().items() for m in made), strict=True):
        assert name == other_name and torch.equal(one, other)
    tokens_BL = torch.randint(VOCAB, (2, 21))
    assert torch.equal(*(model(tokens_BL, Context()) for model in made))


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"head_dim": -1}, "head_dim must not be negative"),
        ({"num_heads": 0, "head_dim": 8}, "heads"),
        ({"num_heads": 3}, "heads"),
        ({"num_heads": 0}, "heads"),
        ({"conv_width": 0}, "conv_width"),
        ({"d_inner": -1}, "d_inner"),
        ({"expand_v": 0}, "expand_v must be at least 1, not 0"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(ValueError, match=f"^delta_net: .*{field}"):
        DeltaNetConfig(**settings)
