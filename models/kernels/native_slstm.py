"""`slstm_scan` (models/scans/slstm.py) on a CPU: a product a step by torch, and all that follows it in one pass in C.

With v = (x, h) and the weights [W, R] side by side the gates of a step are one product [B, V] @ [V, G]; so is the way
back to v, and so are the gradients of the weights. Where i and f read another x than z and o, a head is two parts with
a v and a half of the gates each. models/kernels/_native_slstm.c has what stands between the products.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from chomsky_ladder.models.kernels.kernel import Kernel, register
from chomsky_ladder.models.kernels.native import REAL, integers, kernel, missing, untraced
from chomsky_ladder.models.scans.replicas import fold_replicas, unfold_replicas
from chomsky_ladder.models.scans.slstm import Carried, Read, Weights


def native_slstm_scan(read: Read, state: Carried, weights: Weights) -> tuple[Tensor, Carried]:
    """All h [B, L, H, K], and the state after the last; it stacks under vmap."""
    h_BLHK, y_BHK, a_BHK, *_ = _Scan.apply(*state, *weights, *read)
    return h_BLHK, (h_BLHK[:, -1], y_BHK, a_BHK)


class _Scan(torch.autograd.Function):
    """Inside, time comes first and then the H heads of P parts: v [L + 1, H, P, B, J + K], of which h is the end."""

    @staticmethod
    def forward(
        h_BHK: Tensor, y_BHK: Tensor, a_BHK: Tensor, W_HGJ: Tensor, R_HGK: Tensor, b_HG: Tensor, *read: Tensor
    ) -> tuple[Tensor, ...]:
        """All h, the last y and a; and for the way back all v, and s(-f), tanh(z), s(o), s(u) and y of each step."""
        (batch, length, heads, width), parts, inner = read[0].shape, len(read), R_HGK.shape[-1]
        v_LHPBV = h_BHK.new_empty(length + 1, heads, parts, batch, width + inner)
        for part, x_BLHJ in enumerate(read):
            v_LHPBV[:-1, :, part, :, :width] = x_BLHJ.permute(1, 2, 0, 3)
        v_LHPBV[0, :, :, :, width:] = h_BHK.transpose(0, 1)[:, None]
        weight_XVG = _by_parts(W_HGJ, R_HGK, parts).mT.contiguous()
        gates_XBG = h_BHK.new_empty(heads * parts, batch, weight_XVG.shape[-1])
        kept_LHSBK = h_BHK.new_empty(length, heads, 5, batch, inner)
        y_HBK, a_HBK = (z_BHK.transpose(0, 1).clone(memory_format=torch.contiguous_format) for z_BHK in (y_BHK, a_BHK))
        step, sizes = kernel("slstm_forward", h_BHK.dtype), integers(heads, parts, batch, inner, width, 0, 0)
        bias_HG, steps = b_HG.contiguous(), v_LHPBV.flatten(1, 2).unbind(0)
        for v_XBV, kept_HSBK, next_XBV in zip(steps[:-1], kept_LHSBK.unbind(0), steps[1:], strict=True):
            torch.bmm(v_XBV, weight_XVG, out=gates_XBG)
            step(gates_XBG, bias_HG, y_HBK, a_HBK, kept_HSBK, next_XBV, sizes=sizes)
        h_BLHK = v_LHPBV[1:, :, 0, :, width:].permute(2, 0, 1, 3).contiguous()
        return h_BLHK, *(z_HBK.transpose(0, 1) for z_HBK in (y_HBK, a_HBK)), v_LHPBV, kept_LHSBK

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[3:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs[3:5], *output[3:])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_h_BLHK: Tensor | None, *d_state: Tensor | None) -> tuple[Tensor, ...]:
        W_HGJ, R_HGK, v_LHPBV, kept_LHSBK = ctx.saved_tensors
        (length, heads, _, batch, _), parts = kept_LHSBK.shape, v_LHPBV.shape[2]
        width, inner = W_HGJ.shape[-1], R_HGK.shape[-1]
        if d_h_BLHK is None:
            d_h_BLHK = kept_LHSBK.new_zeros(batch, length, heads, inner)
        d_h_BLHK = d_h_BLHK.contiguous()  # pyright: ignore[reportOptionalMemberAccess]
        d_y_HBK, d_a_HBK = kept_LHSBK.new_zeros(2, heads, batch, inner)
        for d_HBK, grad_BHK in zip((d_y_HBK, d_a_HBK), d_state, strict=False):
            if grad_BHK is not None:
                d_HBK += grad_BHK.transpose(0, 1)
        weight_XGV = _by_parts(W_HGJ, R_HGK, parts)
        d_weight_XGV, d_v_LHPBV = torch.zeros_like(weight_XGV), torch.empty_like(v_LHPBV[:-1])
        d_gates_XBG = kept_LHSBK.new_empty(heads * parts, batch, weight_XGV.shape[1])
        d_bias_HG = kept_LHSBK.new_zeros(heads, 4 * inner)
        step = kernel("slstm_backward", kept_LHSBK.dtype)
        sizes = integers(heads, parts, batch, inner, width, *d_h_BLHK.stride()[::2])
        along = (v_LHPBV[:-1].flatten(1, 2), d_v_LHPBV.flatten(1, 2), kept_LHSBK, d_h_BLHK.transpose(0, 1))
        d_next_XBV = None
        with torch.autocast(kept_LHSBK.device.type, enabled=False):
            for v_XBV, d_v_XBV, kept_HSBK, d_h_BHK in reversed(list(zip(*(z.unbind(0) for z in along), strict=True))):
                step(kept_HSBK, d_h_BHK, d_next_XBV, d_y_HBK, d_a_HBK, d_gates_XBG, d_bias_HG, sizes=sizes)
                d_next_XBV = torch.bmm(d_gates_XBG, weight_XGV, out=d_v_XBV)
                d_weight_XGV.baddbmm_(d_gates_XBG.mT, v_XBV)
        d_W_HGJ, d_R_HGK = d_weight_XGV.view(heads, 4 * inner, width + inner).split([width, inner], -1)
        d_state = (d_v_LHPBV[0, :, :, :, width:].sum(1), d_y_HBK, d_a_HBK)
        d_read = (d_v_LHPBV[:, :, part, :, :width].permute(2, 0, 1, 3).contiguous() for part in range(parts))
        return *(d_HBK.transpose(0, 1) for d_HBK in d_state), d_W_HGJ, d_R_HGK, d_bias_HG, *d_read

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        """Replicas are so many more heads."""
        places = (1, 1, 1, 0, 0, 0, *[2] * (len(inputs) - 6))
        folded = fold_replicas(inputs, in_dims, info.batch_size, places=places)
        return unfold_replicas(_Scan.apply(*folded), info.batch_size, places=(2, 1, 1, 1, 1))


def _by_parts(W_HGJ: Tensor, R_HGK: Tensor, parts: int) -> Tensor:
    """[W, R] side by side, of the gates of each part of each head: [H P, 4 K / P, J + K]."""
    return torch.cat([W_HGJ, R_HGK], -1).unflatten(1, (parts, -1)).flatten(0, 1)


register(
    Kernel(
        name="native_slstm",
        computes="slstm_scan",
        reference="chomsky_ladder.models.scans.slstm.slstm_scan",
        call=native_slstm_scan,
        serves=("xlstm",),
        device="cpu",
        dtypes=tuple(REAL),
        stacks=True,
        takes=untraced,
        missing=missing,
        rank=23,
    )
)
