"""Log-linear attention: older tokens are held in fewer and longer stretches, each of which a query weighs separately.

    y_t = sum_{s <= t} c_t^(l) (a_{s+1} .. a_t) (q_t . k_s) v_s        l = level(t, s)        0 <= a <= 1

Guo et al. 2025 (2506.04761). For t > s, counted from 0, the level is the length of t xor s in bits, and for t = s it is
0. This is a Fenwick tree: a position sees itself, then as many stretches as its number has bits set, of 1, 2, 4 ..
tokens, longer ones longer ago. The last of E levels takes everything older, so that there is no longest string; in the
paper nothing comes after it. With all c = 1 it is the linear attention of chunked.py.

All tokens of a stretch have the same level for later positions, so a sum S^(l) [K, V] is held for each:

    y_t = c_t^(0) (q_t . k_t) v_t + sum_{l > 0} c_t^(l) q_t S_t^(l)

From t to t + 1 the stretches below the lowest 0 of t are merged with t itself. From the start the same is done with
chunks of 64 in the place of tokens, with masked products inside: work and memory are L log L. From a state, at any
place, up to 64 tokens are taken at once, and all stretches are read and rebuilt, whether they exist or not.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from chomsky_ladder.models.scans.chunked import sums_between
from chomsky_ladder.models.scans.products import matmul

CHUNK = 64  # a power of 2

Held = tuple[Tensor, Tensor]  # S of levels 1 .. E - 1 [B, H, E - 1, K, V], and the place of the next token


def fenwick_attention(q_BHLK: Tensor, k_BHLK: Tensor, v_BHLV: Tensor, log_decay_BHL: Tensor, c_BHLE: Tensor) -> Tensor:
    """Return y [B, H, L, V] from the start, in at least fp32. Heads may share q and k (their H is 1)."""
    dtype = torch.promote_types(q_BHLK.dtype, torch.float32)
    tokens = [x.to(dtype) for x in (q_BHLK, k_BHLK, v_BHLV, log_decay_BHL[..., None], c_BHLE)]
    with torch.autocast(q_BHLK.device.type, enabled=False):
        return _chunked(*tokens)


def fenwick_extend(
    q_BHLK: Tensor, k_BHLK: Tensor, v_BHLV: Tensor, log_decay_BHL: Tensor, c_BHLE: Tensor, state: Held
) -> tuple[Tensor, Held]:
    """Return y [B, H, L, V] and the last state, in at least fp32."""
    dtype = torch.promote_types(q_BHLK.dtype, torch.float32)
    tokens = [x.to(dtype) for x in (q_BHLK, k_BHLK, v_BHLV, log_decay_BHL[..., None], c_BHLE)]
    state, outputs = (state[0].to(dtype), state[1]), []
    with torch.autocast(q_BHLK.device.type, enabled=False):
        for parts in zip(*(x.split(CHUNK, 2) for x in tokens), strict=True):
            y_BHLV, state = _piece(parts, state)
            outputs.append(y_BHLV)
    return torch.cat(outputs, 2), state


def _chunked(q_BHLK: Tensor, k_BHLK: Tensor, v_BHLV: Tensor, log_decay_BHL1: Tensor, c_BHLE: Tensor) -> Tensor:
    length, last = q_BHLK.shape[2], c_BHLE.shape[-1] - 1
    chunk = min(length, CHUNK)
    # N chunks of C tokens. After the end k = 0 and a = 1, which leave the sums as they are.
    q_BHNCK, k_BHNCK, v_BHNCV, log_decay_BHNC1, c_BHNCE = (
        nn.functional.pad(x, (0, 0, 0, -length % chunk)).unflatten(2, (-1, chunk))
        for x in (q_BHLK, k_BHLK, v_BHLV, log_decay_BHL1, c_BHLE)
    )
    decay_BHNCC = torch.exp(sums_between(log_decay_BHNC1))
    place_C = torch.arange(chunk, device=q_BHLK.device)
    weight_BHNCC = decay_BHNCC * of_level(c_BHNCE, levels(place_C[:, None], place_C, last))
    inside_BHNCV = matmul(matmul(q_BHNCK, k_BHNCK.mT) * weight_BHNCC, v_BHNCV)
    if inside_BHNCV.shape[2] == 1:
        return inside_BHNCV[:, :, 0]

    from_start_BHNC1 = torch.exp(log_decay_BHNC1.cumsum(3))
    reads_BHNCE = from_start_BHNC1 * c_BHNCE
    new_BHNKV = matmul(k_BHNCK.mT, decay_BHNCC[..., -1, :, None] * v_BHNCV)
    held: dict[int, Tensor] = {}  # the sum of the 2^j chunks that stand for bit j of n
    outputs = []
    every = (q_BHNCK, reads_BHNCE, inside_BHNCV, new_BHNKV, from_start_BHNC1[..., -1:, :])
    for n, (q_BHCK, reads_BHCE, y_BHCV, new_BHKV, decay_BH11) in enumerate(
        zip(*(x.unbind(2) for x in every), strict=True)
    ):
        for bit, sum_BHKV in held.items():
            level = min(CHUNK.bit_length() + bit, last)
            y_BHCV = y_BHCV + reads_BHCE[..., level, None] * matmul(q_BHCK, sum_BHKV)
        outputs.append(y_BHCV)
        held = {bit: decay_BH11 * sum_BHKV for bit, sum_BHKV in held.items()}
        bit = 0
        while n >> bit & 1:
            new_BHKV = new_BHKV + held.pop(bit)
            bit += 1
        held[bit] = new_BHKV
    return torch.stack(outputs, 2).flatten(2, 3)[:, :, :length]


def _piece(tokens: Sequence[Tensor], state: Held) -> tuple[Tensor, Held]:
    """Process one chunk, from any place on."""
    q_BHLK, k_BHLK, v_BHLV, log_decay_BHL1, c_BHLE = tokens
    (S_BHEKV, start), (length, numbers) = state, c_BHLE.shape[2:]
    last, device = numbers - 1, q_BHLK.device
    place_L, end = start + torch.arange(length, device=device), start + length
    # One token of each held stretch: that of level l ends where the bits of the place above l - 1 begin.
    bit_E = torch.arange(last, device=device)
    held_E = (((start >> bit_E) - 1) << bit_E).clamp(min=0)

    decay_BHLL = torch.exp(sums_between(log_decay_BHL1[:, :, None]))[:, :, 0]
    weight_BHLL = decay_BHLL * of_level(c_BHLE, levels(place_L[:, None], place_L, last))
    from_start_BHL1 = torch.exp(log_decay_BHL1.cumsum(2))
    reads_BHLE = from_start_BHL1 * of_level(c_BHLE, levels(place_L[:, None], held_E, last))
    y_BHLV = matmul(matmul(q_BHLK, k_BHLK.mT) * weight_BHLL, v_BHLV)
    y_BHLV = y_BHLV + torch.einsum(
        "bhlk,bhle,bhekv->bhlv", q_BHLK.expand(*reads_BHLE.shape[:3], -1), reads_BHLE, S_BHEKV
    )

    to_end_BHL1 = decay_BHLL[..., -1, :, None]
    number_E = torch.arange(1, numbers, device=device)[:, None]
    becomes_EE, joins_EL = ((levels(end, place, last) == number_E).to(q_BHLK.dtype) for place in (held_E, place_L))
    kept_BHEKV = torch.einsum("fe,bhekv->bhfkv", becomes_EE, from_start_BHL1[:, :, -1:, :, None] * S_BHEKV)
    written_BHELV = joins_EL[..., None] * (to_end_BHL1 * v_BHLV)[:, :, None]
    return y_BHLV, (kept_BHEKV + k_BHLK.mT[:, :, None] @ written_BHELV, end)


def levels(t: Tensor, s: Tensor, last: int) -> Tensor:
    """Return the length of t xor s in bits, at most `last`."""
    apart = (t ^ s)[..., None] >> torch.arange(last, device=s.device)
    return (apart > 0).sum(-1)


def of_level(c_XCE: Tensor, level_CS: Tensor) -> Tensor:
    """Return at [t, s] the c of t at the level of t and s. It is a product, whose gradient is also a product."""
    chosen_CES = (level_CS[:, None] == torch.arange(c_XCE.shape[-1], device=c_XCE.device)[:, None]).to(c_XCE.dtype)
    return torch.einsum("...ce,ces->...cs", c_XCE, chosen_CES)
