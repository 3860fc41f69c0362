"""The Elman and GRU recurrences against torch.nn.RNN and GRU and a loop over plain floats, and their two models."""

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.harness.train.optim import declared
from chomsky_ladder.models.block import Backend, Context
from chomsky_ladder.models.gru import GRUCell, GRUConfig
from chomsky_ladder.models.kernels.native import missing
from chomsky_ladder.models.rnn import Cell, RNNCell, RNNConfig
from support.layers import close

torch.set_num_threads(1)

VOCAB = 11
BACKENDS: tuple[Backend, ...] = ("auto", "reference")
KINDS = ("tanh", "relu", "gru")
BY = "torch." if missing() else "native_"
FAST = {"tanh": f"{BY}rnn", "relu": f"{BY}rnn", "gru": f"{BY}gru"}
DTYPES = {torch.float64: 1e-12, torch.float32: 1e-5}  # with the error allowed: sums of some tens of rounded terms
CONFIGS = {
    "tanh": lambda **kw: RNNConfig(**kw),
    "relu": lambda **kw: RNNConfig(activation="relu", **kw),
    "gru": lambda **kw: GRUConfig(**kw),
}

Floats = list[float]


def make_cell(kind: str, width: int) -> Cell:
    return GRUCell(width) if kind == "gru" else RNNCell(width, activation=kind)


def make_torch(kind: str, width: int, num_layers: int = 1) -> nn.RNNBase:
    if kind == "gru":
        return nn.GRU(width, width, num_layers, batch_first=True)
    return nn.RNN(width, width, num_layers, batch_first=True, nonlinearity=kind)


def copy_layer(theirs: nn.RNNBase, layer: int, cell: Cell) -> None:
    """The weights of one of torch's layers, whose two biases act as their sum but for the GRU's second one of n."""
    with torch.no_grad():
        cell.weight_ih.copy_(getattr(theirs, f"weight_ih_l{layer}"))
        cell.weight_hh.copy_(getattr(theirs, f"weight_hh_l{layer}"))
        first, second = getattr(theirs, f"bias_ih_l{layer}"), getattr(theirs, f"bias_hh_l{layer}")
        if isinstance(cell, GRUCell):
            width = cell.bias_n.shape[0]
            cell.bias.copy_(first + torch.cat([second[: 2 * width], torch.zeros_like(second[2 * width :])]))
            cell.bias_n.copy_(second[2 * width :])
        else:
            cell.bias.copy_(first + second)


