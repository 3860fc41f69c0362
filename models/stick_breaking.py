"""Stick-breaking attention: each position takes its share of what nearer positions left, in place of a softmax.

    A_ts = sigma(z_ts) prod over s < l < t of (1 - sigma(z_tl))        z_ts = q_t . k_s / sqrt(K)
    y_t = sum over s < t of A_ts v_s        x = x + W_o y        x = x + SwiGLU(x)

in each head, each layer after an RMSNorm: Tan et al. 2024 (2410.17980). If two positions match equally, the nearer one
comes first, so no positions are needed. Shares are computed through their logarithms, and sums over nearer positions
without differences of sums. A position does not see itself. What is left at the end goes to nobody: the first token's y
is 0. Weights start as in models/_attentions.py.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from chomsky_ladder.models._attentions import (
    AttentionConfig,
    CachedAttention,
    kept,
    positions,
)
from chomsky_ladder.models.base import register
from chomsky_ladder.models.block import Context, State
from chomsky_ladder.models.operations.sticks import stick_breaking
from chomsky_ladder.models.operations.sticks.reference import stick_breaking as broken


class StickBreaking(CachedAttention):
    """The attention. Its state is the keys and values, and the position of the next token."""

    heeds_asked = True

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        heads_BLXK = self.query_key_value(x_BLD).unflatten(-1, (-1, self.head_dim))
        y_BLHK = stick_breaking(ctx, heads_BLXK, num_heads=self.num_heads)
        return self.out(ctx.wanted(y_BLHK).flatten(2).to(self.out.weight.dtype))

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        cache = self.empty(max_length, 2 * self.head_dim, batch=batch, device=device, dtype=dtype)
        return cache, torch.zeros((), dtype=torch.int64, device=device)

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        cache_BHSX, start = state
        position_L = positions(x_BLD, start)
        q_BHLK, k_BHLK, v_BHLK = self.heads(x_BLD).unbind(0)
        cache_BHSX = kept(cache_BHSX, position_L, torch.cat([k_BHLK, v_BHLK], -1))
        k_BHSK, v_BHSK = cache_BHSX.to(q_BHLK.dtype).chunk(2, dim=-1)
        held_S = torch.arange(cache_BHSX.shape[2], device=x_BLD.device)
        y_BHLK = broken(q_BHLK, k_BHSK, v_BHSK, position_L, held_S)
        return self.out(self.joined(y_BHLK)), (cache_BHSX, start + x_BLD.shape[1])


@register
@dataclass(frozen=True, kw_only=True)
class StickBreakingConfig(AttentionConfig):
    name, family, year, paper = "stick_breaking", "attention", 2024, "2410.17980"
    title = "Stick-breaking attention"

    def mixer(self, layer: int) -> StickBreaking:
        return StickBreaking(self.d_model, self.num_heads)
