"""State space duality: a recurrence whose decay is one number a head and position, as masked attention within chunks.

    h_t = a_t h_{t-1} + sum_r B_{t,r} u_{t,r}^T        y_{t,r} = C_{t,r} h_t        in every head, r below a rank R

Dao and Gu 2024 (2405.21060); a rank above 1 is Lahoti et al. 2026 (2603.15569), section 3.3. Over a chunk of positions
from the state h_0, with l_t the sum of log a up to t,

    y_{t,q} = sum_{s <= t, r} exp(l_t - l_s) (C_{t,q} . B_{s,r}) u_{s,r} + exp(l_t) C_{t,q} h_0

so the memory is linear in the length. B and C have a size of H for their heads, or of 1 where all share them.
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
    h_BHNK: Tensor,
    *,
    own_BLHRK: Tensor | None = None,
) -> Scanned:
    """The same over any length: all y [B, L, H, R, K] and the last state.

    With `own`, a position's own output sees this in place of its u, which is what later ones see.
    """
    length, rank = u_BLHRK.shape[1], u_BLHRK.shape[3]
    size = -(-length // -(-length // max(1, CHUNK // rank)))  # as few chunks as there can be, of one size
    padding = -length % size  # behind the end, where u = 0 and log a = 0 leave the state as it is
    u_BCHTK, B_BCHTN, C_BCHTN = (
        rearrange(nn.functional.pad(z, (0, 0, 0, 0, 0, 0, 0, padding)), "b (c t) h r n -> b c h (t r) n", t=size)
        for z in (u_BLHRK, B_BLHRN, C_BLHRN)
    )
    log_a_BCHT = rearrange(nn.functional.pad(log_a_BLH, (0, 0, 0, padding)), "b (c t) h -> b c h t", t=size)

    l_BCHT = log_a_BCHT.cumsum(-1)[..., None].expand(*log_a_BCHT.shape, rank).flatten(-2)
    # Masked before the exponential: above the diagonal the differences are positive and would overflow.
    position_T = torch.arange(size * rank, device=u_BLHRK.device) // rank
    seen_TS = position_T[:, None] >= position_T if own_BLHRK is None else position_T[:, None] > position_T
    decay_BCHTS = (l_BCHT[..., None] - l_BCHT[..., None, :]).masked_fill(~seen_TS, float("-inf")).exp()
    y_BCHTK = ((C_BCHTN @ B_BCHTN.mT) * decay_BCHTS) @ u_BCHTK

    to_end_BCHT = (l_BCHT[..., -1:] - l_BCHT).exp()
    added_BCHNK = B_BCHTN.mT @ (to_end_BCHT[..., None] * u_BCHTK)
    starts = []
    for a_BH, added_BHNK in zip(l_BCHT[..., -1].exp().unbind(1), added_BCHNK.unbind(1), strict=True):
        starts.append(h_BHNK)
        h_BHNK = a_BH[..., None, None] * h_BHNK + added_BHNK
    y_BCHTK = y_BCHTK + l_BCHT.exp()[..., None] * (C_BCHTN @ torch.stack(starts, 1))
    y_BLHRK = rearrange(y_BCHTK, "b c h (t r) k -> b (c t) h r k", r=rank)[:, :length]
    if own_BLHRK is not None:
        score_BLHQR = (C_BLHRN[..., None, :] * B_BLHRN[..., None, :, :]).sum(-1)
        y_BLHRK = y_BLHRK + (score_BLHQR[..., None] * own_BLHRK[..., None, :, :]).sum(-2)
    return y_BLHRK, h_BHNK