def gradients_of(theirs: nn.RNNBase, layer: int, loss: Tensor) -> list[Tensor]:
    """Return the gradients of the weights, in the order of a cell's parameters."""
    names = [f"{name}_l{layer}" for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
    *first, last = torch.autograd.grad(loss, [getattr(theirs, name) for name in names], retain_graph=True)
    return [*first, last[-theirs.hidden_size :]] if isinstance(theirs, nn.GRU) else first


def weighted_sum(tensors: Sequence[Tensor]) -> Tensor:
    """A scalar in which no element can hide another's error."""
    return sum((x * torch.linspace(-1, 1, x.numel(), dtype=x.dtype).sin().view_as(x)).sum() for x in tensors)


@pytest.mark.parametrize("length", [1, 2, 17, 65])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_extend_equals_torch_from_any_state(backend: Backend, kind: str, dtype: torch.dtype, length: int) -> None:
    cell, theirs = make_cell(kind, 6).to(dtype), make_torch(kind, 6).to(dtype)
    copy_layer(theirs, 0, cell)
    x_BLD = torch.randn(3, length, 6, dtype=dtype, requires_grad=True)
    h_BD = torch.randn(3, 6, dtype=dtype, requires_grad=True)
    ctx = Context(backend=backend)

    found = cell.extend(x_BLD, h_BD, ctx)
    expected_BLD, h_1BD = theirs(x_BLD, h_BD[None])

    assert ctx.backends == ({FAST[kind]} if backend == "auto" else set())
    expected = (expected_BLD, h_1BD[0])
    gradients = torch.autograd.grad(weighted_sum(found), (x_BLD, h_BD, *cell.parameters()))
    loss = weighted_sum(expected)
    expected_gradients = torch.autograd.grad(loss, (x_BLD, h_BD), retain_graph=True)
    expected_gradients = (*expected_gradients, *gradients_of(theirs, 0, loss))
    for one, other in zip((*found, *gradients), (*expected, *expected_gradients), strict=True):
        assert one.shape == other.shape and one.dtype == dtype
        close(one, other, DTYPES[dtype])

    state = h_BD.detach()
    for x_BD, y_BD in zip(x_BLD.unbind(1), expected_BLD.unbind(1), strict=True):
        state = cell.step(x_BD, state)
        close(state, y_BD, DTYPES[dtype])


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def scalar_loop(kind: str, cell: Cell, x_LD: list[Floats], h: Floats) -> list[Floats]:
    """The equations of the docstrings, one number at a time; gate n of unit j is row n * width + j."""
    W, U, b = cell.weight_ih.tolist(), cell.weight_hh.tolist(), cell.bias.tolist()
    width, outputs = len(h), []
    for x in x_LD:
        from_x, from_h = ([sum(row[d] * y[d] for d in range(width)) for row in rows] for rows, y in ((W, x), (U, h)))
        total = [sum(terms) for terms in zip(from_x, from_h, b, strict=True)]
        if kind == "gru":
            c, r, z = cell.bias_n.tolist(), total[:width], total[width : 2 * width]
            after = []
            for j in range(width):
                row = 2 * width + j
                n = math.tanh(from_x[row] + b[row] + sigmoid(r[j]) * (from_h[row] + c[j]))
                after.append((1 - sigmoid(z[j])) * n + sigmoid(z[j]) * h[j])
            h = after
        else:
            h = [math.tanh(y) if kind == "tanh" else max(0.0, y) for y in total]
        outputs.append(h)
    return outputs


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_cell_of_width_two_equals_the_equations_on_plain_floats(backend: Backend, kind: str) -> None:
    cell = make_cell(kind, 2).double()
    x_BLD, h_BD = 2 * torch.randn(3, 17, 2, dtype=torch.float64), torch.randn(3, 2, dtype=torch.float64)
    found_BLD, last_BD = cell.extend(x_BLD, h_BD, Context(backend=backend))
    for row in range(3):
        expected = torch.tensor(scalar_loop(kind, cell, x_BLD[row].tolist(), h_BD[row].tolist()), dtype=torch.float64)
        close(found_BLD[row], expected, 1e-13)
        close(last_BD[row], expected[-1], 1e-13)


@pytest.mark.parametrize("kind", KINDS)
def test_initial_weights_are_uniform_as_torch_makes_them(kind: str) -> None:
    cell, theirs = make_cell(kind, 64), make_torch(kind, 64)
    biases = [theirs.bias_ih_l0, theirs.bias_hh_l0[-64:]]
    for own, other in zip(cell.parameters(), [theirs.weight_ih_l0, theirs.weight_hh_l0, *biases], strict=False):
        assert 0.9 / 8 < own.max() <= 1 / 8 and -1 / 8 <= own.min() < -0.9 / 8
        assert own.std().item() == pytest.approx(other.std().item(), rel=0.3 if own.ndim == 1 else 0.05)
    assert len(list(cell.parameters())) == (4 if kind == "gru" else 3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_two_layer_model_is_torchs_between_an_embedding_and_a_head(backend: Backend, kind: str) -> None:
    model = CONFIGS[kind](d_model=8, num_blocks=2).build(VOCAB).double()
    theirs = make_torch(kind, 8, 2).double()
    for layer, block in enumerate(model.blocks):
        copy_layer(theirs, layer, block.cell)
    tokens_BL = torch.randint(VOCAB, (3, 17))
    ends = (model.embedding.weight, model.head.weight)
    hidden_BLD, h_NBD = theirs(ends[0][tokens_BL])
    expected_BLV = hidden_BLD @ ends[1].T
    logits_BLV = model(tokens_BL, Context(backend=backend))
    close(logits_BLV, expected_BLV, 1e-12)

    found = torch.autograd.grad(weighted_sum([logits_BLV]), (*ends, *model.blocks.parameters()))
    loss = weighted_sum([expected_BLV])
    expected = [*torch.autograd.grad(loss, ends, retain_graph=True)]
    expected += [gradient for layer in (0, 1) for gradient in gradients_of(theirs, layer, loss)]
    for one, other in zip(found, expected, strict=True):
        close(one, other, 1e-11)

    state = model.init_state(3, max_length=17, device=torch.device("cpu"), dtype=torch.float64)
    head_BLV, state = model.extend(tokens_BL[:, :9], state, Context(backend=backend))
    tail_BLV, state = model.extend(tokens_BL[:, 9:], state, Context(backend=backend))
    close(torch.cat([head_BLV, tail_BLV], 1), expected_BLV, 1e-12)
    for h_BD, expected_BD in zip(state, h_NBD, strict=True):
        close(h_BD, expected_BD, 1e-12)


@pytest.mark.parametrize("kind", ["tanh", "gru"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_saturated_units_stay_finite_and_bounded(backend: Backend, kind: str) -> None:
    cell = make_cell(kind, 4)
    x_BLD = (1e4 * torch.randn(2, 65, 4)).requires_grad_()
    y_BLD, _ = cell.extend(x_BLD, torch.zeros(2, 4), Context(backend=backend))
    assert bool((y_BLD.abs() <= 1).all())
    for gradient in torch.autograd.grad(y_BLD.sum(), (x_BLD, *cell.parameters())):
        assert bool(torch.isfinite(gradient).all())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_under_autocast_both_ways_are_near_full_precision(backend: Backend, kind: str) -> None:
    cell, x_BLD = make_cell(kind, 8), torch.randn(3, 17, 8)
    expected_BLD, _ = cell.extend(x_BLD, torch.zeros(3, 8), Context(backend="reference"))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y_BLD, _ = cell.extend(x_BLD, torch.zeros(3, 8), Context(backend=backend))
    close(y_BLD.float(), expected_BLD, 0.05)


def test_the_activation_is_a_setting_and_nothing_is_scaled_or_slowed() -> None:
    assert RNNConfig().activation == "tanh" and RNNConfig().final_norm == GRUConfig().final_norm == "none"
    assert all(multiplier == 1 for kind in KINDS for _, _, multiplier in declared(CONFIGS[kind](d_model=8).build(3)))
