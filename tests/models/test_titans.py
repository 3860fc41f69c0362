"""The memory of Titans against its equations token by token, its state, its extremes and its start."""

import math

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.operations.momentum.reference import Held, momentum_delta_rule
from chomsky_ladder.models.scans.gated_delta import LARGEST_CHUNK, gated_delta_rule
from chomsky_ladder.models.titans import LinearMemory, TitansConfig
from support.cases import some
from support.layers import close, gradients, kept_for_backward, lively

torch.set_num_threads(1)

LENGTHS = (1, 2, 17, 64, 65, 130)
GATES = (None, 0.0, math.log(0.5), -300.0, -math.inf)


def inputs(length: int, *, log_decay: float | None = None, log_momentum: float | None = None) -> list[Tensor]:
    """Two rows of three heads, K = 4 and V = 5, keys of length 1 and rates below 1."""
    q_BHLK, k_BHLK = torch.randn(2, 2, 3, length, 4, dtype=torch.float64)
    v_BHLV, rate_BHL = torch.randn(2, 3, length, 5).double(), torch.rand(2, 3, length).double()
    logs = [
        torch.rand(2, 3, length).double().log() if log is None else torch.full((2, 3, length), log).double()
        for log in (log_decay, log_momentum)
    ]
    M_BHKV, S_BHKV = torch.randn(2, 2, 3, 4, 5, dtype=torch.float64)
    made = [q_BHLK, nn.functional.normalize(k_BHLK, dim=-1), v_BHLV, rate_BHL, *logs, M_BHKV, S_BHKV]
    return [x.detach().requires_grad_() for x in made]


def run(given: list[Tensor]) -> tuple[Tensor, Held]:
    return momentum_delta_rule(*given[:6], (given[6], given[7]))


def naive(given: list[Tensor]) -> tuple[Tensor, Held]:
    """The equations as they stand, the gradient of the loss by hand, token by token."""
    q, k, v, rate, log_decay, log_momentum, M, S = given
    outputs = []
    for t in range(q.shape[2]):
        error = torch.einsum("bhk,bhkv->bhv", k[:, :, t], M) - v[:, :, t]
        gradient = k[:, :, t, :, None] * error[:, :, None]
        S = log_momentum[:, :, t, None, None].exp() * S - rate[:, :, t, None, None] * gradient
        M = log_decay[:, :, t, None, None].exp() * M + S
        outputs.append(torch.einsum("bhk,bhkv->bhv", q[:, :, t], M))
    return torch.stack(outputs, 2), (M, S)


def with_gradients(results: tuple[Tensor, Held], given: list[Tensor]) -> list[Tensor]:
    every = [results[0], *results[1]]
    return [*every, *gradients(torch.cat([x.flatten() for x in every]), given)]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(
    ("log_decay", "log_momentum"),
    some(((decay, momentum) for decay in GATES for momentum in GATES), always=4),
)
def test_chunks_equal_the_recurrence(log_decay: float | None, log_momentum: float | None, length: int) -> None:
    given = inputs(length, log_decay=log_decay, log_momentum=log_momentum)
    for one, other in zip(with_gradients(run(given), given), with_gradients(naive(given), given), strict=True):
        assert one.shape == other.shape
        close(one, other, 1e-8)


@pytest.mark.parametrize("part", [0, 1])
def test_gradients_of_the_output_or_the_last_state_alone(part: int) -> None:
    given = inputs(LARGEST_CHUNK + 21)
    results = ((x[0] if part == 0 else torch.cat(x[1], -1)) for x in (run(given), naive(given)))
    for one, other in zip(*(gradients(x, given) for x in results), strict=True):
        close(one, other, 1e-9)


