"""The recurrence of PD-SSM: at every token the state's places are moved by a map, scaled, and added to.

    gather     h_t[m] = d_t[m] h_{t-1}[p_t(m)] + b_t[m]
    scatter    h_t[m] = b_t[m] + the sum over n with p_t(n) = m of d_t[n] h_{t-1}[n]
    p_t(n) = argmax of the row n of M_t        M_t = sum over k of share_t[k] A_k

Terzic et al. 2025 (2509.22284). h, d and b are complex, M is real. A map is P, a matrix of one 1 in every row (gather)
or column (scatter); its gradient is that of softmax(M), row by row, in its place: the straight-through estimator.

`one_hot_loop` says so with matrices, one token after the other. `one_hot_scan` has no matrix but M, some tokens at a
time, and no graph of every step; in C (models/kernels/native_one_hot.py) there is a row of M at a time. The gradient
of a row of P is a product of two numbers for each of its elements, for gather c_m = g_m conj(d_m) and r_n = h_{t-1}[n],
with g = dL/dh_t:

    dL/dP_mn = Re(c_m conj(r_n))        dL/dM_mn = Y_mn (dL/dP_mn - sum over n of Y_mn dL/dP_mn)        Y = softmax(M)

and for scatter, where M holds P transposed, the row's number is d_n h_{t-1}[n] and the column's g_m.
"""

from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from chomsky_ladder.models.scans.function import Function
from chomsky_ladder.models.scans.replicas import fold_replicas, unfold_replicas

Form = Literal["gather", "scatter"]
CACHED = 1 << 17  # elements of M at a time on a CPU: more leave its cache, fewer cost more calls
AT_ONCE = 1 << 26  # elsewhere


def one_hot_loop(share_BLK: Tensor, maps_KNN: Tensor, d_BLN: Tensor, b_BLN: Tensor, h_BN: Tensor, form: Form) -> Tensor:
    """All h [B, L, N]."""
    outputs = []
    for share_BK, d_BN, b_BN in zip(share_BLK.unbind(1), d_BLN.unbind(1), b_BLN.unbind(1), strict=True):
        M_BNN = torch.einsum("bk,kmn->bmn", share_BK, maps_KNN)
        soft_BNN = torch.softmax(M_BNN, -1)
        one_BNN = torch.nn.functional.one_hot(M_BNN.argmax(-1), M_BNN.shape[-1])
        P_BNN = (one_BNN + (soft_BNN - soft_BNN.detach())).to(h_BN.dtype)
        if form == "gather":
            h_BN = d_BN * (P_BNN @ h_BN[..., None])[..., 0] + b_BN
        else:
            h_BN = (P_BNN.mT @ (d_BN * h_BN)[..., None])[..., 0] + b_BN
        outputs.append(h_BN)
    return torch.stack(outputs, 1)


def one_hot_scan(share_BLK: Tensor, maps_KNN: Tensor, d_BLN: Tensor, b_BLN: Tensor, h_BN: Tensor, form: Form) -> Tensor:
    """`one_hot_loop`, with a backward pass by hand."""
    return _Scan.apply(share_BLK[None], maps_KNN[None], d_BLN[None], b_BLN[None], h_BN[None], form)[0].squeeze(0)


class _Scan(Function):
    """With an axis R in front, of replicas that differ in their maps too: what vmap adds folds into it."""

    @staticmethod
    def forward(
        share_RBLK: Tensor, maps_RKNN: Tensor, d_RBLN: Tensor, b_RBLN: Tensor, h_RBN: Tensor, form: Form
    ) -> tuple[Tensor, Tensor]:
        place_RBLN = _places(share_RBLK, maps_RKNN)
        outputs = []
        for place, d, b in zip(place_RBLN.unbind(2), d_RBLN.unbind(2), b_RBLN.unbind(2), strict=True):
            h_RBN = torch.addcmul(b, d, _read(h_RBN, place)) if form == "gather" else b + _written(d * h_RBN, place)
            outputs.append(h_RBN)
        return torch.stack(outputs, 2), place_RBLN

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:
        share_RBLK, maps_RKNN, d_RBLN, _, h_RBN, ctx.form = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(share_RBLK, maps_RKNN, d_RBLN, h_RBN, *output)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gh_RBLN: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        """From the last token to the first, g_t = dL/dh_t; then all tokens at once."""
        share_RBLK, maps_RKNN, d_RBLN, h_RBN, h_RBLN, place_RBLN = ctx.saved_tensors
        gather = ctx.form == "gather"
        before_RBLN = torch.cat([h_RBN[:, :, None], h_RBLN[:, :, :-1]], 2)
        conj_RBLN = d_RBLN.conj().resolve_conj()
        g_RBN, of_h, of_scaled = torch.zeros_like(h_RBN), [], []
        for gh, place, d in zip(*(x.unbind(2)[::-1] for x in (gh_RBLN, place_RBLN, conj_RBLN)), strict=True):
            of_h.append(g_RBN := gh + g_RBN)
            of_scaled.append(g_RBN := g_RBN if gather else _read(g_RBN, place))
            g_RBN = _written(d * g_RBN, place) if gather else d * g_RBN
        g_RBLN, scaled_RBLN = (torch.stack(x[::-1], 2) for x in (of_h, of_scaled))
        read_RBLN = _read(before_RBLN, place_RBLN) if gather else before_RBLN
        gd_RBLN = scaled_RBLN * read_RBLN.conj()
        row_RBLN = g_RBLN * conj_RBLN if gather else d_RBLN * before_RBLN
        column_RBLN = before_RBLN if gather else g_RBLN
        gshare_RBLK, gmaps_RKNN = _of_maps(share_RBLK, maps_RKNN, row_RBLN, column_RBLN)
        return gshare_RBLK, gmaps_RKNN, gd_RBLN, g_RBLN, g_RBN, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple]:
        *tensors, form = inputs
        outputs = _Scan.apply(*fold_replicas(tensors, in_dims[:-1], info.batch_size), form)
        return unfold_replicas(outputs, info.batch_size)


