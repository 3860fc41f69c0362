"""The delta rule with any decay, token by token: the definition of all recurrences that add outer products to a state.

    S_t = diag(w_t) S_{t-1} - g_t (f_t S_{t-1}) + k_t v_t^T        y_t = r_t S_t, or r_t S_{t-1}

Delta rules take something out along g; linear attention with decays is the same without f and g. The chunks of each
rule are in models/scans (delta.py, gated_delta.py, generalised_delta.py, decayed_delta.py, decayed.py).
"""

from typing import Any

import torch
from torch import Tensor, nn

from chomsky_ladder.models.scans.delta import of_length_1


def delta_loop(
    r_BHLK: Tensor,
    f_BHMK: Tensor | None,
    g_BHMK: Tensor | None,
    k_BHMK: Tensor,
    v_BHMV: Tensor,
    decay_BHLK: Tensor | None,
    state_BHKV: Tensor,
    *,
    reads_before: bool = False,
) -> tuple[Tensor, Tensor]:
    """The definition, which kernels are held to: y and the last state, token by token.

    Where k and v have more steps than there are tokens, each token's first decays and its last is read. Decays may have
    one channel; without f nothing is taken out, without g it is along k, without decays nothing decays.
    `reads_before`: y_t = r_t S_{t-1}.
    """
    g_BHMK = k_BHMK if g_BHMK is None else g_BHMK
    steps, outputs = k_BHMK.shape[2] // r_BHLK.shape[2], []
    for m in range(k_BHMK.shape[2]):
        t, is_last = m // steps, m % steps == steps - 1
        r_BH1K, k_BH1K, v_BH1V = r_BHLK[:, :, t, None], k_BHMK[:, :, m, None], v_BHMV[:, :, m, None]
        if is_last and reads_before:
            outputs.append(r_BH1K @ state_BHKV)
        added_BHKV = k_BH1K.mT * v_BH1V
        if f_BHMK is not None:
            added_BHKV = added_BHKV - g_BHMK[:, :, m, :, None] * (f_BHMK[:, :, m, None] @ state_BHKV)
        decay_BHK1 = 1.0 if decay_BHLK is None or m % steps else decay_BHLK[:, :, t, :, None]
        state_BHKV = decay_BHK1 * state_BHKV + added_BHKV
        if is_last and not reads_before:
            outputs.append(r_BH1K @ state_BHKV)
    return torch.cat(outputs, 2), state_BHKV


def unit_delta_loop(*given: Any, **options: Any) -> tuple[Tensor, Tensor]:
    """`delta_loop` of `along_keys`, which kernels that take these are held to."""
    return delta_loop(*along_keys(*given, **options))


def along_keys(
    q_BHLK: Tensor,
    k_BHMK: Tensor,
    v_BHMV: Tensor,
    beta_BHM1: Tensor | None,
    share_BHMK: Tensor | None,
    decay_BHLK: Tensor | None,
    state_BHKV: Tensor,
    *,
    scale: float = 1.0,
    less_BHL1: Tensor | None = None,
) -> tuple[Tensor, Tensor, None, Tensor, Tensor, Tensor | None, Tensor]:
    """Make the arguments of `delta_loop` from queries and keys of any length.

    r = c (q - m k), f = w a k, g = k = b k with |q| = 1 and |k| = 1.

    a and b, where they are missing, are 1, and m is 0; of a token's steps the first alone decays, and m is the last's.
    """
    k_BHMK = f_BHMK = of_length_1(k_BHMK)
    q_BHLK = of_length_1(q_BHLK)
    if less_BHL1 is not None:
        steps = k_BHMK.shape[2] // q_BHLK.shape[2]
        q_BHLK = q_BHLK - less_BHL1 * k_BHMK[:, :, steps - 1 :: steps]
    if share_BHMK is not None:
        f_BHMK = share_BHMK * f_BHMK
    if decay_BHLK is not None:
        later = k_BHMK.shape[2] // q_BHLK.shape[2] - 1
        of_steps_BHMK = nn.functional.pad(decay_BHLK[..., None, :], (0, 0, 0, later), value=1.0).flatten(2, 3)
        f_BHMK = of_steps_BHMK * f_BHMK
    if beta_BHM1 is not None:
        k_BHMK = beta_BHM1 * k_BHMK
    return scale * q_BHLK, f_BHMK, None, k_BHMK, v_BHMV, decay_BHLK, state_BHKV