def test_without_momentum_it_is_the_gated_delta_rule() -> None:
    """Whose decay comes before what is read for the error, so that b v is written where here r v / a is."""
    q_BHLK, k_BHLK, v_BHLV, rate_BHL, log_BHL, _, M_BHKV, S_BHKV = inputs(70)
    a_BHL1 = log_BHL.exp()[..., None]
    expected = gated_delta_rule(q_BHLK, k_BHLK, v_BHLV, rate_BHL, log_BHL, M_BHKV)
    none_BHL = torch.full_like(log_BHL, -math.inf)
    # r (k M - v) with r = a b, and v / a in the place of v.
    found = momentum_delta_rule(
        q_BHLK, k_BHLK, v_BHLV / a_BHL1, rate_BHL * a_BHL1[..., 0], log_BHL, none_BHL, (M_BHKV, S_BHKV)
    )
    close(found[0], expected[0], 1e-9)
    close(found[1][0], expected[1], 1e-9)


def test_a_decay_of_0_forgets_what_was_learned_and_momentum_of_0_what_goes_on() -> None:
    for place in range(20):
        *given, M_BHKV, S_BHKV = (x.detach() for x in inputs(20))
        given[4][:, :, place] = given[5][:, :, place] = -math.inf
        given[3][:, :, place] = 0  # the error itself is of the old M
        (none_BHLV, last), (y_BHLV, large) = (run([*given, scale * M_BHKV, scale * S_BHKV]) for scale in (0.0, 1e3))
        close(none_BHLV[:, :, place:], y_BHLV[:, :, place:], 1e-9)
        close(torch.cat(last), torch.cat(large), 1e-9)
        assert place == 0 or bool((none_BHLV[:, :, :place] != y_BHLV[:, :, :place]).all())


def test_gates_of_any_strength_lose_no_digits_in_fp32() -> None:
    """Against the loop in double: some tokens keep all, some nothing, of keys that are all the same."""
    given = inputs(260)
    for i in (4, 5):
        given[i] = torch.where(torch.rand(2, 3, 260) < 0.2, -300 * torch.rand(2, 3, 260), -1e-2)
        given[i][:, :, 100 + i] = -math.inf
    given[1] = torch.full_like(given[1], 0.5)
    rounded = [x.detach().float().requires_grad_() for x in given]
    y_BHLV, _ = run(rounded)
    expected_BHLV, _ = naive([x.double() for x in rounded])
    assert (y_BHLV - expected_BHLV).abs().max() < 1e-4 * expected_BHLV.abs().max()
    assert all(bool(gradient.isfinite().all()) for gradient in gradients(y_BHLV, rounded))


def test_memory_is_linear_in_the_length() -> None:
    short, long = (kept_for_backward(lambda n=n: run(inputs(n))) for n in (4 * LARGEST_CHUNK, 16 * LARGEST_CHUNK))
    assert 3.5 * short < long < 4.2 * short


def small(*, num_heads: int = 2, conv_width: int = 4) -> LinearMemory:
    return lively(LinearMemory(TitansConfig(d_model=8, num_heads=num_heads, conv_width=conv_width)))


def by_hand(layer: LinearMemory, x_LD: Tensor) -> Tensor:
    """One row, a token and a head at a time; the gradient is that of the paper's loss, by autograd."""
    width, dim, taps = x_LD.shape[1], x_LD.shape[1] // layer.num_heads, layer.convolution.weight.shape[1]
    M, S = ([torch.zeros(dim, dim, dtype=x_LD.dtype, requires_grad=True) for _ in range(layer.num_heads)] for _ in "MS")
    mixed_LE, outputs = x_LD @ layer.query_key_value.weight.T, []
    for t, x in enumerate(x_LD):
        window = [layer.convolution.weight[:, taps - 1 - i] * mixed_LE[t - i] for i in range(min(taps, t + 1))]
        all_three = torch.stack(window).sum(0)
        all_three = all_three * torch.sigmoid(all_three)
        r, h, a = (torch.sigmoid(gate.weight @ x + gate.bias) for gate in (layer.rate, layer.momentum, layer.forget))
        heads = []
        for head in range(layer.num_heads):
            at = slice(head * dim, (head + 1) * dim)
            q, k, v = (z[at] for z in all_three.split(width))
            q, k = (z / (z.square().sum() + 1e-6).sqrt() for z in (q, k))
            (gradient,) = torch.autograd.grad((k @ M[head] - v).square().sum() / 2, M[head], create_graph=True)
            S[head] = h[head] * S[head] - r[head] * gradient
            M[head] = (1 - a[head]) * M[head] + S[head]
            y = q @ M[head]
            heads.append(y / (y.square().mean() + 1e-5).sqrt() * layer.norm.weight)
        g = layer.gate.weight @ x
        outputs.append(layer.out.weight @ (torch.cat(heads) * g * torch.sigmoid(g)))
    return torch.stack(outputs)


