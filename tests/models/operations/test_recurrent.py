"""RNN, GRU and LSTM in C: their precision beside torch's own, tanh, and who takes them."""

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


def leaves(name: str, batch: int, length: int, width: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """x, the states, both weights and the biases."""
    gates, root = LAYERS[name][3], width**-0.5
    states = [torch.randn(batch, width) for _ in range(2 if name == "lstm" else 1)]
    weights = [root * torch.randn(gates * width, width) for _ in range(2)]
    biases = [torch.randn(gates * width), *([torch.randn(width)] if name == "gru" else [])]
    given = [torch.randn(batch, length, width), *states, *weights, *biases]
    return [z.to(dtype).requires_grad_() for z in given]


def scored(outputs: tuple[Tensor, ...]) -> Tensor:
    """Return a scalar in which no output can hide another's error."""
    return sum(((i + 1) * z * torch.linspace(-1, 1, z.numel()).to(z).view_as(z)).sum() for i, z in enumerate(outputs))  # pyright: ignore[reportReturnType]


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


def test_who_takes_them() -> None:
    """LSTMs take it in packs alone, or by name; nothing does under autocast or in another precision."""
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
