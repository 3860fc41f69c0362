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

CHUNK = 64  # rows: positions times rank

Scanned = tuple[Tensor, Tensor]


def ssd_step(u_BLHRK: Tensor, log_a_BLH: Tensor, B_BLHRN: Tensor, C_BLHRN: Tensor, h_BHNK: Tensor) -> Scanned:
    """The recurrence over a length of one."""
    u_BHRK, log_a_BH, B_BHRN, C_BHRN = (z.squeeze(1) for z in (u_BLHRK, log_a_BLH, B_BLHRN, C_BLHRN))
    h_BHNK = log_a_BH.exp()[..., None, None] * h_BHNK + B_BHRN.mT @ u_BHRK
    return (C_BHRN @ h_BHNK)[:, None], h_BHNK


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
    size = -(-length // -(-length // max(1, CHUNK // rank)))  # as few chunks as there can be, of one size
    u_BCHTK, B_BCHTN, C_BCHTN = (
        rearrange(_padded(z, size), "b (c t) h r n -> b c h (t r) n", t=size) for z in (u_BLHRK, B_BLHRN, C_BLHRN)
    )
    log_a_BCHT = _rows(log_a_BLH, size, 1)
    l_BCHT = log_a_BCHT.cumsum(-1)[..., None].expand(*log_a_BCHT.shape, rank).flatten(-2)
    weight_BCHT = None if weight_BLH is None else _rows(weight_BLH, size, rank)
    # Masked before the exponential: above the diagonal the differences are positive and would overflow.
    position_T = torch.arange(size * rank, device=u_BLHRK.device) // rank
    later_TS, same_TS = position_T[:, None] < position_T, position_T[:, None] == position_T
    decay_BCHTS = (l_BCHT[..., None] - l_BCHT[..., None, :]).masked_fill(later_TS, float("-inf")).exp()
    if weight_BCHT is not None:
        seen_BCHTS = weight_BCHT[..., None, :]
        if own_BLH is not None:
            seen_BCHTS = torch.where(same_TS, _rows(own_BLH, size, rank)[..., None, :], seen_BCHTS)
        decay_BCHTS = decay_BCHTS * seen_BCHTS
    matrix_BCHTS = (C_BCHTN @ B_BCHTN.mT) * decay_BCHTS
    if skip_H is not None:
        matrix_BCHTS = matrix_BCHTS + skip_H[:, None, None] * torch.eye(
            size * rank, dtype=u_BLHRK.dtype, device=u_BLHRK.device
        )
    y_BCHTK = matrix_BCHTS @ u_BCHTK

    if h_BHNK is not None or length > size:
        to_end_BCHT = (l_BCHT[..., -1:] - l_BCHT).exp()
        if weight_BCHT is not None:
            to_end_BCHT = to_end_BCHT * weight_BCHT
        added_BCHNK = B_BCHTN.mT @ (to_end_BCHT[..., None] * u_BCHTK)
        starts, h = [], torch.zeros_like(added_BCHNK[:, 0]) if h_BHNK is None else h_BHNK
        for a_BH, added_BHNK in zip(l_BCHT[..., -1].exp().unbind(1), added_BCHNK.unbind(1), strict=True):
            starts.append(h)
            h = a_BH[..., None, None] * h + added_BHNK
        y_BCHTK = y_BCHTK + l_BCHT.exp()[..., None] * (C_BCHTN @ torch.stack(starts, 1))
        h_BHNK = None if h_BHNK is None else h
    return rearrange(y_BCHTK, "b c h (t r) k -> b (c t) h r k", r=rank)[:, :length], h_BHNK


def _rows(z_BLH: Tensor, size: int, rank: int) -> Tensor:
    """[B, C, H, T], a number for each of a position's `rank` rows."""
    z_BCHT = rearrange(_padded(z_BLH, size), "b (c t) h -> b c h t", t=size)
    return z_BCHT if rank == 1 else z_BCHT.repeat_interleave(rank, -1)


def _padded(z_BLX: Tensor, size: int) -> Tensor:
    """Up to a whole number of chunks; behind the end u = 0 and log a = 0 leave the state as it is."""
    padding = -z_BLX.shape[1] % size
    return nn.functional.pad(z_BLX, (0, 0) * (z_BLX.ndim - 2) + (0, padding)) if padding else z_BLX
