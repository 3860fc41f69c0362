"""The recurrence of PD-SSM: at every token the state's places are moved by a map, scaled, and added to.

    gather     h_t[m] = d_t[m] h_{t-1}[p_t(m)] + b_t[m]
    scatter    h_t[m] = b_t[m] + the sum over n with p_t(n) = m of d_t[n] h_{t-1}[n]
    p_t(n) = argmax of the row n of M_t        M_t = sum over k of share_t[k] A_k

Terzic et al. 2025 (2509.22284). h, d and b are complex, as pairs of reals (models/scans/pairs.py), M is real. A map is
P, a matrix of one 1 in every row (gather) or column (scatter); its gradient is that of softmax(M), row by row, in its
place: the straight-through estimator.

`one_hot_loop` says so with matrices, one token after the other. Two steps in one are a step of the same kind:

    gather     h_t = d h_{t-2}[p] + b      p = p_{t-1}[p_t]      d = d_t d_{t-1}[p_t]      b = d_t b_{t-1}[p_t] + b_t

so `one_hot_scan` has all states in log2 L rounds, each of which makes of k tokens' step one of 2 k tokens. It has no
matrix but M, some tokens at a time, and no graph of every step; in C (cpu.c) and in Triton (gpu.py)
there is a row of M at a time. What gathers on the way on scatters on the way back,
by conj(d_t), and the other way round. The gradient of a row of P is a product of two numbers for each of its elements,
for gather c_m = g_m conj(d_m) and r_n = h_{t-1}[n], with g = dL/dh_t:

    dL/dP_mn = Re(c_m conj(r_n))        dL/dM_mn = Y_mn (dL/dP_mn - sum over n of Y_mn dL/dP_mn)        Y = softmax(M)

and for scatter, where M holds P transposed, the row's number is d_n h_{t-1}[n] and the column's g_m.
"""

from typing import Any, Literal

import torch
from torch import Tensor

from chomsky_ladder.models.scans import pairs
from chomsky_ladder.models.scans.operation import operation
from chomsky_ladder.models.scans.pairs import conjugate, times
from chomsky_ladder.models.scans.replicas import fold_replicas, unfold_replicas

Form = Literal["gather", "scatter"]
CACHED = 1 << 17  # elements of M at a time on a CPU: more leave its cache, fewer cost more calls
AT_ONCE = 1 << 31  # elsewhere: a compiler joins what is split


def one_hot_loop(
    share_BLK: Tensor, maps_KNN: Tensor, d_BLN2: Tensor, b_BLN2: Tensor, h_BN2: Tensor, form: Form
) -> Tensor:
    """All h [B, L, N, 2]."""
    outputs = []
    for share_BK, d_BN2, b_BN2 in zip(share_BLK.unbind(1), d_BLN2.unbind(1), b_BLN2.unbind(1), strict=True):
        M_BNN = torch.einsum("bk,kmn->bmn", share_BK, maps_KNN)
        soft_BNN = torch.softmax(M_BNN, -1)
        one_BNN = torch.nn.functional.one_hot(M_BNN.argmax(-1), M_BNN.shape[-1])
        P_BNN = (one_BNN + (soft_BNN - soft_BNN.detach())).to(h_BN2.dtype)
        h_BN2 = (times(d_BN2, P_BNN @ h_BN2) if form == "gather" else P_BNN.mT @ times(d_BN2, h_BN2)) + b_BN2
        outputs.append(h_BN2)
    return torch.stack(outputs, 1)


def one_hot_scan(
    share_BLK: Tensor, maps_KNN: Tensor, d_BLN2: Tensor, b_BLN2: Tensor, h_BN2: Tensor, form: Form
) -> Tensor:
    """`one_hot_loop`, with a backward pass by hand."""
    h_RBLN2, _ = _scan(share_BLK[None], maps_KNN[None], d_BLN2[None], b_BLN2[None], h_BN2[None], form == "gather")
    return h_RBLN2.squeeze(0)


