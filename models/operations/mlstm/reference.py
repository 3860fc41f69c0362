"""The mLSTM's matrix memory, exponential gates over outer products: step, and parallel form, whole and in chunks.

    m_t = max(log s(f) + m_{t-1}, i)        C_t = e^(log s(f) + m_{t-1} - m_t) C_{t-1} + e^(i - m_t) k_t [v_t, 1]^T
    [y_t, n_t] = q_t C_t        h_t = y_t / (max(|n_t|, e^-m_t) + eps)

Beck et al. 2024 (2405.04517), with k already divided by sqrt(K), s(f) for the forget gate and eps as in the authors'
code, and the normaliser as the last column of C. m_0 = -inf: before the first token there is nothing to scale.

Inside a chunk m_t is the largest of log D_ts = i_s + the sum of log s(f) over s < i <= t, and of the contribution of
the chunk's start. The weights are e^(log D - m). Chunks are those of models/scans/chunked.py, so that memory is linear
in the length.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from chomsky_ladder.models.scans.chunked import CHUNK, sums_between
from chomsky_ladder.models.scans.products import matmul

EPS = 1e-6
SHORT = 2 * CHUNK  # up to here one chunk
LARGEST = 80.0  # e^80 is finite in fp32, and divides all above it to 0: e^-m after closed gates need not be larger

Carried = tuple[Tensor, Tensor]  # C [B, H, K, V + 1] and m [B, H]


def mlstm_start(
    batch: int, heads: int, key_dim: int, value_dim: int, *, device: torch.device, dtype: torch.dtype
) -> Carried:
    C_BHKV = torch.zeros(batch, heads, key_dim, value_dim + 1, device=device, dtype=dtype)
    return C_BHKV, C_BHKV[..., 0, 0] - torch.inf


def mlstm_step(
    q_BHK: Tensor, k_BHK: Tensor, v_BHV: Tensor, i_BH: Tensor, f_BH: Tensor, state: Carried
) -> tuple[Tensor, Carried]:
    C_BHKV, m_BH = state
    kept_BH = logsigmoid(f_BH) + m_BH
    m_BH = torch.maximum(kept_BH, i_BH)
    new_BHKV = torch.exp(i_BH - m_BH)[..., None, None] * k_BHK[..., None] * _with_one(v_BHV)[..., None, :]
    C_BHKV = torch.exp(kept_BH - m_BH)[..., None, None] * C_BHKV + new_BHKV
    return _normalised((q_BHK[..., None, :] @ C_BHKV)[..., 0, :], m_BH), (C_BHKV, m_BH)


def mlstm_parallel(q_BHLK: Tensor, k_BHLK: Tensor, v_BHLV: Tensor, i_BHL: Tensor, f_BHL: Tensor) -> Tensor:
    """Return all h [B, H, L, V] from the start, as one chunk: for short inputs, without the state after them."""
    log_D_BHLL = sums_between(logsigmoid(f_BHL)[:, :, None, :, None])[:, :, 0] + i_BHL[..., None, :]
    m_BHL = log_D_BHLL.amax(-1)
    weights_BHLL = matmul(q_BHLK, k_BHLK.mT) * torch.exp(log_D_BHLL - m_BHL[..., None])
    return _normalised(matmul(weights_BHLL, _with_one(v_BHLV)), m_BHL)


def mlstm_heads(
    c_BLE: Tensor, u_BLE: Tensor, query_NIJ: Tensor, key_NIJ: Tensor, value_NIJ: Tensor, i_BLH: Tensor, f_BLH: Tensor
) -> Tensor:
    """Return the same for q, k = W_q c, W_k c / sqrt(K) and v = W_v u, with block-diagonal maps: h [B, L, E]."""
    maps = ((c_BLE, query_NIJ), (c_BLE, key_NIJ), (u_BLE, value_NIJ))
    q, k, v = (by_blocks(x, of_NIJ).unflatten(-1, (i_BLH.shape[-1], -1)).transpose(1, 2) for x, of_NIJ in maps)
    h_BHLV = mlstm_parallel(q, k * k.shape[-1] ** -0.5, v, i_BLH.mT, f_BLH.mT)
    return h_BHLV.transpose(1, 2).flatten(2)


def by_blocks(x: Tensor, weight_NIJ: Tensor) -> Tensor:
    """Return W x for a W of blocks along its diagonal."""
    return torch.einsum("...nj,nij->...ni", x.unflatten(-1, (-1, weight_NIJ.shape[-1])), weight_NIJ).flatten(-2)


def mlstm_chunks(
    q_BHLK: Tensor, k_BHLK: Tensor, v_BHLV: Tensor, i_BHL: Tensor, f_BHL: Tensor, state: Carried
) -> tuple[Tensor, Carried]:
    """Return all h [B, H, L, V], and the state after the last."""
    length = q_BHLK.shape[2]
    chunk = CHUNK if length > SHORT else length
    # N chunks of C tokens. After the end i = -inf and log s(f) = 0, which leave the state as it is.
    q_BHNCK, k_BHNCK, v_BHNCV, log_f_BHNC1 = (
        _in_chunks(x, chunk, filling=0.0) for x in (q_BHLK, k_BHLK, _with_one(v_BHLV), logsigmoid(f_BHL)[..., None])
    )
    i_BHNC1 = _in_chunks(i_BHL[..., None], chunk, filling=-torch.inf)
    log_D_BHNCC = sums_between(log_f_BHNC1) + i_BHNC1.mT
    own_m_BHNC = log_D_BHNCC.amax(-1)
    from_start_BHNC = log_f_BHNC1[..., 0].cumsum(-1)

    added_BHNC = torch.exp(log_D_BHNCC[..., -1, :] - own_m_BHNC[..., -1:])
    new_BHNKV = matmul(k_BHNCK.mT, added_BHNC[..., None] * v_BHNCV)
    C_BHKV, m_BH = state
    before = []
    every = (new_BHNKV, own_m_BHNC[..., -1], from_start_BHNC[..., -1])
    for new_BHKV, new_m_BH, decay_BH in zip(*(x.unbind(2) for x in every), strict=True):
        before.append((C_BHKV, m_BH))
        kept_BH = decay_BH + m_BH
        m_BH = torch.maximum(kept_BH, new_m_BH)
        kept_BHKV = torch.exp(kept_BH - m_BH)[..., None, None] * C_BHKV
        C_BHKV = torch.addcmul(kept_BHKV, torch.exp(new_m_BH - m_BH)[..., None, None], new_BHKV)

    start_C_BHNKV, start_m_BHN = (torch.stack(x, 2) for x in zip(*before, strict=True))
    brought_BHNC = from_start_BHNC + start_m_BHN[..., None]
    m_BHNC = torch.maximum(own_m_BHNC, brought_BHNC)
    inside_BHNCV = matmul(matmul(q_BHNCK, k_BHNCK.mT) * torch.exp(log_D_BHNCC - m_BHNC[..., None]), v_BHNCV)
    y_BHNCV = inside_BHNCV + torch.exp(brought_BHNC - m_BHNC)[..., None] * matmul(q_BHNCK, start_C_BHNKV)
    return _normalised(y_BHNCV, m_BHNC).flatten(2, 3)[:, :, :length], (C_BHKV, m_BH)


def mlstm_tokens(
    loop: Callable[..., tuple[Tensor, Tensor]],
    q_BHLK: Tensor,
    k_BHLK: Tensor,
    v_BHLV: Tensor,
    i_BHL: Tensor,
    f_BHL: Tensor,
    state: Carried,
) -> tuple[Tensor, Carried]:
    """Return the same by `loop`, the `delta_loop` of scans/generalised_delta.py, token by token.

    m_t is computed from sums over the whole string, in float64. In fp32 they would keep fewer digits of a gate than
    chunks do.
    """
    C_BHKV, m_BH = state
    i_64_BHL, log_f_BHL = i_BHL.double(), logsigmoid(f_BHL).double()
    from_start_BHL = log_f_BHL.cumsum(-1)
    highest_BHL = (i_64_BHL - from_start_BHL).cummax(-1).values
    m_BHL = from_start_BHL + torch.maximum(highest_BHL, m_BH[..., None].double())
    before_BHL = torch.cat([m_BH[..., None].double(), m_BHL[..., :-1]], -1)
    exponents = (log_f_BHL + before_BHL - m_BHL, i_64_BHL - m_BHL)
    decay_BHL1, added_BHL1 = (torch.exp(x_BHL).to(q_BHLK.dtype)[..., None] for x_BHL in exponents)
    m_BHL = m_BHL.to(q_BHLK.dtype)
    y_BHLV, C_BHKV = loop(q_BHLK, None, None, added_BHL1 * k_BHLK, _with_one(v_BHLV), decay_BHL1, C_BHKV)
    return _normalised(y_BHLV, m_BHL), (C_BHKV, m_BHL[..., -1])


def _with_one(v_BHLV: Tensor) -> Tensor:
    """Return the values and a 1, whose sum is the normaliser."""
    return nn.functional.pad(v_BHLV, (0, 1), value=1.0)


def _normalised(y: Tensor, m: Tensor) -> Tensor:
    floor = torch.exp(torch.clamp(-m, max=LARGEST))
    return y[..., :-1] / (torch.maximum(y[..., -1].abs(), floor) + EPS)[..., None]


def _in_chunks(x_BHLX: Tensor, chunk: int, *, filling: float) -> Tensor:
    return nn.functional.pad(x_BHLX, (0, 0, 0, -x_BHLX.shape[2] % chunk), value=filling).unflatten(2, (-1, chunk))
