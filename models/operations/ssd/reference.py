"""State space duality: a recurrence whose decay is one number a head and position, as masked attention within chunks.

    h_t = a_t h_{t-1} + sum_r B_{t,r} u_{t,r}^T        y_{t,r} = C_{t,r} h_t        in every head, r below a rank R

Dao and Gu 2024 (2405.21060); a rank above 1 is Lahoti et al. 2026 (2603.15569), section 3.3. Over a chunk of positions
from the state h_0, with l_t the sum of log a up to t,

    y_{t,q} = sum_{s <= t, r} exp(l_t - l_s) w_s (C_{t,q} . B_{s,r}) u_{s,r} + D u_{t,q} + exp(l_t) C_{t,q} h_0

so the memory is linear in the length. What is one number a head and position, the weights w and D, goes into the matrix
of a chunk, which has fewer elements than u. B and C have a size of H for their heads, or of 1 where all share them.
"""

import torch
from einops import rearrange
from torch import Tensor, nn

from chomsky_ladder.models.scans.products import matmul

CHUNK = 64  # rows: positions times rank

Scanned = tuple[Tensor, Tensor]


def ssd_step(u_BLHRK: Tensor, log_a_BLH: Tensor, B_BLHRN: Tensor, C_BLHRN: Tensor, h_BHNK: Tensor) -> Scanned:
    """The recurrence over a length of one."""
    u_BHRK, log_a_BH, B_BHRN, C_BHRN = (z.squeeze(1) for z in (u_BLHRK, log_a_BLH, B_BLHRN, C_BLHRN))
    h_BHNK = log_a_BH.exp()[..., None, None] * h_BHNK + B_BHRN.mT @ u_BHRK
    return (C_BHRN @ h_BHNK)[:, None], h_BHNK


def weighed(
    scores_BCGTS: Tensor,
    l_BCHP: Tensor,
    weight_BCHP: Tensor | None,
    own_BCHP: Tensor | None,
    skip_H: Tensor | None,
) -> Tensor:
    """What stands before u, [B, C, H, T, T], from the products C . B of P positions of T / P rows; G is H or 1."""
    rows, positions = scores_BCGTS.shape[-1], l_BCHP.shape[-1]
    position_T = torch.arange(rows, device=l_BCHP.device) // (rows // positions)
    l_BCHT, weight_BCHT, own_BCHT = (None if x is None else x[..., position_T] for x in (l_BCHP, weight_BCHP, own_BCHP))
    assert l_BCHT is not None
    # Masked before the exponential: above the diagonal the differences are positive and would overflow.
    later_TS, same_TS = position_T[:, None] < position_T, position_T[:, None] == position_T
    factor_BCHTS = (l_BCHT[..., None] - l_BCHT[..., None, :]).masked_fill(later_TS, float("-inf")).exp()
    if weight_BCHT is not None:
        seen_BCHTS = weight_BCHT[..., None, :]
        if own_BCHT is not None:
            seen_BCHTS = torch.where(same_TS, own_BCHT[..., None, :], seen_BCHTS)
        factor_BCHTS = factor_BCHTS * seen_BCHTS
    matrix_BCHTS = scores_BCGTS * factor_BCHTS
    if skip_H is None:
        return matrix_BCHTS
    return matrix_BCHTS + skip_H[:, None, None] * torch.eye(rows, dtype=l_BCHP.dtype, device=l_BCHP.device)


def ssd_chunks(
    u_BLHRK: Tensor,
    log_a_BLH: Tensor,
    B_BLHRN: Tensor,
    C_BLHRN: Tensor,
    h_BHNK: Tensor | None,
    *,
    weight_BLH: Tensor | None = None,
    own_BLH: Tensor | None = None,
    skip_H: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """The same over any length: all y [B, L, H, R, K] and the last state; from None, which is zeros, none.

    `weight` is w, `skip` D. With `own`, a position's own output has this for its w, which is what later ones see.
    """
    length, rank = u_BLHRK.shape[1], u_BLHRK.shape[3]
    size = positions_of_a_chunk(length, rank)
    u_BCHTK, B_BCHTN, C_BCHTN = (
        rearrange(_padded(z, size), "b (c t) h r n -> b c h (t r) n", t=size) for z in (u_BLHRK, B_BLHRN, C_BLHRN)
    )
    log_a_BCHP, weight_BCHP, own_BCHP = (
        None if z is None else rearrange(_padded(z, size), "b (c p) h -> b c h p", p=size)
        for z in (log_a_BLH, weight_BLH, own_BLH)
    )
    assert log_a_BCHP is not None
    l_BCHP = log_a_BCHP.cumsum(-1)
    scores_BCHTS = matmul(C_BCHTN, B_BCHTN.mT)
    y_BCHTK = matmul(weighed(scores_BCHTS, l_BCHP, weight_BCHP, own_BCHP, skip_H), u_BCHTK)

    if h_BHNK is not None or length > size:
        to_end_BCHP = (l_BCHP[..., -1:] - l_BCHP).exp()
        if weight_BCHP is not None:
            to_end_BCHP = to_end_BCHP * weight_BCHP
        to_end_BCHT1, from_start_BCHT1 = (
            x[..., None].expand(*x.shape, rank).flatten(-2)[..., None] for x in (to_end_BCHP, l_BCHP.exp())
        )
        added_BCHNK = matmul(B_BCHTN.mT, to_end_BCHT1 * u_BCHTK)
        starts, h = [], torch.zeros_like(added_BCHNK[:, 0]) if h_BHNK is None else h_BHNK
        for a_BH, added_BHNK in zip(l_BCHP[..., -1].exp().unbind(1), added_BCHNK.unbind(1), strict=True):
            starts.append(h)
            h = a_BH[..., None, None] * h + added_BHNK
        y_BCHTK = y_BCHTK + from_start_BCHT1 * matmul(C_BCHTN, torch.stack(starts, 1))
        h_BHNK = None if h_BHNK is None else h
    return rearrange(y_BCHTK, "b c h (t r) k -> b (c t) h r k", r=rank)[:, :length], h_BHNK


def positions_of_a_chunk(length: int, rank: int) -> int:
    """So that chunks are as few as there can be, and of one size."""
    return -(-length // -(-length // max(1, CHUNK // rank)))


def _padded(z_BLX: Tensor, size: int) -> Tensor:
    """Up to a whole number of chunks; behind the end u = 0 and log a = 0 leave the state as it is."""
    padding = -z_BLX.shape[1] % size
    return nn.functional.pad(z_BLX, (0, 0) * (z_BLX.ndim - 2) + (0, padding)) if padding else z_BLX
