"""Retention: the chunked form against the loop over tokens, the layer against the paper's complex recurrence."""

import math

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.retention import Retention, RetentionConfig
from chomsky_ladder.models.scans.chunked import CHUNK, decayed_attention
from support.layers import close

torch.set_num_threads(1)

VOCAB = 11
LENGTHS = (1, 2, 17, 2 * CHUNK - 1, 2 * CHUNK, 2 * CHUNK + 1, 130)
DTYPES = {torch.float64: 1e-11, torch.float32: 2e-5}


def weighted_sum(*tensors: Tensor) -> Tensor:
    """A scalar in which no element can hide another's error."""
    return sum((x * torch.linspace(-1, 1, x.numel(), dtype=x.dtype).sin().view_as(x)).sum() for x in tensors)


def loop(q_BHLK: Tensor, k_BHLK: Tensor, v_BHLV: Tensor, log_decay_BHL: Tensor, S: Tensor) -> tuple[Tensor, Tensor]:
    """The recurrence, token by token."""
    outputs = []
    for t in range(q_BHLK.shape[2]):
        S = log_decay_BHL[:, :, t, None, None].exp() * S + k_BHLK[:, :, t, :, None] * v_BHLV[:, :, t, None, :]
        outputs.append((q_BHLK[:, :, t, :, None] * S).sum(2))
    return torch.stack(outputs, 2), S


def operands(length: int, dtype: torch.dtype) -> list[Tensor]:
    """q, k, v, decays from nearly 0 to nearly 1, and a state."""
    shapes = (3, 2, length, 4), (3, 2, length, 4), (3, 2, length, 6), (3, 2, length), (3, 2, 4, 6)
    q, k, v, gate, state = (torch.randn(shape, dtype=dtype) for shape in shapes)
    return [x.requires_grad_() for x in (q, k, v, nn.functional.logsigmoid(4 * gate), state)]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_chunks_equal_the_loop_from_any_state(dtype: torch.dtype, length: int) -> None:
    inputs = operands(length, dtype)
    found, expected = decayed_attention(*inputs), loop(*inputs)
    gradients, expected_gradients = (torch.autograd.grad(weighted_sum(*y), inputs) for y in (found, expected))
    for one, other in zip((*found, *gradients), (*expected, *expected_gradients), strict=True):
        assert one.dtype == dtype
        close(one, other, DTYPES[dtype])


@pytest.mark.parametrize("length", LENGTHS)
def test_from_no_state_is_from_zeros_without_a_last_one(length: int) -> None:
    *inputs, state = operands(length, torch.float64)
    found, last = decayed_attention(*inputs, None)
    expected, _ = decayed_attention(*inputs, torch.zeros_like(state))
    close(found, expected)
    gradients = (torch.autograd.grad(y.square().sum(), inputs, allow_unused=True) for y in (found, expected))
    for one, other in zip(*gradients, strict=True):
        close(torch.zeros_like(other) if one is None else one, other)  # none of what moves a state alone
    assert last is None


@pytest.mark.parametrize("length", [1, 40, 70])
def test_heads_may_share_queries_and_keys_and_rows_the_decays(length: int) -> None:
    q, k, v, log_decay, state = operands(length, torch.float64)
    found = decayed_attention(q[:, :1], k[:, :1], v, log_decay[:1], state)
    expected = loop(q[:, :1].expand_as(q), k[:, :1].expand_as(k), v, log_decay[:1].expand(3, -1, -1), state)
    for one, other in zip(found, expected, strict=True):
        close(one, other, 1e-11)


@pytest.mark.parametrize("log_decay", [0.0, -1e-6, -90.0, -3000.0, -1e30, -math.inf])
def test_behind_extreme_decays_nothing_is_lost(log_decay: float) -> None:
    q, k, v, plain, state = (x.detach() for x in operands(130, torch.float32))
    plain[:, :, [0, 5, 6, 40, 129]] = log_decay
    inputs = [x.requires_grad_() for x in (q, k, v, plain, state)]
    found = decayed_attention(*inputs)
    expected = loop(*(x.double() for x in inputs))
    for one, other in zip(found, expected, strict=True):
        close(one.double(), other, 2e-5)
    for gradient in torch.autograd.grad(weighted_sum(*found), inputs):
        assert bool(torch.isfinite(gradient).all())


