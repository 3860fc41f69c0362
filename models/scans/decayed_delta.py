"""The delta rule with any decay in every key channel, and separate vectors for reading, writing, comparing and
removing.

    S_t = diag(w_t) S_{t-1} - g_t (f_t S_{t-1}) + k_t v_t^T        y_t = r_t S_t        0 <= w_t <= 1, given as log w_t

    KDA (2510.26692)             r = q / sqrt(K)              f = w * k        g = b k    k      v = b v
    Gated DeltaNet-2             r = q / sqrt(K)              f = w * b * k    g = k      k      v = e * v
    Comba (2506.02475)           r = (q - d p) / sqrt(K)      f = w * p        g = b k    k      v = b v

This is the rule of generalised_delta.py, which divides by products of 32 decays and therefore needs w of at least .545.
Here pairs with t > s meet by halving, as in decayed.py. Of two neighbouring blocks each row x of the second, f or r w,
is scaled by the decays from its block's start up to t, each column z of the first, g or k, by those after s to its end,

    A_ts(x, z) = (x_t prod_{start <= i < t} w_i) . (z_s prod_{s < i <= end} w_i)

Blocks double in size from one token until they are the chunk. Every factor lies in [0, 1]. Nothing is divided and no
difference of sums formed, so a decay of 0 forgets everything, exactly. What is removed, u_t = f_t S_{t-1}, solves one
triangular system inside a chunk that starts from S. Its inverse also serves the backward pass:

    u_t + sum_{s < t} A_ts(f, g) u_s = sum_{s < t} A_ts(f, k) v_s + (f_t prod_{i < t} w_i) S

Rows and columns of a token lie next to each other, (f, r) and (g, k). So do -u and v, which are m. All gradients are
finite. The decays may have one channel, the same for all. The backward pass is hand-written. We measured B = 64, H = 4,
L = 40, K = V = 16, forward and backward on one thread: 16 ms, where the rule of generalised_delta.py takes 17. Chunks
of 16 take 22, and are at most a twentieth faster for K = V = 64.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from chomsky_ladder.models.scans.decayed import in_chunks
from chomsky_ladder.models.scans.function import Function
from chomsky_ladder.models.scans.generalised_delta import one_token
from chomsky_ladder.models.scans.replicas import fold_replicas, unfold_replicas

CHUNK = 8


def decayed_delta_rule(
    r_BHLK: Tensor,
    f_BHLK: Tensor,
    g_BHLK: Tensor,
    k_BHLK: Tensor,
    v_BHLV: Tensor,
    log_decay_BHLK: Tensor,
    state_BHKV: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return y [B, H, L, V] and the last state, in at least fp32."""
    dtype = torch.promote_types(r_BHLK.dtype, torch.float32)
    inputs = (x.to(dtype) for x in (r_BHLK, f_BHLK, g_BHLK, k_BHLK, v_BHLV, log_decay_BHLK, state_BHKV))
    with torch.autocast(r_BHLK.device.type, enabled=False):
        return one_token(*inputs) if r_BHLK.shape[2] == 1 else _chunked(*inputs)


def _chunked(
    r_BHLK: Tensor,
    f_BHLK: Tensor,
    g_BHLK: Tensor,
    k_BHLK: Tensor,
    v_BHLV: Tensor,
    log_decay_BHLK: Tensor,
    state_BHKV: Tensor,
) -> tuple[Tensor, Tensor]:
    heads, length = r_BHLK.shape[1:3]
    chunk = min(CHUNK, 1 << (length - 1).bit_length())
    w_BHLK = torch.exp(log_decay_BHLK)
    x_BHL2K, z_BHL2K = torch.stack([f_BHLK, r_BHLK * w_BHLK], 3), torch.stack([g_BHLK, k_BHLK], 3)
    now_BHL2 = (r_BHLK[..., None, :] * z_BHL2K).sum(-1)
    # N chunks of C tokens in each of Y rows. After the end z = 0 and w = 1, which leave the state as it is.
    filled = ((x_BHL2K.flatten(3), 0.0), (z_BHL2K.flatten(3), 0.0), (v_BHLV, 0.0), (w_BHLK, 1.0), (now_BHL2, 0.0))
    parts = (in_chunks(x, chunk, filling=filling).flatten(0, 1) for x, filling in filled)
    y_YNCV, last_YKV, *_ = _Chunks.apply(*parts, state_BHKV.flatten(0, 1))
    return y_YNCV.flatten(1, 2)[:, :length].unflatten(0, (-1, heads)), last_YKV.unflatten(0, (-1, heads))


class Level(NamedTuple):
    """The tensors of a merge of P pairs of blocks: rows of the second, columns of the first, all their decays."""

    x_YNPXK: Tensor
    z_YNPXK: Tensor
    first_YNP1K: Tensor
    second_YNP1K: Tensor


