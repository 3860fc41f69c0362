"""xLSTM large: its layer by its docstring, its capped gates and logits, and what it starts from."""

import pytest
import torch

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.layers.feed_forward import SwiGLU
from chomsky_ladder.models.operations.mlstm.reference import mlstm_chunks, mlstm_start
from chomsky_ladder.models.xlstm_large import EPS, LOGIT_CAP, LargeMLSTM, XLSTMLargeConfig
from support.cases import full
from support.layers import close, gradients, lively

torch.set_num_threads(1)

VOCAB, WIDTH, HEADS = 11, 24, 3
CONFIG = XLSTMLargeConfig(d_model=WIDTH, num_heads=HEADS)


def by_hand(layer: LargeMLSTM, x_LD: torch.Tensor) -> torch.Tensor:
    """One row, a token at a time; float64 needs no stabiliser for gates of up to 15, but eps counts for e^m."""
    half, heads = WIDTH // 2, HEADS
    C_HKV = torch.zeros(heads, half // heads, WIDTH // heads, dtype=x_LD.dtype)
    n_HK = torch.zeros(heads, half // heads, dtype=x_LD.dtype)
    m_H, outputs = torch.full((heads,), -torch.inf, dtype=x_LD.dtype), []
    for x in x_LD:
        q, k, v = (part.view(heads, -1) for part in (layer.query_key_value.weight @ x).split([half, half, WIDTH]))
        i, f = (15 * torch.tanh((layer.gates.weight @ x + layer.gates.bias) / 15)).chunk(2)
        keep, write = 1 / (1 + torch.exp(-f)), torch.exp(i)
        C_HKV = keep[:, None, None] * C_HKV + write[:, None, None] * k[:, :, None] * v[:, None, :]
        n_HK = keep[:, None] * n_HK + write[:, None] * k
        m_H = torch.maximum(torch.log(keep) + m_H, i)
        scaled = q / (half // heads) ** 0.5
        below = torch.clamp((scaled * n_HK).sum(-1).abs(), min=1) + EPS * torch.exp(m_H)
        h = (scaled[:, :, None] * C_HKV).sum(1) / below[:, None]
        h = h - h.mean(-1, keepdim=True)
        h = (h / (h.square().mean(-1, keepdim=True) + EPS).sqrt()).flatten() * layer.norm.weight
        outputs.append(layer.out.weight @ (h / (1 + torch.exp(-(layer.out_gate.weight @ x)))))
    return torch.stack(outputs)


@pytest.mark.parametrize("length", [1, 2, 17, 64, 65, full(130)])
def test_it_is_its_equations_in_value_and_gradient(length: int) -> None:
    layer = lively(LargeMLSTM(XLSTMLargeConfig(d_model=WIDTH, num_heads=HEADS, input_bias=0.0)))
    x_BLD = torch.randn(2, length, WIDTH, dtype=torch.float64, requires_grad=True)
    inputs = [x_BLD, *layer.parameters()]
    found, expected = layer(x_BLD, Context()), torch.stack([by_hand(layer, x_LD) for x_LD in x_BLD])
    close(found, expected, 1e-10)
    for one, other in zip(gradients(found, inputs), gradients(expected, inputs), strict=True):
        close(one, other, 1e-8)


@pytest.mark.parametrize("parts", [[1] * 70, [69, 1], [1, 69], [3, 1, 66]])
def test_parts_equal_the_whole(parts: list[int]) -> None:
    layer, x_BLD = lively(LargeMLSTM(CONFIG)), torch.randn(2, 70, WIDTH, dtype=torch.float64)
    state = layer.init_state(2, max_length=70, device=x_BLD.device, dtype=x_BLD.dtype)
    outputs = []
    for part in x_BLD.split(parts, 1):
        y_BLD, state = layer.extend(part, state, Context())
        outputs.append(y_BLD)
    close(torch.cat(outputs, 1), layer(x_BLD, Context()))


def test_the_short_form_equals_chunks() -> None:
    layer, x_BLD = lively(LargeMLSTM(CONFIG)), torch.randn(2, 33, WIDTH, dtype=torch.float64)
    start = mlstm_start(2, HEADS, WIDTH // 2 // HEADS, WIDTH // HEADS, device=x_BLD.device, dtype=x_BLD.dtype)
    close(layer(x_BLD, Context()), layer._out(x_BLD, layer._run(mlstm_chunks, x_BLD, start)[0]))


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e4, 1e8])
def test_extreme_inputs_stay_finite_in_fp32(scale: float) -> None:
    layer = LargeMLSTM(CONFIG)
    x_BLD = (scale * torch.randn(2, 70, WIDTH)).requires_grad_()
    y_BLD = layer(x_BLD, Context())
    y_BLD.sum().backward()
    assert bool(torch.isfinite(y_BLD).all()) and bool(torch.isfinite(x_BLD.grad).all())


def test_logits_cannot_leave_their_cap_in_forward_or_step() -> None:
    model, tokens_BL = CONFIG.build(VOCAB).double(), torch.randint(VOCAB, (2, 5))
    before_BLV = LOGIT_CAP * torch.atanh(model(tokens_BL) / LOGIT_CAP)
    model.head.weight.data *= 100
    after_BLV = model(tokens_BL)
    close(after_BLV, LOGIT_CAP * torch.tanh(100 * before_BLV / LOGIT_CAP), 1e-9)
    assert after_BLV.abs().max() > 0.99 * LOGIT_CAP
    state = model.init_state(2, max_length=5, device=torch.device("cpu"), dtype=torch.float64)
    close(model.step(tokens_BL[:, 0], state, Context())[0], after_BLV[:, 0])


def test_initial_weights() -> None:
    config = XLSTMLargeConfig(d_model=64, num_heads=4, num_blocks=3)
    mlstm, behind = config.block(0).layers
    assert isinstance(behind, SwiGLU) and config.inner_width == behind.out.in_features == 192
    small = (2 / (5 * 64)) ** 0.5
    for weight, std in (
        (mlstm.query_key_value.weight, small),
        (mlstm.out_gate.weight, small),
        (mlstm.out.weight, 2 / 3 / 8),
        (behind.gate_up.weight, small),
        (behind.out.weight, 2 / 3 / 192**0.5),
    ):
        assert weight.std().item() == pytest.approx(std, rel=0.1)
    assert not mlstm.gates.weight.any()
    close(mlstm.gates.bias, torch.tensor([-10.0] * 4 + [3.0, 4.0, 5.0, 6.0]))


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="xlstm_large: half of d_model=12 does not split into 4 heads"):
        XLSTMLargeConfig(d_model=12)
    with pytest.raises(ValueError, match="xlstm_large: d_inner must not be negative"):
        XLSTMLargeConfig(d_inner=-1)
