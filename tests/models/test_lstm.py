"""The LSTM recurrence against torch.nn.LSTM and a loop over plain floats, its initial weights, and its two models."""

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.models.block import Backend, Context
from chomsky_ladder.models.lstm import LSTMCell, LSTMConfig
from chomsky_ladder.models.lstm_block import LSTMBlockConfig
from support.layers import close

torch.set_num_threads(1)

VOCAB = 11
BACKENDS: tuple[Backend, ...] = ("auto", "reference")
DTYPES = {torch.float64: 1e-12, torch.float32: 1e-5}  # with the error allowed: sums of some tens of rounded terms

Floats = list[float]


def copy_layer(lstm: nn.LSTM, layer: int, cell: LSTMCell) -> None:
    """The weights of one layer of torch's LSTM, whose two biases only ever act as their sum."""
    with torch.no_grad():
        cell.weight_ih.copy_(getattr(lstm, f"weight_ih_l{layer}"))
        cell.weight_hh.copy_(getattr(lstm, f"weight_hh_l{layer}"))
        cell.bias.copy_(getattr(lstm, f"bias_ih_l{layer}") + getattr(lstm, f"bias_hh_l{layer}"))


def twins(width: int, dtype: torch.dtype) -> tuple[LSTMCell, nn.LSTM]:
    cell, lstm = LSTMCell(width, forget_bias=0.0).to(dtype), nn.LSTM(width, width, batch_first=True).to(dtype)
    copy_layer(lstm, 0, cell)
    return cell, lstm


def weighted_sum(tensors: Sequence[Tensor]) -> Tensor:
    """A scalar in which no element can hide another's error."""
    return sum((x * torch.linspace(-1, 1, x.numel(), dtype=x.dtype).sin().view_as(x)).sum() for x in tensors)


