"""A function with a gradient by hand: called without a look at its signature, and inside torch.func's transforms."""

import inspect
from typing import Any

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.scans.function import Function


class Scaled(Function):
    @staticmethod
    def forward(x: Tensor, by: float) -> Tensor:
        return by * x

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:
        ctx.by = inputs[1]

    @staticmethod
    def backward(ctx: Any, d_y: Tensor) -> tuple[Tensor, None]:
        return ctx.by * d_y, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, None], x: Tensor, by: float) -> tuple[Tensor, int | None]:
        return Scaled.apply(x, by), in_dims[0]


def test_a_call_does_not_look_at_the_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(3, requires_grad=True)

    def looked_at(*_: Any, **__: Any) -> None:
        raise AssertionError("at a signature")

    with monkeypatch.context() as patched:
        patched.setattr(inspect, "signature", looked_at)
        y = Scaled.apply(x, 3.0)
    y.sum().backward()
    assert y.tolist() == [3.0] * 3 and x.grad is not None and x.grad.tolist() == [3.0] * 3


def test_inside_transforms() -> None:
    x = torch.arange(6.0).view(2, 3)
    assert torch.equal(torch.vmap(lambda row: Scaled.apply(row, 2.0))(x), 2 * x)
    assert torch.equal(torch.func.grad(lambda x: Scaled.apply(x, 2.0).sum())(x), torch.full((2, 3), 2.0))