def test_everything_may_decay_at_once() -> None:
    for log_decay in (-1e38, -math.inf):
        inputs = [x.detach() for x in operands(130, torch.float32)]
        inputs[3] = torch.full_like(inputs[3], log_decay)
        y_BHLV, _ = decayed_attention(*(x.requires_grad_() for x in inputs))
        close(y_BHLV, (inputs[0] * inputs[1]).sum(-1, keepdim=True) * inputs[2], 2e-5)
        assert all(bool(torch.isfinite(g).all()) for g in torch.autograd.grad(y_BHLV.sum(), inputs, allow_unused=True))


def published(layer: Retention, x_BLD: Tensor, gammas: list[float]) -> Tensor:
    """Equations 1 to 8 of the paper with complex numbers: s_n = g e^(i theta) s_{n-1} + conj(k_n) v_n."""
    heads, outputs = len(gammas), []
    size = x_BLD.shape[2] // heads
    theta_K = torch.tensor([10_000 ** (-2 * pair / size) for pair in range(size // 2)], dtype=x_BLD.dtype)
    gate_BLE = x_BLD @ layer.gate.weight.T
    for head, gamma in enumerate(gammas):
        q, k, v = (
            x_BLD @ projection.weight.T.chunk(heads, 1)[head] for projection in (layer.query, layer.key, layer.value)
        )
        q_BLK, k_BLK = (torch.complex(*x.chunk(2, -1)) for x in (q, k / math.sqrt(size)))
        turn_K = gamma * torch.polar(torch.ones_like(theta_K), theta_K)
        s_BKV = torch.zeros(x_BLD.shape[0], size // 2, v.shape[-1], dtype=q_BLK.dtype)
        of_head = []
        for n in range(x_BLD.shape[1]):
            s_BKV = turn_K[:, None] * s_BKV + k_BLK[:, n, :, None].conj() * v[:, n, None]
            of_head.append((q_BLK[:, n, :, None] * s_BKV).sum(1).real)
        y_BLV = torch.stack(of_head, 1)
        y_BLV = y_BLV - y_BLV.mean(-1, keepdim=True)
        outputs.append(y_BLV / (y_BLV.square().mean(-1, keepdim=True) + 1e-6).sqrt())
    return (gate_BLE * torch.sigmoid(gate_BLE) * torch.cat(outputs, -1)) @ layer.out.weight.T


@pytest.mark.parametrize("length", LENGTHS)
def test_the_layer_equals_the_papers_equations(length: int) -> None:
    layer = Retention(RetentionConfig(d_model=12, num_heads=3)).double()
    for parameter in layer.parameters():  # so that the norm's epsilon does not hide what stands before it
        nn.init.normal_(parameter, std=0.5)
    x_BLD = torch.randn(2, length, 12, dtype=torch.float64, requires_grad=True)
    found, expected = layer(x_BLD, Context()), published(layer, x_BLD, [1 - 2**-5, 1 - 2**-6, 1 - 2**-7])
    close(found, expected, 1e-10)
    inputs = [x_BLD, *layer.parameters()]
    for one, other in zip(*(torch.autograd.grad(weighted_sum(y), inputs) for y in (found, expected)), strict=True):
        close(one, other, 1e-7)  # the norm's slope is up to 1e3


@pytest.mark.parametrize("cut", [1, 17, 66])
def test_prefill_steps_and_another_part_equal_the_whole(cut: int) -> None:
    layer = Retention(RetentionConfig(d_model=12, num_heads=3)).double()
    x_BLD = torch.randn(2, 130, 12, dtype=torch.float64)
    state = layer.init_state(2, max_length=130, device=torch.device("cpu"), dtype=torch.float64)
    head_BLD, state = layer.extend(x_BLD[:, :cut], state, Context())
    stepped = []
    for x_BD in x_BLD[:, cut:68].unbind(1):
        y_BD, state = layer.step(x_BD, state, Context())
        stepped.append(y_BD)
    tail_BLD, (_, position) = layer.extend(x_BLD[:, 68:], state, Context())
    assert int(position) == 130
    close(torch.cat([head_BLD, torch.stack(stepped, 1), tail_BLD], 1), layer(x_BLD, Context()), 1e-9)


def kept(config: RetentionConfig) -> list[float]:
    """Return the factor on a head's state when nothing is written."""
    layer = Retention(config).double()
    nn.init.zeros_(layer.key.weight)
    state_BHKV, position = layer.init_state(1, max_length=9, device=torch.device("cpu"), dtype=torch.float64)
    x_BLD = torch.randn(1, 3, config.d_model, dtype=torch.float64)
    _, (once, _) = layer.step(x_BLD[:, 0], (state_BHKV + 1, position), Context())
    _, (thrice, after) = layer.extend(x_BLD, (state_BHKV + 1, position), Context())
    close(thrice, once**3, 1e-14)
    assert int(after) == 3
    return once[0, :, 0, 0].tolist()


def test_heads_forget_at_the_published_rates() -> None:
    assert kept(RetentionConfig(d_model=8)) == pytest.approx([31 / 32, 63 / 64, 127 / 128, 255 / 256], abs=1e-14)
    assert kept(RetentionConfig(d_model=4, num_heads=2, shortest=4)) == pytest.approx([3 / 4, 7 / 8], abs=1e-14)
    spaced = RetentionConfig(d_model=6, num_heads=3, longest=512)
    logarithms = torch.linspace(math.log(1 / 32), math.log(1 / 512), 3, dtype=torch.float64)  # section 3.1
    assert kept(spaced) == pytest.approx((1 - logarithms.exp()).tolist(), abs=1e-14)
    assert kept(RetentionConfig(d_model=2, num_heads=1, longest=512)) == pytest.approx([31 / 32], abs=1e-14)


def test_initial_weights_are_the_published_ones() -> None:
    model = RetentionConfig(d_model=64, num_blocks=3).build(VOCAB)
    for block in model.blocks:
        mixer, feed_forward = block.layers
        for layer, outputs in ((mixer.query, 64), (mixer.key, 64), (mixer.value, 128), (mixer.gate, 128)):
            bound = 2**-2.5 * math.sqrt(6 / (64 + outputs))
            assert layer.weight.shape == (outputs, 64) and layer.bias is None
            assert 0.97 * bound < layer.weight.abs().max() <= bound
            assert layer.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)
        bound = math.sqrt(6 / 192) / math.sqrt(6)
        assert 0.97 * bound < mixer.out.weight.abs().max() <= bound
        assert feed_forward.inner.weight.shape == (128, 64)


def layer_norm(x: Tensor) -> Tensor:
    x = x - x.mean(-1, keepdim=True)
    return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()


def test_the_block_follows_its_docstring() -> None:
    model = RetentionConfig(d_model=8, num_blocks=2, num_heads=2, d_inner=5).build(VOCAB).double()
    tokens_BL = torch.randint(VOCAB, (3, 17))
    x_BLD = model.embedding.weight[tokens_BL]
    for block in model.blocks:
        mixer, feed_forward = block.layers
        x_BLD = x_BLD + published(mixer, layer_norm(x_BLD), [1 - 2**-5, 1 - 2**-6])
        inner_BLI = layer_norm(x_BLD) @ feed_forward.inner.weight.T + feed_forward.inner.bias
        gelu_BLI = inner_BLI * 0.5 * (1 + torch.erf(inner_BLI / math.sqrt(2)))
        x_BLD = x_BLD + gelu_BLI @ feed_forward.out.weight.T + feed_forward.out.bias
    close(model(tokens_BL, Context()), layer_norm(x_BLD) @ model.head.weight.T, 1e-9)


def test_under_autocast_the_state_stays_in_fp32() -> None:
    layer = Retention(RetentionConfig(d_model=16))
    x_BLD = torch.randn(2, 70, 16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        state = layer.init_state(2, max_length=70, device=torch.device("cpu"), dtype=torch.float32)
        y_BLD, (state_BHKV, _) = layer.extend(x_BLD, state, Context())
    assert state_BHKV.dtype == torch.float32
    expected_BLD = layer(x_BLD, Context())
    assert (y_BLD - expected_BLD).abs().max() < 0.1 * expected_BLD.abs().max()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_heads": 0}, "does not split into 0 heads of even dimension"),
        ({"d_model": 12, "num_heads": 4}, "d_model=12 does not split into 4 heads of even dimension"),
        ({"value_factor": 0}, "value_factor must be at least 1"),
        ({"shortest": 1.0}, "shortest must be more than 1 token"),
        ({"longest": 16.0}, "longest=16.0 must be 0 or at least shortest=32.0"),
        ({"d_inner": -1}, "d_inner must not be negative"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=f"^retention: .*{message}"):
        RetentionConfig(**settings)
