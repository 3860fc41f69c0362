"""States [K, V] that outer products are added to, by the fastest form there is for their tensors.

    S_t = diag(w_t) S_{t-1} - g_t (f_t S_{t-1}) + k_t v_t^T        y_t = r_t S_t, or r_t S_{t-1}

A kernel for `delta_loop` is every such recurrence, delta rules and, without f and g, linear attention with decays. If
there is none each has chunks of its own. Single tokens are left to those: a step of decoding is a few products.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.choose import chosen
from chomsky_ladder.models.scans.decayed import decayed_past, write_then_read
from chomsky_ladder.models.scans.delta import delta_rule
from chomsky_ladder.models.scans.gated_delta import gated_delta_rule
from chomsky_ladder.models.scans.mlstm import Carried, mlstm_chunks, mlstm_tokens

Scanned = tuple[Tensor, Tensor]  # y [B, H, L, V] and the last state, in at least fp32
Rule = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor], Scanned]


def by_delta_rule(
    q_BHLK: Tensor, k_BHLK: Tensor, v_BHLV: Tensor, beta_BHL: Tensor, state_BHKV: Tensor, ctx: Context
) -> Scanned:
    """`delta_rule`: what is taken out lies along k and is read along it."""
    loop = _loop(q_BHLK, ctx)
    if loop is None:
        return delta_rule(q_BHLK, k_BHLK, v_BHLV, beta_BHL, state_BHKV)
    beta_BHL1 = beta_BHL[..., None]
    return loop(q_BHLK, k_BHLK, beta_BHL1 * k_BHLK, k_BHLK, beta_BHL1 * v_BHLV, None, state_BHKV)


def by_gated_delta_rule(
    q_BHLK: Tensor,
    k_BHMK: Tensor,
    v_BHMV: Tensor,
    beta_BHM: Tensor,
    log_decay_BHL: Tensor,
    state_BHKV: Tensor,
    ctx: Context,
) -> Scanned:
    """`gated_delta_rule`: the first of a token's steps decays, and what it takes out is read decayed."""
    loop = _loop(q_BHLK, ctx)
    if loop is None:
        return gated_delta_rule(q_BHLK, k_BHMK, v_BHMV, beta_BHM, log_decay_BHL, state_BHKV)
    decay_BHL1, beta_BHM1 = torch.exp(log_decay_BHL)[..., None], beta_BHM[..., None]
    steps = k_BHMK.shape[2] // q_BHLK.shape[2]
    first_BHLNK, later_BHLNK = k_BHMK.unflatten(2, (-1, steps)).split([1, steps - 1], 3)
    f_BHMK = torch.cat([decay_BHL1[..., None] * first_BHLNK, later_BHLNK], 3).flatten(2, 3)
    return loop(q_BHLK, f_BHMK, beta_BHM1 * k_BHMK, k_BHMK, beta_BHM1 * v_BHMV, decay_BHL1, state_BHKV)


def by_any_delta_rule(
    rule: Rule,
    r_BHLK: Tensor,
    f_BHLK: Tensor,
    g_BHLK: Tensor,
    k_BHLK: Tensor,
    v_BHLV: Tensor,
    log_decay_BHLK: Tensor,
    state_BHKV: Tensor,
    ctx: Context,
) -> Scanned:
    """The equation as it stands; `rule` has its chunks."""
    loop = _loop(r_BHLK, ctx)
    if loop is None:
        return rule(r_BHLK, f_BHLK, g_BHLK, k_BHLK, v_BHLV, log_decay_BHLK, state_BHKV)
    return loop(r_BHLK, f_BHLK, g_BHLK, k_BHLK, v_BHLV, torch.exp(log_decay_BHLK), state_BHKV)


def by_writing_then_reading(
    q_BHLK: Tensor, k_BHLK: Tensor, v_BHLV: Tensor, decay_BHLK: Tensor, state_BHKV: Tensor, ctx: Context
) -> Scanned:
    """`write_then_read`: nothing is taken out, y_t = q_t S_t."""
    loop = _loop(q_BHLK, ctx)
    if loop is None:
        return write_then_read(q_BHLK, k_BHLK, v_BHLV, decay_BHLK, state_BHKV)
    return loop(q_BHLK, None, None, k_BHLK, v_BHLV, decay_BHLK, state_BHKV)


def by_reading_the_past(
    r_BHLK: Tensor, k_BHLK: Tensor, v_BHLV: Tensor, decay_BHLK: Tensor, state_BHKV: Tensor, ctx: Context
) -> Scanned:
    """`decayed_past`: nothing is taken out, y_t = r_t S_{t-1}."""
    loop = _loop(r_BHLK, ctx)
    if loop is None:
        return decayed_past(r_BHLK, k_BHLK, v_BHLV, decay_BHLK, state_BHKV)
    return loop(r_BHLK, None, None, k_BHLK, v_BHLV, decay_BHLK, state_BHKV, reads_before=True)


def by_exponential_gates(
    q_BHLK: Tensor, k_BHLK: Tensor, v_BHLV: Tensor, i_BHL: Tensor, f_BHL: Tensor, state: Carried, ctx: Context
) -> tuple[Tensor, Carried]:
    """`mlstm_chunks`: gates are exponential, and what is read is divided by what was added."""
    loop = _loop(q_BHLK, ctx)
    if loop is None:
        return mlstm_chunks(q_BHLK, k_BHLK, v_BHLV, i_BHL, f_BHL, state)
    return mlstm_tokens(loop, q_BHLK, k_BHLK, v_BHLV, i_BHL, f_BHL, state)


def _loop(q_BHLK: Tensor, ctx: Context) -> Callable[..., Scanned] | None:
    """A kernel, called in the precision of the queries, but in at least fp32."""
    dtype = torch.promote_types(q_BHLK.dtype, torch.float32)
    kernel = chosen("delta_loop", q_BHLK.to(dtype), ctx) if q_BHLK.shape[2] > 1 else None
    if kernel is None:
        return None

    def called(*given: Tensor | None, **options: bool) -> Scanned:
        return kernel.call(*(None if x is None else x.to(dtype) for x in given), **options)

    return called
