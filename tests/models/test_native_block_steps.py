"""SLiCE's recurrence in C against its loop, which stands beside its equations in test_slice.py."""

from functools import partial

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.native import missing
from chomsky_ladder.models.kernels.native_block_steps import native_block_steps
from chomsky_ladder.models.scans.block_steps import block_steps, block_steps_by_halves
from chomsky_ladder.models.slice import SLiCEConfig
from support.cases import full
from support.layers import as_good_in_single, close, gradients, kept_for_backward, lively

torch.set_num_threads(1)
pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


def inputs(length: int, heads: int = 3, block: int = 4, *, batch: int = 2) -> list[Tensor]:
    """c, b and a state."""
    shapes = ((batch, length, heads * block**2), (batch, length, heads * block), (batch, heads, block))
    return [torch.randn(shape, dtype=torch.float64).requires_grad_() for shape in shapes]


def native(*given: Tensor, steps: int = 7) -> Tensor:
    """All h and the last, one behind the other."""
    return torch.cat([x.flatten() for x in native_block_steps(*given, steps=steps)])


def looped(*given: Tensor, steps: int = 7) -> Tensor:
    return torch.cat([x.flatten() for x in block_steps(*given, steps=steps)])


def agree(given: list[Tensor], *, steps: int = 7) -> None:
    found, expected = native(*given, steps=steps), looped(*given, steps=steps)
    close(found, expected, 1e-12)
    for one, other in zip(gradients(found, given), gradients(expected, given), strict=True):
        close(one, other, 1e-11)


def test_the_example() -> None:
    c_BLX = torch.tensor([0.0, -1, 1, 0]).expand(1, 4, 4)
    b_BLX = torch.tensor([[0.0, 0], [1, 0], [1, 0], [1, 0]])[None]
    for form in (native_block_steps, block_steps, block_steps_by_halves):
        h_BLX, last_BHK = form(c_BLX, b_BLX, torch.zeros(1, 1, 2), steps=1)
        assert h_BLX[0].tolist() == [[0, 0], [1, 0], [2, 1], [2, 3]] and last_BHK.flatten().tolist() == [2, 3]


@pytest.mark.parametrize("length", [1, 2, 33, full(130)])
def test_in_c_is_the_loop_from_a_state(length: int) -> None:
    agree(inputs(length))


@pytest.mark.parametrize(("heads", "block"), [(1, 1), (5, 1), (1, 4), (17, 4), (2, 3), (3, 9), (1, 20)])
@pytest.mark.parametrize("steps", [1, 40])
def test_blocks_of_any_size(heads: int, block: int, steps: int) -> None:
    agree(inputs(5, heads, block, batch=3), steps=steps)


@pytest.mark.parametrize("part", [0, 1])
def test_the_gradient_of_the_outputs_or_of_the_state_alone(part: int) -> None:
    given = inputs(9)
    forms = (native_block_steps, block_steps)
    found, expected = (gradients(form(*given, steps=40)[part], given) for form in forms)
    for one, other in zip(found, expected, strict=True):
        close(one, other, 1e-12)


def test_what_is_not_contiguous() -> None:
    given = inputs(9)
    turned = [x.transpose(0, 1).contiguous().transpose(0, 1) for x in given]
    close(native(*turned), looped(*given), 1e-12)


def test_nan_and_infinity_spoil_no_more_than_in_the_loop() -> None:
    for wrong in (float("nan"), float("inf")):
        given = [x.detach().float().requires_grad_() for x in inputs(4)]
        with torch.no_grad():
            given[0][0, 1, 5] = wrong
        for form in (native, looped):
            assert form(*given).isfinite().logical_not().any()
        assert torch.equal(native(*given).isfinite(), looped(*given).isfinite())


@pytest.mark.parametrize("axes", [(0, 0, 0), (2, None, 1), (None, 0, None)])
def test_it_stacks(axes: tuple[int | None, ...]) -> None:
    given = [
        x if axis is None else torch.stack([x.detach(), -x.detach(), 2 * x.detach()], axis).requires_grad_()
        for x, axis in zip(inputs(7), axes, strict=True)
    ]
    together, expected = (torch.vmap(form, in_dims=axes)(*given) for form in (native, looped))
    close(together, expected, 1e-11)
    for one, other in zip(gradients(together, given), gradients(expected, given), strict=True):
        close(one, other, 1e-11)


def test_single_precision_is_as_good_as_the_loop_s() -> None:
    """Over three hundred tokens, against float64."""
    given = [x.detach() for x in inputs(300, 16, batch=4)]
    as_good_in_single(partial(native, steps=40), partial(looped, steps=40), given)


def test_memory_is_linear_in_the_length() -> None:
    sizes = [kept_for_backward(lambda length=length: native(*inputs(length))) for length in (160, 320, 640)]
    assert sizes[2] - sizes[1] == 2 * (sizes[1] - sizes[0])


@pytest.mark.parametrize("input_at", ["every", "first"])
def test_the_layer_takes_it(input_at: str) -> None:
    x_BLD, ctx = torch.randn(2, 33, 6, dtype=torch.float64), Context()
    layer = lively(SLiCEConfig(d_model=6, block_size=3, input_at=input_at).block(0))
    close(layer(x_BLD, ctx), layer(x_BLD, Context(backend="reference")), 1e-11)
    assert "native_block_steps" in ctx.backends
