"""The mLSTM in chunks against the torch form of its authors' kernels: with their own way back behind a norm alone."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.operations.mlstm.reference import mlstm_chunks, mlstm_start

Read = Callable[[Tensor], Tensor]


@pytest.fixture
def fwbw() -> Any:
    """Import the package only for these tests: it takes a second, and every process collects them."""
    return pytest.importorskip("mlstm_kernels.torch.chunkwise.native.fwbw")


def as_it_is(y_BHLV: Tensor) -> Tensor:
    return y_BHLV


def normed(y_BHLV: Tensor) -> Tensor:
    return torch.nn.functional.rms_norm(y_BHLV, y_BHLV.shape[-1:])


def off(theirs: Callable[..., Tensor], read: Read) -> float:
    """Return the largest difference of gradients over inputs, relative to an input's largest entry."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(2, 2, 64, 64)] * 3 + [(2, 2, 64)] * 2
    q, k, v, i, f = given = [torch.randn(shape, generator=generator).requires_grad_() for shape in shapes]
    start = mlstm_start(2, 2, 64, 64, device=q.device, dtype=q.dtype)
    both = mlstm_chunks(q, k / 8, v, i, f, start)[0], theirs(q, k, v, i, f, eps=0.0, autocast_kernel_dtype=q.dtype)
    assert (both[0] - both[1]).abs().max() < 1e-4 * both[0].abs().max()
    weights = torch.randn(q.shape, generator=generator)
    ours, others = (torch.autograd.grad((read(y) * weights).sum(), given) for y in both)
    return max(float((one - other).abs().max() / one.abs().max()) for one, other in zip(ours, others, strict=True))


@pytest.mark.parametrize("read", [as_it_is, normed])
def test_gradients_are_those_of_autograd(read: Read, fwbw: Any) -> None:
    assert off(fwbw.mlstm_chunkwise__native_autograd, read) < 1e-4


def test_the_kernels_leave_out_what_a_norm_makes_nothing_of(fwbw: Any) -> None:
    """The denominator's: once they have it, the docstring of operations/mlstm/mlstm_kernels_package.py is old."""
    assert off(fwbw.mlstm_chunkwise__native_custbw, normed) < 1e-4
    assert off(fwbw.mlstm_chunkwise__native_custbw, as_it_is) > 0.1
