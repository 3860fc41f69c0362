"""Attention against loops over plain floats, rotary positions against complex numbers, and the Transformer by hand."""

import cmath
import math

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.models.backbone import Backbone
from chomsky_ladder.models.block import Backend, Context
from chomsky_ladder.models.encoder import EncoderConfig
from chomsky_ladder.models.layers.attention import FUSED_FROM, Attention, attend, explicit_attention
from chomsky_ladder.models.layers.positions import rotate
from chomsky_ladder.models.lstm_block import LSTMBlockConfig
from chomsky_ladder.models.moe import MoEConfig
from chomsky_ladder.models.transformer import TransformerConfig
from support.layers import close

torch.set_num_threads(1)

VOCAB = 11
LONG = FUSED_FROM + 3
BACKENDS: tuple[Backend, ...] = ("auto", "reference")


def random_heads(length: int, *, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of three rows, two heads and head dimension 4, with sharp scores."""
    q_BHLK, k_BHLK, v_BHLK = torch.randn(3, 3, 2, length, 4, dtype=dtype)
    return 2 * q_BHLK, k_BHLK, v_BHLK


def holes(length: int) -> Tensor:
    """A mask of valid positions: all, a prefix, and one with holes at the start, inside and at the end."""
    position_L = torch.arange(length)
    return torch.stack([position_L >= 0, position_L <= length // 2, position_L % 3 == 1])


def loop_attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, valid_BL: Tensor | None) -> Tensor:
    """One query, one key, one number at a time."""
    batch, heads, length, width = q.shape
    queries, keys, values = q.double().tolist(), k.double().tolist(), v.double().tolist()
    output = torch.zeros(batch, heads, length, width, dtype=torch.float64)
    for row in range(batch):
        for head in range(heads):
            for here in range(length):
                seen = range(here + 1) if causal else range(length)
                if not causal and valid_BL is not None:
                    seen = [there for there in seen if valid_BL[row, there]]
                query = queries[row][head][here]
                scores = [sum(map(float.__mul__, query, keys[row][head][there])) / math.sqrt(width) for there in seen]
                shares = [math.exp(score - max(scores)) for score in scores]
                for column in range(width):
                    mixed = sum(
                        share * values[row][head][there][column] for share, there in zip(shares, seen, strict=True)
                    )
                    output[row, head, here, column] = mixed / sum(shares)
    return output


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("length", [1, 2, 9, LONG])
@pytest.mark.parametrize("causal", [True, False])
def test_attention_equals_the_loop(length: int, causal: bool, backend: Backend) -> None:
    q_BHLK, k_BHLK, v_BHLK = random_heads(length)
    ctx = Context(backend=backend)
    y_BHLK = attend(q_BHLK, k_BHLK, v_BHLK, sees="past" if causal else "all", ctx=ctx)
    assert ctx.backends == ({"torch.sdpa"} if backend == "auto" and length == LONG else set())
    close(y_BHLK, loop_attention(q_BHLK, k_BHLK, v_BHLK, causal=causal, valid_BL=None))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("length", [2, 9, LONG])
def test_attention_over_valid_positions_equals_the_loop(length: int, backend: Backend) -> None:
    q_BHLK, k_BHLK, v_BHLK = random_heads(length)
    valid_BL = holes(length)
    k_BHLK = torch.where(valid_BL[:, None, :, None], k_BHLK, 1e6)  # one look at an invalid key drowns all others
    ctx = Context(backend=backend, valid_BL=valid_BL)
    expected_BHLK = loop_attention(q_BHLK, k_BHLK, v_BHLK, causal=False, valid_BL=valid_BL)
    close(attend(q_BHLK, k_BHLK, v_BHLK, sees="all", ctx=ctx), expected_BHLK)
    if backend == "reference":
        close(explicit_attention(q_BHLK, k_BHLK, v_BHLK, valid_BL[:, None, None, :]), expected_BHLK)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("length", [9, LONG])
def test_causal_attention_needs_no_valid_mask(length: int, backend: Backend) -> None:
    q_BHLK, k_BHLK, v_BHLK = random_heads(length)
    ctx = Context(backend=backend, valid_BL=holes(length))
    y_BHLK = attend(q_BHLK, k_BHLK, v_BHLK, sees="past", ctx=ctx)
    close(y_BHLK, loop_attention(q_BHLK, k_BHLK, v_BHLK, causal=True, valid_BL=None))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("causal", [True, False])
def test_attention_in_single_precision(causal: bool, backend: Backend) -> None:
    q_BHLK, k_BHLK, v_BHLK = random_heads(LONG, dtype=torch.float32)
    ctx = Context(backend=backend, valid_BL=holes(LONG))
    y_BHLK = attend(q_BHLK, k_BHLK, v_BHLK, sees="past" if causal else "all", ctx=ctx)
    assert y_BHLK.dtype == torch.float32
    close(y_BHLK.double(), loop_attention(q_BHLK, k_BHLK, v_BHLK, causal=causal, valid_BL=holes(LONG)), 1e-5)


def test_the_fused_path_starts_where_it_is_said_to() -> None:
    for length, backends in ((FUSED_FROM - 1, set()), (FUSED_FROM, {"torch.sdpa"})):
        ctx = Context()
        attend(*random_heads(length), sees="past", ctx=ctx)
        assert ctx.backends == backends


def test_rotation_is_multiplication_by_a_complex_number() -> None:
    x_BHLK, positions = torch.randn(2, 3, 5, 6, dtype=torch.float64), [0, 1, 7, 40, 5000]
    turned = rotate(x_BHLK, torch.tensor(positions)).tolist()
    for row, head, index in ((0, 0, 0), (0, 2, 1), (1, 0, 2), (1, 1, 3), (1, 2, 4)):
        x, y = x_BHLK[row, head, index].tolist(), turned[row][head][index]
        for pair in range(3):
            angle = positions[index] * 10_000 ** (-2 * pair / 6)
            expected = complex(x[pair], x[pair + 3]) * cmath.exp(1j * angle)
            assert complex(y[pair], y[pair + 3]) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_rotation_preserves_norms_and_leaves_position_zero_alone(dtype: torch.dtype) -> None:
    x_BHLK = torch.randn(2, 3, 50, 8, dtype=dtype)
    turned_BHLK = rotate(x_BHLK, torch.arange(50))
    assert turned_BHLK.dtype == dtype
    assert torch.equal(turned_BHLK[:, :, 0], x_BHLK[:, :, 0])
    assert not torch.allclose(turned_BHLK[:, :, 1:], x_BHLK[:, :, 1:])
    pairs, turned_pairs = x_BHLK.unflatten(-1, (2, 4)), turned_BHLK.unflatten(-1, (2, 4))
    close(turned_pairs.norm(dim=-2), pairs.norm(dim=-2), 1e-5 if dtype == torch.float32 else 1e-13)


def test_a_score_depends_on_the_difference_of_positions_alone() -> None:
    q_1K, k_1K = torch.randn(2, 1, 8, dtype=torch.float64)

    def score(here: int, there: int) -> float:
        return float((rotate(q_1K, torch.tensor([here])) * rotate(k_1K, torch.tensor([there]))).sum())

    for difference in (-30, -1, 0, 1, 2, 30):
        for shift in (30, 31, 500, 9_000):
            assert score(shift + difference, shift) == pytest.approx(score(30 + difference, 30), abs=1e-10)
    scores = [score(30 + difference, 30) for difference in range(-30, 31)]
    assert min(abs(a - b) for index, a in enumerate(scores) for b in scores[:index]) > 1e-6  # and on its sign


def test_angles_stay_exact_when_the_numbers_are_half_precision() -> None:
    x_BHLK, position_L = torch.randn(1, 2, 4, 8).bfloat16(), torch.tensor([3, 257, 1001, 5003])
    turned_BHLK = rotate(x_BHLK, position_L)
    assert turned_BHLK.dtype == torch.bfloat16
    expected_BHLK = rotate(x_BHLK.double(), position_L)
    torch.testing.assert_close(turned_BHLK.double(), expected_BHLK, rtol=2**-8, atol=2e-3)


@pytest.mark.parametrize("backend", ["auto", "torch.sdpa"])
def test_cached_steps_equal_the_fused_pass_far_beyond_its_start(backend: Backend) -> None:
    attention = Attention(8, 2).double()
    x_BLD = torch.randn(3, 2 * FUSED_FROM, 8, dtype=torch.float64)
    ctx = Context(backend=backend)
    y_BLD = attention(x_BLD, ctx)
    assert len(ctx.backends) == 1 and (backend == "auto" or ctx.backends == {"torch.sdpa"})
    close(y_BLD, attention(x_BLD, Context(backend="reference")))
    state = attention.init_state(
        3, max_length=2 * FUSED_FROM + 5, device=torch.device("cpu"), dtype=torch.float64
    )  # a cache longer than needed: what stands past the position is never looked at
    state = state[0] + 1e3, state[1]
    for position, x_BD in enumerate(x_BLD.unbind(1)):
        assert int(state[1]) == position
        y_BD, state = attention.step(x_BD, state, Context())
        close(y_BD, y_BLD[:, position])


def rms_norm(x_LD: Tensor, weight_D: Tensor) -> Tensor:
    return x_LD / x_LD.square().mean(-1, keepdim=True).sqrt() * weight_D


def turn(x_LK: Tensor) -> Tensor:
    """RoPE of one head: coordinates k and k + K/2 are the parts of a complex number."""
    length, half = x_LK.shape[0], x_LK.shape[1] // 2
    unit_LK = torch.tensor(
        [[cmath.exp(1j * position * 10_000 ** (-k / half)) for k in range(half)] for position in range(length)],
        dtype=torch.complex128,
    )
    z_LK = torch.complex(x_LK[:, :half], x_LK[:, half:]) * unit_LK
    return torch.cat([z_LK.real, z_LK.imag], dim=1)


def attention_by_hand(attention: Attention, x_LD: Tensor, seen: list[list[int]]) -> Tensor:
    width, head_dim = x_LD.shape[1], x_LD.shape[1] // attention.num_heads
    W_q, W_k, W_v = attention.query_key_value.weight.split(width)
    mixed = []
    for start in range(0, width, head_dim):
        own = slice(start, start + head_dim)
        q_LK, k_LK, v_LK = turn(x_LD @ W_q[own].T), turn(x_LD @ W_k[own].T), x_LD @ W_v[own].T
        rows = []
        for here, there in enumerate(seen):
            weight_S = torch.exp(k_LK[there] @ q_LK[here] / math.sqrt(head_dim))
            rows.append(weight_S @ v_LK[there] / weight_S.sum())
        mixed.append(torch.stack(rows))
    return torch.cat(mixed, dim=1) @ attention.out.weight.T


def transformer_by_hand(model: Backbone, tokens_L: Tensor, seen: list[list[int]]) -> Tensor:
    """The model's docstring, for one row."""
    x_LD = model.embedding.weight[tokens_L]
    for block in model.blocks:
        (attention, feed_forward), (attention_norm, feed_forward_norm) = block.layers, block.norms
        x_LD = x_LD + attention_by_hand(attention, rms_norm(x_LD, attention_norm.weight), seen)
        normed_LD = rms_norm(x_LD, feed_forward_norm.weight)
        W_1, W_2 = feed_forward.gate_up.weight.chunk(2)
        gate_LI = normed_LD @ W_1.T
        gated_LI = gate_LI / (1 + torch.exp(-gate_LI)) * (normed_LD @ W_2.T)
        x_LD = x_LD + gated_LI @ feed_forward.out.weight.T
    return rms_norm(x_LD, model.norm.weight) @ model.head.weight.T


def with_random_norms(config: TransformerConfig) -> Backbone:
    """A fresh model whose norms are not all ones, so that a forgotten one shows."""
    model = config.build(VOCAB).double()
    for norm in (module for module in model.modules() if isinstance(module, nn.RMSNorm)):
        nn.init.uniform_(norm.weight, 0.5, 1.5)
    return model


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("length", [5, LONG])
@pytest.mark.parametrize("cls", [TransformerConfig, EncoderConfig])
def test_the_transformer_and_the_encoder_by_hand(cls: type[TransformerConfig], length: int, backend: Backend) -> None:
    model = with_random_norms(cls(d_model=12, num_blocks=2, num_heads=3, d_inner=7))
    tokens_BL, length_B = torch.randint(VOCAB, (2, length)), [length, length // 2]
    valid_BL = torch.arange(length) < torch.tensor(length_B)[:, None]
    logits_BLV = model(tokens_BL, Context(valid_BL=valid_BL, backend=backend))
    expected = []
    for tokens_L, end in zip(tokens_BL, length_B, strict=True):
        last = [range(here + 1) if cls is TransformerConfig else range(end) for here in range(end)]
        expected.append(transformer_by_hand(model, tokens_L[:end], [list(seen) for seen in last]))
    for row, end in enumerate(length_B):
        close(logits_BLV[row, :end], expected[row])

    weights = [torch.randn_like(logits_LV) for logits_LV in expected]
    found_loss = sum((logits_BLV[row, : length_B[row]] * weights[row]).sum() for row in range(2))
    expected_loss = sum((expected[row] * weights[row]).sum() for row in range(2))
    parameters = list(model.parameters())
    found = torch.autograd.grad(found_loss, parameters)
    for one, other in zip(found, torch.autograd.grad(expected_loss, parameters), strict=True):
        close(one, other, 1e-9)


def test_the_transformer_by_hand_and_token_by_token() -> None:
    model = with_random_norms(TransformerConfig(d_model=8, num_blocks=2, num_heads=2, d_inner=5))
    tokens_BL = torch.randint(VOCAB, (1, LONG))
    state = model.init_state(1, max_length=LONG + 4, device=torch.device("cpu"), dtype=torch.float64)
    head_BLV, state = model.extend(tokens_BL[:, : LONG - 5], state, Context())
    tail_BLV, _ = model.extend(tokens_BL[:, LONG - 5 :], state, Context())
    seen = [list(range(here + 1)) for here in range(LONG)]
    close(torch.cat([head_BLV, tail_BLV], 1)[0], transformer_by_hand(model, tokens_BL[0], seen))


@pytest.mark.parametrize("cls", [TransformerConfig, EncoderConfig, MoEConfig, LSTMBlockConfig])
def test_what_writes_into_the_stream_starts_smaller_in_a_deeper_model(
    cls: type[TransformerConfig] | type[LSTMBlockConfig],
) -> None:
    model = cls(d_model=64, num_blocks=8, d_inner=96).build(VOCAB)
    for block in model.blocks:
        mixer, feed_forward = block.layers
        feed_forward_out = feed_forward.out
        if isinstance(feed_forward_out, nn.Linear):
            feed_forward_out = feed_forward_out.weight
        for weight, fan_in in ((mixer.out.weight, 64), (feed_forward_out, 96)):
            bound = fan_in**-0.5 / math.sqrt(2 * 8)
            assert 0.98 * bound < weight.abs().max() <= bound * (1 + 1e-6)
            assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)  # uniform
