"""RNN, GRU and LSTM in C beside their loops: values and all gradients, on sizes that fill no vector and no tile."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.choose import chosen
from chomsky_ladder.models.kernels.native import missing
from chomsky_ladder.models.operations.recurrent.in_c import native_gru, native_lstm, native_rnn
from chomsky_ladder.models.operations.recurrent.torch_rnns import fused_gru, fused_lstm, fused_rnn
from chomsky_ladder.models.scans.recurrences import gru_layer, lstm_layer, rnn_layer
from support.layers import close

torch.set_num_threads(1)
pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

Layer = Callable[..., tuple[Tensor, ...]]
LAYERS: dict[str, tuple[Layer, Layer, Layer, int]] = {  # ours, the loop, torch's, gates
    "tanh": (*(partial(each, activation="tanh") for each in (native_rnn, rnn_layer, fused_rnn)), 1),
    "relu": (*(partial(each, activation="relu") for each in (native_rnn, rnn_layer, fused_rnn)), 1),
    "gru": (native_gru, gru_layer, fused_gru, 3),
    "lstm": (native_lstm, lstm_layer, fused_lstm, 4),
}
EACH = pytest.mark.parametrize("name", LAYERS)


def leaves(
    name: str, batch: int, length: int, width: int, *lead: int, dtype: torch.dtype = torch.float64
) -> list[Tensor]:
    """x, the states, both weights and the biases."""
    gates, root = LAYERS[name][3], width**-0.5
    states = [torch.randn(*lead, batch, width) for _ in range(2 if name == "lstm" else 1)]
    weights = [root * torch.randn(*lead, gates * width, width) for _ in range(2)]
    biases = [torch.randn(*lead, gates * width), *([torch.randn(*lead, width)] if name == "gru" else [])]
    given = [torch.randn(*lead, batch, length, width), *states, *weights, *biases]
    return [z.to(dtype).requires_grad_() for z in given]


def scored(outputs: tuple[Tensor, ...]) -> Tensor:
    """Of all outputs, each of them otherwise."""
    return sum(((i + 1) * z * torch.linspace(-1, 1, z.numel()).to(z).view_as(z)).sum() for i, z in enumerate(outputs))  # pyright: ignore[reportReturnType]


def agree(ours: Layer, theirs: Layer, given: list[Tensor]) -> None:
    found, expected = ours(*given), theirs(*given)
    gradients = (torch.autograd.grad(scored(z), given) for z in (found, expected))
    for one, other in zip((*found, *next(gradients)), (*expected, *next(gradients)), strict=True):
        close(one, other, 1e-11)


@EACH
@pytest.mark.parametrize("sizes", [(1, 1, 1), (3, 2, 17), (65, 9, 5), (13, 4, 33), (130, 1, 16)])
def test_layers_equal_their_loops(name: str, sizes: tuple[int, int, int]) -> None:
    agree(*LAYERS[name][:2], leaves(name, *sizes))


@EACH
def test_one_output_may_be_all_that_is_read(name: str) -> None:
    ours, loop, *_ = LAYERS[name]
    given = leaves(name, 3, 5, 7)
    for place in range(len(ours(*given))):
        of = (torch.autograd.grad(layer(*given)[place].square().sum(), given) for layer in (ours, loop))
        for one, other in zip(*of, strict=True):
            close(one, other, 1e-11)


@EACH
def test_what_does_not_lie_in_one_piece(name: str) -> None:
    ours, loop, *_ = LAYERS[name]
    x_BLD, *rest = leaves(name, 4, 6, 5)
    apart = [z.mT.contiguous().mT for z in rest if z.ndim == 2]
    given = [x_BLD.detach().transpose(0, 1).contiguous().transpose(0, 1).requires_grad_(), *apart, *rest[len(apart) :]]
    agree(ours, loop, given)
    close(ours(*given)[0], loop(x_BLD, *rest)[0], 1e-11)


@EACH
@pytest.mark.parametrize("shares", ["nothing", "weights", "strings"])
def test_they_stack(name: str, shares: str) -> None:
    """Replicas give what each gives alone, gradients too; weights or strings may be common to all."""
    ours, loop, *_ = LAYERS[name]
    given = leaves(name, 3, 4, 6, 2)
    of_weights = len(given) - (4 if name == "gru" else 3)
    common = {"nothing": range(0), "weights": range(of_weights, len(given)), "strings": range(1)}[shares]
    given = [z[0].detach().requires_grad_() if i in common else z for i, z in enumerate(given)]
    in_dims = tuple(None if i in common else 0 for i in range(len(given)))
    agree(torch.vmap(ours, in_dims), torch.vmap(loop, in_dims), given)


@EACH
def test_single_precision_is_as_good_as_torchs(name: str) -> None:
    """But for gradients of weights and biases, which are sums over all tokens, as those of linear layers are."""
    ours, loop, theirs, _ = LAYERS[name]
    given, found = [z.detach() for z in leaves(name, 33, 30, 45)], []
    for layer, dtype in ((loop, torch.float64), (theirs, torch.float32), (ours, torch.float32)):
        own = [z.to(dtype).requires_grad_() for z in given]
        outputs = layer(*own)
        found.append([*outputs, *torch.autograd.grad(scored(outputs), own)])
    of_weights = len(outputs) + len(given) - (4 if name == "gru" else 3)
    for place, (exact, other, one) in enumerate(zip(*found, strict=True)):
        digits = 2e-6 * exact.abs().max() if place >= of_weights else 0
        assert (one - exact).abs().max() <= 3 * (other - exact).abs().max() + digits
        assert (one - exact).abs().mean() <= 2 * (other - exact).abs().mean() + digits


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tanh_from_the_smallest_numbers_to_none(dtype: torch.dtype) -> None:
    x_D = torch.tensor(
        [0.0, -0.0, 1e-30, 1e-4, -0.2, 0.2499, 0.2501, -0.3, 3.0, 20.0, -90.0, 1e30, -torch.inf, torch.nan]
    )
    x_D = torch.cat([x_D.to(dtype), torch.linspace(-9, 9, 2_001).to(dtype)])
    weight = torch.zeros(len(x_D), len(x_D), dtype=dtype)
    h_D = native_rnn(weight[:1, None], weight[:1], weight, weight, x_D, activation="tanh")[1][0]
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(h_D, torch.tanh(x_D.double()).to(dtype), rtol=6 * eps, atol=0.0, equal_nan=True)


@EACH
def test_saturated_gates_stay_finite(name: str) -> None:
    given = leaves(name, 2, 5, 4, dtype=torch.float32)
    given[0] = (200 * given[0]).detach().requires_grad_()
    outputs = LAYERS[name][0](*given)
    for z in (*outputs, *torch.autograd.grad(scored(outputs), given)):
        assert bool(z.isfinite().all())


@EACH
def test_what_is_no_number_stays_in_its_string(name: str) -> None:
    x_BLD, *rest = (z.detach() for z in leaves(name, 3, 5, 4))
    x_BLD[1, 2] = torch.nan
    found = LAYERS[name][0](x_BLD, *rest)[0].isnan().any(-1)
    assert found.tolist() == [[False] * 5, [False, False, True, True, True], [False] * 5]


def test_who_takes_them() -> None:
    """Of LSTMs packs alone, and whoever asks by name; nothing under autocast or in another precision."""
    x_BLD = torch.randn(2, 3, 4)
    for operation, name, other in (("rnn_layer", "native_rnn", "torch.rnn"), ("gru_layer", "native_gru", "torch.gru")):
        assert chosen(operation, x_BLD, Context()).name == chosen(operation, x_BLD, Context(stacked=True)).name == name  # pyright: ignore[reportOptionalMemberAccess]
        assert chosen(operation, x_BLD.bfloat16(), Context()).name == other  # pyright: ignore[reportOptionalMemberAccess]
        with torch.autocast("cpu", torch.bfloat16):
            assert chosen(operation, x_BLD, Context()).name == other  # pyright: ignore[reportOptionalMemberAccess]
    asked = (
        (Context(), "torch.lstm"),
        (Context(stacked=True), "native_lstm"),
        (Context(backend="native_lstm"), "native_lstm"),
    )
    assert [chosen("lstm_layer", x_BLD, ctx).name for ctx, _ in asked] == [name for _, name in asked]  # pyright: ignore[reportOptionalMemberAccess]
    assert chosen("lstm_layer", x_BLD, Context(backend="reference")) is None