class _Chunks(Function):
    """The chunked rule for x and z [Y, N, C, 2 K], v, w, each token's own r . z, and S.

    Replicas of vmap become rows Y.
    """

    @staticmethod
    def forward(
        x_YNC_: Tensor, z_YNC_: Tensor, v_YNCV: Tensor, w_YNCK: Tensor, now_YNC2: Tensor, S_YKV: Tensor
    ) -> tuple[Tensor, ...]:
        """Return y, the last state, and for the backward pass m, the inverse and the state before every chunk."""
        A_YNXX, x_YNXK, z_YNXK, w_YNK1, _ = _pairs(x_YNC_, z_YNC_, w_YNCK, now_YNC2, back=False)
        of_f_YNCX, of_r_YNCX = (rows.contiguous() for rows in A_YNXX.unflatten(2, (-1, 2)).unbind(3))
        one_CC = torch.eye(v_YNCV.shape[2], dtype=v_YNCV.dtype, device=v_YNCV.device).expand(*A_YNXX.shape[:2], -1, -1)
        inverse_YNCC = torch.linalg.solve_triangular(of_f_YNCX[..., ::2], one_CC, upper=False, unitriangular=True)
        m_YNC2V = torch.stack([torch.zeros_like(v_YNCV), v_YNCV], 3)
        m_YNXV = m_YNC2V.flatten(2, 3)
        of_v_YNCV, f_YNCK = of_f_YNCX @ m_YNXV, x_YNXK.unflatten(2, (-1, 2))[:, :, :, 0]
        starts = []
        for n in range(v_YNCV.shape[1]):
            starts.append(S_YKV)
            u_YCV = inverse_YNCC[:, n] @ torch.baddbmm(of_v_YNCV[:, n], f_YNCK[:, n], S_YKV)
            m_YNC2V[:, n, :, 0] = -u_YCV
            S_YKV = torch.baddbmm(w_YNK1[:, n] * S_YKV, z_YNXK[:, n].mT, m_YNXV[:, n])
        starts_YNKV = torch.stack(starts, 1)
        y_YNCV = of_r_YNCX @ m_YNXV + x_YNXK.unflatten(2, (-1, 2))[:, :, :, 1] @ starts_YNKV
        return y_YNCV, S_YKV, m_YNXV, inverse_YNCC, starts_YNKV

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[2:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs[:2], *inputs[3:5], *output[2:])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy_YNCV: Tensor | None, dS_YKV: Tensor | None, *_: None) -> tuple[Tensor, ...]:
        *given, m_YNXV, inverse_YNCC, starts_YNKV = ctx.saved_tensors
        A_YNXX, x_YNXK, z_YNXK, w_YNK1, levels = _pairs(*given, back=True)
        dy_YNCV = torch.zeros_like(m_YNXV[:, :, ::2]) if dy_YNCV is None else dy_YNCV.contiguous()
        dS_YKV = torch.zeros_like(starts_YNKV[:, 0]) if dS_YKV is None else dS_YKV.contiguous()
        of_f_YNCX, of_r_YNCX = (rows.contiguous() for rows in A_YNXX.unflatten(2, (-1, 2)).unbind(3))
        of_y_YNXV = of_r_YNCX.mT @ dy_YNCV
        # The gradients of the sums over the rows of f and of r, alternating.
        d_YNC2V = torch.stack([torch.zeros_like(dy_YNCV), dy_YNCV], 3)
        d_YNXV = d_YNC2V.flatten(2, 3)
        ends, dm = [], []
        for n in range(starts_YNKV.shape[1] - 1, -1, -1):
            ends.append(dS_YKV)
            dm.append(torch.baddbmm(of_y_YNXV[:, n], z_YNXK[:, n], dS_YKV))
            d_YNC2V[:, n, :, 0] = -(inverse_YNCC[:, n].mT @ dm[-1][:, ::2])
            dS_YKV = torch.baddbmm(w_YNK1[:, n] * dS_YKV, x_YNXK[:, n].mT, d_YNXV[:, n])
        ends_YNKV, dm_YNXV = (torch.stack(x[::-1], 1) for x in (ends, dm))
        dv_YNCV = (dm_YNXV + of_f_YNCX.mT @ d_YNC2V[:, :, :, 0].contiguous())[:, :, 1::2]
        dw_YN1K = (ends_YNKV * starts_YNKV).sum(-1)[:, :, None]
        into = (d_YNXV @ m_YNXV.mT, d_YNXV @ starts_YNKV.mT, m_YNXV @ ends_YNKV.mT, dw_YN1K)
        dx_YNC_, dz_YNC_, dw_YNCK, dnow_YNC2 = _pairs_back(*into, levels)
        return dx_YNC_, dz_YNC_, dv_YNCV, dw_YNCK.sum_to_size(given[2].shape), dnow_YNC2, dS_YKV

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[tuple[Tensor, ...], tuple]:
        return unfold_replicas(_Chunks.apply(*fold_replicas(inputs, in_dims, info.batch_size)), info.batch_size)


