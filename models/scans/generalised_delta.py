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

import torch
from torch import Tensor

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