def _read(h_RBN: Tensor, place_RBN: Tensor) -> Tensor:
    return torch.gather(h_RBN, -1, place_RBN)


def _written(h_RBN: Tensor, place_RBN: Tensor) -> Tensor:
    """Sums of real and of imaginary parts, which every device has."""
    parts_RBN2 = torch.view_as_real(h_RBN)
    summed = _scattered if h_RBN.device.type == "cpu" else _selected
    return torch.view_as_complex(summed(parts_RBN2, place_RBN))


def _scattered(parts_RBN2: Tensor, place_RBN: Tensor) -> Tensor:
    return torch.zeros_like(parts_RBN2).scatter_add(-2, place_RBN[..., None].expand_as(parts_RBN2), parts_RBN2)


def _selected(parts_RBN2: Tensor, place_RBN: Tensor) -> Tensor:
    """The same in an order of its own: where threads add to one place as they come, no two runs are equal."""
    there_N = torch.arange(place_RBN.shape[-1], device=place_RBN.device)
    theirs_RBNN = place_RBN[..., None, :] == there_N[:, None]
    return torch.stack([torch.where(theirs_RBNN, part[..., None, :], 0).sum(-1) for part in parts_RBN2.unbind(-1)], -1)


def _places(share_RBLK: Tensor, maps_RKNN: Tensor) -> Tensor:
    """p [R, B, L, N], some tokens at a time."""
    places = maps_RKNN.shape[-1]
    # The first of a row's largest has the largest code: a CPU takes a third of argmax's time. A NaN is nobody's equal.
    code_N = torch.arange(places, 0, -1, device=maps_RKNN.device, dtype=maps_RKNN.dtype)
    parts = []
    for share_RXK in share_RBLK.flatten(1, 2).split(_tokens(maps_RKNN), 1):
        M_RXNN = _scores(share_RXK, maps_RKNN)
        first_RXN = M_RXNN.eq_(M_RXNN.amax(-1, keepdim=True)).mul_(code_N).amax(-1)
        parts.append((places - first_RXN).clamp(max=places - 1).to(torch.int64))
    return torch.cat(parts, 1).unflatten(1, share_RBLK.shape[1:3])


def _of_maps(share_RBLK: Tensor, maps_RKNN: Tensor, row_RBLN: Tensor, column_RBLN: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of the shares and of the maps, from dL/dP = Re(row conj(column))."""
    parts = (share_RBLK, *(torch.view_as_real(x.resolve_conj()) for x in (row_RBLN, column_RBLN)))
    pieces = (x.flatten(1, 2).split(_tokens(maps_RKNN), 1) for x in parts)
    flat_RKM = maps_RKNN.flatten(2)
    of_share, gflat_RKM = [], torch.zeros_like(flat_RKM)
    for share_RXK, row_RXN2, column_RXN2 in zip(*pieces, strict=True):
        soft_RXNN = torch.softmax(M_RXNN := _scores(share_RXK, maps_RKNN), -1)
        g_RXNN = torch.matmul(row_RXN2, column_RXN2.mT, out=M_RXNN).mul_(soft_RXNN)
        g_RXM = g_RXNN.addcmul_(soft_RXNN, g_RXNN.sum(-1, keepdim=True), value=-1).flatten(2)
        of_share.append(g_RXM @ flat_RKM.mT)
        gflat_RKM.baddbmm_(share_RXK.mT, g_RXM)
    return torch.cat(of_share, 1).view_as(share_RBLK), gflat_RKM.view_as(maps_RKNN)


def _scores(share_RXK: Tensor, maps_RKNN: Tensor) -> Tensor:
    """M [R, X, N, N]."""
    return (share_RXK @ maps_RKNN.flatten(2)).unflatten(-1, maps_RKNN.shape[2:])


def _tokens(maps_RKNN: Tensor) -> int:
    """How many at a time."""
    elements = maps_RKNN.shape[0] * maps_RKNN.shape[2] ** 2
    return max(1, (CACHED if maps_RKNN.device.type == "cpu" else AT_ONCE) // elements)
