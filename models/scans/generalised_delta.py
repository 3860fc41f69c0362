"""The delta rule with a decay in every key channel, which reads along one key and removes along another.

    S_t = diag(w_t) S_{t-1} - g_t (f_t S_{t-1}) + k_t v_t^T        y_t = r_t S_t        e^{-e^{-1/2}} <= w_t <= 1

Peng et al. 2025 (2503.14456), where f has length 1 and g = a * f with rates a in [0, 1]. What is removed, u_t = f_t
S_{t-1}, solves one triangular system inside a chunk that starts from S. With P_t = w_1 .. w_t,

    u_t + sum_{s < t} (f_t P_{t-1} . g_s / P_s) u_s = sum_{s < t} (f_t P_{t-1} . k_s / P_s) v_s + f_t P_{t-1} S

thus U = U_v + U_f S, both for all chunks at once, and a loop over chunks carries S. Each pair's product of decays is a
quotient of two P. It loses no digits, since no P is small: w is at least 0.545, so that over 32 tokens P is at least
4e-9. What stands above the diagonal, and is left out, is at most 3e8 times as large as what counts. decayed_delta.py
avoids quotients, for models where w may be 0.
"""

from typing import Any

import torch
from torch import Tensor, nn

from chomsky_ladder.models.scans.delta import of_length_1
from chomsky_ladder.models.scans.gated_delta import in_chunks

CHUNK = 32


def generalised_delta_rule(
    r_BHLK: Tensor,
    f_BHLK: Tensor,
    g_BHLK: Tensor,
    k_BHLK: Tensor,
    v_BHLV: Tensor,
    log_decay_BHLK: Tensor,
    state_BHKV: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return y [B, H, L, V] and the last state, in at least fp32."""
    dtype = torch.promote_types(r_BHLK.dtype, torch.float32)
    inputs = (x.to(dtype) for x in (r_BHLK, f_BHLK, g_BHLK, k_BHLK, v_BHLV, log_decay_BHLK, state_BHKV))
    with torch.autocast(r_BHLK.device.type, enabled=False):
        return one_token(*inputs) if r_BHLK.shape[2] == 1 else _chunked(*inputs)


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
    """Return y and the last state, token by token: the definition, with which kernels are compared.

    If k and v have more steps than there are tokens, each token's first step decays and its last is read. Decays may
    have one channel. Without f nothing is removed, without g it is removed along k, and without decays nothing decays.
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
    """Run `delta_loop` on `along_keys`: the definition for kernels that take these arguments."""
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
    """Return the arguments of `delta_loop` for queries and keys of any length: r = c (q - m k), f = w a k, g = k = b k
    with |q| = 1 and |k| = 1.

    Missing a and b are 1, and missing m is 0. Of a token's steps only the first decays, and m applies to the last.
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


def one_token(
    r_BHLK: Tensor,
    f_BHLK: Tensor,
    g_BHLK: Tensor,
    k_BHLK: Tensor,
    v_BHLV: Tensor,
    log_decay_BHLK: Tensor,
    state_BHKV: Tensor,
) -> tuple[Tensor, Tensor]:
    added_BHKV = k_BHLK.mT * v_BHLV - g_BHLK.mT * (f_BHLK @ state_BHKV)
    state_BHKV = torch.addcmul(added_BHKV, torch.exp(log_decay_BHLK).mT, state_BHKV)
    return r_BHLK @ state_BHKV, state_BHKV


def _chunked(
    r_BHLK: Tensor,
    f_BHLK: Tensor,
    g_BHLK: Tensor,
    k_BHLK: Tensor,
    v_BHLV: Tensor,
    log_decay_BHLK: Tensor,
    state_BHKV: Tensor,
) -> tuple[Tensor, Tensor]:
    length, width = r_BHLK.shape[2:]
    chunk = -(-length // -(-length // CHUNK))  # as few chunks as possible, of one size
    # N chunks of C tokens. After the end k = g = 0 and w = 1, which leave the state as it is.
    r_BHNCK, f_BHNCK, g_BHNCK, k_BHNCK, v_BHNCV, log_decay_BHNCK = (
        in_chunks(x, chunk) for x in (r_BHLK, f_BHLK, g_BHLK, k_BHLK, v_BHLV, log_decay_BHLK)
    )
    log_total_BHNCK = log_decay_BHNCK.cumsum(3)
    total_BHNCK, inverse_BHNCK = torch.exp(log_total_BHNCK), torch.exp(-log_total_BHNCK)
    r_BHNCK, f_BHNCK = r_BHNCK * total_BHNCK, f_BHNCK * torch.exp(log_total_BHNCK - log_decay_BHNCK)
    g_BHNCK, k_BHNCK = g_BHNCK * inverse_BHNCK, k_BHNCK * inverse_BHNCK

    # Only read below the diagonal, with ones on it.
    system_BHNCC = f_BHNCK @ g_BHNCK.mT
    right_BHNCX = torch.cat([f_BHNCK, torch.tril(f_BHNCK @ k_BHNCK.mT, -1) @ v_BHNCV], -1)
    solved_BHNCX = torch.linalg.solve_triangular(system_BHNCC, right_BHNCX, upper=False, unitriangular=True)
    uf_BHNCK, uv_BHNCV = solved_BHNCX.split([width, solved_BHNCX.shape[-1] - width], -1)

    new_BHNKV, total_BHNK1 = k_BHNCK.mT @ v_BHNCV, total_BHNCK[..., -1:, :].mT
    states, taken = [], []
    for decay_BHK1, new_BHKV, g_BHKC, uf_BHCK, uv_BHCV in zip(
        *(x.unbind(2) for x in (total_BHNK1, new_BHNKV, g_BHNCK.mT, uf_BHNCK, uv_BHNCV)), strict=True
    ):
        u_BHCV = uv_BHCV + uf_BHCK @ state_BHKV
        states.append(state_BHKV)
        taken.append(u_BHCV)
        state_BHKV = decay_BHK1 * (state_BHKV + new_BHKV - g_BHKC @ u_BHCV)
    kept_BHNCV = torch.tril(r_BHNCK @ k_BHNCK.mT) @ v_BHNCV + r_BHNCK @ torch.stack(states, 2)
    y_BHNCV = kept_BHNCV - torch.tril(r_BHNCK @ g_BHNCK.mT) @ torch.stack(taken, 2)
    return y_BHNCV.flatten(2, 3)[:, :, :length], state_BHKV
