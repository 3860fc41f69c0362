"""MesaNet against exact solutions token by token, its state, its extremes and its start."""

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.mesa_net import MesaLayer, MesaNetConfig
from chomsky_ladder.models.operations.mesa.reference import ROUNDING, Held, mesa
from chomsky_ladder.models.scans.chunked import CHUNK
from support.cases import some
from support.layers import close, gradients, kept_for_backward, lively

torch.set_num_threads(1)

LENGTHS = (1, 2, 17, 64, 65, 130)
DECAYS = (None, 0.0, -80.0, -torch.inf)
STEPS = (0, 4 + ROUNDING)  # Cholesky's method, and what stands for it elsewhere than on a CPU


def inputs(length: int, log_decay: float | None = None) -> list[Tensor]:
    """Two rows of three heads, K = 4 and V = 5, keys of length 2, and a state of ten tokens."""
    q_BHLK, k_BHLK = torch.randn(2, 2, 3, length, 4, dtype=torch.float64)
    v_BHLV, beta_BHL = torch.randn(2, 3, length, 5).double(), torch.rand(2, 3, length).double()
    log_BHL = torch.rand(2, 3, length).double().log()
    if log_decay is not None:
        log_BHL = torch.full_like(log_BHL, log_decay)
    before_BHNK = torch.randn(2, 3, 10, 4).double()
    H_BHKK, G_BHKV = before_BHNK.mT @ before_BHNK, torch.randn(2, 3, 4, 5).double()
    made = [q_BHLK, 2 * nn.functional.normalize(k_BHLK, dim=-1), v_BHLV, beta_BHL, log_BHL, H_BHKK, G_BHKV]
    return [x.detach().requires_grad_() for x in made]


def solved(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_decay: Tensor, H: Tensor, G: Tensor
) -> tuple[Tensor, Held]:
    """The equation as it stands, token by token."""
    outputs = []
    for t in range(q.shape[2]):
        a, bk = log_decay[:, :, t].exp()[..., None, None], (beta[:, :, t, None] * k[:, :, t])[..., None]
        H, G = a * H + bk * k[:, :, t, None], a * G + bk * v[:, :, t, None]
        x = torch.linalg.solve(H + torch.eye(4, dtype=H.dtype), q[:, :, t])
        outputs.append(torch.einsum("bhk,bhkv->bhv", x, G))
    return torch.stack(outputs, 2), (H, G)


def with_gradients(results: tuple[Tensor, Held], given: list[Tensor]) -> list[Tensor]:
    every = [results[0], *results[1]]
    return [*every, *gradients(torch.cat([x.flatten() for x in every]), given)]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("log_decay", DECAYS)
@pytest.mark.parametrize("steps", STEPS)
def test_both_ways_end_at_the_solution(steps: int, length: int, log_decay: float | None) -> None:
    given = inputs(length, log_decay)
    *parts, H_BHKK, G_BHKV = given
    found = with_gradients(mesa(*parts, (H_BHKK, G_BHKV), steps=steps), given)
    for one, other in zip(found, with_gradients(solved(*given), given), strict=True):
        assert one.shape == other.shape
        close(one, other, 1e-8)


@pytest.mark.parametrize("part", [0, 1])
def test_gradients_of_the_output_or_the_last_state_alone(part: int) -> None:
    given = inputs(21)
    found, expected = mesa(*given[:5], (given[5], given[6])), solved(*given)
    results = ((x[0] if part == 0 else torch.cat(x[1], -1)) for x in (found, expected))
    for one, other in zip(*(gradients(x, given) for x in results), strict=True):
        close(one, other, 1e-8)


def test_fewer_steps_are_less_exact() -> None:
    *parts, H_BHKK, G_BHKV = (x.detach() for x in inputs(40))
    expected_BHLV, _ = solved(*parts, H_BHKK, G_BHKV)
    errors = [
        (mesa(*parts, (H_BHKK, G_BHKV), steps=steps)[0] - expected_BHLV).abs().max().item() for steps in (1, 2, 3, 8)
    ]
    assert errors == sorted(errors, reverse=True) and errors[0] > 0.1 and errors[-1] < 1e-10