@pytest.mark.parametrize("length", [1, 2, 17])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_extend_equals_torch_from_any_state(backend: Backend, dtype: torch.dtype, length: int) -> None:
    cell, lstm = twins(6, dtype)
    x_BLD = torch.randn(3, length, 6, dtype=dtype, requires_grad=True)
    h_BD, c_BD = (torch.randn(3, 6, dtype=dtype, requires_grad=True) for _ in "hc")
    ctx = Context(backend=backend)

    y_BLD, state = cell.extend(x_BLD, (h_BD, c_BD), ctx)
    expected_BLD, (h_1BD, c_1BD) = lstm(x_BLD, (h_BD[None], c_BD[None]))

    assert ctx.backends == ({"torch.lstm"} if backend == "auto" else set())
    found, expected = (y_BLD, *state), (expected_BLD, h_1BD[0], c_1BD[0])
    inputs = (x_BLD, h_BD, c_BD)
    gradients = torch.autograd.grad(weighted_sum(found), (*inputs, cell.weight_ih, cell.weight_hh, cell.bias))
    own = (lstm.weight_ih_l0, lstm.weight_hh_l0, lstm.bias_ih_l0)
    expected_gradients = torch.autograd.grad(weighted_sum(expected), (*inputs, *own))
    for one, other in zip((*found, *gradients), (*expected, *expected_gradients), strict=True):
        assert one.shape == other.shape and one.dtype == dtype
        close(one, other, DTYPES[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_forward_starts_from_zeros_and_steps_go_on_from_any_state(backend: Backend, dtype: torch.dtype) -> None:
    cell, lstm = twins(5, dtype)
    x_BLD = torch.randn(4, 17, 5, dtype=dtype)
    close(cell(x_BLD, Context(backend=backend)), lstm(x_BLD)[0], DTYPES[dtype])
    with torch.no_grad():  # torch's kernel has another path for inference
        close(cell(x_BLD, Context(backend=backend)), lstm(x_BLD)[0], DTYPES[dtype])

    h_BD, c_BD = torch.randn(2, 4, 5, dtype=dtype)
    expected_BLD, (h_1BD, c_1BD) = lstm(x_BLD, (h_BD[None], c_BD[None]))
    y_BLD, state = cell.extend(x_BLD[:, :9], (h_BD, c_BD), Context(backend=backend))
    close(y_BLD, expected_BLD[:, :9], DTYPES[dtype])
    for position in range(9, 17):
        y_BD, state = cell.step(x_BLD[:, position], state)
        close(y_BD, expected_BLD[:, position], DTYPES[dtype])
    close(state[0], h_1BD[0], DTYPES[dtype])
    close(state[1], c_1BD[0], DTYPES[dtype])


@pytest.mark.parametrize("backend", BACKENDS)
def test_inputs_of_any_memory_layout(backend: Backend) -> None:
    cell, lstm = twins(6, torch.float32)
    x_BLD = torch.randn(12, 17, 3).permute(2, 1, 0)[..., ::2]
    h_BD, c_BD = torch.randn(6, 3).T, torch.randn(6).expand(3, 6)
    y_BLD, _ = cell.extend(x_BLD, (h_BD, c_BD), Context(backend=backend))
    expected_BLD, _ = lstm(x_BLD.contiguous(), (h_BD.contiguous()[None], c_BD.contiguous()[None]))
    close(y_BLD, expected_BLD, 1e-5)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def scalar_lstm(cell: LSTMCell, x_LD: list[Floats], h: Floats, c: Floats) -> tuple[list[Floats], Floats, Floats]:
    """The equations of the docstring, one number at a time; gate n of unit j is row n * width + j."""
    W, U, b = cell.weight_ih.tolist(), cell.weight_hh.tolist(), cell.bias.tolist()
    width, outputs = len(h), []

    def gate(number: int, unit: int, x: Floats, h: Floats) -> float:
        row = number * width + unit
        return b[row] + sum(W[row][d] * x[d] for d in range(width)) + sum(U[row][d] * h[d] for d in range(width))

    for x in x_LD:
        before = h
        i, f, g, o = ([gate(number, unit, x, before) for unit in range(width)] for number in range(4))
        c = [sigmoid(f[j]) * c[j] + sigmoid(i[j]) * math.tanh(g[j]) for j in range(width)]
        h = [sigmoid(o[j]) * math.tanh(c[j]) for j in range(width)]
        outputs.append(h)
    return outputs, h, c


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_cell_of_width_two_equals_the_equations_on_plain_floats(backend: Backend) -> None:
    cell = LSTMCell(2, forget_bias=0.0).double()
    x_BLD, state = 2 * torch.randn(3, 17, 2, dtype=torch.float64), torch.randn(2, 3, 2, dtype=torch.float64)
    found_BLD, (found_h, found_c) = cell.extend(x_BLD, (state[0], state[1]), Context(backend=backend))
    for row in range(3):
        y, h, c = scalar_lstm(cell, x_BLD[row].tolist(), state[0, row].tolist(), state[1, row].tolist())
        for found, expected in ((found_BLD[row], y), (found_h[row], h), (found_c[row], c)):
            close(found, torch.tensor(expected, dtype=torch.float64), 1e-13)


def odds_of_remembering(cell: LSTMCell, backend: Backend) -> Tensor:
    """The log-odds of s(f) for x = h = 0, from what one unit of c is worth a token later."""
    zero_BD = torch.zeros(1, 4, dtype=torch.float64)
    (_, with_c), (_, without_c) = (
        cell.extend(zero_BD[:, None], (zero_BD, c_BD), Context(backend=backend))[1] for c_BD in (zero_BD + 1, zero_BD)
    )
    return torch.logit(with_c - without_c)[0]


def seeded_cell(*, forget_bias: float) -> LSTMCell:
    torch.manual_seed(3)
    return LSTMCell(4, forget_bias=forget_bias).double()


@pytest.mark.parametrize("backend", BACKENDS)
def test_forget_bias_keeps_what_is_remembered_and_touches_nothing_else(backend: Backend) -> None:
    plain, biased = (seeded_cell(forget_bias=forget_bias) for forget_bias in (0.0, 3.0))
    close(
        odds_of_remembering(biased, backend) - odds_of_remembering(plain, backend), torch.full((4,), 3.0).double(), 1e-6
    )
    added_4D = (biased.bias - plain.bias).detach().view(4, 4)
    assert bool((added_4D[[0, 2, 3]] == 0).all())
    assert torch.equal(biased.weight_ih, plain.weight_ih) and torch.equal(biased.weight_hh, plain.weight_hh)


@pytest.mark.parametrize("cls", [LSTMConfig, LSTMBlockConfig])
def test_forget_bias_reaches_every_block(cls: type[LSTMConfig] | type[LSTMBlockConfig]) -> None:
    models = []
    for forget_bias in (0.0, 2.5):
        torch.manual_seed(1)
        models.append(cls(d_model=8, num_blocks=3, forget_bias=forget_bias).build(VOCAB))
    expected = torch.tensor([0.0, 2.5, 0.0, 0.0]).repeat_interleave(8)
    for plain, biased in zip(models[0].blocks, models[1].blocks, strict=True):
        one, other = ([m for m in block.modules() if isinstance(m, LSTMCell)] for block in (plain, biased))
        assert len(one) == 1
        close(other[0].bias - one[0].bias, expected, 1e-6)
    assert cls().forget_bias == 0


def test_initial_weights_are_uniform_as_torch_makes_them() -> None:
    cell, lstm = LSTMCell(64, forget_bias=0.0), nn.LSTM(64, 64)
    for own, theirs in (
        (cell.weight_ih, lstm.weight_ih_l0),
        (cell.weight_hh, lstm.weight_hh_l0),
        (cell.bias, lstm.bias_ih_l0),
    ):
        assert 0.95 / 8 < own.max() <= 1 / 8 and -1 / 8 <= own.min() < -0.95 / 8
        assert own.std().item() == pytest.approx(theirs.std().item(), rel=0.1)
        assert abs(own.mean().item()) < 0.01


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_two_layer_model_is_torchs_between_an_embedding_and_a_head(backend: Backend) -> None:
    model = LSTMConfig(d_model=8, num_blocks=2).build(VOCAB).double()
    lstm = nn.LSTM(8, 8, num_layers=2, batch_first=True).double()
    for layer, block in enumerate(model.blocks):
        copy_layer(lstm, layer, block.cell)
    tokens_BL = torch.randint(VOCAB, (3, 17))
    ends = (model.embedding.weight, model.head.weight)

    hidden_BLD, (h_NBD, c_NBD) = lstm(ends[0][tokens_BL])
    expected_BLV = hidden_BLD @ ends[1].T
    logits_BLV = model(tokens_BL, Context(backend=backend))
    close(logits_BLV, expected_BLV, 1e-12)

    cells = [p for block in model.blocks for p in (block.cell.weight_ih, block.cell.weight_hh, block.cell.bias)]
    theirs = [getattr(lstm, f"{name}_l{layer}") for layer in (0, 1) for name in ("weight_ih", "weight_hh", "bias_ih")]
    found = torch.autograd.grad(weighted_sum([logits_BLV]), (*ends, *cells))
    expected = torch.autograd.grad(weighted_sum([expected_BLV]), (*ends, *theirs))
    for one, other in zip(found, expected, strict=True):
        close(one, other, 1e-11)

    state = model.init_state(3, max_length=17, device=torch.device("cpu"), dtype=torch.float64)
    extended_BLV, after = model.extend(tokens_BL, state, Context(backend=backend))
    close(extended_BLV, expected_BLV, 1e-12)
    for layer, (h_BD, c_BD) in enumerate(after):
        close(h_BD, h_NBD[layer], 1e-12)
        close(c_BD, c_NBD[layer], 1e-12)


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return x / x.square().mean(-1, keepdim=True).sqrt() * weight


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_residual_block_follows_its_docstring(backend: Backend) -> None:
    model = LSTMBlockConfig(d_model=8, num_blocks=2, d_inner=5).build(VOCAB).double()
    for norm in (module for module in model.modules() if isinstance(module, nn.RMSNorm)):
        nn.init.uniform_(norm.weight, 0.5, 1.5)
    tokens_BL = torch.randint(VOCAB, (3, 17))
    x_BLD = model.embedding.weight[tokens_BL]
    for block in model.blocks:
        (mixer, feed_forward), (mixer_norm, feed_forward_norm) = block.layers, block.norms
        lstm = nn.LSTM(8, 8, batch_first=True).double()
        with torch.no_grad():
            lstm.weight_ih_l0.copy_(mixer.cell.weight_ih)
            lstm.weight_hh_l0.copy_(mixer.cell.weight_hh)
            lstm.bias_ih_l0.copy_(mixer.cell.bias)
            lstm.bias_hh_l0.zero_()
        x_BLD = x_BLD + lstm(rms_norm(x_BLD, mixer_norm.weight))[0] @ mixer.out.weight.T
        normed_BLD = rms_norm(x_BLD, feed_forward_norm.weight)
        W_1, W_2 = feed_forward.gate_up.weight[:5], feed_forward.gate_up.weight[5:]
        gate_BLI = normed_BLD @ W_1.T
        gated_BLI = gate_BLI / (1 + torch.exp(-gate_BLI)) * (normed_BLD @ W_2.T)
        x_BLD = x_BLD + gated_BLI @ feed_forward.out.weight.T
    expected_BLV = rms_norm(x_BLD, model.norm.weight) @ model.head.weight.T
    close(model(tokens_BL, Context(backend=backend)), expected_BLV, 1e-11)
