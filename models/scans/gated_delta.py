"""The gated delta rule, which decays the state of each head before it replaces a value: in chunks, and for one token.

    S_t = (1 - b_t k_t k_t^T) a_t S_{t-1} + b_t k_t v_t^T        y_t = q_t S_t        |k_t| = 1, 0 <= b_t <= 2

with 0 <= a_t <= 1, given as log a_t. Yang et al. 2024 (2412.06464). A token may take n such steps, each with its own
key, value and b. Only the first decays, and only the last is read: Siems et al. 2025 (2502.10297).

What is written is u_t = b_t (v_t - a_t k_t S_{t-1}), with S_t = a_t S_{t-1} + k_t u_t^T. Inside a chunk that starts
from S, u solves one triangular system, as in `_delta.py`, with the decays D_ts = a_{s+1} .. a_t of `_chunked.py`:

    u_t + b_t sum_{s < t} D_ts (k_t . k_s) u_s = b_t (v_t - a_1 .. a_t k_t S)        thus        U = U_v - U_k S

All decays lie in [0, 1], each log D_ts is its own sum and nothing is divided: a = 0 and a = 1 are exact.

Chunks have at most 48 steps, all of one size. We measured B = 32, H = 4, K = V = 16, forward and backward on one
thread: 40 steps take 10 ms in one chunk and 11 in two; for 80 steps chunks of 16 to 64 are alike, and one of 80 is 1.6
times as slow.
"""

import torch
from torch import Tensor, nn

LARGEST_CHUNK = 48


def gated_delta_rule(
    q_BHLK: Tensor, k_BHMK: Tensor, v_BHMV: Tensor, beta_BHM: Tensor, log_decay_BHL: Tensor, state_BHKV: Tensor
) -> tuple[Tensor, Tensor]:
    """Return y [B, H, L, V] and the last state, in at least fp32. M counts the steps, those of a token in a row."""
    dtype = torch.promote_types(q_BHLK.dtype, torch.float32)
    inputs = (x.to(dtype) for x in (q_BHLK, k_BHMK, v_BHMV, beta_BHM, log_decay_BHL, state_BHKV))
    with torch.autocast(q_BHLK.device.type, enabled=False):
        return _one_step(*inputs) if k_BHMK.shape[2] == 1 else _chunked(*inputs)


def _one_step(
    q_BHLK: Tensor, k_BHMK: Tensor, v_BHMV: Tensor, beta_BHM: Tensor, log_decay_BHL: Tensor, state_BHKV: Tensor
) -> tuple[Tensor, Tensor]:
    state_BHKV = torch.exp(log_decay_BHL)[..., None] * state_BHKV
    state_BHKV = state_BHKV + k_BHMK.mT * (beta_BHM[..., None] * (v_BHMV - k_BHMK @ state_BHKV))
    return q_BHLK @ state_BHKV, state_BHKV


def _chunked(
    q_BHLK: Tensor, k_BHMK: Tensor, v_BHMV: Tensor, beta_BHM: Tensor, log_decay_BHL: Tensor, state_BHKV: Tensor
) -> tuple[Tensor, Tensor]:
    length, width = q_BHLK.shape[2:]
    steps = k_BHMK.shape[2] // length  # of a token
    tokens = -(-length // -(-k_BHMK.shape[2] // LARGEST_CHUNK))  # as few chunks as possible, of one size
    # N chunks of T tokens, which are C steps. After the end k = 0 and a = 1, which leave the state as it is.
    q_BHNTK, log_decay_BHNT1 = (in_chunks(x, tokens) for x in (q_BHLK, log_decay_BHL[..., None]))
    k_BHNCK, v_BHNCV, beta_BHNC1 = (in_chunks(x, tokens * steps) for x in (k_BHMK, v_BHMV, beta_BHM[..., None]))
    # The steps of a token share its decays, since its own decay comes before the first.
    decay_BHNTC, from_start_BHNT1 = decays_between(log_decay_BHNT1, steps), torch.exp(log_decay_BHNT1.cumsum(3))
    from_start_BHNC1 = _for_steps(from_start_BHNT1, steps, 3)

    # Only read below the diagonal, with ones on it.
    bk_BHNCK = beta_BHNC1 * k_BHNCK
    system_BHNCC = (bk_BHNCK @ k_BHNCK.mT).unflatten(3, (-1, steps)) * decay_BHNTC[..., None, :]
    system_BHNCC = system_BHNCC.flatten(3, 4)
    right_BHNCX = torch.cat([from_start_BHNC1 * bk_BHNCK, beta_BHNC1 * v_BHNCV], -1)
    solved_BHNCX = torch.linalg.solve_triangular(system_BHNCC, right_BHNCX, upper=False, unitriangular=True)
    uk_BHNCK, uv_BHNCV = solved_BHNCX.split([width, solved_BHNCX.shape[-1] - width], -1)

    to_end_BHNKC = (decay_BHNTC[..., -1, :, None] * k_BHNCK).mT
    states, written = [], []
    for decay_BH11, k_BHKC, uk_BHCK, uv_BHCV in zip(
        *(x.unbind(2) for x in (from_start_BHNT1[..., -1:, :], to_end_BHNKC, uk_BHNCK, uv_BHNCV)), strict=True
    ):
        u_BHCV = uv_BHCV - uk_BHCK @ state_BHKV
        states.append(state_BHKV)
        written.append(u_BHCV)
        state_BHKV = torch.addcmul(k_BHKC @ u_BHCV, decay_BH11, state_BHKV)
    y_BHNTV = (q_BHNTK @ k_BHNCK.mT * decay_BHNTC) @ torch.stack(written, 2)
    y_BHNTV = y_BHNTV + from_start_BHNT1 * (q_BHNTK @ torch.stack(states, 2))
    return y_BHNTV.flatten(2, 3)[:, :, :length], state_BHKV


def decays_between(log_decay_BHNT1: Tensor, steps: int = 1) -> Tensor:
    """Return D [T, C].

    Logarithms are summed by a product with ones, which with its gradient is faster than a cumsum.
    """
    tokens = log_decay_BHNT1.shape[3]
    one_TT = torch.ones(tokens, tokens, device=log_decay_BHNT1.device, dtype=log_decay_BHNT1.dtype).tril()
    own_TC, before_TC = (_for_steps(mask_TT, steps, 1) for mask_TT in (one_TT, one_TT.tril(-1)))
    # exp(-1000) is 0, and an infinite logarithm times 0 would be nan.
    log_BHNTC = one_TT @ (log_decay_BHNT1.clamp(min=-1000) * before_TC)
    return torch.exp(log_BHNTC) * own_TC


def in_chunks(x_BHLK: Tensor, chunk: int) -> Tensor:
    """Return [B, H, N, C, K], with zeros after the end."""
    missing = -x_BHLK.shape[2] % chunk
    if missing:  # an empty padding would be a copy
        x_BHLK = nn.functional.pad(x_BHLK, (0, 0, 0, missing))
    return x_BHLK.unflatten(2, (-1, chunk))


def _for_steps(x: Tensor, steps: int, axis: int) -> Tensor:
    return x if steps == 1 else x.repeat_interleave(steps, axis)
