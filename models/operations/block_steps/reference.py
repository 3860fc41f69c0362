"""A linear recurrence whose transition is the identity plus a part of a token's own blocks.

    h_t = (1 + C_t / S) h_{t-1} + b_t        C_t = diag(blocks [K, K]), of as many heads H; S steps make one

    C_t = [[0, -1], [1, 0]], S = 1, b_t = (1, 0)        h = (0, 0), (1, 0), (2, 1), (2, 3)

c is [B, L, H K K] and b [B, L, H K] as linear layers leave them, h [B, H, K]. `block_steps` is the definition.
`block_steps_by_halves` does not wait L times: two tokens are one of the recurrence of every other h, and those between
follow at once, so that there are log2(L) levels, whose products of transitions are K times the work of L steps.

`saturating_block_steps` bounds the change of the state, C_t h / S, by a tanh; nothing but a loop computes it.

On the way back g_t = dL/dh_t + (1 + C_{t+1} / S)^T g_{t+1}, dL/db_t = g_t and dL/dC_t = g_t h_{t-1}^T / S.
"""

from collections.abc import Callable

import torch
from torch import Tensor


def block_steps(c_BLX: Tensor, b_BLX: Tensor, h_BHK: Tensor, *, steps: int) -> tuple[Tensor, Tensor]:
    """All h [B, L, H K], and the last, in the precision of the first h."""
    return _by(in_turn, c_BLX, b_BLX, h_BHK, steps)


def block_steps_by_halves(c_BLX: Tensor, b_BLX: Tensor, h_BHK: Tensor, *, steps: int) -> tuple[Tensor, Tensor]:
    return _by(by_halves, c_BLX, b_BLX, h_BHK, steps)


def saturating_block_steps(
    c_BLX: Tensor, b_BLX: Tensor, h_BHK: Tensor, *, steps: int, at: float
) -> tuple[Tensor, Tensor]:
    """`block_steps` with h_t = h_{t-1} + at tanh(C_t h_{t-1} / (S at)) + b_t."""
    heads, block = h_BHK.shape[1:]
    change_BLHKK = (c_BLX / steps).unflatten(-1, (heads, block, block))
    b_BLHK, outputs = b_BLX.unflatten(-1, (heads, block)), []
    for change_BHKK, b_BHK in zip(change_BLHKK.unbind(1), b_BLHK.unbind(1), strict=True):
        h_BHK = h_BHK + at * torch.tanh(applied(change_BHKK, h_BHK) / at) + b_BHK
        outputs.append(h_BHK)
    return torch.stack(outputs, 1).flatten(2), h_BHK


def _by(
    form: Callable[[Tensor, Tensor, Tensor], Tensor], c_BLX: Tensor, b_BLX: Tensor, h_BHK: Tensor, steps: int
) -> tuple[Tensor, Tensor]:
    heads, block = h_BHK.shape[1:]
    c_BLX, b_BLX = c_BLX.to(h_BHK.dtype), b_BLX.to(h_BHK.dtype)
    with torch.autocast(c_BLX.device.type, enabled=False):
        one_KK = torch.eye(block, device=c_BLX.device, dtype=c_BLX.dtype)
        a_BLHKK = one_KK + (c_BLX / steps).unflatten(-1, (heads, block, block))
        h_BLHK = form(a_BLHKK, b_BLX.unflatten(-1, (heads, block)), h_BHK)
    return h_BLHK.flatten(2), h_BLHK[:, -1]


def in_turn(a_BLHKK: Tensor, b_BLHK: Tensor, h_BHK: Tensor) -> Tensor:
    """h_t = a_t h_{t-1} + b_t, one after the other."""
    outputs = []
    for a_BHKK, b_BHK in zip(a_BLHKK.unbind(1), b_BLHK.unbind(1), strict=True):
        h_BHK = applied(a_BHKK, h_BHK) + b_BHK
        outputs.append(h_BHK)
    return torch.stack(outputs, 1)


def by_halves(a_BLHKK: Tensor, b_BLHK: Tensor, h_BHK: Tensor) -> Tensor:
    """The same: two tokens are one of the recurrence of every other h; those between follow at once."""
    length = a_BLHKK.shape[1]
    if length <= 2:
        return in_turn(a_BLHKK, b_BLHK, h_BHK)
    pairs = length // 2
    first_BLHKK, second_BLHKK = a_BLHKK[:, ::2], a_BLHKK[:, 1::2]
    b_first_BLHK, b_second_BLHK = b_BLHK[:, ::2], b_BLHK[:, 1::2]
    a_pair_BLHKK = second_BLHKK @ first_BLHKK[:, :pairs]
    b_pair_BLHK = applied(second_BLHKK, b_first_BLHK[:, :pairs]) + b_second_BLHK
    h_second_BLHK = by_halves(a_pair_BLHKK, b_pair_BLHK, h_BHK)
    before_BLHK = torch.cat([h_BHK[:, None], h_second_BLHK], 1)[:, : length - pairs]
    h_first_BLHK = applied(first_BLHKK, before_BLHK) + b_first_BLHK
    h_BLHK = torch.stack([h_first_BLHK[:, :pairs], h_second_BLHK], 2).flatten(1, 2)
    return h_BLHK if length % 2 == 0 else torch.cat([h_BLHK, h_first_BLHK[:, -1:]], 1)


def applied(a_XKK: Tensor, h_XK: Tensor) -> Tensor:
    """As a sum of products: matrices this small cost a CPU's batched product more than they hold."""
    return (a_XKK * h_XK[..., None, :]).sum(-1)
