"""Layers of RNN, GRU and LSTM on a CPU: torch multiplies inputs and weights, and cpu.c takes all steps in one pass.

Torch's own RNN and GRU are a loop of products and passes. Its LSTM is oneDNN's, which is nearly as fast but does not
stack. Only products with h wait for the step before, so W x of all steps is one product, and so are the gradients of x,
W and U. The autograd functions are by hand because of these products in their backward passes.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.native import integers, kernel, untraced
from chomsky_ladder.models.scans.function import Function
from chomsky_ladder.models.scans.products import product, summed_product
from chomsky_ladder.models.scans.recurrences import Activation
from chomsky_ladder.models.scans.replicas import fold_replicas, unfold_replicas


def native_rnn(
    x_BLD: Tensor, h_BD: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias: Tensor, *, activation: Activation
) -> tuple[Tensor, Tensor]:
    """C version of `rnn_layer`. Supports vmap."""
    gates_BLD = product(x_BLD, weight_ih, bias)
    h_RBLD, *_ = _RNN.apply(gates_BLD[None], h_BD[None], weight_hh[None], activation == "relu")
    h_BLD = h_RBLD.squeeze(0)
    return h_BLD, h_BLD[:, -1]


def native_gru(
    x_BLD: Tensor, h_BD: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias: Tensor, bias_n: Tensor
) -> tuple[Tensor, Tensor]:
    """C version of `gru_layer`. Supports vmap."""
    gates_BLG = product(x_BLD, weight_ih, bias)
    h_RBLD, *_ = _GRU.apply(gates_BLG[None], h_BD[None], weight_hh[None], bias_n[None])
    h_BLD = h_RBLD.squeeze(0)
    return h_BLD, h_BLD[:, -1]


def native_lstm(
    x_BLD: Tensor, h_BD: Tensor, c_BD: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """C version of `lstm_layer`. Supports vmap."""
    gates_BLG = product(x_BLD, weight_ih, bias)
    h_RBLD, c_RBD, _ = _LSTM.apply(gates_BLG[None], h_BD[None], c_BD[None], weight_hh[None])
    h_BLD = h_RBLD.squeeze(0)
    return h_BLD, h_BLD[:, -1], c_RBD.squeeze(0)


class _RNN(Function):
    """A function whose tensors have an axis R in front, of replicas whose weights differ. vmap folds into it."""

    @staticmethod
    def forward(gates_RBLD: Tensor, h_RBD: Tensor, U_RDD: Tensor, relu: bool) -> tuple[Tensor]:
        given = [z.contiguous() for z in (gates_RBLD, h_RBD, U_RDD)]
        h_RBLD = torch.empty_like(given[0])
        kernel("rnn_forward", h_RBLD.dtype)(*given, h_RBLD, sizes=integers(*h_RBLD.shape, relu))
        return (h_RBLD,)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor]) -> None:
        _, h_RBD, U_RDD, ctx.relu = inputs
        ctx.save_for_backward(h_RBD, U_RDD, *output)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_h_RBLD: Tensor) -> tuple[Tensor | None, ...]:
        first_RBD, U_RDD, h_RBLD = ctx.saved_tensors
        d_gates_RBLD, d_first_RBD = torch.empty_like(h_RBLD), h_RBLD.new_empty(first_RBD.shape)
        given = (h_RBLD, U_RDD.contiguous(), d_h_RBLD.contiguous())
        sizes = integers(*h_RBLD.shape, ctx.relu)
        kernel("rnn_backward", h_RBLD.dtype)(*given, d_gates_RBLD, d_first_RBD, sizes=sizes)
        d_U_RDD = summed_product(d_gates_RBLD.flatten(1, 2), _before(first_RBD, h_RBLD))
        return d_gates_RBLD, d_first_RBD, d_U_RDD, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        *tensors, relu = inputs
        return unfold_replicas(_RNN.apply(*fold_replicas(tensors, in_dims[:3], info.batch_size), relu), info.batch_size)


class _GRU(Function):
    @staticmethod
    def forward(gates_RBLG: Tensor, h_RBD: Tensor, U_RGD: Tensor, bias_RD: Tensor) -> tuple[Tensor, Tensor]:
        """Return all h, and of each step r, z, n and m, [.., 4, D]."""
        given = [z.contiguous() for z in (gates_RBLG, h_RBD, U_RGD, bias_RD)]
        shape = (*gates_RBLG.shape[:3], h_RBD.shape[-1])
        h_RBLD, kept_RBL4D = gates_RBLG.new_empty(shape), gates_RBLG.new_empty(*shape[:3], 4, shape[3])
        kernel("gru_forward", h_RBLD.dtype)(*given, h_RBLD, kept_RBL4D, sizes=integers(*shape, 0))
        return h_RBLD, kept_RBL4D

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(inputs[1], inputs[2], *output)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_h_RBLD: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
        if d_h_RBLD is None:
            return None, None, None, None
        first_RBD, U_RGD, h_RBLD, kept_RBL4D = ctx.saved_tensors
        first_RBD, width = first_RBD.contiguous(), h_RBLD.shape[-1]
        d_gates_RBLG = h_RBLD.new_empty(*h_RBLD.shape[:3], 3 * width)
        d_m_RBLD, d_first_RBD = torch.empty_like(h_RBLD), torch.empty_like(first_RBD)
        given = (h_RBLD, first_RBD, kept_RBL4D, U_RGD.contiguous(), d_h_RBLD.contiguous())
        written, sizes = (d_gates_RBLG, d_m_RBLD, d_first_RBD), integers(*h_RBLD.shape, 0)
        kernel("gru_backward", h_RBLD.dtype)(*given, *written, sizes=sizes)
        before_RXD, d_m_RXD = _before(first_RBD, h_RBLD), d_m_RBLD.flatten(1, 2)
        of_h_RXG = d_gates_RBLG.flatten(1, 2)[..., : 2 * width]
        d_U_RGD = torch.cat([summed_product(of_h_RXG, before_RXD), summed_product(d_m_RXD, before_RXD)], 1)
        return d_gates_RBLG, d_first_RBD, d_U_RGD, d_m_RXD.sum(1)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        return unfold_replicas(_GRU.apply(*fold_replicas(inputs, in_dims, info.batch_size)), info.batch_size)


class _LSTM(Function):
    @staticmethod
    def forward(gates_RBLG: Tensor, h_RBD: Tensor, c_RBD: Tensor, U_RGD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return all h and the last c; and of each step i, f, g, o and c, [.., 5, D]."""
        given = [z.contiguous() for z in (gates_RBLG, h_RBD, c_RBD, U_RGD)]
        shape = (*gates_RBLG.shape[:3], h_RBD.shape[-1])
        h_RBLD, kept_RBL5D = gates_RBLG.new_empty(shape), gates_RBLG.new_empty(*shape[:3], 5, shape[3])
        last_RBD = torch.empty_like(given[2])
        kernel("lstm_forward", h_RBLD.dtype)(*given, h_RBLD, kept_RBL5D, last_RBD, sizes=integers(*shape, 0))
        return h_RBLD, last_RBD, kept_RBL5D

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(output[2])
        ctx.save_for_backward(*inputs[1:], output[0], output[2])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_h_RBLD: Tensor, d_c_RBD: Tensor, _: Tensor) -> tuple[Tensor, ...]:
        first_RBD, c_RBD, U_RGD, h_RBLD, kept_RBL5D = ctx.saved_tensors
        d_gates_RBLG = h_RBLD.new_empty(*h_RBLD.shape[:3], U_RGD.shape[1])
        d_first_RBD, d_c_RBD = h_RBLD.new_empty(first_RBD.shape), d_c_RBD.clone(memory_format=torch.contiguous_format)
        given = (c_RBD.contiguous(), kept_RBL5D, U_RGD.contiguous(), d_h_RBLD.contiguous())
        written, sizes = (d_gates_RBLG, d_first_RBD, d_c_RBD), integers(*h_RBLD.shape, 0)
        kernel("lstm_backward", h_RBLD.dtype)(*given, *written, sizes=sizes)
        d_U_RGD = summed_product(d_gates_RBLG.flatten(1, 2), _before(first_RBD, h_RBLD))
        return d_gates_RBLG, d_first_RBD, d_c_RBD, d_U_RGD

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        return unfold_replicas(_LSTM.apply(*fold_replicas(inputs, in_dims, info.batch_size)), info.batch_size)


def takes(x_BLD: Tensor, ctx: Context) -> bool:
    """Take x in its own precision: autocast's products would be of another."""
    return untraced(x_BLD, ctx) and not torch.is_autocast_enabled("cpu")


def takes_lstm(x_BLD: Tensor, ctx: Context) -> bool:
    """Take what oneDNN's cannot, or be named."""
    return takes(x_BLD, ctx) and (ctx.stacked or ctx.backend == "native_lstm")


def _before(first_RBD: Tensor, h_RBLD: Tensor) -> Tensor:
    """Return the h that each step read, [R, X, D]."""
    return torch.cat([first_RBD[:, :, None], h_RBLD[:, :, :-1]], 2).flatten(1, 2)
