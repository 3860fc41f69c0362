"""M2RNN against its equations on one row, its scan against the loop, and the Elman network that it has inside."""

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.m2rnn import M2RNNConfig, MatrixRNN
from chomsky_ladder.models.operations.matrix_rnn.reference import matrix_rnn_loop, matrix_rnn_scan
from support.cases import full
from support.layers import close, gradients, lively

torch.set_num_threads(1)

WIDTH, HEADS = 12, 3
LENGTHS = pytest.mark.parametrize("length", [1, 2, 17, 64, 65, full(130)])


def silu(x: Tensor) -> Tensor:
    return x / (1 + torch.exp(-x))


def by_hand(layer: MatrixRNN, x_LD: Tensor) -> Tensor:
    """One row, a token and a head at a time."""
    inner = WIDTH // HEADS
    read_LE = x_LD @ layer.query_key_value.weight.T
    states = [torch.zeros(inner, inner, dtype=x_LD.dtype)] * HEADS
    outputs = []
    for t, x in enumerate(x_LD):
        taps = [read_LE[t - back] * layer.convolution.weight[:, 3 - back] for back in range(min(4, t + 1))]
        q, k, v = silu(sum(taps)).view(3, HEADS, inner)
        dt = torch.log(1 + torch.exp(layer.dt.weight @ x + layer.dt_bias))
        f = torch.exp(-torch.exp(layer.A_log) * dt)
        rows = []
        for head in range(HEADS):
            new = torch.tanh(states[head] @ layer.weight_HVV[head] + torch.outer(k[head], v[head]))
            states[head] = f[head] * states[head] + (1 - f[head]) * new
            rows.append(q[head] @ states[head] + layer.skip_HV[head] * v[head])
        y = torch.cat(rows) * silu(layer.gate.weight @ x)
        y = y / (y.square().mean() + torch.finfo(y.dtype).eps).sqrt() * layer.norm.weight
        outputs.append(layer.out.weight @ y)
    return torch.stack(outputs)


@LENGTHS
def test_it_is_its_equations_in_value_and_gradient(length: int) -> None:
    layer = lively(MatrixRNN(M2RNNConfig(d_model=WIDTH, num_heads=HEADS)))
    x_BLD = torch.randn(2, length, WIDTH, dtype=torch.float64, requires_grad=True)
    inputs = [x_BLD, *layer.parameters()]
    found, expected = layer(x_BLD, Context()), torch.stack([by_hand(layer, x_LD) for x_LD in x_BLD])
    close(found, expected, 1e-10)
    for one, other in zip(gradients(found, inputs), gradients(expected, inputs), strict=True):
        close(one, other, 1e-8)


def drawn(length: int, *, keys: int = 3, values: int = 5) -> list[Tensor]:
    """q, k, v, f, W and a state."""
    sizes = (2, length, HEADS, keys), (2, length, HEADS, keys), (2, length, HEADS, values), (2, length, HEADS)
    q, k, v, f = (torch.randn(*size, dtype=torch.float64) for size in sizes)
    W, h = (torch.randn(*size, dtype=torch.float64) for size in ((HEADS, values, values), (2, HEADS, keys, values)))
    return [x.requires_grad_() for x in (q, k, v, torch.sigmoid(f), W / 2, h)]


@LENGTHS
def test_the_scan_equals_the_loop_from_a_state(length: int) -> None:
    given = drawn(length)
    both = [scan(*given) for scan in (matrix_rnn_scan, matrix_rnn_loop)]
    for found, expected in zip(*both, strict=True):
        close(found, expected, 1e-11)
    found, expected = (gradients(torch.cat([x.flatten() for x in parts]), given) for parts in both)
    for one, other in zip(found, expected, strict=True):
        close(one, other, 1e-10)


@pytest.mark.parametrize("part", [0, 1])
def test_outputs_or_the_last_state_alone_have_a_gradient(part: int) -> None:
    given = drawn(9)
    found, expected = (gradients(scan(*given)[part], given) for scan in (matrix_rnn_scan, matrix_rnn_loop))
    for one, other in zip(found, expected, strict=True):
        close(one, other, 1e-10)


