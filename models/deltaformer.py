"""DeltaFormer: softmax attention over values, after removing what the memory already had for their keys.

    u_t = v_t - b_t sum over s < t of softmax_s(k_t . k_s / sqrt(K)) u_s        b_t = sigmoid(a x_t + c)
    y_t = sum over s <= t of softmax_s(q_t . k_s / sqrt(K)) u_s        x = x + W_o y        x = x + SwiGLU(x)

in each head, each layer after an RMSNorm, with RoPE on queries and keys: Zhong et al. 2025 (2505.19488), the delta rule
with softmax as its kernel. The public code also uses queries in the first sum (`asks=query`), and leaves b unbounded
(`beta=free`). u may then grow with every token, and training may diverge. Weights start as in models/_attentions.py.

The state holds u, in fp32 at least, in place of values. Both attentions are in models/operations/deltaformer.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from chomsky_ladder.models._attentions import (
    AttentionConfig,
    CachedAttention,
    at_least_fp32,
    kept,
    positions,
)
from chomsky_ladder.models.base import register
from chomsky_ladder.models.block import Context, State, require
from chomsky_ladder.models.layers.positions import rotate, turns
from chomsky_ladder.models.operations.deltaformer import delta_attention
from chomsky_ladder.models.operations.deltaformer.reference import delta_attention as attended


class DeltaAttention(CachedAttention):
    """The attention. Its state is the keys, the values written for them, and the position of the next token."""

    heeds_asked = True

    def __init__(self, config: "DeltaFormerConfig") -> None:
        super().__init__(config.d_model, config.num_heads)
        self.asks, self.bounded = config.asks, config.beta == "sigmoid"
        self.beta = nn.Linear(config.d_model, config.num_heads)

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        heads_BLXK, beta_BLH = at_least_fp32(self.query_key_value(x_BLD), self._beta(x_BLD))
        heads_BLXK = heads_BLXK.unflatten(-1, (-1, self.head_dim))
        turns_2LK = turns(positions(x_BLD), self.head_dim, dtype=heads_BLXK.dtype)
        y_BLHK = delta_attention(ctx, heads_BLXK, turns_2LK, beta_BLH, asks_by_query=self.asks == "query")
        return self.out(ctx.wanted(y_BLHK).flatten(2).to(self.out.weight.dtype))

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        k_BHSK, u_BHSK = (
            self.empty(max_length, self.head_dim, batch=batch, device=device, dtype=each)
            for each in (dtype, torch.promote_types(dtype, torch.float32))
        )
        return k_BHSK, u_BHSK, torch.zeros((), dtype=torch.int64, device=device)

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        k_BHSK, u_BHSK, start = state
        position_L = positions(x_BLD, start)
        q_BHLK, k_BHLK, v_BHLK, beta_BHL = self._all(x_BLD, position_L)
        written_S = torch.arange(k_BHSK.shape[2], device=x_BLD.device) < start
        asks_BHLK = k_BHLK if self.asks == "key" else q_BHLK
        past = (k_BHSK.to(k_BHLK.dtype), u_BHSK.to(k_BHLK.dtype), written_S)
        y_BHLK, u_BHLK = attended(asks_BHLK, q_BHLK, k_BHLK, v_BHLK, beta_BHL, *past)
        k_BHSK, u_BHSK = kept(k_BHSK, position_L, k_BHLK), kept(u_BHSK, position_L, u_BHLK)
        return self.out(self.joined(y_BHLK)), (k_BHSK, u_BHSK, start + x_BLD.shape[1])

    def _all(self, x_BLD: Tensor, position_L: Tensor) -> list[Tensor]:
        """Return q, k, v and b, in fp32 at least."""
        *q_k_v, beta_BLH = at_least_fp32(*self.heads(x_BLD).unbind(0), self._beta(x_BLD))
        return [rotate(q_k_v[0], position_L), rotate(q_k_v[1], position_L), q_k_v[2], beta_BLH.mT]

    def _beta(self, x_BLD: Tensor) -> Tensor:
        (beta_BLH,) = at_least_fp32(self.beta(x_BLD))
        return torch.sigmoid(beta_BLH) if self.bounded else beta_BLH


@register
@dataclass(frozen=True, kw_only=True)
class DeltaFormerConfig(AttentionConfig):
    name, family, year, paper = "deltaformer", "attention", 2025, "2505.19488"
    title = "DeltaFormer"

    asks: Literal["key", "query"] = "key"
    """The vector that is compared with earlier keys to find what is removed from a value: its own key, or its query."""
    beta: Literal["sigmoid", "free"] = "sigmoid"
    """Range of the removed share b: [0, 1], or any number."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.d_model % (2 * self.num_heads) == 0,
            f"{self.name}: d_model={self.d_model} does not split into {self.num_heads} heads of even dimension",
        )

    def mixer(self, layer: int) -> DeltaAttention:
        return DeltaAttention(self)