@pytest.mark.parametrize(("length", "num_heads", "conv_width"), [(1, 2, 4), (2, 1, 1), (17, 4, 4), (65, 2, 3)])
def test_it_is_its_equations_in_value_and_gradient(length: int, num_heads: int, conv_width: int) -> None:
    layer = small(num_heads=num_heads, conv_width=conv_width)
    x_BLD = torch.randn(2, length, 8, dtype=torch.float64, requires_grad=True)
    inputs = [x_BLD, *layer.parameters()]
    found, expected = layer(x_BLD, Context()), torch.stack([by_hand(layer, x_LD) for x_LD in x_BLD])
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


@pytest.mark.parametrize("bias", [-1e4, 0.0, 1e4])
@pytest.mark.parametrize("scale", [0.0, 1.0, 1e4])
def test_gates_of_0_and_1_and_large_inputs_stay_finite(scale: float, bias: float) -> None:
    layer = small().float()
    for gate in (layer.rate, layer.momentum, layer.forget):
        nn.init.constant_(gate.bias, bias)
    x_BLD = (scale * torch.randn(2, 40, 8)).requires_grad_()
    y_BLD = layer(x_BLD, Context())
    assert all(bool(torch.isfinite(x).all()) for x in (y_BLD, *gradients(y_BLD, [x_BLD, *layer.parameters()])))


def test_momentum_may_turn_a_sign_around() -> None:
    """One key, h = 1, r = 3/2, nothing forgotten: M and S turn by the angle whose cosine is 1/4."""
    one, zero = torch.ones(1, 1, 1, 1).double(), torch.zeros(1, 1, 1, 1).double()
    none, rate = torch.zeros(1, 1, 40).double(), torch.full((1, 1, 40), 1.5).double()
    keys = one.expand(1, 1, 40, 1)
    y_BHLV, _ = momentum_delta_rule(keys, keys, 0 * keys, rate, none, none, (one, zero))
    angle_L = math.acos(0.25) * torch.arange(1, 41).double()
    # M_t = cos(t w) + c sin(t w), with M_1 = 1 - 3/2.
    c = (-0.5 - 0.25) / math.sin(math.acos(0.25))
    close(y_BHLV[0, 0, :, 0], angle_L.cos() + c * angle_L.sin(), 1e-9)


def test_sizes_and_start_are_those_that_are_told() -> None:
    layer = TitansConfig(d_model=64).block(0).layers[0]
    assert layer.query_key_value.weight.shape == (192, 64) and layer.rate.weight.shape == (4, 64)
    kept = torch.sigmoid(-layer.forget(torch.zeros(64)))
    assert math.log(0.5) / kept.log().mean().item() == pytest.approx(40, abs=3)
    close(torch.sigmoid(layer.momentum(torch.zeros(64))), torch.full((4,), 0.5))
    _, (M_BHKV, S_BHKV) = layer.init_state(1, max_length=1, device=torch.device("cpu"), dtype=torch.bfloat16)
    assert M_BHKV.shape == S_BHKV.shape == (1, 4, 16, 16) and M_BHKV.dtype == torch.float32


def test_settings_are_refused_in_one_line() -> None:
    for setting, message in (
        ({"d_model": 12, "num_heads": 8}, "^titans: d_model=12 does not split into 8 heads$"),
        ({"conv_width": 0}, "^titans: conv_width must be at least 1, not 0$"),
        ({"d_inner": -1}, "^titans: d_inner"),
    ):
        with pytest.raises(ValueError, match=message):
            TitansConfig(**setting)
