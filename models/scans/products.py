"""Matrix products in fp32 on a CPU, by the fastest library available.

    y = x W^T + b        d x = d y W        d W = d y^T x

torch multiplies in fp32 by MKL, which uses only half of an AMD processor's vectors: on an AMD EPYC with AVX-512 it
reaches 100 GFLOP/s. Products in C (models/operations/product) reach 180 to 250 there on one thread. With more threads,
without a compiler, or for matrices that fill no cache, large products use oneDNN, which torch has for bf16. Small ones
stay with torch, since a call from Python costs as much as they do. So does everything that torch.compile traces.
Forward and backward have the precision of fp32, with another order of sums.

An AMD processor without AVX-512 has vectors of the width that MKL uses: both reach 70 to 90 of some 105 GFLOP/s. Single
products are torch's there. Stacks of small ones, in C a tenth to a quarter faster, and the parts of a split projection
are C's.

On Intel's own processors MKL uses whole vectors, and all products are torch's: on a Xeon with AVX-512 one thread
reached 158 GFLOP/s for 114 to 149 of the others, and steps of fifteen models took up to 17 per cent less time.
"""

import contextlib
import functools
import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear, pad

from chomsky_ladder.models.scans.function import Function


@dataclass(frozen=True)
class Library:
    name: str
    multiply: Callable[..., Tensor]
    """Return A B + c for fp32 matrices, A and B with the same number of dimensions. c, a row for each matrix, may be
    None. Those that take stacks can also write `into` a tensor, or add to it (`adds`).
    """
    least: int
    """Number of multiplications from which on it is faster than torch."""
    most_dimensions: int
    """Most dimensions of A and B. Stacks with more use torch."""
    ready: Callable[[int, int], bool]
    """Return True if it is to be used with this many threads, and for this many dimensions of A and B."""
    most: int = 2**62
    """Multiplications of two matrices from which on another is faster."""


