"""Pairs of reals against torch's complex numbers, values and gradients."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.scans import pairs
from support.layers import close, gradients

torch.set_num_threads(1)


def drawn(*, size: float = 1.0) -> Tensor:
    return (size * torch.randn(4, 3, 2, dtype=torch.float64)).requires_grad_()


def as_complex(a_X2: Tensor) -> Tensor:
    return torch.view_as_complex(a_X2)


@pytest.mark.parametrize("size", [1e-9, 1.0, 20.0])
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (pairs.plus_1, lambda a: a + 1),
        (pairs.conjugate, torch.conj),
        (pairs.inverse, torch.reciprocal),
        (pairs.exponential, torch.exp),
        (pairs.exponential_less_1, torch.expm1),
    ],
)
def test_of_one_number(ours: Callable[[Tensor], Tensor], theirs: Callable[[Tensor], Tensor], size: float) -> None:
    a_X2 = drawn(size=size)
    found, expected = ours(a_X2), torch.view_as_real(theirs(as_complex(a_X2)).resolve_conj())
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
    for one, other in zip(gradients(found, [a_X2]), gradients(expected, [a_X2]), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-13)


def test_of_two_numbers() -> None:
    a_X2, b_X2 = drawn(), drawn()
    for found, expected in (
        (pairs.times(a_X2, b_X2), torch.view_as_real(as_complex(a_X2) * as_complex(b_X2))),
        (pairs.real_of(a_X2, b_X2), (as_complex(a_X2) * as_complex(b_X2)).real),
    ):
        close(found, expected, 1e-13)
        for one, other in zip(gradients(found, [a_X2, b_X2]), gradients(expected, [a_X2, b_X2]), strict=True):
            close(one, other, 1e-12)