def _pairs(
    x_YNC_: Tensor, z_YNC_: Tensor, w_YNCK: Tensor, now_YNC2: Tensor, *, back: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, list[Level]]:
    """Return all A of a chunk; x decayed from its start and z to its end; all its decays; the levels of merges."""
    (rows, count, chunk, _), size, levels = x_YNC_.shape, 1, []
    A_YNXX = x_YNC_.new_zeros(rows, count, 2 * chunk, 2 * chunk)
    A_YNXX.view(rows, count, chunk, 2, chunk, 2)[:, :, :, 1].diagonal(dim1=2, dim2=3).copy_(now_YNC2.mT)
    x_YNXK, z_YNXK = (x.unflatten(3, (2, -1)).flatten(2, 3).clone() for x in (x_YNC_, z_YNC_))
    w_YNM1K = w_YNCK[:, :, :, None]
    while size < chunk:
        x_YNPXK = x_YNXK.unflatten(2, (-1, 2, 2 * size))[:, :, :, 1]
        z_YNPXK = z_YNXK.unflatten(2, (-1, 2, 2 * size))[:, :, :, 0]
        first_YNP1K, second_YNP1K = w_YNM1K.unflatten(2, (-1, 2)).unbind(3)
        of_pairs(A_YNXX, size).copy_((x_YNPXK @ z_YNPXK.mT).movedim(2, -1))
        if back:
            levels.append(Level(x_YNPXK.clone(), z_YNPXK.clone(), first_YNP1K, second_YNP1K))
        x_YNPXK *= first_YNP1K
        z_YNPXK *= second_YNP1K
        w_YNM1K = first_YNP1K * second_YNP1K
        size *= 2
    return A_YNXX, x_YNXK, z_YNXK, w_YNM1K[:, :, 0].mT, levels


def _pairs_back(
    dA_YNXX: Tensor, dx_YNXK: Tensor, dz_YNXK: Tensor, dw_YNMK: Tensor, levels: list[Level]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of x, z, w and r . z, given those of A, of x and z at the ends, and of all decays."""
    rows, count, both, _ = dA_YNXX.shape
    for level in reversed(levels):
        size = level.x_YNPXK.shape[3] // 2
        dx_second, dz_first = (
            d.unflatten(2, (-1, 2, 2 * size))[:, :, :, place] for d, place in ((dx_YNXK, 1), (dz_YNXK, 0))
        )
        dpairs = of_pairs(dA_YNXX, size).movedim(-1, 2)
        first_YNPK, second_YNPK = level.first_YNP1K[:, :, :, 0], level.second_YNP1K[:, :, :, 0]
        dw_first = (dx_second * level.x_YNPXK).sum(3) + dw_YNMK * second_YNPK
        dw_second = (dz_first * level.z_YNPXK).sum(3) + dw_YNMK * first_YNPK
        dw_YNMK = torch.stack([dw_first, dw_second], 3).flatten(2, 3)
        dx_second.mul_(level.first_YNP1K).add_(product(dpairs, level.z_YNPXK))
        dz_first.mul_(level.second_YNP1K).add_(product(dpairs.mT, level.x_YNPXK))
    dnow_YNC2 = dA_YNXX.view(rows, count, both // 2, 2, both // 2, 2)[:, :, :, 1].diagonal(dim1=2, dim2=3).mT
    dx_YNC_, dz_YNC_ = (d.unflatten(2, (-1, 2)).flatten(3) for d in (dx_YNXK, dz_YNXK))
    return dx_YNC_, dz_YNC_, dw_YNMK, dnow_YNC2


def of_pairs(A_YNXX: Tensor, size: int) -> Tensor:
    """Return for every two neighbouring blocks the rows of the second and the columns of the first: [Y, N, X, X, P]."""
    blocks = A_YNXX.unflatten(3, (-1, 2, 2 * size)).unflatten(2, (-1, 2, 2 * size))
    return blocks[:, :, :, 1, :, :, 0].diagonal(dim1=2, dim2=4)


def product(a: Tensor, b: Tensor) -> Tensor:
    """Return a b. Products of two by two are too small for a library."""
    return a @ b if a.shape[-1] > 2 else a[..., :1] * b[..., :1, :] + a[..., 1:] * b[..., 1:, :]