@pytest.mark.parametrize("length", [11, 70])
@pytest.mark.parametrize("steps", STEPS)
def test_it_stacks(steps: int, length: int) -> None:
    """Under vmap, where one input is the same for all replicas, as many runs one after the other."""
    many = [torch.stack(given) for given in zip(*(inputs(length) for _ in range(3)), strict=True)]
    many = [x.detach().requires_grad_() for x in many]
    many[3], dims = many[3][1].detach().requires_grad_(), (0, 0, 0, None, 0, 0, 0)

    def one(*x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y_BHLV, (H_BHKK, G_BHKV) = mesa(*x[:5], (x[5], x[6]), steps=steps)
        return y_BHLV, H_BHKK, G_BHKV

    found = torch.func.vmap(one, dims)(*many)
    alone = [one(*(x if d is None else x[i] for x, d in zip(many, dims, strict=True))) for i in range(3)]
    expected = [torch.stack(x) for x in zip(*alone, strict=True)]
    both = [[*x, *gradients(torch.cat([each.flatten() for each in x]), many)] for x in (list(found), expected)]
    for ours, theirs in zip(*both, strict=True):
        close(ours, theirs, 1e-9)


@pytest.mark.parametrize("width", some([8, 16, 32], always=2))
@pytest.mark.parametrize(("steps", "error"), [(0, 2e-6), (ROUNDING, 5e-5)])
def test_what_is_nearly_singular_keeps_most_digits_in_fp32(steps: int, error: float, width: int) -> None:
    """256 tokens that nothing forgets, in channels from 1 to 1e-3, against exact solutions in double."""
    k_BHLK = torch.randn(1, 4, 256, width) * torch.logspace(0, -3, width)
    k_BHLK = 2 * nn.functional.normalize(k_BHLK, dim=-1)
    q_BHLK, v_BHLV, beta_BHL = torch.randn(1, 4, 256, width), torch.randn(1, 4, 256, 4), torch.rand(1, 4, 256)
    none, zero = torch.zeros(1, 4, 256), (torch.zeros(1, 4, width, width), torch.zeros(1, 4, width, 4))
    given = [x.requires_grad_() for x in (q_BHLK, k_BHLK, v_BHLV, beta_BHL, none)]
    y_BHLV, _ = mesa(*given, zero, steps=steps and width + steps)
    weighted = (beta_BHL[..., None] * k_BHLK).double()
    H = torch.einsum("bhlk,bhlj->bhlkj", weighted, k_BHLK.double()).cumsum(2) + torch.eye(width)
    G = torch.einsum("bhlk,bhlv->bhlkv", weighted, v_BHLV.double()).cumsum(2)
    expected_BHLV = torch.einsum("bhlk,bhlkv->bhlv", torch.linalg.solve(H, q_BHLK.double()), G)
    assert (y_BHLV - expected_BHLV).abs().max() < error * expected_BHLV.abs().max()
    assert all(bool(gradient.isfinite().all()) for gradient in gradients(y_BHLV, given))


@pytest.mark.parametrize("steps", STEPS)
def test_memory_is_linear_in_the_length(steps: int) -> None:
    def made(length: int) -> object:
        *parts, H_BHKK, G_BHKV = inputs(length)
        return mesa(*parts, (H_BHKK, G_BHKV), steps=steps)

    short, long = (kept_for_backward(lambda n=n: made(n)) for n in (4 * CHUNK, 16 * CHUNK))
    assert 3.5 * short < long < 4.2 * short


def small(*, num_heads: int = 2, conv_width: int = 4) -> MesaLayer:
    return lively(MesaLayer(MesaNetConfig(d_model=8, num_heads=num_heads, conv_width=conv_width)))


def by_hand(layer: MesaLayer, x_LD: Tensor) -> Tensor:
    """One row, a token and a head at a time, with L where the paper has it."""
    width, dim = x_LD.shape[1], x_LD.shape[1] // layer.num_heads
    H, G = ([torch.zeros(dim, dim, dtype=x_LD.dtype) for _ in range(layer.num_heads)] for _ in "HG")
    ridge, mixed_LE = torch.log(1 + layer.ridge.exp()) + 0.25, x_LD @ layer.query_key.weight.T
    taps, outputs = layer.convolution.weight.shape[1], []
    for t, x in enumerate(x_LD):
        window = [(layer.convolution.weight[:, taps - 1 - i] * mixed_LE[t - i]) for i in range(min(taps, t + 1))]
        both = torch.stack(window).sum(0)
        both = both * torch.sigmoid(both)
        v, a, b = layer.value.weight @ x, torch.sigmoid(layer.decay(x)), torch.sigmoid(layer.write(x))
        heads = []
        for head in range(layer.num_heads):
            at = slice(head * dim, (head + 1) * dim)
            q, k = (z / (z.square().sum() + 1e-6).sqrt() for z in (both[:width][at], both[width:][at]))
            H[head] = a[head] * H[head] + b[head] * torch.outer(k, k)
            G[head] = a[head] * G[head] + b[head] * torch.outer(k, v[at])
            y = G[head].T @ torch.linalg.solve(H[head] + torch.diag(ridge[at]), q)
            heads.append(y / (y.square().mean() + 1e-5).sqrt() * layer.norm.weight)
        outputs.append(layer.out.weight @ torch.cat(heads))
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
    close(found, expected, 1e-9)
    for one, other in zip(gradients(found, inputs), gradients(expected, inputs), strict=True):
        close(one, other, 1e-8)


@pytest.mark.parametrize("scale", [0.0, 1.0, 1e4])
def test_large_inputs_stay_finite(scale: float) -> None:
    layer = small().float()
    x_BLD = (scale * torch.randn(2, 40, 8)).requires_grad_()
    y_BLD = layer(x_BLD, Context())
    assert all(bool(torch.isfinite(x).all()) for x in (y_BLD, *gradients(y_BLD, [x_BLD, *layer.parameters()])))


def test_it_recalls_a_value_where_one_step_of_descent_does_not() -> None:
    """The paper claims this: values of overlapping keys do not mix, once the ridge is small."""
    k_LK = nn.functional.normalize(torch.randn(4, 4).double() + 2, dim=-1)
    v_LV, one, none = torch.randn(4, 3).double(), torch.ones(1, 1, 4).double(), torch.zeros(1, 1, 4).double()
    scaled = 1e4 * k_LK[None, None]
    zero = (torch.zeros(1, 1, 4, 4).double(), torch.zeros(1, 1, 4, 3).double())
    y_BHLV, _ = mesa(scaled, scaled, v_LV[None, None], one, none, zero, steps=40)
    close(y_BHLV[0, 0], v_LV, 1e-4)
    assert (torch.tril(k_LK @ k_LK.T) @ v_LV - v_LV).abs().max() > 0.5


def test_sizes_and_start_are_the_published_ones() -> None:
    layer = MesaNetConfig(d_model=64).block(0).layers[0]
    close(nn.functional.softplus(layer.ridge) + 0.25, torch.ones(64), 1e-6)
    assert layer.query_key.weight.shape == (128, 64) and layer.decay.weight.shape == layer.write.weight.shape == (4, 64)
    _, (H_BHKK, G_BHKV) = layer.init_state(1, max_length=1, device=torch.device("cpu"), dtype=torch.bfloat16)
    assert H_BHKK.shape == G_BHKV.shape == (1, 4, 16, 16) and H_BHKK.dtype == torch.float32


def test_settings_are_refused_in_one_line() -> None:
    for setting, message in (
        ({"d_model": 12, "num_heads": 8}, "^mesa_net: d_model=12 does not split into 8 heads$"),
        ({"conv_width": 0}, "^mesa_net: conv_width must be at least 1, not 0$"),
        ({"steps": -1}, "^mesa_net: steps must not be negative$"),
        ({"d_inner": -1}, "^mesa_net: d_inner"),
    ):
        with pytest.raises(ValueError, match=message):
            MesaNetConfig(**setting)


def test_a_number_of_steps_is_left_to_conjugate_gradients() -> None:
    x_BLD = torch.randn(2, 33, 6, dtype=torch.float64)
    for steps in (0, 20):
        layer = lively(MesaNetConfig(d_model=6, num_heads=2, steps=steps).block(0).layers[0])
        ctx = Context()
        close(layer(x_BLD, ctx), layer(x_BLD, Context(backend="reference")), 1e-9)
        assert "native_mesa" not in ctx.backends or steps == 0
