"""The delta rule with momentum in C against its chunks, which stand beside the recurrence in test_titans.py."""

import math

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.native import missing
from chomsky_ladder.models.kernels.native_momentum import native_momentum
from chomsky_ladder.models.scans.momentum_delta import momentum_delta_rule
from chomsky_ladder.models.titans import LinearMemory, TitansConfig
from support.cases import full
from support.layers import as_good_in_single, close, gradients, kept_for_backward, lively

torch.set_num_threads(1)
pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

WIDTHS = ((1, 1), (4, 5), (16, 16), (15, 17), (17, 15), (20, 3), (33, 40))  # of keys and values


def inputs(length: int, widths: tuple[int, int] = (4, 5), *, batch: int = 2) -> list[Tensor]:
    """q, k of length 1, v, rates, log decays and momenta, M and S of rows of three heads."""
    keys, values = widths

    def drawn(*sizes: int) -> Tensor:
        return torch.randn(batch, 3, *sizes, dtype=torch.float64)

    rate_BHL, decay_BHL, momentum_BHL = (torch.rand(batch, 3, length, dtype=torch.float64) for _ in range(3))
    q_BHLK, k_BHLK = drawn(length, keys), nn.functional.normalize(drawn(length, keys), dim=-1)
    gates = (rate_BHL, decay_BHL.log(), momentum_BHL.log())
    made = (q_BHLK, k_BHLK, drawn(length, values), *gates, drawn(keys, values), drawn(keys, values))
    return [x.detach().requires_grad_() for x in made]


def native(*given: Tensor) -> Tensor:
    """y and the last state, one behind the other."""
    y_BHLV, state = native_momentum(*given[:6], (given[6], given[7]))
    return torch.cat([x.flatten() for x in (y_BHLV, *state)])


def chunked(*given: Tensor) -> Tensor:
    y_BHLV, state = momentum_delta_rule(*given[:6], (given[6], given[7]))
    return torch.cat([x.flatten() for x in (y_BHLV, *state)])


def agree(given: list[Tensor]) -> None:
    found, expected = native(*given), chunked(*given)
    close(found, expected, 1e-9)
    for one, other in zip(gradients(found, given), gradients(expected, given), strict=True):
        close(one, other, 1e-8)


@pytest.mark.parametrize("length", [1, 2, 17, 33, full(130)])
def test_in_c_is_in_chunks(length: int) -> None:
    agree(inputs(length))


@pytest.mark.parametrize("widths", WIDTHS)
def test_widths_that_fill_no_vector(widths: tuple[int, int]) -> None:
    agree(inputs(5, widths, batch=3))


@pytest.mark.parametrize("part", [0, 1, 2])
def test_the_gradient_of_one_output_alone(part: int) -> None:
    """Of y, of the last M or of the last S."""
    given = inputs(9)
    sizes = [given[2].numel(), given[6].numel(), given[7].numel()]
    found, expected = (gradients(form(*given).split(sizes)[part], given) for form in (native, chunked))
    for one, other in zip(found, expected, strict=True):
        close(one, other, 1e-9)


@pytest.mark.parametrize("decay", [0.0, -300.0, -math.inf])
@pytest.mark.parametrize("momentum", [0.0, -300.0, -math.inf])
def test_gates_that_keep_all_and_nothing(decay: float, momentum: float) -> None:
    given = inputs(12)
    given[4], given[5] = (torch.full_like(given[4], log).requires_grad_() for log in (decay, momentum))
    agree(given)


def test_what_is_contiguous_in_another_order() -> None:
    given = inputs(9)
    turned = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in given]
    close(native(*turned), chunked(*given), 1e-10)


def test_it_stacks() -> None:
    """Replicas of everything but M, which they share, give what each gives alone, gradients too."""
    many = [[x.detach() for x in inputs(7)] for _ in range(3)]
    stacked = [torch.stack(x).requires_grad_() for x in zip(*many, strict=True)]
    stacked[6] = many[0][6].requires_grad_()
    together = torch.vmap(native, in_dims=(0, 0, 0, 0, 0, 0, None, 0))(*stacked)
    alone = torch.stack([chunked(*(x if i == 6 else x[r] for i, x in enumerate(stacked))) for r in range(3)])
    close(together, alone, 1e-9)
    for one, other in zip(gradients(together, stacked), gradients(alone, stacked), strict=True):
        close(one, other, 1e-8)


def test_single_precision_is_as_good_as_that_of_chunks() -> None:
    """Over three hundred tokens of which little is forgotten, against float64."""
    given = [x.detach() for x in inputs(300, (16, 16), batch=4)]
    given[4], given[5] = given[4] / 100, given[5] - 0.5
    as_good_in_single(native, chunked, given)


def test_gates_in_half_precision_are_those_of_the_state_s() -> None:
    """Their exponentials are taken in the precision of the state: near 1 bf16 has next to no digits."""
    given = [x.detach().float() for x in inputs(40)]
    given[4] = torch.full_like(given[4], -9e-4)
    rounded = [x.bfloat16() if 3 <= i < 6 else x for i, x in enumerate(given)]
    close(native(*rounded), chunked(*rounded), 1e-5)


def test_memory_is_linear_in_the_length() -> None:
    sizes = [kept_for_backward(lambda length=length: native(*inputs(length))) for length in (160, 320, 640)]
    assert sizes[2] - sizes[1] == 2 * (sizes[1] - sizes[0])


def test_the_layer_takes_it_from_the_start_and_from_a_state() -> None:
    x_BLD, ctx = torch.randn(2, 33, 8, dtype=torch.float64), Context()
    layer = lively(LinearMemory(TitansConfig(d_model=8, num_heads=2)))
    close(layer(x_BLD, ctx), layer(x_BLD, Context(backend="reference")), 1e-9)
    assert "native_momentum" in ctx.backends
    state = layer.init_state(2, max_length=33, device=x_BLD.device, dtype=x_BLD.dtype)
    parts = []
    for part in x_BLD.split([1, 20, 12], 1):
        y_BLD, state = layer.extend(part, state, ctx)
        parts.append(y_BLD)
    close(torch.cat(parts, 1), layer(x_BLD, Context(backend="reference")), 1e-9)
