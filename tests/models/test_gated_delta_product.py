"""Several steps of the gated delta rule for a token, against explicit products of matrices, and what two can do."""

import math

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.gated_delta_net import GatedDeltaNetConfig
from chomsky_ladder.models.gated_delta_product import GatedDeltaProductConfig
from chomsky_ladder.models.scans.gated_delta import LARGEST_CHUNK, gated_delta_rule
from support.layers import close

torch.set_num_threads(1)

VOCAB = 11


def inputs(length: int, steps: int) -> list[Tensor]:
    """Two rows of three heads, K = 4 and V = 5, any b in (0, 2) and any decay."""
    q_BHLK, k_BHMK = torch.randn(2, 3, length, 4), torch.randn(2, 3, length * steps, 4)
    v_BHMV, state_BHKV = torch.randn(2, 3, length * steps, 5), torch.randn(2, 3, 4, 5)
    beta_BHM, log_decay_BHL = 2 * torch.rand(2, 3, length * steps), torch.rand(2, 3, length).log()
    made = (q_BHLK, nn.functional.normalize(k_BHMK, dim=-1), v_BHMV, beta_BHM, log_decay_BHL, state_BHKV)
    return [x.double().requires_grad_() for x in made]


def naive(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_decay: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """S [V, K] times a token's whole transition, the product of its steps', and one matrix of all that they write."""
    steps, S_BHVK, outputs = k.shape[2] // q.shape[2], state.mT, []
    for t in range(q.shape[2]):
        transition = torch.eye(k.shape[-1], dtype=k.dtype).expand(*k.shape[:2], -1, -1)
        written = torch.zeros_like(S_BHVK)
        for m in range(t * steps, (t + 1) * steps):
            b, key = beta[:, :, m, None, None], k[:, :, m]
            reflection = torch.eye(k.shape[-1], dtype=k.dtype) - b * key[..., :, None] * key[..., None, :]
            transition, written = transition @ reflection, written @ reflection
            written = written + b * v[:, :, m, :, None] * key[..., None, :]
        S_BHVK = torch.exp(log_decay[:, :, t, None, None]) * S_BHVK @ transition + written
        outputs.append((S_BHVK @ q[:, :, t, :, None])[..., 0])
    return torch.stack(outputs, 2), S_BHVK.mT


@pytest.mark.parametrize(
    ("length", "steps"),
    [(1, 2), (2, 3), (17, 2), (32, 2), (33, 2), (65, 2), (22, 3), (30, 5), (3, 2 * LARGEST_CHUNK + 1)],
)
def test_chunks_equal_the_products(length: int, steps: int) -> None:
    given, results = inputs(length, steps), []
    for rule in (gated_delta_rule, naive):
        y_BHLV, last_BHKV = rule(*given)
        loss = sum((x * torch.linspace(-9, 9, x.numel()).sin().view_as(x)).sum() for x in (y_BHLV, last_BHKV))
        results.append([y_BHLV, last_BHKV, *torch.autograd.grad(loss, given)])
    for one, other in zip(*results, strict=True):
        assert one.shape == other.shape
        close(one, other, 1e-10)


@pytest.mark.parametrize("cuts", [list(range(1, 40)), [17], [1, 33]])
def test_parts_equal_the_whole(cuts: list[int]) -> None:
    q_BHLK, k_BHMK, v_BHMV, beta_BHM, log_decay_BHL, state_BHKV = inputs(40, 3)
    whole_BHLV, last_BHKV = gated_delta_rule(q_BHLK, k_BHMK, v_BHMV, beta_BHM, log_decay_BHL, state_BHKV)
    parts = []
    for start, end in zip([0, *cuts], [*cuts, 40], strict=True):
        of_steps = (x[:, :, 3 * start : 3 * end] for x in (k_BHMK, v_BHMV, beta_BHM))
        y_BHLV, state_BHKV = gated_delta_rule(
            q_BHLK[:, :, start:end], *of_steps, log_decay_BHL[:, :, start:end], state_BHKV
        )
        parts.append(y_BHLV)
    close(torch.cat(parts, 2), whole_BHLV, 1e-12)
    close(state_BHKV, last_BHKV, 1e-12)


def test_two_reflections_turn_a_cycle_of_five_and_hold_it_over_a_thousand_tokens() -> None:
    """A single step, whose eigenvalues are real, cannot do this: a rotation by 72 degrees for every move."""
    moves_L = torch.randint(5, (1000,))
    angle_L, axis_LK = math.pi / 5 * moves_L, torch.tensor([1.0, 0.0]).expand(1000, 2)
    turned_LK = torch.stack([angle_L.cos(), angle_L.sin()], -1)
    keys_MK = torch.stack([axis_LK, turned_LK], 1).flatten(0, 1)
    given = (
        torch.eye(2)[:1].expand(1000, 2),
        keys_MK,
        torch.zeros(2000, 2),
        torch.full((2000,), 2.0),
        torch.zeros(1000),
    )
    y_BHLV, _ = gated_delta_rule(*(x[None, None] for x in given), torch.eye(2)[None, None])
    place_L = 2 * math.pi / 5 * (moves_L.cumsum(0) % 5)
    close(y_BHLV[0, 0, :, 0], place_L.cos(), 1e-3)
    close(y_BHLV[0, 0, :, 1].abs(), place_L.sin().abs(), 1e-3)


def test_one_step_is_gated_delta_net() -> None:
    one = GatedDeltaProductConfig(d_model=8, num_heads=2, num_blocks=2, num_householders=1).build(VOCAB)
    plain = GatedDeltaNetConfig(d_model=8, num_heads=2, num_blocks=2).build(VOCAB)
    plain.load_state_dict(one.state_dict())
    tokens_BL = torch.randint(VOCAB, (3, 40))
    assert torch.equal(one(tokens_BL, Context()), plain(tokens_BL, Context()))


@pytest.mark.parametrize(("eigenvalues", "steps", "length"), [("positive", 3, 2), ("signed", 2, 35), ("signed", 3, 1)])
def test_the_layer_follows_its_docstring(eigenvalues: str, steps: int, length: int) -> None:
    config = GatedDeltaProductConfig(d_model=8, num_heads=2, eigenvalues=eigenvalues, num_householders=steps)
    layer, x_BLD = config.block(0).layers[0].double(), torch.randn(3, length, 8, dtype=torch.float64)
    layer.dt_bias.data.uniform_(-3, 1)
    before = nn.functional.pad(x_BLD @ layer.query_key_value.weight.T, (0, 0, 3, 0))
    mixed_BLE = sum(before[:, i : i + length] * layer.convolution.weight[:, i] for i in range(4))
    q, *keys_values = (mixed_BLE * torch.sigmoid(mixed_BLE)).split(8, -1)

    def heads(parts: list[Tensor]) -> Tensor:
        """[B, H, L * parts, K]: the parts of a token next to each other."""
        return torch.stack([part.unflatten(-1, (2, 4)) for part in parts], 2).flatten(1, 2).transpose(1, 2)

    q, k, v = heads([q]), heads(keys_values[:steps]), heads(keys_values[steps:])
    q, k = (part / (part.square().sum(-1, keepdim=True) + 1e-6).sqrt() for part in (q, k))
    beta = (2 if eigenvalues == "signed" else 1) * torch.sigmoid(x_BLD @ layer.beta.weight.T)
    beta = beta.unflatten(-1, (steps, 2)).flatten(1, 2).mT
    log_decay = -layer.A_log.exp() * nn.functional.softplus(x_BLD @ layer.dt.weight.T + layer.dt_bias)
    y, _ = naive(q, k, v, beta, log_decay.mT, torch.zeros(3, 2, 4, 4, dtype=torch.float64))
    y = y / (y.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    gate = x_BLD @ layer.gate.weight.T
    expected_BLD = (y.transpose(1, 2).flatten(2) * gate * torch.sigmoid(gate)) @ layer.out.weight.T
    close(layer(x_BLD, Context()), expected_BLD, 1e-10)


def test_no_steps_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^gated_delta_product: num_householders must be at least 1, not 0"):
        GatedDeltaProductConfig(num_householders=0)
