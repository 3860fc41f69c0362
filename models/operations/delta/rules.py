"""Matrix states [K, V] to which outer products are added, by the fastest form for their tensors.

    S_t = diag(w_t) S_{t-1} - g_t (f_t S_{t-1}) + k_t v_t^T        y_t = r_t S_t, or r_t S_{t-1}

A kernel for `delta_loop` computes every such recurrence: delta rules and, without f and g, linear attention with
decays. Without a kernel each rule has its own chunks. Single tokens use those: a step of decoding is a few products.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.choose import chosen
from chomsky_ladder.models.operations.delta import delta_loop, unit_delta_loop
from chomsky_ladder.models.operations.delta.reference import along_keys
from chomsky_ladder.models.operations.operation import Operation
from chomsky_ladder.models.scans.decayed import decayed_past, write_then_read
from chomsky_ladder.models.scans.decayed_delta import decayed_delta_rule
from chomsky_ladder.models.scans.delta import delta_rule, of_length_1
from chomsky_ladder.models.scans.gated_delta import gated_delta_rule

Scanned = tuple[Tensor, Tensor]  # y [B, H, L, V] and the last state, in at least fp32
Rule = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor], Scanned]


def by_delta_rule(
    q_BHLK: Tensor, k_BHLK: Tensor, v_BHLV: Tensor, beta_BHL: Tensor, state_BHKV: Tensor, ctx: Context
) -> Scanned:
    """Run `delta_rule` with queries and keys of any length. Values are removed along k and read along k."""
    loop = _unit_loop(q_BHLK, ctx)
    if loop is None:
        return delta_rule(of_length_1(q_BHLK), of_length_1(k_BHLK), v_BHLV, beta_BHL, state_BHKV)
    return loop(q_BHLK, k_BHLK, v_BHLV, beta_BHL[..., None], None, None, state_BHKV)


def by_gated_delta_rule(
    q_BHLK: Tensor,
    k_BHMK: Tensor,
    v_BHMV: Tensor,
    beta_BHM: Tensor,
    log_decay_BHL: Tensor,
    state_BHKV: Tensor,
    ctx: Context,
) -> Scanned:
    """Run `gated_delta_rule` with queries and keys of any length. Only the first of a token's steps decays, and what it
    removes is read after the decay.
    """
    loop = _unit_loop(q_BHLK, ctx)
    if loop is None:
        return gated_delta_rule(of_length_1(q_BHLK), of_length_1(k_BHMK), v_BHMV, beta_BHM, log_decay_BHL, state_BHKV)
    decay_BHL1 = torch.exp(log_decay_BHL)[..., None]
    return loop(q_BHLK, k_BHMK, v_BHMV, beta_BHM[..., None], None, decay_BHL1, state_BHKV)


def by_channel_delta_rule(
    q_BHLK: Tensor,
    k_BHLK: Tensor,
    v_BHLV: Tensor,
    beta_BHL1: Tensor | None,
    share_BHLK: Tensor | None,
    log_decay_BHLK: Tensor,
    state_BHKV: Tensor,
    ctx: Context,
    *,
    less_BHL1: Tensor | None = None,
) -> Scanned:
    """Run the delta rule with one decay in every channel of keys, or one for all, and queries and keys of any length.

    y is read along (q - less k) / sqrt(K). With a share of the keys, what is removed is read along that share.
    """
    scale, loop = k_BHLK.shape[-1] ** -0.5, _unit_loop(q_BHLK, ctx)
    given = (q_BHLK, k_BHLK, v_BHLV, beta_BHL1, share_BHLK, torch.exp(log_decay_BHLK), state_BHKV)
    if loop is not None:
        return loop(*given, scale=scale, less_BHL1=less_BHL1)
    r_BHLK, f_BHLK, _, bk_BHLK, *_ = along_keys(*given, scale=scale, less_BHL1=less_BHL1)
    return decayed_delta_rule(r_BHLK, f_BHLK, bk_BHLK, bk_BHLK, v_BHLV, log_decay_BHLK, state_BHKV)


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
    """Apply the equation as it stands; `rule` computes it in chunks."""
    loop = fastest(delta_loop, r_BHLK, ctx)
    if loop is None:
        return rule(r_BHLK, f_BHLK, g_BHLK, k_BHLK, v_BHLV, log_decay_BHLK, state_BHKV)
    g_or_k = None if g_BHLK is k_BHLK else g_BHLK
    return loop(r_BHLK, f_BHLK, g_or_k, k_BHLK, v_BHLV, torch.exp(log_decay_BHLK), state_BHKV)


def by_writing_then_reading(
    q_BHLK: Tensor, k_BHLK: Tensor, v_BHLV: Tensor, decay_BHLK: Tensor, state_BHKV: Tensor, ctx: Context
) -> Scanned:
    """Write, then read, y_t = q_t S_t. Nothing is taken out."""
    loop = fastest(delta_loop, q_BHLK, ctx)
    if loop is None:
        return write_then_read(q_BHLK, k_BHLK, v_BHLV, decay_BHLK, state_BHKV)
    return loop(q_BHLK, None, None, k_BHLK, v_BHLV, decay_BHLK, state_BHKV)


def by_reading_the_past(
    r_BHLK: Tensor, k_BHLK: Tensor, v_BHLV: Tensor, decay_BHLK: Tensor, state_BHKV: Tensor, ctx: Context
) -> Scanned:
    """Read, then write, y_t = r_t S_{t-1}. Nothing is taken out."""
    loop = fastest(delta_loop, r_BHLK, ctx)
    if loop is None:
        return decayed_past(r_BHLK, k_BHLK, v_BHLV, decay_BHLK, state_BHKV)
    return loop(r_BHLK, None, None, k_BHLK, v_BHLV, decay_BHLK, state_BHKV, reads_before=True)


def _unit_loop(q_BHLK: Tensor, ctx: Context) -> Callable[..., Scanned] | None:
    """Return a kernel for `unit_delta_loop`, or one for `delta_loop` called with what that takes."""
    unit = fastest(unit_delta_loop, q_BHLK, ctx)
    loop = fastest(delta_loop, q_BHLK, ctx) if unit is None else None
    if loop is None:
        return unit
    return lambda *given, **options: loop(*along_keys(*given, **options))


def fastest(operation: Operation[..., Any], q_BHLK: Tensor, ctx: Context) -> Callable[..., Any] | None:
    """Return a kernel for more than one token, called in the precision of the queries, but in at least fp32.

    Tensors of 16 bits stay so where it takes those.
    """
    dtype = torch.promote_types(q_BHLK.dtype, torch.float32)
    kernel = chosen(operation.name, q_BHLK.to(dtype), ctx, inside=operation.inside) if q_BHLK.shape[2] > 1 else None
    if kernel is None:
        return None
    as_is = {torch.bfloat16}.intersection(kernel.dtypes)

    def taken(x: Any) -> Any:
        return x.to(dtype) if isinstance(x, Tensor) and x.dtype not in as_is else x

    def called(*given: Any, **options: Any) -> Any:
        return kernel.call(*map(taken, given), **options)

    return called
