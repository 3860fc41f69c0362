"""Complex numbers as pairs of reals, [..., 2]: what little arithmetic state spaces need of them.

A compiler fuses nothing with complex tensors, and CUDA compiles every operation on them where it is first met; pairs
are reals to both.
"""

import torch
from torch import Tensor


def pair(real: Tensor, imaginary: Tensor) -> Tensor:
    return torch.stack([real, imaginary], -1)


def times(a_X2: Tensor, b_X2: Tensor) -> Tensor:
    (a, b), (c, d) = a_X2.unbind(-1), b_X2.unbind(-1)
    return pair(a * c - b * d, a * d + b * c)


def real_of(a_X2: Tensor, b_X2: Tensor) -> Tensor:
    """The real part of a product."""
    (a, b), (c, d) = a_X2.unbind(-1), b_X2.unbind(-1)
    return a * c - b * d


def plus_1(a_X2: Tensor) -> Tensor:
    a, b = a_X2.unbind(-1)
    return pair(a + 1, b)


def conjugate(a_X2: Tensor) -> Tensor:
    a, b = a_X2.unbind(-1)
    return pair(a, -b)


def inverse(a_X2: Tensor) -> Tensor:
    return conjugate(a_X2) / a_X2.square().sum(-1, keepdim=True)


def exponential(a_X2: Tensor) -> Tensor:
    a, b = a_X2.unbind(-1)
    return a.exp()[..., None] * pair(b.cos(), b.sin())


def exponential_less_1(a_X2: Tensor) -> Tensor:
    """exp(a) - 1, with all its digits where a is small: 1 - cos b is 2 sin^2(b / 2)."""
    a, b = a_X2.unbind(-1)
    return pair(torch.expm1(a) * b.cos() - 2 * (b / 2).sin().square(), a.exp() * b.sin())
