"""TTT-Linear against training steps by autograd, one token at a time; its state, its extremes and its start."""

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.operations.fast_weights.reference import Held, Norm, fast_weights
from chomsky_ladder.models.ttt_linear import FastWeights, TTTLinearConfig
from support.cases import some
from support.layers import close, gradients, kept_for_backward, lively

torch.set_num_threads(1)

LENGTHS = (1, 2, 17, 64, 65, 130)
EPS = 1e-6


def inputs(length: int, *, size: int = 16) -> list[Tensor]:
    """Two rows of three heads, K = 4: q, k, v, c, r, the scale and shift of LN, M and the sum so far."""
    q_BHLK, k_BHLK, v_BHLK = torch.randn(3, 2, 3, length, 4, dtype=torch.float64)
    rate_BHL, place_rate_C = torch.rand(2, 3, length).double(), 1 / torch.arange(1, size + 1).double()
    scale_H1K, shift_H1K = 1 + torch.randn(3, 1, 4).double() / 3, torch.randn(3, 1, 4).double()
    M_BHXK, sum_BHXK = torch.randn(2, 2, 3, 5, 4, dtype=torch.float64)
    made = [q_BHLK, k_BHLK, v_BHLK, rate_BHL, place_rate_C, scale_H1K, shift_H1K, M_BHXK, sum_BHXK]
    return [x.detach().requires_grad_() for x in made]


def run(given: list[Tensor], place: int, *, fresh: bool = False) -> tuple[Tensor, Held]:
    *tokens, scale, shift, M, total = given
    return fast_weights(*tokens, Norm(scale, shift), Held(M, total, torch.tensor(place)), fresh=fresh)


def by_hand(given: list[Tensor], place: int) -> tuple[Tensor, Held]:
    """One token at a time, its gradient by autograd on the loss as it is written."""
    q, k, v, rate, place_rate, scale, shift, M, total = given
    outputs = []
    for t in range(q.shape[2]):
        predicted = torch.einsum("bhk,bhkj->bhj", k[:, :, t], M[:, :, :-1]) + M[:, :, -1]
        normed = nn.functional.layer_norm(predicted, predicted.shape[-1:], eps=EPS) * scale[:, 0] + shift[:, 0]
        loss = (normed - (v[:, :, t] - k[:, :, t])).square().sum() / 2
        (gradient,) = torch.autograd.grad(loss, M, create_graph=True)
        total = total + rate[:, :, t, None, None] * gradient
        now = M - place_rate[place] * total
        outputs.append(torch.einsum("bhk,bhkj->bhj", q[:, :, t], now[:, :, :-1]) + now[:, :, -1])
        place = (place + 1) % len(place_rate)
        if place == 0:
            M, total = now, torch.zeros_like(total)
    return torch.stack(outputs, 2), Held(M, total, torch.tensor(place))


def with_gradients(results: tuple[Tensor, Held], given: list[Tensor]) -> list[Tensor]:
    every = [results[0], *results[1][:2]]
    return [*every, *gradients(torch.cat([x.flatten() for x in every]), given)]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(("place", "size"), some([(0, 16), (5, 16), (15, 16), (0, 1), (2, 3), (17, 64)], always=2))
def test_mini_batches_equal_training_one_token_at_a_time(place: int, size: int, length: int) -> None:
    given = inputs(length, size=size)
    found, expected = run(given, place), by_hand(given, place)
    assert found[1].place == expected[1].place
    for one, other in zip(with_gradients(found, given), with_gradients(expected, given), strict=True):
        assert one.shape == other.shape
        close(one, other, 1e-8)


@pytest.mark.parametrize("length", LENGTHS)
def test_what_begins_a_mini_batch_needs_no_slots_in_front(length: int) -> None:
    given = inputs(length)
    given[-1] = torch.zeros_like(given[-1]).requires_grad_()
    found, expected = run(given, 0, fresh=True), run(given, 0)
    assert found[1].place == expected[1].place
    for one, other in zip(with_gradients(found, given), with_gradients(expected, given), strict=True):
        close(one, other, 1e-11)


