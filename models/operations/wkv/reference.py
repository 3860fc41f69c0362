"""RWKV-4's average of the past in every channel, weighted by keys and by age.

    wkv_t = (sum_{s<t} e^{k_s - (t-1-s) r} v_s + e^{u + k_t} v_t) / (sum_{s<t} e^{k_s - (t-1-s) r} + e^{u + k_t})

Numerator and denominator are held relative to the largest exponent so far, which cancels and therefore needs no
gradient. It is found on its own, so that the recurrence proper is one of a channel's own, twice.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from chomsky_ladder.models.block import State
from chomsky_ladder.models.operations.diagonal.reference import scan_loop

NOTHING_YET = -1e30  # the largest exponent before the first token


def wkv(k_BLD: Tensor, v_BLD: Tensor, rate_D: Tensor, bonus_D: Tensor, state: State) -> tuple[Tensor, State]:
    """The definition: averages from a state, numerator and denominator [B, 2, D] and their common exponent [B, D]."""
    return wkv_by(scan_loop, k_BLD, v_BLD, rate_D, bonus_D, state)


def wkv_by(
    scan: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]],
    k_BLD: Tensor,
    v_BLD: Tensor,
    rate_D: Tensor,
    bonus_D: Tensor,
    state: State,
) -> tuple[Tensor, State]:
    """Return the averages and the last state; `scan` is the recurrence of a channel."""
    sums_B2D, top_BD = state
    k_BLD, v_BLD = k_BLD.to(rate_D.dtype), v_BLD.to(rate_D.dtype)
    with torch.no_grad():
        top_BLD = _tops(k_BLD, rate_D, top_BD)
        before_BLD, after_BLD = top_BLD[:, :-1], top_BLD[:, 1:]
        peak_BLD = torch.maximum(before_BLD, k_BLD + bonus_D)

    terms_B2LD = torch.stack([v_BLD, torch.ones_like(v_BLD)], 1)
    kept_B1LD = torch.exp(before_BLD - rate_D - after_BLD)[:, None]
    added_B2LD = torch.exp(k_BLD - after_BLD)[:, None] * terms_B2LD
    sums_B2LD, last_B2D = scan(kept_B1LD.expand_as(added_B2LD), added_B2LD, sums_B2D)
    past_B2LD = torch.cat([sums_B2D[:, :, None], sums_B2LD[:, :, :-1]], 2)
    of_past_B1LD = torch.exp(before_BLD - peak_BLD)[:, None]
    of_present_B1LD = torch.exp(k_BLD + bonus_D - peak_BLD)[:, None]
    numerator_BLD, denominator_BLD = (of_past_B1LD * past_B2LD + of_present_B1LD * terms_B2LD).unbind(1)
    return numerator_BLD / denominator_BLD, (last_B2D, top_BLD[:, -1])


def _tops(k_BLD: Tensor, rate_D: Tensor, top_BD: Tensor) -> Tensor:
    """top_t = max(top_{t-1} - rate, k_t) from t = 0 on, to rounding: sums are relative to whatever it is."""
    aged_LD = rate_D * torch.arange(k_BLD.shape[1] + 1, dtype=k_BLD.dtype, device=k_BLD.device)[:, None]
    return (torch.cat([top_BD[:, None], k_BLD], 1) + aged_LD).cummax(1).values - aged_LD
