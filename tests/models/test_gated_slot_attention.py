"""Gated Slot Attention against its equations token by token, its state, its extremes and its start."""

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.gated_slot_attention import GatedSlotAttentionConfig, SlotAttention, kept_and_written
from chomsky_ladder.models.operations.slots.reference import decayed_slots
from chomsky_ladder.models.scans.decayed import CHUNK
from support.layers import close, gradients, kept_for_backward, lively

torch.set_num_threads(1)

LENGTHS = (1, 2, 3, CHUNK, CHUNK + 1, 33, 64, 65, 130)
DECAYS = (None, 0.0, 1e-30, 1.0)


def inputs(length: int, decay: float | None = None) -> list[Tensor]:
    """Two rows of three heads, K = 4 and M = 5."""
    q_BHLK, k_BHLK = torch.randn(2, 2, 3, length, 4, dtype=torch.float64)
    s_BHLM, decay_BHLM = torch.randn(2, 3, length, 5).double(), torch.rand(2, 3, length, 5).double() ** 3
    if decay is not None:
        decay_BHLM = torch.full_like(decay_BHLM, decay)
    made = [q_BHLK, k_BHLK, s_BHLM, decay_BHLM, torch.randn(2, 3, 4, 5).double()]
    return [x.detach().requires_grad_() for x in made]


