"""Stick-breaking attention: each position breaks its share off what nearer ones have left, in place of a softmax.

    A_ts = sigma(z_ts) prod over s < l < t of (1 - sigma(z_tl))        z_ts = q_t . k_s / sqrt(K)
    y_t = sum over s < t of A_ts v_s        x = x + W_o y        x = x + SwiGLU(x)

in every head of its own, each layer behind an RMSNorm: Tan et al. 2024 (2410.17980). Of two positions that are asked
for alike the nearer comes first, so that none are numbered. The shares are computed by their logarithms, the sums
over what is nearer without a difference of sums. A position does not see itself, and what is left at the end goes to
nobody: the first token's y is 0. Weights start as in models/_attentions.py.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from chomsky_ladder.models._attentions import (
    AttentionConfig,
    CachedAttention,
    at_least_fp32,
    in_blocks,
    kept,
    positions,
)
from chomsky_ladder.models.base import register
from chomsky_ladder.models.block import Context, State
from chomsky_ladder.models.kernels.choose import chosen


class StickBreaking(CachedAttention):
    """The state is the keys and values, and the position of the next token."""

    heeds_asked = True

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        heads_BLXK = self.query_key_value(x_BLD).unflatten(-1, (-1, self.head_dim))
        kernel = chosen("stick_breaking", heads_BLXK, ctx)
        y_BLHK = (kernel.call if kernel else over_the_past)(heads_BLXK, num_heads=self.num_heads)
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
        y_BHLK = stick_breaking(q_BHLK, k_BHSK, v_BHSK, position_L, held_S)
        return self.out(self.joined(y_BHLK)), (cache_BHSX, start + x_BLD.shape[1])


def over_the_past(heads_BLXK: Tensor, *, num_heads: int) -> Tensor:
    """y [B, L, H, K] of a whole string; heads are queries, keys and values behind each other."""
    q_BHLK, k_BHLK, v_BHLK = heads_BLXK.unflatten(2, (3, num_heads)).permute(2, 0, 3, 1, 4).unbind(0)
    position_L = torch.arange(q_BHLK.shape[2], device=heads_BLXK.device)

    def read(block: slice, seen: slice) -> Tensor:
        k_BHSK, v_BHSK = k_BHLK[:, :, seen], v_BHLK[:, :, seen]
        return stick_breaking(q_BHLK[:, :, block], k_BHSK, v_BHSK, position_L[block], position_L[seen])

    return in_blocks(read, len(position_L)).transpose(1, 2)


def stick_breaking(q_BHLK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, position_L: Tensor, held_S: Tensor) -> Tensor:
    """Of queries at `position_L` over what stands at `held_S`, in fp32 at least."""
    with torch.autocast(q_BHLK.device.type, enabled=False):
        q_BHLK, k_BHSK, v_BHSK = at_least_fp32(q_BHLK, k_BHSK, v_BHSK)
        z_BHLS = (q_BHLK * q_BHLK.shape[-1] ** -0.5) @ k_BHSK.mT
        may_see_LS = held_S < position_L[:, None]
        left_BHLS = torch.where(may_see_LS, nn.functional.logsigmoid(-z_BHLS), 0)
        nearer_BHLS = nn.functional.pad(left_BHLS[..., 1:].flip(-1).cumsum(-1).flip(-1), (0, 1))
        log_share_BHLS = torch.where(may_see_LS, nn.functional.logsigmoid(z_BHLS) + nearer_BHLS, float("-inf"))
        return torch.exp(log_share_BHLS) @ v_BHSK


@register
@dataclass(frozen=True, kw_only=True)
class StickBreakingConfig(AttentionConfig):
    name, family, year, paper = "stick_breaking", "attention", 2024, "2410.17980"
    title = "Stick-breaking attention"

    def attention(self) -> StickBreaking:
        return StickBreaking(self.d_model, self.num_heads)
