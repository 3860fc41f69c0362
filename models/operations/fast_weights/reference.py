"""Fast weights that descend on what they make of a key, in mini-batches: the layer's step is a step of training.

    z_t = q_t M_t        M_t = M - r_i sum over s <= t of the mini-batch of c_s k_s^T g_s
    g_s = gradient at k_s M of |LN(k_s M) - (v_s - k_s)|^2 / 2

Sun et al. 2024 (2407.04620). M is what the last mini-batch left, so that all gradients of one are those at M; i is the
place of t in its mini-batch, whose rates r every token learns with, c_s is the token's own. M has one row more than
keys have channels, a bias, for which every k_s ends in 1. LN has a scale and a shift for every head.

A mini-batch is one masked product, and a loop carries M, so that memory is linear in the length. A state holds M, the
sum so far and the place of the next token in its mini-batch: a sequence may be cut anywhere, whatever is left of a
mini-batch comes first.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from chomsky_ladder.models.scans.products import matmul

NORM_EPS = 1e-6


class Held(NamedTuple):
    """M and the sum of the mini-batch so far [B, H, K + 1, K]; the place of the next token in it."""

    M_BHXK: Tensor
    sum_BHXK: Tensor
    place: Tensor


class Norm(NamedTuple):
    scale_H1K: Tensor
    shift_H1K: Tensor

    def __call__(self, z_BHLK: Tensor) -> Tensor:
        normed_BHLK = nn.functional.layer_norm(z_BHLK, z_BHLK.shape[-1:], eps=NORM_EPS)
        return self.scale_H1K * normed_BHLK + self.shift_H1K

    def descent(self, z_BHLK: Tensor, goal_BHLK: Tensor) -> Tensor:
        """The gradient of |LN(z) - goal|^2 / 2 at z."""
        apart_BHLK = z_BHLK - z_BHLK.mean(-1, keepdim=True)
        root_BHL1 = torch.rsqrt(apart_BHLK.square().mean(-1, keepdim=True) + NORM_EPS)
        normed_BHLK = apart_BHLK * root_BHL1
        d_BHLK = (self.scale_H1K * normed_BHLK + self.shift_H1K - goal_BHLK) * self.scale_H1K
        along_BHLK = normed_BHLK * (d_BHLK * normed_BHLK).mean(-1, keepdim=True)
        return (d_BHLK - d_BHLK.mean(-1, keepdim=True) - along_BHLK) * root_BHL1


def fast_weights_from(
    q_BHLK: Tensor, k_BHLK: Tensor, v_BHLK: Tensor, rate_BHL: Tensor, place_rate_C: Tensor, norm: Norm, M_BHXK: Tensor
) -> Tensor:
    """All z from the first M on, where nobody asks for the last state."""
    place = torch.zeros((), dtype=torch.int64, device=M_BHXK.device)
    state = Held(M_BHXK, torch.zeros_like(M_BHXK), place)
    return fast_weights(q_BHLK, k_BHLK, v_BHLK, rate_BHL, place_rate_C, norm, state, fresh=True)[0]


def fast_weights(
    q_BHLK: Tensor,
    k_BHLK: Tensor,
    v_BHLK: Tensor,
    rate_BHL: Tensor,
    place_rate_C: Tensor,
    norm: Norm,
    state: Held,
    *,
    fresh: bool = False,
) -> tuple[Tensor, Held]:
    """All z [B, H, L, K] and the last state, in at least fp32. `fresh`: the next token surely begins a mini-batch."""
    dtype, length, size = torch.promote_types(q_BHLK.dtype, torch.float32), q_BHLK.shape[2], len(place_rate_C)
    goal_BHLK, rate_BHL1 = v_BHLK - k_BHLK, rate_BHL[..., None]
    tokens = [x.to(dtype) for x in (with_one(q_BHLK), with_one(k_BHLK), goal_BHLK, rate_BHL1)]
    place_rate_C1, norm = place_rate_C[:, None].to(dtype), Norm(*(x.to(dtype) for x in norm))
    state = Held(state.M_BHXK.to(dtype), state.sum_BHXK.to(dtype), state.place)
    with torch.autocast(q_BHLK.device.type, enabled=False):
        if length == 1:
            return _one_token(tokens, place_rate_C1, norm, state)
        if fresh:
            slots = [nn.functional.pad(x, (0, 0, 0, -length % size)) for x in tokens]
            z_BHSK, M_BHXK, sum_BHXK = _mini_batches(slots, place_rate_C1, norm, state, length)
            z_BHLK = z_BHSK[:, :, :length]
        else:
            slots = in_their_places(tokens, state.place, size)
            z_BHSK, M_BHXK, sum_BHXK = _mini_batches(slots, place_rate_C1, norm, state, state.place + length)
            z_BHLK = z_BHSK.index_select(2, state.place + torch.arange(length, device=q_BHLK.device))
        return z_BHLK, Held(M_BHXK, sum_BHXK, (state.place + length) % size)


def _one_token(tokens: Sequence[Tensor], place_rate_C1: Tensor, norm: Norm, state: Held) -> tuple[Tensor, Held]:
    q_BH1X, k_BH1X, goal_BH1K, rate_BH11 = tokens
    d_BH1K = norm.descent(k_BH1X @ state.M_BHXK, goal_BH1K)
    sum_BHXK = state.sum_BHXK + (rate_BH11 * k_BH1X).mT @ d_BH1K
    M_BHXK = state.M_BHXK - place_rate_C1.index_select(0, state.place.view(1)) * sum_BHXK
    place = (state.place + 1) % len(place_rate_C1)
    begins = place == 0
    after = Held(torch.where(begins, M_BHXK, state.M_BHXK), torch.where(begins, 0, sum_BHXK), place)
    return q_BH1X @ M_BHXK, after


def _mini_batches(
    slots: Sequence[Tensor], place_rate_C1: Tensor, norm: Norm, state: Held, end: Tensor | int
) -> tuple[Tensor, Tensor, Tensor]:
    """z of every slot, M and the sum; what is at `end` and behind it has no rate."""
    size, (M_BHXK, sum_BHXK, _) = len(place_rate_C1), state
    # N mini-batches of C tokens.
    q_BHNCX, k_BHNCX, goal_BHNCK, rate_BHNC1 = (x.unflatten(2, (-1, size)) for x in slots)
    learned_BHNCX = rate_BHNC1 * k_BHNCX
    scores_BHNCC = place_rate_C1 * torch.tril(matmul(q_BHNCX, learned_BHNCX.mT))
    every = (q_BHNCX, k_BHNCX, goal_BHNCK, learned_BHNCX.mT, scores_BHNCC)
    outputs = []
    for n, (q_BHCX, k_BHCX, goal_BHCK, learned_BHXC, scores_BHCC) in enumerate(
        zip(*(x.unbind(2) for x in every), strict=True)
    ):
        d_BHCK = norm.descent(matmul(k_BHCX, M_BHXK), goal_BHCK)
        z_BHCK = matmul(q_BHCX, M_BHXK) - matmul(scores_BHCC, d_BHCK)
        if n == 0:  # of the others nothing was learned before
            z_BHCK = z_BHCK - place_rate_C1 * matmul(q_BHCX, sum_BHXK)
        outputs.append(z_BHCK)
        sum_BHXK = sum_BHXK + matmul(learned_BHXC, d_BHCK)
        whole = (n + 1) * size <= end
        M_BHXK = picked(whole, M_BHXK - place_rate_C1[-1] * sum_BHXK, M_BHXK)
        sum_BHXK = picked(whole, torch.zeros_like(sum_BHXK), sum_BHXK)
    return torch.stack(outputs, 2).flatten(2, 3), M_BHXK, sum_BHXK


def in_their_places(tokens: Sequence[Tensor], place: Tensor, size: int) -> list[Tensor]:
    """Tokens [B, H, L, X] in slots of whole mini-batches, the first at `place`; in other slots the last, a rate, is 0.

    One mini-batch may be of empty slots alone, as their number may not depend on a value.
    """
    length = tokens[0].shape[2]
    from_S = torch.arange(-(-(length + size - 1) // size) * size, device=place.device) - place
    *slots, rate_BHS1 = (x.index_select(2, from_S.clamp(0, length - 1)) for x in tokens)
    return [*slots, rate_BHS1 * ((from_S >= 0) & (from_S < length))[:, None]]


def picked(condition: Tensor | bool, one: Tensor, other: Tensor) -> Tensor:
    if isinstance(condition, bool):
        return one if condition else other
    return torch.where(condition, one, other)


def with_one(x_BHLK: Tensor) -> Tensor:
    return nn.functional.pad(x_BHLK, (0, 1), value=1.0)
