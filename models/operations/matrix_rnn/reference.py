"""M2RNN's recurrence: a matrix that a nonlinearity passes at every token, next to what a gate keeps of it.

    z_t = tanh(h_{t-1} W + k_t v_t^T)        h_t = f_t h_{t-1} + (1 - f_t) z_t        y_t = q_t h_t

Mishra et al. 2026 (2603.14360), in every head of its own: h [K, V], W [V, V], f a number.

`matrix_rnn_loop` says so. `matrix_rnn_scan` is the loop without a graph of every step: on the way back only

    g_t = q_t dy_t + f_{t+1} g_{t+1} + d_{t+1} W^T        d_t = (1 - f_t) (1 - z_t^2) g_t

is carried from step to step. It takes tanh(x) as 2 sigmoid(2 x) - 1, a ninth of tanh's time on a CPU.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from chomsky_ladder.models.scans.function import Function
from chomsky_ladder.models.scans.replicas import fold_replicas, unfold_replicas


def matrix_rnn_loop(
    q_BLHK: Tensor, k_BLHK: Tensor, v_BLHV: Tensor, f_BLH: Tensor, W_HVV: Tensor, h_BHKV: Tensor
) -> tuple[Tensor, Tensor]:
    """All y [B, L, H, V], and h after the last."""
    outputs = []
    for q_BHK, k_BHK, v_BHV, f_BH in zip(*(x.unbind(1) for x in (q_BLHK, k_BLHK, v_BLHV, f_BLH)), strict=True):
        z_BHKV = torch.tanh(h_BHKV @ W_HVV + k_BHK[..., None] * v_BHV[..., None, :])
        h_BHKV = torch.lerp(z_BHKV, h_BHKV, f_BH[..., None, None])
        outputs.append((q_BHK[..., None, :] @ h_BHKV)[..., 0, :])
    return torch.stack(outputs, 1), h_BHKV


def matrix_rnn_scan(
    q_BLHK: Tensor, k_BLHK: Tensor, v_BLHV: Tensor, f_BLH: Tensor, W_HVV: Tensor, h_BHKV: Tensor
) -> tuple[Tensor, Tensor]:
    """`matrix_rnn_loop`, with a backward pass by hand where there will be one."""
    given = q_BLHK, k_BLHK, v_BLHV, f_BLH, W_HVV, h_BHKV
    if not torch.is_grad_enabled():  # nothing is kept of what a long string passes
        return matrix_rnn_loop(*given)
    return _Scan.apply(*given)[:2]


class _Scan(Function):
    """Inside, time is the first dimension and heads the second, so that a step is one product for every head."""

    @staticmethod
    def forward(
        q_BLHK: Tensor, k_BLHK: Tensor, v_BLHV: Tensor, f_BLH: Tensor, W_HVV: Tensor, h_BHKV: Tensor
    ) -> tuple[Tensor, ...]:
        """All y and the last h; for the backward pass all h, that before the first among them, and all z."""
        q_LHBK1, k_LHBK1, v_LHB1V, f_LHB11 = _columns(q_BLHK), _columns(k_BLHK), _rows(v_BLHV), _numbers(f_BLH)
        length, heads, batch, inner, _ = k_LHBK1.shape
        h_MHBKV = k_LHBK1.new_empty(length + 1, heads, batch, inner, v_BLHV.shape[-1])
        h_MHBKV[0] = h_BHKV.transpose(0, 1)
        z_LHBKV, minus_HBKV = torch.empty_like(h_MHBKV[1:]), torch.full_like(h_MHBKV[0], -1)
        y_LHBV, room_HBKV = torch.empty_like(v_LHB1V[..., 0, :]), torch.empty_like(minus_HBKV)
        k_LHBK1, double_HVV = 2 * k_LHBK1, 2 * W_HVV
        h_M = h_MHBKV.unbind(0)
        along = (x.unbind(0) for x in (q_LHBK1, k_LHBK1, v_LHB1V, f_LHB11, z_LHBKV, y_LHBV))
        for t, (q_HBK1, k_HBK1, v_HB1V, f_HB11, z_HBKV, y_HBV) in enumerate(zip(*along, strict=True)):
            torch.mul(k_HBK1, v_HB1V, out=z_HBKV).flatten(1, 2).baddbmm_(h_M[t].flatten(1, 2), double_HVV).sigmoid_()
            torch.add(minus_HBKV, z_HBKV, alpha=2, out=z_HBKV)
            torch.lerp(z_HBKV, h_M[t], f_HB11, out=h_M[t + 1])
            torch.sum(torch.mul(q_HBK1, h_M[t + 1], out=room_HBKV), -2, out=y_HBV)
        return y_LHBV.permute(2, 0, 1, 3).contiguous(), h_M[-1].transpose(0, 1).clone(), h_MHBKV, z_LHBKV

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[2:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs[:5], *output[2:])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gy_BLHV: Tensor | None, gh_BHKV: Tensor | None, *_: None) -> tuple[Tensor, ...]:
        """A step's matrices stay in memory that is there already, which a CPU's cache holds."""
        q_BLHK, k_BLHK, v_BLHV, f_BLH, W_HVV, h_MHBKV, z_LHBKV = ctx.saved_tensors
        with torch.autocast(h_MHBKV.device.type, enabled=False):
            read = (_columns(q_BLHK), _columns(k_BLHK), _rows(v_BLHV), _numbers(f_BLH))
            gy_LHB1V = _rows(torch.zeros_like(v_BLHV) if gy_BLHV is None else gy_BLHV)
            gq, gk, gv, gf = (torch.empty_like(x) for x in read)
            gW_HVV, back_HVV = torch.zeros_like(W_HVV), W_HVV.mT.contiguous()
            g_HBKV = torch.zeros_like(h_MHBKV[0])
            if gh_BHKV is not None:
                g_HBKV += gh_BHKV.transpose(0, 1)
            one_HBKV, d_HBKV, room_HBKV = torch.ones_like(g_HBKV), torch.empty_like(g_HBKV), torch.empty_like(g_HBKV)
            along = (*read, 1 - read[-1], gq, gk, gv, gf, gy_LHB1V, h_MHBKV[:-1], h_MHBKV[1:], z_LHBKV)
            steps = list(zip(*(x.unbind(0) for x in along), strict=True))
            for q, k, v, f, new, of_q, of_k, of_v, of_f, gy, before, h, z in reversed(steps):
                g_HBKV.addcmul_(q, gy)
                torch.addcmul(one_HBKV, z, z, value=-1, out=d_HBKV).mul_(g_HBKV).mul_(new)
                torch.sum(torch.mul(h, gy, out=room_HBKV), -1, keepdim=True, out=of_q)
                torch.sum(torch.mul(d_HBKV, v, out=room_HBKV), -1, keepdim=True, out=of_k)
                torch.sum(torch.mul(d_HBKV, k, out=room_HBKV), -2, keepdim=True, out=of_v)
                torch.sum(torch.sub(before, z, out=room_HBKV).mul_(g_HBKV), (-2, -1), keepdim=True, out=of_f)
                gW_HVV.baddbmm_(before.flatten(1, 2).mT, d_HBKV.flatten(1, 2))
                g_HBKV.mul_(f).flatten(1, 2).baddbmm_(d_HBKV.flatten(1, 2), back_HVV)
            of_read = (gq[..., 0], gk[..., 0], gv[..., 0, :], gf[..., 0])
            gq_BLHK, gk_BLHK, gv_BLHV, gf_BLH1 = (x_LHBX.permute(2, 0, 1, 3) for x_LHBX in of_read)
            return gq_BLHK, gk_BLHK, gv_BLHV, gf_BLH1[..., 0], gW_HVV, g_HBKV.transpose(0, 1)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        """Replicas are so many more heads."""
        folded = fold_replicas(inputs, in_dims, info.batch_size, places=(2, 2, 2, 2, 0, 1))
        return unfold_replicas(_Scan.apply(*folded), info.batch_size, places=(2, 1, 1, 1))


def _numbers(x_BLH: Tensor) -> Tensor:
    """[L, H, B, 1, 1]."""
    return x_BLH.permute(1, 2, 0).contiguous()[..., None, None]


def _rows(x_BLHK: Tensor) -> Tensor:
    """[L, H, B, 1, K]."""
    return x_BLHK.permute(1, 2, 0, 3).contiguous()[..., None, :]


def _columns(x_BLHK: Tensor) -> Tensor:
    """[L, H, B, K, 1]."""
    return _rows(x_BLHK).mT
