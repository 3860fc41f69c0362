"""Products of rows with a weight in fp32 on a CPU, by the faster of the two libraries that torch brings.

    y = x W^T + b        d x = d y W        d W = d y^T x

torch multiplies in fp32 by MKL, which takes half of an AMD processor's vectors, and in bf16 by oneDNN, which takes them
whole, and does in fp32 as well if it is asked: on an AMD EPYC with AVX-512 100 and 240 GFLOP/s. It is asked for large
products alone, since a call from Python is some ten times as long as torch's own, and not where a compiler looks on.
The precision is fp32's there and back, the order of the sums another. With `torch.backends.mkldnn.enabled = False` all
products are torch's.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

LARGE = 2**23  # multiplications: below it is no faster, what a call costs with it


def product(x: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """As `torch.nn.functional.linear`; it differentiates as often and in both directions, and stacks under vmap."""
    if torch.compiler.is_compiling():
        return linear(x, weight_OI, bias_O)
    of_fp32 = x.device.type == "cpu" and x.dtype == weight_OI.dtype == torch.float32
    if of_fp32 and x.numel() * weight_OI.shape[0] >= LARGE and not torch.is_autocast_enabled("cpu") and by_onednn():
        return _Product.apply(x.reshape(-1, x.shape[-1]), weight_OI, bias_O).view(*x.shape[:-1], -1)
    return linear(x, weight_OI, bias_O)


def by_onednn() -> bool:
    """Whether large products in fp32 are oneDNN's here."""
    return (
        torch.backends.mkldnn.enabled
        and torch.backends.mkldnn.is_available()
        and torch.backends.cpu.get_cpu_capability() == "AVX512"
    )


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(x_TI: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x_TI, weight_OI, bias_O, "none", [], "")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor | None], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])
        ctx.save_for_forward(*inputs[:2])

    @staticmethod
    def backward(ctx: Any, d_y_TO: Tensor) -> tuple[Tensor | None, ...]:
        x_TI, weight_OI = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        return (
            product(d_y_TO, weight_OI.mT) if of_x else None,
            _summed(d_y_TO, x_TI) if of_weight else None,
            d_y_TO.sum(0) if of_bias else None,
        )

    @staticmethod
    def jvp(ctx: Any, x_TI: Tensor | None, weight_OI: Tensor | None, bias_O: Tensor | None) -> Tensor:
        of_x_TI, of_weight_OI = ctx.saved_tensors
        parts = [product(x_TI, of_weight_OI)] if x_TI is not None else []
        parts += [product(of_x_TI, weight_OI)] if weight_OI is not None else []
        parts += [bias_O.expand(len(of_x_TI), -1)] if bias_O is not None else []
        return torch.stack(parts).sum(0)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], x: Tensor, weight: Tensor, bias: Tensor | None
    ) -> tuple[Tensor, int]:
        """Torch's own product of a batch, which is one call."""
        return torch.vmap(linear, in_dims)(x, weight, bias), 0


def _summed(d_y_TO: Tensor, x_TI: Tensor) -> Tensor:
    """d y^T x, with the longer side of the two along the vectors."""
    if d_y_TO.shape[1] <= x_TI.shape[1]:
        return product(d_y_TO.mT, x_TI.mT)
    return product(x_TI.mT, d_y_TO.mT).mT
