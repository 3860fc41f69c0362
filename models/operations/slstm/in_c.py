"""The sLSTM's scan on a CPU: torch multiplies the inputs by W, and cpu.c takes all steps in one pass.

Only products with h wait for the step before. So W x of all steps is one product a head, and so are the gradients of
x, W and R. Where i and f read another x than z and o, each x has its half of the gates. It is an autograd function by
hand because of these products in its backward pass.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from chomsky_ladder.models.kernels.native import integers, kernel
from chomsky_ladder.models.operations.slstm.reference import Carried, Read, Weights
from chomsky_ladder.models.scans.function import Function
from chomsky_ladder.models.scans.products import matmul, summed_product
from chomsky_ladder.models.scans.replicas import fold_replicas, unfold_replicas


def native_slstm_scan(read: Read, state: Carried, weights: Weights) -> tuple[Tensor, Carried]:
    """C version of `slstm_scan`. Supports vmap."""
    h_BLHK, y_BHK, a_BHK, *_ = _Scan.apply(*state, *weights, *read)
    return h_BLHK, (h_BLHK[:, -1], y_BHK, a_BHK)


class _Scan(Function):
    """The scan with its gradient. Heads come first: X = L B tokens, the batch last, and h from before the first on."""

    @staticmethod
    def forward(
        h_BHK: Tensor, y_BHK: Tensor, a_BHK: Tensor, W_HGJ: Tensor, R_HGK: Tensor, b_HG: Tensor, *read: Tensor
    ) -> tuple[Tensor, ...]:
        """Return all h, the last y and a; for the backward pass all h, s(-f), tanh(z), s(o), s(u), y and x."""
        batch, length, heads, _ = read[0].shape
        inner = R_HGK.shape[-1]
        x_HXJ = [x_BLHJ.permute(2, 1, 0, 3).flatten(1, 2).contiguous() for x_BLHJ in read]
        gates = [matmul(x, W.mT) for x, W in zip(x_HXJ, W_HGJ.chunk(len(read), 1), strict=True)]
        gates_HXG = gates[0] if len(gates) == 1 else torch.cat(gates, -1)
        h_HLBK = h_BHK.new_empty(heads, length + 1, batch, inner)
        h_HLBK[:, 0] = h_BHK.transpose(0, 1)
        kept_HLSBK = h_BHK.new_empty(heads, length, 5, batch, inner)
        y_HBK, a_HBK = (z_BHK.transpose(0, 1).clone(memory_format=torch.contiguous_format) for z_BHK in (y_BHK, a_BHK))
        given, moved = (gates_HXG, R_HGK.contiguous(), b_HG.contiguous()), (h_HLBK, y_HBK, a_HBK, kept_HLSBK)
        kernel("slstm_forward", h_BHK.dtype)(*given, *moved, sizes=integers(heads, length, batch, inner))
        h_BLHK = h_HLBK[:, 1:].permute(2, 1, 0, 3).contiguous()
        return h_BLHK, *(z_HBK.transpose(0, 1) for z_HBK in (y_HBK, a_HBK)), h_HLBK, kept_HLSBK, *x_HXJ

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[3:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs[3:5], *output[3:])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_h_BLHK: Tensor | None, *d_state: Tensor | None) -> tuple[Tensor, ...]:
        W_HGJ, R_HGK, h_HLBK, kept_HLSBK, *x_HXJ = ctx.saved_tensors
        heads, length, _, batch, inner = kept_HLSBK.shape
        nothing = kept_HLSBK.new_zeros(()).expand(batch, length, heads, inner)
        from_out_BLHK = nothing if d_h_BLHK is None else d_h_BLHK
        from_out_BLHK = from_out_BLHK if from_out_BLHK.stride(-1) == 1 else from_out_BLHK.contiguous()
        d_h_HBK = kept_HLSBK.new_empty(heads, batch, inner)
        d_y_HBK, d_a_HBK = kept_HLSBK.new_zeros(2, heads, batch, inner)
        for d_HBK, grad_BHK in zip((d_y_HBK, d_a_HBK), d_state, strict=False):
            if grad_BHK is not None:
                d_HBK += grad_BHK.transpose(0, 1)
        d_gates_HXG = kept_HLSBK.new_empty(heads, length * batch, 4 * inner)
        sizes = integers(heads, length, batch, inner, *from_out_BLHK.stride()[:3])
        written = (d_gates_HXG, d_h_HBK, d_y_HBK, d_a_HBK)
        kernel("slstm_backward", kept_HLSBK.dtype)(kept_HLSBK, R_HGK.contiguous(), from_out_BLHK, *written, sizes=sizes)
        with torch.autocast(kept_HLSBK.device.type, enabled=False):
            d_parts = d_gates_HXG.chunk(len(x_HXJ), -1)
            d_W_HGJ = torch.cat([summed_product(d, x) for d, x in zip(d_parts, x_HXJ, strict=True)], 1)
            d_R_HGK = summed_product(d_gates_HXG, h_HLBK[:, :-1].flatten(1, 2))
            d_x_HXJ = [matmul(d, W) for d, W in zip(d_parts, W_HGJ.chunk(len(x_HXJ), 1), strict=True)]
        d_read = (d_x.unflatten(1, (length, batch)).permute(2, 1, 0, 3).contiguous() for d_x in d_x_HXJ)
        of_state = (d_HBK.transpose(0, 1) for d_HBK in (d_h_HBK, d_y_HBK, d_a_HBK))
        return *of_state, d_W_HGJ, d_R_HGK, d_gates_HXG.sum(1), *d_read

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        """Replicas are so many more heads."""
        places = (1, 1, 1, 0, 0, 0, *[2] * (len(inputs) - 6))
        folded = fold_replicas(inputs, in_dims, info.batch_size, places=places)
        return unfold_replicas(_Scan.apply(*folded), info.batch_size, places=(2, 1, 1, *[0] * (len(inputs) - 4)))
