"""Products of matrices in fp32 on a CPU in C, of one thread, for models/scans/products.py.

This is no `Operation`. Linear layers of any model call products without a context, so it stands among the libraries
that models/scans/products.py chooses from, and has no name in a record's backends. The autograd functions are there,
too, and multiply by it, forward and backward.
"""

import torch
from torch import Tensor

from chomsky_ladder.models.kernels.native import integers, kernel, missing
from chomsky_ladder.models.scans.products import LIBRARIES, Library, has_wide_vectors

MOST_DIMENSIONS = 4


def native_product(
    a: Tensor, b: Tensor, c: Tensor | None = None, into: Tensor | None = None, *, adds: bool = False
) -> Tensor:
    """A B + c of matrices or of stacks in up to two dimensions, in any order of memory; `into` rows that are there."""
    assert a.ndim == b.ndim <= MOST_DIMENSIONS and a.shape[:-2] == b.shape[:-2] and a.shape[-1] == b.shape[-2] > 0
    (rows, depth), columns = a.shape[-2:], b.shape[-1]
    y = a.new_empty(*a.shape[:-1], columns) if into is None else into
    assert y.shape == (*a.shape[:-1], columns) and (y.stride(-1) == 1 or columns == 1)
    if c is not None:
        c = c.contiguous()
    outer, inner = (1, 1, *a.shape[:-2])[-2:]
    strides = (*_strides(a), *_strides(b), *_strides(y)[:3], *((0, 0) if c is None else _strides(c[..., None])[:2]))
    sizes = integers(outer, inner, rows, depth, columns, *strides, adds)
    kernel("products", torch.float32)(a, b, c, y, sizes=sizes)
    return y


def _strides(x: Tensor) -> tuple[int, ...]:
    return (0, 0, *x.stride())[-4:]


LIBRARIES.insert(
    0,
    Library(
        name="C",
        multiply=native_product,
        least=2**20,
        most=2**30,  # a thousand by a thousand by a thousand
        most_dimensions=MOST_DIMENSIONS,
        ready=lambda threads, dimensions: threads == 1 and (has_wide_vectors() or dimensions > 2) and not missing(),
    ),
)
