"""`block_steps` (models/scans/block_steps.py) on a CPU in C: a state stays in the nearest cache from token to token."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from chomsky_ladder.models.kernels.kernel import Kernel, register
from chomsky_ladder.models.kernels.native import REAL, integers, kernel, missing, untraced
from chomsky_ladder.models.scans.function import Function
from chomsky_ladder.models.scans.replicas import fold_replicas, unfold_replicas


def native_block_steps(c_BLX: Tensor, b_BLX: Tensor, h_BHK: Tensor, *, steps: int) -> tuple[Tensor, Tensor]:
    """As `block_steps`; it stacks under vmap."""
    h_BLX = _Scan.apply(c_BLX, b_BLX.to(c_BLX.dtype), h_BHK.to(c_BLX.dtype), steps)
    return h_BLX, h_BLX[:, -1].unflatten(-1, h_BHK.shape[1:])


class _Scan(Function):
    @staticmethod
    def forward(c_BLX: Tensor, b_BLX: Tensor, h_BHK: Tensor, steps: int) -> Tensor:
        given = [x.contiguous() for x in (c_BLX, b_BLX, h_BHK)]
        h_BLX = torch.empty_like(given[1])
        kernel("block_steps_forward", h_BLX.dtype)(*given, h_BLX, sizes=_sizes(h_BLX, h_BHK, steps))
        return h_BLX

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        c_BLX, _, h_BHK, ctx.steps = inputs
        ctx.save_for_backward(c_BLX, h_BHK, output)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_h_BLX: Tensor) -> tuple[Tensor | None, ...]:
        given = c_BLX, h_BHK, h_BLX = [x.contiguous() for x in ctx.saved_tensors]
        written = torch.empty_like(c_BLX), torch.empty_like(h_BLX), torch.zeros_like(h_BHK)
        sizes = _sizes(h_BLX, h_BHK, ctx.steps)
        kernel("block_steps_backward", h_BLX.dtype)(*given, d_h_BLX.contiguous(), *written, sizes=sizes)
        return *written, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Tensor, int]:
        """Replicas are so many more rows."""
        *tensors, steps = inputs
        (h_BLX,), (place,) = unfold_replicas(
            (_Scan.apply(*fold_replicas(tensors, in_dims[:3], info.batch_size), steps),), info.batch_size
        )
        return h_BLX, place


def _sizes(h_BLX: Tensor, h_BHK: Tensor, steps: int) -> object:
    return integers(*h_BLX.shape[:2], *h_BHK.shape[1:], steps)


register(
    Kernel(
        name="native_block_steps",
        computes="block_steps",
        reference="chomsky_ladder.models.scans.block_steps.block_steps",
        call=native_block_steps,
        serves=("slice",),
        device="cpu",
        dtypes=tuple(REAL),
        stacks=True,
        takes=untraced,
        missing=missing,
        rank=14,
    )
)
