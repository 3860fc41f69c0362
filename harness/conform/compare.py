"""Helpers of the conformance checks: the exception for "does not apply", and comparisons that describe a difference."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

IN_FP32 = 1e-4
_loosest: ContextVar[float] = ContextVar("loosest", default=0.0)


class Skip(Exception):
    """The check does not apply. The message says why."""


@contextmanager
def as_exact_as(part: object) -> Iterator[None]:
    """Compare only as exactly as a model declares. One that computes in fp32 inside is compared at that precision."""
    before = _loosest.set(0.0 if getattr(part, "exact", True) else IN_FP32)
    try:
        yield
    finally:
        _loosest.reset(before)


def equal(found: Tensor, wanted: Tensor, what: str, *, tolerance: float = 1e-9) -> None:
    """Assert that two tensors agree within a float64 tolerance, relative to the larger entries."""
    found, wanted = found.detach(), wanted.detach()
    assert found.shape == wanted.shape, f"{what}: shape {tuple(found.shape)}, not {tuple(wanted.shape)}"
    assert bool(torch.isfinite(found).all()), f"{what}: not finite"
    scale = max(1.0, float(wanted.abs().max())) if wanted.numel() else 1.0
    worst = float((found - wanted).abs().max()) if wanted.numel() else 0.0
    tolerance = max(tolerance, _loosest.get())
    assert worst <= tolerance * scale, f"{what}: off by {worst:.2e}"


def same(found: Tensor, wanted: Tensor, what: str) -> None:
    """Assert that two tensors are equal in every bit."""
    assert found.shape == wanted.shape, f"{what}: shape {tuple(found.shape)}, not {tuple(wanted.shape)}"
    assert torch.equal(found, wanted), f"{what}: {int((found != wanted).sum())} of {found.numel()} entries differ"