def test_without_a_gradient_it_is_the_loop() -> None:
    given = drawn(9)
    with torch.no_grad():
        for found, expected in zip(matrix_rnn_scan(*given), matrix_rnn_loop(*given), strict=True):
            assert torch.equal(found, expected)


def test_replicas_have_weights_of_their_own() -> None:
    given = [drawn(7) for _ in range(4)]
    stacked = [torch.stack(x).detach().requires_grad_() for x in zip(*given, strict=True)]
    found = torch.vmap(matrix_rnn_scan)(*stacked)
    alone = [matrix_rnn_loop(*(x[r] for x in stacked)) for r in range(4)]
    expected = [torch.stack(x) for x in zip(*alone, strict=True)]
    for one, other in zip(found, expected, strict=True):
        close(one, other, 1e-11)
    both = (gradients(torch.cat([x.flatten() for x in parts]), stacked) for parts in (found, expected))
    for one, other in zip(*both, strict=True):
        close(one, other, 1e-10)


@pytest.mark.parametrize("parts", [[1] * 40, [39, 1], [1, 3, 36]])
def test_parts_equal_the_whole(parts: list[int]) -> None:
    layer = lively(MatrixRNN(M2RNNConfig(d_model=WIDTH, num_heads=HEADS)))
    x_BLD = torch.randn(2, 40, WIDTH, dtype=torch.float64)
    state = layer.init_state(2, max_length=40, device=x_BLD.device, dtype=x_BLD.dtype)
    outputs = []
    for part in x_BLD.split(parts, 1):
        y_BLD, state = layer.extend(part, state, Context())
        outputs.append(y_BLD)
    close(torch.cat(outputs, 1), layer(x_BLD, Context()))


def test_without_forgetting_gates_every_row_is_an_elman_network() -> None:
    """Each row with f = 0 and k = 1 is torch's RNN with v as its input."""
    _, _, v_BLHV, f_BLH, W_HVV, h_BHKV = drawn(20)
    one_BLHK, zero_BLH = torch.ones(2, 20, HEADS, 3, dtype=torch.float64), torch.zeros_like(f_BLH)
    y_BLHV, _ = matrix_rnn_scan(one_BLHK, one_BLHK, v_BLHV, zero_BLH, W_HVV, 0 * h_BHKV)
    for head in range(HEADS):
        elman = torch.nn.RNN(5, 5, bias=False, batch_first=True, dtype=torch.float64)
        with torch.no_grad():
            elman.weight_ih_l0.copy_(torch.eye(5))
            elman.weight_hh_l0.copy_(W_HVV[head].T)
        close(y_BLHV[:, :, head] / 3, elman(v_BLHV[:, :, head])[0])


def test_no_number_leaves_its_range_and_nothing_breaks_in_fp32() -> None:
    layer = MatrixRNN(M2RNNConfig(d_model=WIDTH, num_heads=HEADS))
    for scale in (1e-20, 1.0, 1e4, 1e8):
        x_BLD = (scale * torch.randn(2, 70, WIDTH)).requires_grad_()
        layer.zero_grad()
        state = layer.init_state(2, max_length=70, device=x_BLD.device, dtype=x_BLD.dtype)
        y_BLD, (_, h_BHKV) = layer.extend(x_BLD, state, Context())
        y_BLD.sum().backward()
        assert h_BHKV.abs().max() <= 1 and bool(torch.isfinite(y_BLD).all())
        assert all(bool(torch.isfinite(x.grad).all()) for x in (x_BLD, *layer.parameters()))


def test_initial_weights() -> None:
    layer = MatrixRNN(M2RNNConfig(d_model=64))
    assert torch.equal(layer.weight_HVV, torch.eye(16).expand(4, -1, -1)) and bool((layer.skip_HV == 1).all())
    assert torch.nn.functional.softplus(layer.dt_bias).min() > 9e-4 and layer.A_log.exp().max() <= 16


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"num_heads": 3}, "d_model=128 does not split into 3 heads"),
        ({"conv_width": 0}, "conv_width must be at least 1, not 0"),
        ({"d_inner": -1}, "d_inner must not be negative"),
    ],
)
def test_what_is_refused(changes: dict[str, int], said: str) -> None:
    with pytest.raises(ValueError, match=f"m2rnn: {said}"):
        M2RNNConfig(**changes)
