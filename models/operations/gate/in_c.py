"""Gates in C: one pass each way, where torch takes two and four.

Of two halves of one projection the gradients are written into their places in one, which torch would put together.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from chomsky_ladder.models.kernels.native import in_rows, integers, kernel
from chomsky_ladder.models.scans.function import Function


def native_gated(z: Tensor, y: Tensor | None = None, activation: str = "silu") -> Tensor:
    """C version of `plain_gated`. Supports vmap."""
    return _Halves.apply(z, activation) if y is None else _Gate.apply(z, y, activation)


class _Gate(Function):
    @staticmethod
    def forward(z: Tensor, y: Tensor, activation: str) -> Tensor:
        (z, z_apart), (y, y_apart) = in_rows(z), in_rows(y)
        out = y.new_empty(y.shape)
        kernel("gate_forward", z.dtype)(y, z, out, sizes=_sizes(out, activation, y_apart, z_apart))
        return out

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, str], output: Tensor) -> None:
        *given, ctx.activation = inputs
        ctx.save_for_backward(*given)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor, Tensor, None]:
        (z, z_apart), (y, y_apart) = map(in_rows, ctx.saved_tensors)
        d_z, d_y = y.new_empty(2, *y.shape)
        sizes = _sizes(d_out, ctx.activation, y_apart, z_apart)
        kernel("gate_backward", z.dtype)(y, z, d_out.contiguous(), d_y, d_z, sizes=sizes)
        return d_z, d_y, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple, z: Tensor, y: Tensor, activation: str) -> tuple[Tensor, int]:
        together = (x[None] if dim is None else x.movedim(dim, 0) for x, dim in zip((z, y), in_dims, strict=False))
        return _Gate.apply(*torch.broadcast_tensors(*together), activation), 0


class _Halves(Function):
    @staticmethod
    def forward(x: Tensor, activation: str) -> Tensor:
        z, y = x.contiguous().chunk(2, dim=-1)
        out = x.new_empty(y.shape)
        kernel("gate_forward", x.dtype)(y, z, out, sizes=_sizes(out, activation, *[x.shape[-1]] * 2))
        return out

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, str], output: Tensor) -> None:
        x, ctx.activation = inputs
        ctx.save_for_backward(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor, None]:
        x, d_out = ctx.saved_tensors[0].contiguous(), d_out.contiguous()
        d_x = torch.empty_like(x)
        (z, y), (d_z, d_y) = x.chunk(2, dim=-1), d_x.chunk(2, dim=-1)
        sizes = _sizes(d_out, ctx.activation, *[x.shape[-1]] * 3)
        kernel("gate_backward", x.dtype)(y, z, d_out, d_y, d_z, sizes=sizes)
        return d_x, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple, x: Tensor, activation: str) -> tuple[Tensor, int]:
        return _Halves.apply(x.movedim(in_dims[0], 0), activation), 0


def _sizes(out: Tensor, activation: str, y_apart: int, z_apart: int, d_apart: int | None = None) -> object:
    width = out.shape[-1]
    apart = (y_apart, z_apart, width if d_apart is None else d_apart)
    return integers(out.numel() // max(1, width), width, *apart, activation == "gelu")
