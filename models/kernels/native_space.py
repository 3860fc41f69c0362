"""The kernel of a state space's convolution (models/scans/state_space.py) on a CPU in C: the recurrence itself.

A step takes N operations a channel where squaring a dense transition takes N^3, and a CPU does one after the other
anyway.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from chomsky_ladder.models.kernels.kernel import Kernel, register
from chomsky_ladder.models.kernels.native import REAL, integers, kernel, missing, untraced
from chomsky_ladder.models.scans.function import Function
from chomsky_ladder.models.scans.replicas import fold_replicas, unfold_replicas
from chomsky_ladder.models.scans.state_space import System


def native_impulse_response(C_HM2: Tensor, system: System, length: int) -> Tensor:
    """As `impulse_response`; it stacks under vmap."""
    of_rank = [part for part in (system.q_HM2, system.r_HM2) if part is not None]
    return _Response.apply(torch.stack([system.d_HM2, system.b_HM2, C_HM2, *of_rank], 1).mT, length)


class _Response(Function):
    """Channels are one axis, and what vmap adds becomes more of it; P parts of a system, real and imaginary (C)."""

    @staticmethod
    def forward(system_HPCM: Tensor, length: int) -> Tensor:
        response_HL = system_HPCM.new_empty(len(system_HPCM), length)
        sizes = _sizes(system_HPCM, length)
        kernel("space_forward", system_HPCM.dtype)(system_HPCM.contiguous(), response_HL, sizes=sizes)
        return response_HL

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_response_HL: Tensor) -> tuple[Tensor, None]:
        (system_HPCM,) = (x.contiguous() for x in ctx.saved_tensors)
        d_system_HPCM, sizes = torch.empty_like(system_HPCM), _sizes(system_HPCM, d_response_HL.shape[1])
        given = (system_HPCM, d_response_HL.contiguous())
        kernel("space_backward", system_HPCM.dtype)(*given, d_system_HPCM, sizes=sizes)
        return d_system_HPCM, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, None], system: Tensor, length: int) -> tuple[Tensor, int]:
        folded = fold_replicas([system], in_dims[:1], info.batch_size)
        (found,), places = unfold_replicas([_Response.apply(*folded, length)], info.batch_size)
        return found, places[0]


def _sizes(system_HPCM: Tensor, length: int) -> object:
    channels, parts, _, states = system_HPCM.shape
    return integers(channels, length, states, parts)


register(
    Kernel(
        name="native_space",
        computes="impulse_response",
        reference="chomsky_ladder.models.scans.state_space.impulse_response",
        call=native_impulse_response,
        serves=("s4", "h3"),
        device="cpu",
        dtypes=tuple(REAL),
        stacks=True,
        takes=untraced,
        missing=missing,
        rank=25,
    )
)
