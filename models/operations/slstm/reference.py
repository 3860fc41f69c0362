"""The sLSTM's recurrence, exponential gates with memory mixing in heads: step, loop, and loop with a hand-written
gradient.

    i, f, z, o = W x_t + R h_{t-1} + b        m_t = max(log s(f) + m_{t-1}, i)        h_t = s(o) c_t / n_t
    c_t = e^(log s(f) + m_{t-1} - m_t) c_{t-1} + e^(i - m_t) tanh(z)        n_t = the same with 1 for tanh(z)

Beck et al. 2024 (2405.04517), with s(f) for the forget gate as in the authors' code, and m_0 = -inf. The output only
needs the mean y = c / n and its weight a = m + log n, and these need no stabiliser:

    u_t = i - log s(f) - a_{t-1}        y_t = y_{t-1} + s(u_t) (tanh(z) - y_{t-1})        a_t = i - log s(u_t)

This form is used here; a_0 = -inf makes y_1 = tanh(z). The matrices are block-diagonal, a block for each head: [H, G,
J] for inputs of width J in a head, where G = 4 K holds i, f, z, o in that order.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import logsigmoid, softplus

from chomsky_ladder.models.scans.function import Function
from chomsky_ladder.models.scans.replicas import fold_replicas, unfold_replicas

Read = tuple[Tensor, ...]  # inputs of the gates, [B, (L,) H, J]: one for all, or one for i and f and one for z and o
Carried = tuple[Tensor, Tensor, Tensor]  # h, y and a, each [B, H, K]
Weights = tuple[Tensor, Tensor, Tensor]  # W [H, G, J], R [H, G, K] and b [H, G]

_THRESHOLD = 40.0  # from here on log(1 + e^x) = x in float64 too


def slstm_start(batch: int, heads: int, inner: int, *, device: torch.device, dtype: torch.dtype) -> Carried:
    h_BHK, y_BHK, a_BHK = torch.zeros(3, batch, heads, inner, device=device, dtype=dtype)
    return h_BHK, y_BHK, a_BHK - torch.inf


def from_input(read: Read, W_HGJ: Tensor) -> Tensor:
    """Return W x for all gates, [B, (L,) H, G]."""
    parts = zip(read, W_HGJ.chunk(len(read), dim=1), strict=True)
    return torch.cat([torch.einsum("...hj,hgj->...hg", x, W) for x, W in parts], -1)


def slstm_step(read: Read, state: Carried, weights: Weights) -> Carried:
    """Take one step. The new state's h is the output."""
    W_HGJ, R_HGK, b_HG = weights
    h_BHK, y_BHK, a_BHK = state
    gates_BHG = from_input(read, W_HGJ) + torch.einsum("bhk,hgk->bhg", h_BHK, R_HGK) + b_HG
    i_BHK, f_BHK, z_BHK, o_BHK = gates_BHG.chunk(4, dim=-1)
    u_BHK = i_BHK - logsigmoid(f_BHK) - a_BHK
    y_BHK = torch.lerp(y_BHK, torch.tanh(z_BHK), torch.sigmoid(u_BHK))
    return torch.sigmoid(o_BHK) * y_BHK, y_BHK, i_BHK - logsigmoid(u_BHK)


def slstm_scan(read: Read, state: Carried, weights: Weights) -> tuple[Tensor, Carried]:
    """Run `slstm_step` over a sequence: return all h [B, L, H, K], and the state after the last."""
    outputs = []
    for read_now in zip(*(x_BLHJ.unbind(1) for x_BLHJ in read), strict=True):
        state = slstm_step(read_now, state, weights)
        outputs.append(state[0])
    return torch.stack(outputs, 1), state


def fused_slstm_scan(read: Read, state: Carried, weights: Weights) -> tuple[Tensor, Carried]:
    """Run `slstm_scan` with a hand-written backward pass, so that no step leaves a graph. It also stacks under vmap."""
    W_HGJ, R_HGK, b_HG = weights
    if len(read) == 2:  # as one, with either half multiplied by zeros
        of_if, of_zo = W_HGJ.chunk(2, dim=1)
        zero = torch.zeros_like(of_if)
        W_HGJ = torch.cat([torch.cat([of_if, zero], 2), torch.cat([zero, of_zo], 2)], 1)
    h_BLHK, y_BHK, a_BHK, _, _ = _FusedScan.apply(torch.cat(read, -1), *state, W_HGJ, R_HGK, b_HG)
    return h_BLHK, (h_BLHK[:, -1], y_BHK, a_BHK)


