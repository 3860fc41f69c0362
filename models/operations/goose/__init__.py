"""RWKV-7's rule (Goose): the delta rule with keys that are made as their turn comes, and the weight of the present.

    y_BHLV, present_BHL1, state_BHKV = by_goose_rule(r_BHLK, k_BHLK, rate_BHLK, v_BHLV, log_decay_BHLK, channels, ..)

In C (cpu.c) what is taken out and what is written are made of one key inside the loop. Without that kernel they are
made first, and the delta rule (models/operations/delta) does the rest.
"""

import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.operations.delta.in_c import takes
from chomsky_ladder.models.operations.delta.rules import by_any_delta_rule, fastest
from chomsky_ladder.models.operations.goose.in_c import native_goose
from chomsky_ladder.models.operations.goose.reference import Channels, of_keys, of_the_present
from chomsky_ladder.models.operations.goose.reference import goose_loop as plain
from chomsky_ladder.models.operations.operation import Operation
from chomsky_ladder.models.scans.generalised_delta import generalised_delta_rule

goose_loop = Operation(plain, serves=("rwkv7",), shown=lambda r, *others: r, inside=("delta_loop",))
goose_loop.in_c(native_goose, name="native_goose", rank=24, takes=takes)


def by_goose_rule(
    r_BHLK: Tensor,
    k_BHLK: Tensor,
    rate_BHLK: Tensor,
    v_BHLV: Tensor,
    log_decay_BHLK: Tensor,
    channels: Channels,
    state_BHKV: Tensor,
    ctx: Context,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return y, the weights of the present and the last state. Without a kernel: RWKV-7's keys, then the delta rule."""
    loop = fastest(goose_loop, r_BHLK, ctx)
    if loop is not None:
        return loop(r_BHLK, k_BHLK, rate_BHLK, v_BHLV, torch.exp(log_decay_BHLK), channels, state_BHKV)
    f_BHLK, g_BHLK, k_BHLK = of_keys(k_BHLK, rate_BHLK, channels)
    given = (r_BHLK, f_BHLK, g_BHLK, k_BHLK, v_BHLV, log_decay_BHLK, state_BHKV)
    y_BHLV, state_BHKV = by_any_delta_rule(generalised_delta_rule, *given, ctx)
    return y_BHLV, of_the_present(r_BHLK, k_BHLK, channels), state_BHKV