def test_the_descent_is_the_gradient_of_the_loss() -> None:
    norm = Norm(torch.randn(3, 1, 4).double(), torch.randn(3, 1, 4).double())
    z, goal = torch.randn(2, 2, 3, 7, 4, dtype=torch.float64).unbind(0)
    z.requires_grad_()
    (expected,) = torch.autograd.grad((norm(z) - goal).square().sum() / 2, z)
    close(norm.descent(z, goal), expected, 1e-10)
    torch.autograd.gradcheck(norm.descent, (z, goal.requires_grad_()))


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e4])
def test_in_fp32_it_is_close_to_double(scale: float) -> None:
    rounded = [x.detach().float() for x in inputs(130)]
    for i in range(3):
        rounded[i] *= scale
    rounded = [x.requires_grad_() for x in rounded]
    z_BHLK, _ = run(rounded, 3)
    expected_BHLK, _ = run([x.double() for x in rounded], 3)
    assert (z_BHLK - expected_BHLK).abs().max() < 1e-3 * expected_BHLK.abs().max()
    assert all(bool(gradient.isfinite().all()) for gradient in gradients(z_BHLK, rounded))


def test_memory_is_linear_in_the_length() -> None:
    short, long = (kept_for_backward(lambda n=n: run(inputs(n), 0)) for n in (128, 512))
    assert 3.5 * short < long < 4.2 * short


def small(*, num_heads: int = 2, mini_batch: int = 16) -> FastWeights:
    config = TTTLinearConfig(d_model=8, num_heads=num_heads, mini_batch=mini_batch, base_rate=2.0)
    return lively(FastWeights(config))


