"""Stick-breaking in C against the plain form, which test_stick_breaking.py holds to sticks broken piece by piece."""

from functools import partial

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.native import missing
from chomsky_ladder.models.kernels.native_sticks import native_sticks
from chomsky_ladder.models.stick_breaking import StickBreaking, over_the_past
from support.layers import close, gradients, kept_for_backward, lively

torch.set_num_threads(1)
pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


def numbers(*sizes: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return (2 * torch.randn(*sizes, dtype=dtype)).requires_grad_()


@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 40, 67])
@pytest.mark.parametrize("width", [1, 6, 16, 20])
def test_in_c_is_the_definition(length: int, width: int) -> None:
    heads_BLXK = numbers(2, length, 9, width)
    found, expected = (form(heads_BLXK, num_heads=3) for form in (native_sticks, over_the_past))
    assert found.shape == expected.shape
    close(found, expected, 1e-12)
    close(*(gradients(y, [heads_BLXK])[0] for y in (found, expected)), 1e-11)


def test_it_stacks() -> None:
    heads_BRLXK = numbers(2, 3, 19, 6, 5)
    read = partial(native_sticks, num_heads=2)
    together = torch.vmap(read, in_dims=1)(heads_BRLXK)
    alone = torch.stack([read(heads_BLXK) for heads_BLXK in heads_BRLXK.unbind(1)])
    close(together, alone, 1e-13)
    close(*(gradients(y, [heads_BRLXK])[0] for y in (together, alone)), 1e-12)


def test_sharp_scores_in_single_precision_are_as_good_as_by_logarithms() -> None:
    """Scores in the hundreds: the nearest that is asked for takes all, and what is farther is 0 or a tiny number."""
    exact = (20 * torch.randn(2, 200, 6, 16, dtype=torch.float64)).requires_grad_()
    rounded = exact.detach().float().requires_grad_()
    errors = []
    expected = over_the_past(exact, num_heads=2)
    expected = [expected, *gradients(expected, [exact])]
    for form in (native_sticks, over_the_past):
        y_BLHK = form(rounded, num_heads=2)
        found = [y_BLHK, *gradients(y_BLHK, [rounded])]
        assert all(bool(x.isfinite().all()) for x in found)
        errors.append([float((x - e).abs().mean().detach()) for x, e in zip(found, expected, strict=True)])
    for ours, theirs in zip(*errors, strict=True):
        assert ours < 2 * theirs


def test_oneself_and_the_future_do_not_matter() -> None:
    heads_BLXK = torch.randn(2, 40, 6, 5)
    before = native_sticks(heads_BLXK, num_heads=2)
    heads_BLXK[:, 30:] = 1e6
    after = native_sticks(heads_BLXK, num_heads=2)
    assert torch.equal(after[:, :30], before[:, :30]) and bool((after[:, 0] == 0).all())


def test_memory_is_linear_in_the_length() -> None:
    def kept(length: int) -> int:
        return kept_for_backward(lambda: native_sticks(numbers(1, length, 6, 8), num_heads=2))

    assert kept(512) < 2.05 * kept(256)


def test_a_layer_with_it_is_the_layer_without() -> None:
    layer = lively(StickBreaking(24, 3))
    x_BLD = torch.randn(3, 21, 24, dtype=torch.float64, requires_grad=True)
    ctx, leaves = Context(), [x_BLD, *layer.parameters()]
    y_BLD, expected_BLD = layer(x_BLD, ctx), layer(x_BLD, Context(backend="reference"))
    assert ctx.backends == {"native_sticks"}
    close(y_BLD, expected_BLD, 1e-11)
    for one, other in zip(gradients(y_BLD, leaves), gradients(expected_BLD, leaves), strict=True):
        close(one, other, 1e-9)