class _FusedScan(Function):
    """The scan with a hand-written backward pass.

    Inside, time is the first dimension and the batch the last, and v = (x, 1, h) is one vector. With the weights [W, b,
    R] side by side a head's gates are one product [G, J+1+K] @ [J+1+K, B], and so are the gradients of all weights and
    of x and h. A step writes its h where the next one reads it.

        m_t = a_{t-1} + log s(f)        u_t = i - m_t        a_t = log(e^i + e^m_t)

    With small batches the number of calls determines the time, so a step makes few: 10 forward, 14 backward. We
    measured one thread at K = 16, H = 4, process time, forward and backward, against a version with a product for each
    of W and R and the stabilised weight by two log-sigmoids: 0.80 of its time for B = 16, L = 40, .77 for 4 and 128,
    .96 to 1 for 256 and 40.
    """

    @staticmethod
    def forward(
        x_BLHJ: Tensor, h_BHK: Tensor, y_BHK: Tensor, a_BHK: Tensor, W_HGJ: Tensor, R_HGK: Tensor, b_HG: Tensor
    ) -> tuple[Tensor, ...]:
        """Return all h, the last y and a; and for the backward pass all v, s(-f), tanh(z), s(o), s(u) and y.

        The weights give -f and 2z in place of f and z: log s(f) = -softplus(-f), and tanh(z) = 2 s(2z) - 1, since
        torch's sigmoid is 9 times as fast as its tanh on a CPU.
        """
        batch, length, heads, width = x_BLHJ.shape
        inner = R_HGK.shape[-1]
        weight_HGV = torch.cat([W_HGJ, b_HG[..., None], R_HGK], -1)
        weight_HGV[:, inner : 2 * inner].neg_()
        weight_HGV[:, 2 * inner : 3 * inner].mul_(2)
        v_LHVB = x_BLHJ.new_empty(length + 1, heads, width + 1 + inner, batch)
        v_LHVB[:-1, :, :width] = _batch_last(x_BLHJ)
        v_LHVB[:, :, width] = 1
        v_LHVB[0, :, width + 1 :] = _batch_last(h_BHK)
        kept_SLHKB = x_BLHJ.new_empty(5, length, heads, inner, batch)
        gates_HGB, m_HKB = x_BLHJ.new_empty(heads, 4 * inner, batch), x_BLHJ.new_empty(heads, inner, batch)
        i_HKB, f_HKB, _, _ = gates_HGB.chunk(4, dim=1)
        fzo_HSKB, minus_HKB = gates_HGB.unflatten(1, (4, inner))[:, 1:], torch.full_like(m_HKB, -1)
        y_HKB, a_HKB = _batch_last(y_BHK), _batch_last(a_BHK)
        along = (v_LHVB[:-1], kept_SLHKB[:3].movedim(0, 2), *kept_SLHKB[1:], v_LHVB[1:, :, width + 1 :])
        for v_HVB, kept_HSKB, tanh_HKB, so_HKB, w_HKB, next_y_HKB, next_h_HKB in _steps(*along):
            torch.bmm(weight_HGV, v_HVB, out=gates_HGB)
            torch.sigmoid(fzo_HSKB, out=kept_HSKB)
            torch.add(minus_HKB, tanh_HKB, alpha=2, out=tanh_HKB)
            torch.sub(a_HKB, softplus(f_HKB, threshold=_THRESHOLD), out=m_HKB)
            torch.sigmoid(torch.sub(i_HKB, m_HKB, out=w_HKB), out=w_HKB)
            torch.logaddexp(i_HKB, m_HKB, out=a_HKB)
            y_HKB = torch.lerp(y_HKB, tanh_HKB, w_HKB, out=next_y_HKB)
            torch.mul(so_HKB, y_HKB, out=next_h_HKB)
        return _batch_first(v_LHVB[1:, :, width + 1 :]), _batch_first(y_HKB), _batch_first(a_HKB), v_LHVB, kept_SLHKB

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[3:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs[-3:], *output[3:])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor, ...]:
        W_HGJ, R_HGK, b_HG, v_LHVB, kept_SLHKB = ctx.saved_tensors
        width, inner = W_HGJ.shape[-1], R_HGK.shape[-1]
        with torch.autocast(v_LHVB.device.type, enabled=False):
            h_LHKB = v_LHVB[1:, :, width + 1 :]
            d_v_LHVB = torch.zeros_like(v_LHVB)
            if grads[0] is not None:
                d_v_LHVB[1:, :, width + 1 :] = _batch_last(grads[0])
            d_y_HKB, d_a_HKB = torch.zeros_like(kept_SLHKB[:2, 0])
            for d_HKB, grad in ((d_y_HKB, grads[1]), (d_a_HKB, grads[2])):
                if grad is not None:
                    d_HKB += _batch_last(grad)
            back_HVG = torch.cat([W_HGJ, b_HG[..., None], R_HGK], -1).mT
            d_weight_HGV = torch.zeros_like(back_HVG).mT
            d_gates_HGB = torch.cat([torch.empty_like(d_y_HKB)] * 4, 1)
            d_i_HKB, d_f_HKB, d_z_HKB, d_o_HKB = d_gates_HGB.chunk(4, dim=1)
            one_HKB, two_HKB = torch.empty_like(d_y_HKB), torch.empty_like(d_y_HKB)
            of_h_LHKB = d_v_LHVB[1:, :, width + 1 :]
            along = (of_h_LHKB, d_v_LHVB[:-1], v_LHVB[:-1].mT, h_LHKB, *kept_SLHKB)
            for d_h_HKB, d_v_HVB, v_HBV, h_HKB, forgot_HKB, tanh_HKB, so_HKB, w_HKB, y_HKB in reversed(
                list(_steps(*along))
            ):
                d_y_HKB.addcmul_(d_h_HKB, so_HKB)
                torch.mul(d_h_HKB, h_HKB, out=one_HKB)
                torch.addcmul(one_HKB, one_HKB, so_HKB, value=-1, out=d_o_HKB)
                # d_y w is tanh's share; (1 - w)(tanh(z) - y_{t-1}) = tanh(z) - y_t.
                torch.mul(d_y_HKB, w_HKB, out=one_HKB)
                torch.mul(one_HKB, torch.sub(tanh_HKB, y_HKB, out=two_HKB), out=d_i_HKB).addcmul_(d_a_HKB, w_HKB)
                torch.addcmul(one_HKB, torch.mul(one_HKB, tanh_HKB, out=two_HKB), tanh_HKB, value=-1, out=d_z_HKB)
                d_y_HKB -= one_HKB
                d_a_HKB -= d_i_HKB
                torch.mul(d_a_HKB, forgot_HKB, out=d_f_HKB)
                d_v_HVB.baddbmm_(back_HVG, d_gates_HGB)
                d_weight_HGV.baddbmm_(d_gates_HGB, v_HBV)
            d_x_BLHJ = _batch_first(d_v_LHVB[:-1, :, :width])
            state = (_batch_first(d_HKB) for d_HKB in (d_v_LHVB[0, :, width + 1 :], d_y_HKB, d_a_HKB))
            d_W_HGJ, d_b_HG1, d_R_HGK = d_weight_HGV.split([width, 1, inner], -1)
            return d_x_BLHJ, *state, d_W_HGJ, d_R_HGK, d_b_HG1[..., 0]

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        """Treat replicas as further heads."""
        folded = fold_replicas(inputs, in_dims, info.batch_size, places=(2, 1, 1, 1, 0, 0, 0))
        return unfold_replicas(_FusedScan.apply(*folded), info.batch_size, places=(2, 1, 1, 1, 2))


def _steps(*along: Tensor) -> Iterator[tuple[Tensor, ...]]:
    return zip(*(x_LHXB.unbind(0) for x_LHXB in along), strict=True)


def _batch_last(x_BX: Tensor) -> Tensor:
    """Return a copy, made as the transposition of a matrix, which torch does three times as fast as a permutation."""
    return x_BX.flatten(1).T.clone(memory_format=torch.contiguous_format).unflatten(0, x_BX.shape[1:])


def _batch_first(x_XB: Tensor) -> Tensor:
    return x_XB.flatten(0, -2).T.clone(memory_format=torch.contiguous_format).unflatten(1, x_XB.shape[:-1])
