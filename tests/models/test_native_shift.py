"""Token shifts and squares in C against torch's: values and gradients, of rows that fill no vector and one token."""

from typing import Any

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.kernels.native import missing
from chomsky_ladder.models.operations.shift.in_c import SquaredRelu, native_token_shifts
from chomsky_ladder.models.operations.shift.reference import squared_relu, token_shifts
from support.layers import close, gradients

torch.set_num_threads(1)
pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


def numbers(*sizes: int) -> Tensor:
    return torch.randn(*sizes, dtype=torch.float64).requires_grad_()


def together(shifted: tuple[Tensor, ...]) -> Tensor:
    """Every mixture with weights of its own."""
    return torch.stack([(place + 1) * y.pow(2) for place, y in enumerate(shifted)])


def agree(x: Tensor, last: Tensor, mixes: list[Tensor]) -> None:
    found, expected = (together(form(x, last, mixes)) for form in (native_token_shifts, token_shifts))
    close(found, expected, 1e-12)
    leaves = [x, last, *mixes]
    for one, other in zip(gradients(found, leaves), gradients(expected, leaves), strict=True):
        close(one, other, 1e-11)


@pytest.mark.parametrize("length", [1, 2, 9])
@pytest.mark.parametrize("width", [1, 3, 16, 37])
@pytest.mark.parametrize("count", [1, 3])
def test_shifts(length: int, width: int, count: int) -> None:
    x, last = numbers(3, length, width), numbers(3, width)
    agree(x, last, [numbers(width) for _ in range(count)])
    agree(x, last, [numbers(3, length, width) for _ in range(count)])
    agree(x, last, [numbers(width), numbers(3, length, width)])


def test_shares_that_tokens_or_rows_have_together() -> None:
    """C reads one row or all: what broadcasts is made whole first, also for who writes a layer of his own."""
    x, last = numbers(3, 5, 6), numbers(3, 6)
    agree(x, last, [numbers(1, 1, 6), numbers(3, 1, 6), numbers(5, 6), numbers(1), numbers(1, 5, 1)])


def test_what_is_not_contiguous() -> None:
    x, last, mix, whole = numbers(7, 5, 3), numbers(7, 3), numbers(14), numbers(5, 3, 7)
    found, expected = (
        together(form(x.permute(2, 1, 0), last.mT, [mix[::2], whole.transpose(0, 1)]))
        for form in (native_token_shifts, token_shifts)
    )
    close(found, expected, 1e-12)
    leaves = [x, last, mix, whole]
    for one, other in zip(gradients(found, leaves), gradients(expected, leaves), strict=True):
        close(one, other, 1e-11)


@pytest.mark.parametrize("shared", [False, True])
def test_it_stacks(shared: bool) -> None:
    x, last, mix, whole = numbers(4, 3, 5, 6), numbers(4, 3, 6), numbers(4, 6), numbers(4, 3, 5, 6)
    dims: Any = (0, 0, None, 0) if shared else (0, 0, 0, 0)
    given = [x, last, mix[0].detach().requires_grad_() if shared else mix, whole]

    def of(form: Any) -> Tensor:
        return torch.vmap(lambda x, last, mix, whole: together(form(x, last, [mix, whole])), dims)(*given)

    found, expected = of(native_token_shifts), of(token_shifts)
    close(found, expected, 1e-12)
    for one, other in zip(gradients(found, given), gradients(expected, given), strict=True):
        close(one, other, 1e-11)


def test_squares() -> None:
    x = numbers(3, 5, 7)
    with torch.no_grad():
        x[0, 0, :3] = torch.tensor([0.0, -0.0, 1e-30])
    found, expected = SquaredRelu.apply(x), squared_relu(x)
    close(found, expected, 1e-14)
    close(gradients(found, [x])[0], gradients(expected, [x])[0], 1e-14)
    close(torch.vmap(SquaredRelu.apply, 1)(x), torch.vmap(squared_relu, 1)(x), 1e-14)
