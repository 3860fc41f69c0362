"""A linear recurrence in every channel, h_t = a_t h_{t-1} + u_t, without an autograd graph of every step.

    a = (1/2, 1/2, 0), u = (1, 1, 1), h_0 = 4        h = (3, 5/2, 1)

`scan_loop` is the definition. On a CPU `_Scan` is the loop in place. Elsewhere, and compiled, it is a parallel scan by
doubling (Hillis and Steele 1986), in which a and u at t come to stand for the last 1, 2, 4 .. positions up to t:

    u_t <- u_t + a_t u_{t-n}        a_t <- a_t a_{t-n}        for n = 1, 2, 4 .. below L

Nothing is divided and no logarithm taken: with 0 <= a <= 1, as in every model here, decays are exact down to 0. The
gradient is the same recurrence from the end: g_t = dL/dh_t + a_{t+1} g_{t+1}, dL/du_t = g_t, dL/da_t = g_t h_{t-1}.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from chomsky_ladder.models.scans.function import Function


def scan_loop(a_BLD: Tensor, u_BLD: Tensor, h_BD: Tensor) -> tuple[Tensor, Tensor]:
    outputs = []
    for a_BD, u_BD in zip(a_BLD.unbind(-2), u_BLD.unbind(-2), strict=True):
        h_BD = torch.addcmul(u_BD, a_BD, h_BD)
        outputs.append(h_BD)
    return torch.stack(outputs, -2), h_BD


def scanned(a_BLD: Tensor, u_BLD: Tensor, h_BD: Tensor) -> tuple[Tensor, Tensor]:
    """Return the same by the way that suits the device."""
    h_BLD = _Scan.apply(a_BLD, u_BLD, h_BD)
    return h_BLD, h_BLD[..., -1, :]


class _Scan(Function):
    @staticmethod
    def forward(a_BLD: Tensor, u_BLD: Tensor, h_BD: Tensor) -> Tensor:
        first_BLD = torch.addcmul(u_BLD[..., :1, :], a_BLD[..., :1, :], h_BD[..., None, :])
        return _scanned(a_BLD, torch.cat([first_BLD, u_BLD[..., 1:, :]], -2))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        a_BLD, _, h_BD = inputs
        ctx.save_for_backward(a_BLD, h_BD, output)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gh_BLD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        a_BLD, h_BD, h_BLD = ctx.saved_tensors
        g_BLD = _scanned(a_BLD, gh_BLD.clone(memory_format=torch.contiguous_format), backwards=True)
        before_BLD = torch.cat([h_BD[..., None, :], h_BLD[..., :-1, :]], -2)
        return g_BLD * before_BLD, g_BLD, a_BLD[..., 0, :] * g_BLD[..., 0, :]

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[Tensor, int]:
        """Treat replicas as further rows."""
        size = info.batch_size
        with_R = (
            x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)
            for x, dim in zip(inputs, in_dims, strict=True)
        )
        return _Scan.apply(*with_R), 0


def _scanned(a_BLD: Tensor, u_BLD: Tensor, *, backwards: bool = False) -> Tensor:
    """Return h from zeros, or with `backwards` g from zeros after the end. `u_BLD` may be overwritten."""
    scan = in_place if u_BLD.device.type == "cpu" and not torch.compiler.is_compiling() else doubled
    return scan(a_BLD, u_BLD, backwards=backwards)


def in_place(a_BLD: Tensor, u_BLD: Tensor, *, backwards: bool) -> Tensor:
    a_L, h_L = a_BLD.unbind(-2), u_BLD.unbind(-2)
    if backwards:
        for t in range(len(h_L) - 2, -1, -1):
            h_L[t].addcmul_(a_L[t + 1], h_L[t + 1])
    else:
        for t in range(1, len(h_L)):
            h_L[t].addcmul_(a_L[t], h_L[t - 1])
    return u_BLD


def doubled(a_BLD: Tensor, u_BLD: Tensor, *, backwards: bool) -> Tensor:
    if backwards:  # the first a moves to the end and is not read there, as in the forward pass
        return doubled(a_BLD.roll(-1, -2).flip(-2), u_BLD.flip(-2), backwards=False).flip(-2)
    reach, length = 1, u_BLD.shape[-2]
    while reach < length:
        further_BLD = torch.addcmul(u_BLD[..., reach:, :], a_BLD[..., reach:, :], u_BLD[..., :-reach, :])
        u_BLD = torch.cat([u_BLD[..., :reach, :], further_BLD], -2)
        a_BLD = torch.cat([a_BLD[..., :reach, :], a_BLD[..., reach:, :] * a_BLD[..., :-reach, :]], -2)
        reach *= 2
    return u_BLD
