"""Complex numbers as pairs of reals, [..., 2], with the few operations that state spaces need.

A compiler fuses nothing with complex tensors, and CUDA compiles every operation on them on first use. Pairs are reals
to both. On a CPU complex operations are as good, and save a call.
"""

from collections.abc import Callable

import torch
from torch import Tensor


def pair(real: Tensor, imaginary: Tensor) -> Tensor:
    return torch.stack([real, imaginary], -1)


def times(a_X2: Tensor, b_X2: Tensor) -> Tensor:
    if _is_joined(a_X2):
        return _pairs_of(torch.mul, a_X2, b_X2)
    (a, b), (c, d) = a_X2.unbind(-1), b_X2.unbind(-1)
    return pair(a * c - b * d, a * d + b * c)


def real_of(a_X2: Tensor, b_X2: Tensor) -> Tensor:
    """Return the real part of a product."""
    if _is_joined(a_X2):
        return _joined(torch.mul, a_X2, b_X2).real
    (a, b), (c, d) = a_X2.unbind(-1), b_X2.unbind(-1)
    return a * c - b * d


def plus_1(a_X2: Tensor) -> Tensor:
    if _is_joined(a_X2):
        return _pairs_of(lambda a: a + 1, a_X2)
    a, b = a_X2.unbind(-1)
    return pair(a + 1, b)


def conjugate(a_X2: Tensor) -> Tensor:
    a, b = a_X2.unbind(-1)  # a complex one would have no vmap rule
    return pair(a, -b)


def inverse(a_X2: Tensor) -> Tensor:
    if _is_joined(a_X2):
        return _pairs_of(torch.reciprocal, a_X2)
    return conjugate(a_X2) / a_X2.square().sum(-1, keepdim=True)


def exponential(a_X2: Tensor) -> Tensor:
    if _is_joined(a_X2):
        return _pairs_of(torch.exp, a_X2)
    a, b = a_X2.unbind(-1)
    return a.exp()[..., None] * pair(b.cos(), b.sin())


def exponential_less_1(a_X2: Tensor) -> Tensor:
    """Return exp(a) - 1, with all its digits where a is small: 1 - cos b is 2 sin^2(b / 2)."""
    if _is_joined(a_X2):
        return _pairs_of(torch.expm1, a_X2)
    a, b = a_X2.unbind(-1)
    return pair(torch.expm1(a) * b.cos() - 2 * (b / 2).sin().square(), a.exp() * b.sin())


def _is_joined(a_X2: Tensor) -> bool:
    """Return True if complex numbers are used."""
    return a_X2.device.type == "cpu" and not torch.compiler.is_compiling()


def _joined(act: Callable[..., Tensor], *given_X2: Tensor) -> Tensor:
    return act(*(torch.view_as_complex(x_X2.contiguous()) for x_X2 in given_X2))


def _pairs_of(act: Callable[..., Tensor], *given_X2: Tensor) -> Tensor:
    return torch.view_as_real(_joined(act, *given_X2))