def naive(q: Tensor, k: Tensor, s: Tensor, decay: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """The equation as it stands, token by token."""
    outputs = []
    for t in range(q.shape[2]):
        state = state * decay[:, :, t, None] + k[:, :, t, :, None] * s[:, :, t, None]
        outputs.append(torch.einsum("bhk,bhkm->bhm", q[:, :, t], state))
    return torch.stack(outputs, 2), state


def with_gradients(results: tuple[Tensor, Tensor], given: list[Tensor]) -> list[Tensor]:
    return [*results, *gradients(torch.cat([x.flatten() for x in results]), given)]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("decay", DECAYS)
def test_chunks_equal_the_recurrence(length: int, decay: float | None) -> None:
    given = inputs(length, decay)
    found, expected = with_gradients(decayed_slots(*given), given), with_gradients(naive(*given), given)
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        close(one, other, 1e-10)


def test_a_decay_of_0_forgets_all_and_exactly() -> None:
    for place in range(40):
        q_BHLK, k_BHLK, s_BHLM, decay_BHLM, state_BHKM = (x.detach() for x in inputs(40))
        decay_BHLM[:, :, place] = 0
        (none_BHLM, last_BHKM), (y_BHLM, large_BHKM) = (
            decayed_slots(q_BHLK, k_BHLK, s_BHLM, decay_BHLM, scale * state_BHKM) for scale in (0.0, 1e99)
        )
        assert torch.equal(last_BHKM, large_BHKM) and torch.equal(none_BHLM[:, :, place:], y_BHLM[:, :, place:])
        assert bool((none_BHLM[:, :, :place] != y_BHLM[:, :, :place]).all())


def test_decays_of_any_strength_lose_no_digits_in_fp32() -> None:
    """Against the loop in double: some slots keep all, some nothing."""
    given = inputs(260)
    strong_BHLM = torch.where(torch.rand(2, 3, 260, 5) < 0.2, 10.0 ** (-60 * torch.rand(2, 3, 260, 5)), 1 - 1e-4)
    rounded = [x.detach().float() for x in (*given[:3], strong_BHLM, given[4])]
    rounded[3][:, :, 100] = 0
    y_BHLM, _ = decayed_slots(*(x.requires_grad_() for x in rounded))
    expected_BHLM, _ = naive(*(x.double() for x in rounded))
    assert (y_BHLM - expected_BHLM).abs().max() < 2e-6 * expected_BHLM.abs().max()
    assert all(bool(gradient.isfinite().all()) for gradient in gradients(y_BHLM, rounded))


def test_memory_is_linear_in_the_length() -> None:
    short, long = (kept_for_backward(lambda n=n: decayed_slots(*inputs(n))) for n in (16 * CHUNK, 64 * CHUNK))
    assert 3.5 * short < long < 4.2 * short


def small(*, num_heads: int = 2, num_slots: int = 0, temperature: float = 8.0) -> SlotAttention:
    config = GatedSlotAttentionConfig(d_model=8, num_heads=num_heads, num_slots=num_slots, temperature=temperature)
    return lively(SlotAttention(config))


def by_hand(layer: SlotAttention, x_LD: Tensor) -> Tensor:
    """One row, a token and a head at a time."""
    dim, slots = x_LD.shape[1] // layer.num_heads, layer.forget.out_features // layer.num_heads
    K, V = ([torch.zeros(slots, dim, dtype=x_LD.dtype) for _ in range(layer.num_heads)] for _ in "kv")
    outputs = []
    for x in x_LD:
        q, k, v = (z * torch.sigmoid(z) for z in (p.weight @ x for p in (layer.query, layer.key, layer.value)))
        a = torch.sigmoid(layer.forget.weight @ x) ** (1 / layer.temperature)
        heads = []
        for head in range(layer.num_heads):
            at, own = slice(head * dim, (head + 1) * dim), a[head * slots : (head + 1) * slots]
            K[head] = torch.diag(own) @ K[head] + torch.outer(1 - own, k[at])
            V[head] = torch.diag(own) @ V[head] + torch.outer(1 - own, v[at])
            heads.append(torch.softmax(K[head] @ q[at], 0) @ V[head])
        y = torch.cat(heads)
        y = y * torch.sigmoid(y)
        outputs.append(layer.out.weight @ (y / (y.square().mean() + 1e-5).sqrt() * layer.norm.weight))
    return torch.stack(outputs)


@pytest.mark.parametrize(
    ("length", "num_heads", "num_slots", "temperature"),
    [(1, 2, 0, 8.0), (2, 1, 3, 1.0), (15, 4, 0, 8.0), (17, 2, 7, 0.1), (33, 1, 1, 16.0), (65, 2, 0, 2.0)],
)
def test_it_is_its_equations_in_value_and_gradient(
    length: int, num_heads: int, num_slots: int, temperature: float
) -> None:
    layer = small(num_heads=num_heads, num_slots=num_slots, temperature=temperature)
    x_BLD = torch.randn(2, length, 8, dtype=torch.float64, requires_grad=True)
    inputs = [x_BLD, *layer.parameters()]
    found, expected = layer(x_BLD, Context()), torch.stack([by_hand(layer, x_LD) for x_LD in x_BLD])
    close(found, expected, 1e-11)
    for one, other in zip(gradients(found, inputs), gradients(expected, inputs), strict=True):
        close(one, other, 1e-9)


@pytest.mark.parametrize("cuts", [(1,), (5, 6, 32)])
def test_values_and_gradients_pass_through_a_carried_state(cuts: tuple[int, ...]) -> None:
    layer, x_BLD = small(num_slots=3), torch.randn(2, 40, 8, dtype=torch.float64, requires_grad=True)
    state, parts = layer.init_state(2, max_length=40, device=torch.device("cpu"), dtype=torch.float64), []
    for part in x_BLD.tensor_split(cuts, 1):
        y_BLD, state = layer.extend(part, state, Context())
        parts.append(y_BLD)
    found, expected, inputs = torch.cat(parts, 1), layer(x_BLD, Context()), [x_BLD, *layer.parameters()]
    close(found, expected, 1e-11)
    for one, other in zip(gradients(found, inputs), gradients(expected, inputs), strict=True):
        close(one, other, 1e-10)


@pytest.mark.parametrize("scale", [0.0, 1.0, 1e4])
def test_gates_of_0_and_1_and_large_inputs_stay_finite(scale: float) -> None:
    layer = small(temperature=1.0).float()
    x_BLD = (scale * torch.randn(2, 40, 8)).requires_grad_()
    y_BLD = layer(x_BLD, Context())
    assert all(bool(torch.isfinite(x).all()) for x in (y_BLD, *gradients(y_BLD, [x_BLD, *layer.parameters()])))


def test_what_a_gate_near_1_writes_has_all_its_digits() -> None:
    logit = torch.tensor([20.0, 14.0, 3.0, -3.0])
    _, exact = kept_and_written(logit.double(), 8.0)
    _, written = kept_and_written(logit, 8.0)
    torch.testing.assert_close(written.double(), exact, rtol=1e-6, atol=0)


def test_sizes_and_start_are_the_published_ones() -> None:
    layer = GatedSlotAttentionConfig(d_model=64, num_slots=5).block(0).layers[0]
    assert layer.forget.weight.shape == (20, 64) and layer.value.weight.shape == (64, 64)
    keys, values = layer.init_state(1, max_length=1, device=torch.device("cpu"), dtype=torch.bfloat16)
    assert keys.shape == (1, 4, 16, 5) and values.shape == (1, 4, 5, 16) and keys.dtype == torch.float32
    decay, _ = kept_and_written(layer.forget(torch.randn(2, 99, 64)), layer.temperature)
    assert decay.mean().item() == pytest.approx(0.5 ** (1 / 8), abs=0.01)


def test_settings_are_refused_in_one_line() -> None:
    for setting, message in (
        ({"d_model": 12, "num_heads": 8}, "^gated_slot_attention: d_model=12 does not split into 8 heads$"),
        ({"num_slots": -1}, "^gated_slot_attention: num_slots must not be negative$"),
        ({"temperature": 0.0}, "^gated_slot_attention: temperature must be positive, not 0.0$"),
        ({"d_inner": -1}, "^gated_slot_attention: d_inner"),
    ):
        with pytest.raises(ValueError, match=message):
            GatedSlotAttentionConfig(**setting)
