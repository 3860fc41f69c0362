"""What kernels in C share over which numbers die out: these are nothing in the end, and only while they run."""

import platform

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.kernels.native import missing
from chomsky_ladder.models.kernels.native_sticks import native_sticks

torch.set_num_threads(1)
pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=missing()),
    pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="another processor's numbers"),
]

LENGTH, LEAST = 200, torch.finfo(torch.float32).tiny


def drawn(*sizes: int) -> Tensor:
    return torch.randn(1, 2, LENGTH, *sizes)


def leaves(*tensors: Tensor) -> list[Tensor]:
    return [x.detach().requires_grad_() for x in tensors]


def by_sticks() -> tuple[Tensor, list[Tensor]]:
    given = leaves(*(x.transpose(1, 2) / 3 for x in (drawn(5), drawn(5), drawn(5))))
    return native_sticks(torch.cat(given, 2), num_heads=2).transpose(1, 2), given


@pytest.mark.parametrize("made", [by_sticks])
def test_gradients_that_die_out_are_nothing_in_the_end(made: object) -> None:
    assert callable(made)
    torch.manual_seed(0)
    y_BHLV, given = made()
    found = torch.autograd.grad(y_BHLV[:, :, -1].sum(), given)
    assert found[1].ne(0).any() and found[1].eq(0).any(), "some are alive, some are not"
    for gradient in found[:3]:
        assert not ((gradient != 0) & (gradient.abs() < LEAST)).any()
    assert (torch.tensor([LEAST]) / 4).item() > 0, "elsewhere there are such numbers still"