def _onednn(a: Tensor, b: Tensor, c: Tensor | None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(a, b.mT, c, "none", [], "")


def _onednn_ready(threads: int, dimensions: int) -> bool:
    return torch.backends.mkldnn.enabled and torch.backends.mkldnn.is_available() and has_wide_vectors()


def has_wide_vectors() -> bool:
    return torch.backends.cpu.get_cpu_capability() == "AVX512"


@functools.cache
def torch_is_as_fast() -> bool:
    """Return True if MKL is available and uses the processor's whole vectors: if Intel made it."""
    if not torch.backends.mkl.is_available():
        return False
    try:
        said = Path("/proc/cpuinfo").read_text("utf-8", errors="replace")
    except OSError:  # not on Linux
        said = platform.processor()
    return "GenuineIntel" in said


TOGETHER = 64  # of the summed dimension
OF_STACKS = 4  # torch is this much slower on stacks, so a library pays this much sooner

# The first that is ready is used; models/kernels puts its own first.
LIBRARIES = [Library("oneDNN", _onednn, least=2**23, most_dimensions=2, ready=_onednn_ready)]


def library(threads: int, multiplications: int, dimensions: int = 2) -> Library | None:
    """Return the library for products of this many multiplications in fp32 on a CPU; None: torch's own."""
    if torch_is_as_fast():
        return None
    for each in LIBRARIES:
        few_enough = multiplications < each.most or dimensions > 2
        if (
            each.least <= multiplications
            and few_enough
            and dimensions <= each.most_dimensions
            and each.ready(threads, dimensions)
        ):
            return each
    return None


@contextlib.contextmanager
def by_torch() -> Iterator[None]:
    """Use torch's own products, so that its tools can see them."""
    before = LIBRARIES[:]
    LIBRARIES.clear()
    try:
        yield
    finally:
        LIBRARIES[:] = before


def product(x: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """Return the same as `torch.nn.functional.linear`.

    It differentiates repeatedly, both ways, and stacks under vmap.
    """
    by = _library_for(x, weight_OI, x.numel() * weight_OI.shape[0])
    if by is None:
        return linear(x, weight_OI, bias_O)
    return _Product.apply(x.reshape(-1, x.shape[-1]), weight_OI.mT, bias_O, by).view(*x.shape[:-1], -1)


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """Return a @ b, for stacks by a library that takes stacks. A shared operand is not copied."""
    by = _library_for(a, b, OF_STACKS * a.numel() * b.shape[-1], dimensions=3) if a.ndim == b.ndim > 2 else None
    if by is None:
        return a @ b
    lead = a.shape[:-2]
    if lead != b.shape[:-2]:
        lead = torch.broadcast_shapes(lead, b.shape[:-2])
        a, b = a.expand(*lead, -1, -1), b.expand(*lead, -1, -1)
    if a.ndim <= by.most_dimensions:
        return _Product.apply(a, b, None, by)
    return _Product.apply(a.flatten(0, -4), b.flatten(0, -4), None, by).unflatten(0, lead[:-1])


def summed_product(a_XTM: Tensor, b_XTN: Tensor) -> Tensor:
    """Return a^T b of stacks, a few of T at a time: one sum over all of T would lose twice the digits."""
    by = _library_for(a_XTM, b_XTN, OF_STACKS * a_XTM.numel() * b_XTN.shape[-1], dimensions=3)
    if by is not None and a_XTM.ndim <= by.most_dimensions:
        return _times(a_XTM.mT, b_XTN, by)
    pairs = zip(a_XTM.split(TOGETHER, -2), b_XTN.split(TOGETHER, -2), strict=True)
    return functools.reduce(torch.add, (a.mT @ b for a, b in pairs))


def product_in_parts(x: Tensor, weight_OI: Tensor, sizes: Sequence[int]) -> tuple[Tensor, ...]:
    """Return `linear(x, weight_OI).split(sizes, -1)`, each part contiguous. Gradients need no concatenation."""
    by = _library_for(x, weight_OI, x.numel() * weight_OI.shape[0], dimensions=3)
    if by is None:
        return linear(x, weight_OI).split(list(sizes), -1)
    parts = _Parts.apply(x.reshape(-1, x.shape[-1]), weight_OI, tuple(sizes), by)
    return tuple(part.view(*x.shape[:-1], -1) for part in parts)


def product_of_each(
    x_NX: Tensor | Sequence[Tensor],
    weight_NOI: Tensor | Sequence[Tensor],
    bias_NO: Tensor | Sequence[Tensor | None] | None = None,
) -> Sequence[Tensor]:
    """Return `product` for each of N inputs with its own weight: one by one on a CPU, elsewhere as one stack."""
    if x_NX[0].device.type == "cpu":
        biases = [None] * len(x_NX) if bias_NO is None else bias_NO
        return [product(*each) for each in zip(x_NX, weight_NOI, biases, strict=True)]
    return product_of_stack(x_NX, weight_NOI, bias_NO)


def product_of_stack(
    x_NX: Tensor | Sequence[Tensor],
    weight_NOI: Tensor | Sequence[Tensor],
    bias_NO: Tensor | Sequence[Tensor | None] | None,
) -> Sequence[Tensor]:
    """Return products of one stack. Weights with fewer rows are padded."""
    rows = [len(weight_OI) for weight_OI in weight_NOI]
    if len(set(rows)) > 1:
        weight_NOI = [
            pad(weight_OI, (0, 0, 0, max(rows) - own)) for weight_OI, own in zip(weight_NOI, rows, strict=True)
        ]
    x_NX, weight_NOI = _one_stack(x_NX), _one_stack(weight_NOI)
    y_NX = (x_NX.flatten(1, -2) @ weight_NOI.mT).view(*x_NX.shape[:-1], -1)
    biases = [None] * len(rows) if bias_NO is None else bias_NO
    # Each bias is added separately, so that a compiler adds it where the sum is read.
    own_NX = [y[..., :own] for y, own in zip(y_NX, rows, strict=True)]
    return [y if b_O is None else y + b_O.to(y.dtype) for y, b_O in zip(own_NX, biases, strict=True)]


def products_of_one(x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor] | None = None) -> Sequence[Tensor]:
    """Return `product` with each of some weights: one by one on a CPU, elsewhere as one product with all rows."""
    if x.device.type == "cpu":
        given = [None] * len(weights) if biases is None else biases
        return [product(x, weight_OI, bias_O) for weight_OI, bias_O in zip(weights, given, strict=True)]
    return product_of_rows(x, weights, biases)


def product_of_rows(x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor] | None) -> Sequence[Tensor]:
    y = linear(x, torch.cat(list(weights)), None if biases is None else torch.cat(list(biases)))
    return y.split([len(weight_OI) for weight_OI in weights], -1)


def _one_stack(parts: Tensor | Sequence[Tensor]) -> Tensor:
    """Stack tensors, already in the precision of products, since stacking writes them."""
    if isinstance(parts, Tensor):
        return parts
    kind = parts[0].device.type
    has_autocast = torch.amp.is_autocast_available(kind)  # not on meta tensors
    if has_autocast and torch.is_autocast_enabled(kind) and parts[0].dtype == torch.float32:
        parts = [part.to(torch.get_autocast_dtype(kind)) for part in parts]
    return torch.stack(list(parts))


def put_product(place: Tensor, a: Tensor, b: Tensor, *, adds: bool = False) -> None:
    """Write A B into a tensor, of another precision perhaps, or add it to the content; not differentiable."""
    by = _library_for(a, b, a.numel() * b.shape[-1], dimensions=3)
    if by is not None and by.most_dimensions > 2 and place.dtype == a.dtype and place.stride(-1) == 1:
        by.multiply(a, b, into=place, adds=adds)
    elif adds:
        place += product(a, b.mT)
    else:
        place.copy_(product(a, b.mT))