def row_by_hand(layer: FastWeights, x_LD: Tensor) -> Tensor:
    """One row and a head at a time."""
    size, (heads, dim, _), width = len(layer.place_rate), layer.begin_HKK.shape, x_LD.shape[1]
    i_L = torch.arange(len(x_LD)) % size
    angle_LK = i_L[:, None] * 10_000.0 ** (-torch.arange(dim // 2).double() / (dim // 2))
    turn_LK = torch.polar(torch.ones_like(angle_LK), angle_LK)
    outputs = []
    for head in range(heads):
        at = slice(head * dim, (head + 1) * dim)
        q, k, v = (x_LD @ project.weight[at].T for project in (layer.query, layer.key, layer.value))
        q, k = (torch.complex(*x.chunk(2, -1)) * turn_LK for x in (q, k))
        q, k = (torch.cat([x.real, x.imag], -1) for x in (q, k))
        rate_L = 2 / dim * torch.sigmoid(x_LD @ layer.rate.weight[head] + layer.rate.bias[head])
        place_rate_C = torch.relu(1 / torch.arange(1, size + 1).double() + layer.place_rate)
        M = torch.cat([layer.begin_HKK[head], layer.begin_bias_HK[head, None]])
        scale, shift = layer.scale[at], layer.shift[at]
        given = [x[None, None] for x in (q, k, v, rate_L)]
        given += [place_rate_C, scale[None, None], shift[None, None], M[None, None], torch.zeros_like(M)[None, None]]
        z = by_hand(given, 0)[0][0, 0]
        outputs.append(q + nn.functional.layer_norm(z, (dim,), scale, shift, EPS))
    y_LD = nn.functional.layer_norm(torch.cat(outputs, -1), (width,), layer.norm.weight, layer.norm.bias, EPS)
    return y_LD @ layer.out.weight.T


@pytest.mark.parametrize(("length", "num_heads", "mini_batch"), [(1, 2, 16), (2, 1, 1), (17, 2, 16), (33, 2, 3)])
def test_it_is_its_equations_in_value_and_gradient(length: int, num_heads: int, mini_batch: int) -> None:
    layer = small(num_heads=num_heads, mini_batch=mini_batch)
    x_BLD = torch.randn(2, length, 8, dtype=torch.float64, requires_grad=True)
    inputs = [x_BLD, *layer.parameters()]
    found, expected = layer(x_BLD, Context()), torch.stack([row_by_hand(layer, x_LD) for x_LD in x_BLD])
    close(found, expected, 1e-9)
    for one, other in zip(gradients(found, inputs), gradients(expected, inputs), strict=True):
        close(one, other, 1e-7)


@pytest.mark.parametrize("cuts", [(1,), (5, 6, 32)])
def test_values_and_gradients_pass_through_a_carried_state(cuts: tuple[int, ...]) -> None:
    layer, x_BLD = small(), torch.randn(2, 40, 8, dtype=torch.float64, requires_grad=True)
    state, parts = layer.init_state(2, max_length=40, device=torch.device("cpu"), dtype=torch.float64), []
    for part in x_BLD.tensor_split(cuts, 1):
        y_BLD, state = layer.extend(part, state, Context())
        parts.append(y_BLD)
    found, expected, inputs = torch.cat(parts, 1), layer(x_BLD, Context()), [x_BLD, *layer.parameters()]
    close(found, expected, 1e-10)
    for one, other in zip(gradients(found, inputs), gradients(expected, inputs), strict=True):
        close(one, other, 1e-8)


def test_it_learns_at_test_time() -> None:
    """The same pair of key and value over and over: what it makes of the key comes ever nearer to the value."""
    k = torch.randn(1, 1, 1, 4, dtype=torch.float64)
    goal = nn.functional.layer_norm(torch.randn(4).double(), (4,))  # what LN can say
    one, many = torch.ones(1, 1, 4).double(), 320
    norm = Norm(one, 0 * one)
    state = Held(*torch.randn(1, 1, 1, 5, 4, dtype=torch.float64), torch.zeros(1, 1, 5, 4).double(), torch.tensor(0))
    k_BHLK, v_BHLK = k.expand(1, 1, many, 4), (goal + k).expand(1, 1, many, 4)
    rate_BHL, place_rate_C = torch.ones(1, 1, many).double() / 4, 1 / torch.arange(1, 17).double()
    z_BHLK, _ = fast_weights(k_BHLK, k_BHLK, v_BHLK, rate_BHL, place_rate_C, norm, state, fresh=True)
    error_L = (norm(z_BHLK) - goal).square().sum(-1)[0, 0]
    assert error_L[-1] < 1e-3 * error_L[0] and bool((error_L[16::16] <= error_L[:-16:16]).all())


def test_sizes_and_start_are_the_published_ones() -> None:
    layer = TTTLinearConfig(d_model=64).block(0).layers[0]
    assert layer.begin_HKK.shape == (4, 16, 16) and layer.rate.weight.shape == (4, 64)
    for weight in (layer.begin_HKK, layer.rate.weight):
        assert weight.std().item() == pytest.approx(0.02, rel=0.15)
    state = layer.init_state(3, max_length=1, device=torch.device("cpu"), dtype=torch.bfloat16)
    assert state.M_BHXK.shape == state.sum_BHXK.shape == (3, 4, 17, 16) and state.M_BHXK.dtype == torch.float32
    close(state.M_BHXK[1, :, :-1], layer.begin_HKK)


def test_it_runs_under_autocast_with_its_state_in_fp32() -> None:
    layer, x_BLD = FastWeights(TTTLinearConfig(d_model=32, num_heads=2)), torch.randn(2, 40, 32)
    state = layer.init_state(2, max_length=40, device=torch.device("cpu"), dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        y_BLD, state = layer.extend(x_BLD, state, Context())
    assert state.M_BHXK.dtype == torch.float32
    assert (y_BLD.float() - layer(x_BLD, Context())).abs().mean() < 0.02


def test_settings_are_refused_in_one_line() -> None:
    for setting, message in (
        ({"d_model": 12, "num_heads": 4}, "^ttt_linear: d_model=12 does not split into 4 heads of even dimension$"),
        ({"mini_batch": 0}, "^ttt_linear: mini_batch must be at least 1, not 0$"),
        ({"base_rate": 0.0}, "^ttt_linear: base_rate must be positive, not 0.0$"),
        ({"d_inner": -1}, "^ttt_linear: d_inner"),
    ):
        with pytest.raises(ValueError, match=message):
            TTTLinearConfig(**setting)
