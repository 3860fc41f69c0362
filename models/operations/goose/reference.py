"""The rule of RWKV-7 (Goose), computed from its projections.

    S_t = S_{t-1} (diag(w_t) - f_t (a_t * f_t)^T) + v_t k_t^T        y_t = S_t r_t        r_t . u k_t
    f = m * k' / |m * k'|        k = k' * (1 + n * (a - 1))

in each head: k' is the projected key, a the rate at which old values are removed, m, n and u are learned. The last term
is the weight of the present token, which the layer reads beside y.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from chomsky_ladder.models.operations.delta.reference import delta_loop
from chomsky_ladder.models.scans.delta import of_length_1


class Channels(NamedTuple):
    """m, n and u, [H, K]."""

    out_key: Tensor
    key_rate: Tensor
    bonus: Tensor


def of_keys(k_BHLK: Tensor, rate_BHLK: Tensor, channels: Channels) -> tuple[Tensor, Tensor, Tensor]:
    """Return f, a * f and k."""
    out_key, key_rate, _ = (x_HK[:, None] for x_HK in channels)
    f_BHLK = of_length_1(k_BHLK * out_key)
    return f_BHLK, rate_BHLK * f_BHLK, k_BHLK * torch.addcmul(1 - key_rate, key_rate, rate_BHLK)


def of_the_present(r_BHLK: Tensor, k_BHLK: Tensor, channels: Channels) -> Tensor:
    """Return r . u k, [B, H, L, 1]."""
    return (r_BHLK * channels.bonus[:, None] * k_BHLK).sum(-1, keepdim=True)


def goose_loop(
    r_BHLK: Tensor,
    k_BHLK: Tensor,
    rate_BHLK: Tensor,
    v_BHLV: Tensor,
    decay_BHLK: Tensor,
    channels: Channels,
    state_BHKV: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return y, the weights of the present, and the last state: the definition, with which kernels are compared."""
    f_BHLK, g_BHLK, k_BHLK = of_keys(k_BHLK, rate_BHLK, channels)
    y_BHLV, state_BHKV = delta_loop(r_BHLK, f_BHLK, g_BHLK, k_BHLK, v_BHLV, decay_BHLK, state_BHKV)
    return y_BHLV, of_the_present(r_BHLK, k_BHLK, channels), state_BHKV