def _library_for(a: Tensor, b: Tensor, multiplications: int, *, dimensions: int = 2) -> Library | None:
    if torch.compiler.is_compiling() or not LIBRARIES or a.device.type != "cpu":
        return None
    if not a.dtype == b.dtype == torch.float32 or torch.is_autocast_enabled("cpu"):
        return None
    return library(torch.get_num_threads(), multiplications, dimensions)


class _Product(Function):
    """A B + c of matrices or stacks of them."""

    @staticmethod
    def forward(a: Tensor, b: Tensor, c: Tensor | None, by: Library) -> Tensor:
        return by.multiply(a, b, c)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor | None, Library], output: Tensor) -> None:
        *given, _, ctx.by = inputs
        ctx.save_for_backward(*given)
        ctx.save_for_forward(*given)

    @staticmethod
    def backward(ctx: Any, d_y: Tensor) -> tuple[Tensor | None, ...]:
        a, b = ctx.saved_tensors
        of_a, of_b, of_c, _ = ctx.needs_input_grad
        return (
            _times(d_y, b.mT, ctx.by) if of_a else None,
            _of_weight(a, d_y, ctx.by) if of_b else None,
            d_y.sum(-2) if of_c else None,
            None,
        )

    @staticmethod
    def jvp(ctx: Any, a: Tensor | None, b: Tensor | None, c: Tensor | None, _: None) -> Tensor:
        of_a, of_b = ctx.saved_tensors
        parts = [_times(a, of_b, ctx.by)] if a is not None else []
        parts += [_times(of_a, b, ctx.by)] if b is not None else []
        parts += [c[..., None, :].expand(*of_a.shape[:-1], -1)] if c is not None else []
        return torch.stack(parts).sum(0)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], a: Tensor, b: Tensor, c: Tensor | None, by: Library
    ) -> tuple[Tensor, int]:
        """Add a dimension to all of them, for a library that takes it."""
        a, b = _stacked(a, in_dims[0], info.batch_size), _stacked(b, in_dims[1], info.batch_size)
        c = None if c is None else _stacked(c, in_dims[2], info.batch_size)
        if a.ndim <= by.most_dimensions:
            return _Product.apply(a, b, c, by), 0
        if a.ndim == by.most_dimensions + 1 > 3:
            folded = (a.flatten(0, 1), b.flatten(0, 1), None if c is None else c.flatten(0, 1))
            return _Product.apply(*folded, by).unflatten(0, (info.batch_size, -1)), 0
        return a @ b if c is None else a @ b + c[..., None, :], 0


class _Parts(Function):
    """x W^T for parts of W's rows, of matrices or stacks of them. The gradients of x are summed in place."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, sizes: tuple[int, ...], by: Library) -> tuple[Tensor, ...]:
        return tuple(by.multiply(x, part.mT, None) for part in weight.split(sizes, -2))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, tuple[int, ...], Library], output: Any) -> None:
        x, weight, ctx.sizes, ctx.by = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *d_parts: Tensor) -> tuple[Tensor | None, ...]:
        (x, weight), (of_x, of_weight, *_) = ctx.saved_tensors, ctx.needs_input_grad
        d_x, d_weight = x.new_empty(x.shape), weight.new_empty(weight.shape)
        for place, (d_part, part, d_rows) in enumerate(
            zip(d_parts, weight.split(ctx.sizes, -2), d_weight.split(ctx.sizes, -2), strict=True)
        ):
            if of_x:
                ctx.by.multiply(d_part, part, None, d_x, adds=place > 0)
            if of_weight:
                ctx.by.multiply(d_part.mT, x, None, d_rows)
        return d_x if of_x else None, d_weight if of_weight else None, None, None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], x: Tensor, weight: Tensor, sizes: tuple[int, ...], by: Library
    ) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        x, weight = _stacked(x, in_dims[0], info.batch_size), _stacked(weight, in_dims[1], info.batch_size)
        if x.ndim > by.most_dimensions:
            return (x @ weight.mT).split(sizes, -1), (0,) * len(sizes)
        return _Parts.apply(x, weight, sizes, by), (0,) * len(sizes)


def _stacked(x: Tensor, dim: int | None, size: int) -> Tensor:
    return x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)


def _of_weight(a: Tensor, d_y: Tensor, by: Library) -> Tensor:
    """Return a^T d y, with the longer side of the two along the vectors."""
    if d_y.shape[-1] <= a.shape[-1]:
        return _times(d_y.mT, a, by).mT
    return _times(a.mT, d_y, by)


def _times(a: Tensor, b: Tensor, by: Library) -> Tensor:
    """Return A B where one gradient is taken. It can be differentiated again."""
    if torch.is_grad_enabled() or torch._C._are_functorch_transforms_active():
        return _Product.apply(a, b, None, by)
    return by.multiply(a, b, None)
