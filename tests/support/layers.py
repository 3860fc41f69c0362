"""Shared code of layer tests: a seed, comparisons of tensors, a scalar to differentiate, perturbed weights."""

from collections.abc import Callable, Iterator, Sequence

import pytest
import torch
from torch import Tensor, nn


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    """Seed torch for every test of the folders whose conftest imports this."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)  # the CPU's: for each other device torch keeps a stack, 1 ms in all
        yield


def close(found: Tensor, expected: Tensor, tolerance: float = 1e-12) -> None:
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def gradients(y: Tensor, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    """Return the gradients of a scalar in which no element can hide another's error."""
    loss = (y * torch.linspace(-9, 9, y.numel(), dtype=y.dtype).sin().view_as(y)).sum()
    return torch.autograd.grad(loss, inputs, materialize_grads=True)


def lively(module: nn.Module) -> nn.Module:
    """Make weights float64, and move them away from their initial values."""
    for parameter in module.double().parameters():
        parameter.data += 0.4 * torch.randn_like(parameter)
    return module


def near(one: Tensor, exact: Tensor) -> None:
    """Check that a tensor equals the exact one up to single precision."""
    assert one.dtype == torch.float32 and one.shape == exact.shape
    assert (one - exact).abs().max() <= 2e-6 * exact.abs().max()


def as_good_in_single(
    form: Callable[..., Tensor], plain: Callable[..., Tensor], given: Sequence[Tensor], *, times: float = 2
) -> None:
    """Assert that errors in single precision are at most so many times the plain form's, or below 1e-5."""
    found = []
    for act, dtype in ((plain, torch.float64), (plain, torch.float32), (form, torch.float32)):
        rounded = [x.detach().to(dtype).requires_grad_() for x in given]
        outputs = act(*rounded)
        found.append([outputs, *gradients(outputs, rounded)])
    for exact, theirs, ours in zip(*found, strict=True):
        assert (ours - exact).abs().max() <= max(times * (theirs - exact).abs().max(), 1e-5 * exact.abs().max())


def kept_for_backward(made: Callable[[], object]) -> int:
    """Bytes that autograd keeps for what `made` returns, each storage once."""
    seen: dict[int, int] = {}

    def noted(x: Tensor) -> Tensor:
        seen[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(noted, lambda x: x):
        result = made()
    del result
    return sum(seen.values())