@operation("one_hot", sources=(__file__, pairs.__file__))
def _scan(
    share_RBLK: Tensor, maps_RKNN: Tensor, d_RBLN2: Tensor, b_RBLN2: Tensor, h_RBN2: Tensor, gathers: bool
) -> tuple[Tensor, Tensor]:
    """All h and p, of replicas that differ in their maps too: what vmap adds folds into them."""
    place_RBLN = _places(share_RBLK, maps_RKNN)
    first_RBN2 = b_RBLN2[:, :, 0] + _moved(h_RBN2, place_RBLN[:, :, 0], d_RBLN2[:, :, 0], gathers)
    b_RBLN2 = torch.cat([first_RBN2[:, :, None], b_RBLN2[:, :, 1:]], 2)
    return _states(place_RBLN, d_RBLN2, b_RBLN2, gathers), place_RBLN


def keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    """For the way back."""
    share_RBLK, maps_RKNN, d_RBLN2, _, h_RBN2, ctx.gathers = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(share_RBLK, maps_RKNN, d_RBLN2, h_RBN2, *output)


def _gradients(ctx: Any, gh_RBLN2: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
    """g_t = dL/dh_t from the last token to the first, then the rest."""
    share_RBLK, maps_RKNN, d_RBLN2, h_RBN2, h_RBLN2, place_RBLN = ctx.saved_tensors
    gathers, conj_RBLN2 = ctx.gathers, conjugate(d_RBLN2)
    place_back, d_back = (_later(x.flip(2), 1) for x in (place_RBLN, conj_RBLN2))
    g_RBLN2 = _states(place_back, d_back, gh_RBLN2.flip(2), not gathers).flip(2)
    g_RBN2 = _moved(g_RBLN2[:, :, 0], place_RBLN[:, :, 0], conj_RBLN2[:, :, 0], not gathers)
    before_RBLN2 = torch.cat([h_RBN2[:, :, None], h_RBLN2[:, :, :-1]], 2)
    if gathers:
        gd_RBLN2 = times(g_RBLN2, conjugate(_read(before_RBLN2, place_RBLN)))
        row_RBLN2, column_RBLN2 = times(g_RBLN2, conj_RBLN2), before_RBLN2
    else:
        gd_RBLN2 = times(_read(g_RBLN2, place_RBLN), conjugate(before_RBLN2))
        row_RBLN2, column_RBLN2 = times(d_RBLN2, before_RBLN2), g_RBLN2
    gshare_RBLK, gmaps_RKNN = _of_maps(share_RBLK, maps_RKNN, row_RBLN2, column_RBLN2)
    return gshare_RBLK, gmaps_RKNN, gd_RBLN2, g_RBLN2, g_RBN2, None


_scan.register_autograd(_gradients, setup_context=keep)


@_scan.register_vmap
def _replicated(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    *tensors, gathers = inputs
    share, maps, d, b, h = fold_replicas(tensors, in_dims[:-1], info.batch_size)
    return unfold_replicas(_scan(share, maps, d, b, h, gathers), info.batch_size)


def _states(place_RBLN: Tensor, d_RBLN2: Tensor, b_RBLN2: Tensor, gathers: bool) -> Tensor:
    """All h [R, B, L, N, 2] from a state of nothing."""
    taken = 1
    while taken < b_RBLN2.shape[2]:
        place, d, b = (_later(x, taken) for x in (place_RBLN, d_RBLN2, b_RBLN2))
        b_RBLN2 = b_RBLN2 + _moved(b, place_RBLN, d_RBLN2, gathers)
        if gathers:
            d_RBLN2, place_RBLN = times(d_RBLN2, _read(d, place_RBLN)), place.gather(-1, place_RBLN)
        else:
            d_RBLN2, place_RBLN = times(_read(d_RBLN2, place), d), place_RBLN.gather(-1, place)
        taken *= 2
    return b_RBLN2


def _later(x_RBL: Tensor, by: int) -> Tensor:
    return torch.cat([torch.zeros_like(x_RBL[:, :, :by]), x_RBL[:, :, :-by]], 2)


def _moved(h_N2: Tensor, place_N: Tensor, d_N2: Tensor, gathers: bool) -> Tensor:
    """A token's step, but for what is added."""
    return times(d_N2, _read(h_N2, place_N)) if gathers else _written(times(d_N2, h_N2), place_N)


def _read(h_N2: Tensor, place_N: Tensor) -> Tensor:
    return h_N2.gather(-2, place_N[..., None].expand_as(h_N2))


def _written(h_N2: Tensor, place_N: Tensor) -> Tensor:
    return (_scattered if _on_cpu(h_N2) else _selected)(h_N2, place_N)


def _scattered(h_N2: Tensor, place_N: Tensor) -> Tensor:
    return torch.zeros_like(h_N2).scatter_add(-2, place_N[..., None].expand_as(h_N2), h_N2)


def _selected(h_N2: Tensor, place_N: Tensor) -> Tensor:
    """The same in an order of its own: where threads add to one place as they come, no two runs are equal."""
    there_N = torch.arange(place_N.shape[-1], device=place_N.device)
    theirs_NN = place_N[..., None, :] == there_N[:, None]
    return torch.stack([torch.where(theirs_NN, part_N[..., None, :], 0).sum(-1) for part_N in h_N2.unbind(-1)], -1)


def _places(share_RBLK: Tensor, maps_RKNN: Tensor) -> Tensor:
    """p [R, B, L, N], some tokens at a time."""
    pieces = share_RBLK.flatten(1, 2).split(_tokens(maps_RKNN), 1)
    parts = [_largest(_scores(share_RXK, maps_RKNN)) for share_RXK in pieces]
    return torch.cat(parts, 1).unflatten(1, share_RBLK.shape[1:3])


def _largest(M_RXNN: Tensor) -> Tensor:
    """Where each row is largest, at the first of equals."""
    if not _on_cpu(M_RXNN):
        return M_RXNN.argmax(-1)
    # The first of a row's largest has the largest code: a CPU takes a third of argmax's time. A NaN is nobody's equal.
    places = M_RXNN.shape[-1]
    code_N = torch.arange(places, 0, -1, dtype=M_RXNN.dtype)
    first_RXN = M_RXNN.eq_(M_RXNN.amax(-1, keepdim=True)).mul_(code_N).amax(-1)
    return (places - first_RXN).clamp(max=places - 1).to(torch.int64)


def _of_maps(share_RBLK: Tensor, maps_RKNN: Tensor, row_RBLN2: Tensor, column_RBLN2: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of the shares and of the maps, from dL/dP = Re(row conj(column))."""
    pieces = (x.flatten(1, 2).split(_tokens(maps_RKNN), 1) for x in (share_RBLK, row_RBLN2, column_RBLN2))
    flat_RKM, of_share = maps_RKNN.flatten(2), []
    gflat_RKM = torch.zeros_like(flat_RKM)
    for share_RXK, row_RXN2, column_RXN2 in zip(*pieces, strict=True):
        soft_RXNN = torch.softmax(_scores(share_RXK, maps_RKNN), -1)
        gP_RXNN = _dots(row_RXN2, column_RXN2)
        gM_RXM = (soft_RXNN * (gP_RXNN - (soft_RXNN * gP_RXNN).sum(-1, keepdim=True))).flatten(2)
        of_share.append(gM_RXM @ flat_RKM.mT)
        gflat_RKM = gflat_RKM.baddbmm(share_RXK.mT, gM_RXM)
    return torch.cat(of_share, 1).view_as(share_RBLK), gflat_RKM.view_as(maps_RKNN)


def _dots(a_N2: Tensor, b_N2: Tensor) -> Tensor:
    """Of every a with every b. No product of matrices where a compiler can make it of what it reads next to it."""
    if _on_cpu(a_N2):
        return a_N2 @ b_N2.mT
    (a, b), (c, d) = a_N2[..., None].unbind(-2), b_N2[..., None, :, :].unbind(-1)
    return a * c + b * d


def _scores(share_RXK: Tensor, maps_RKNN: Tensor) -> Tensor:
    """M [R, X, N, N]."""
    return (share_RXK @ maps_RKNN.flatten(2)).unflatten(-1, maps_RKNN.shape[2:])


def _tokens(maps_RKNN: Tensor) -> int:
    """How many at a time."""
    elements = maps_RKNN.shape[0] * maps_RKNN.shape[2] ** 2
    return max(1, (CACHED if _on_cpu(maps_RKNN) else AT_ONCE) // elements)


def _on_cpu(x: Tensor) -> bool:
    return x.device.type == "cpu"
