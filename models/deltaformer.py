"""DeltaFormer: softmax attention over values from which was taken what the memory had for their keys before.

    u_t = v_t - b_t sum over s < t of softmax_s(k_t . k_s / sqrt(K)) u_s        b_t = sigmoid(a x_t + c)
    y_t = sum over s <= t of softmax_s(q_t . k_s / sqrt(K)) u_s        x = x + W_o y        x = x + SwiGLU(x)

in every head of its own, each layer behind an RMSNorm, queries and keys turned by RoPE: Zhong et al. 2025 (2505.19488),
the delta rule with softmax for its kernel. The code that is public compares with queries in the first sum, too
(`asks=query`), and leaves b without a bound (`beta=free`): u may then grow with every token, and training may diverge.
Weights start as in models/_attentions.py.

All u of a block solve one triangular system, (1 + b A) U = V with A the first softmax; of the past, whose u are known,
b A U goes to the right. The state holds u, in fp32 at least, in place of values.
"""

from dataclasses import dataclass
from typing import Literal

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
from chomsky_ladder.models.block import Context, State, require
from chomsky_ladder.models.kernels.choose import chosen
from chomsky_ladder.models.layers.attention import in_front
from chomsky_ladder.models.layers.positions import rotate, turns


class DeltaAttention(CachedAttention):
    """The state is the keys, what was written for them, and the position of the next token."""

    heeds_asked = True

    def __init__(self, config: "DeltaFormerConfig") -> None:
        super().__init__(config.d_model, config.num_heads)
        self.asks, self.bounded = config.asks, config.beta == "sigmoid"
        self.beta = nn.Linear(config.d_model, config.num_heads)

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        heads_BLXK, beta_BLH = at_least_fp32(self.query_key_value(x_BLD), self._beta(x_BLD))
        heads_BLXK = heads_BLXK.unflatten(-1, (-1, self.head_dim))
        turns_2LK = turns(positions(x_BLD), self.head_dim, dtype=heads_BLXK.dtype)
        kernel = chosen("delta_attention", heads_BLXK, ctx)
        read = kernel.call if kernel else over_the_past
        y_BLHK = read(heads_BLXK, turns_2LK, beta_BLH, asks_by_query=self.asks == "query")
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
        y_BHLK, u_BHLK = delta_attention(asks_BHLK, q_BHLK, k_BHLK, v_BHLK, beta_BHL, *past)
        k_BHSK, u_BHSK = kept(k_BHSK, position_L, k_BHLK), kept(u_BHSK, position_L, u_BHLK)
        return self.out(self.joined(y_BHLK)), (k_BHSK, u_BHSK, start + x_BLD.shape[1])

    def _all(self, x_BLD: Tensor, position_L: Tensor) -> list[Tensor]:
        """q, k, v and b, in fp32 at least."""
        *q_k_v, beta_BLH = at_least_fp32(*self.heads(x_BLD).unbind(0), self._beta(x_BLD))
        return [rotate(q_k_v[0], position_L), rotate(q_k_v[1], position_L), q_k_v[2], beta_BLH.mT]

    def _beta(self, x_BLD: Tensor) -> Tensor:
        (beta_BLH,) = at_least_fp32(self.beta(x_BLD))
        return torch.sigmoid(beta_BLH) if self.bounded else beta_BLH


def over_the_past(heads_BLXK: Tensor, turns_2LK: Tensor, beta_BLH: Tensor, *, asks_by_query: bool) -> Tensor:
    """y [B, L, H, K] of a whole string; heads are queries, keys and values behind each other."""
    q_BHLK, k_BHLK, v_BHLK = in_front(heads_BLXK, turns_2LK, num_heads=beta_BLH.shape[-1])
    asks_BHLK, beta_BHL = q_BHLK if asks_by_query else k_BHLK, beta_BLH.mT
    written: list[Tensor] = []

    def read(block: slice, seen: slice) -> Tensor:
        past_k_BHSK = k_BHLK[:, :, : block.start]
        y_BHCK, u_BHCK = delta_attention(
            asks_BHLK[:, :, block],
            q_BHLK[:, :, block],
            k_BHLK[:, :, block],
            v_BHLK[:, :, block],
            beta_BHL[..., block],
            past_k_BHSK,
            torch.cat(written, 2) if written else past_k_BHSK,
            torch.ones(block.start, dtype=torch.bool, device=heads_BLXK.device),
        )
        written.append(u_BHCK)
        return y_BHCK

    return in_blocks(read, heads_BLXK.shape[1]).transpose(1, 2)


def delta_attention(
    asks_BHLK: Tensor,
    q_BHLK: Tensor,
    k_BHLK: Tensor,
    v_BHLK: Tensor,
    beta_BHL: Tensor,
    past_k_BHSK: Tensor,
    past_u_BHSK: Tensor,
    written_S: Tensor,
) -> tuple[Tensor, Tensor]:
    """y and u [B, H, L, K], behind a past of which only what is written counts."""
    length, device = q_BHLK.shape[2], q_BHLK.device
    before_LL = torch.ones(length, length, dtype=torch.bool, device=device).tril(-1)
    written_LS = written_S.expand(length, -1)
    before_LX = torch.cat([written_LS, before_LL], 1)
    first_L1 = ~before_LX.any(1, keepdim=True)  # it asks nobody: of no score there is no softmax
    upto_LX = torch.cat([written_LS, before_LL | torch.eye(length, dtype=torch.bool, device=device)], 1)
    with torch.autocast(device.type, enabled=False):
        k_BHXK = torch.cat([past_k_BHSK, k_BHLK], 2)
        found_BHLX = torch.where(before_LX, shares(asks_BHLK, k_BHXK, before_LX | first_L1), 0)
        old_BHLS, own_BHLL = (beta_BHL[..., None] * found_BHLX).split([len(written_S), length], -1)
        u_BHLK = torch.linalg.solve_triangular(
            own_BHLL, v_BHLK - old_BHLS @ past_u_BHSK, upper=False, unitriangular=True
        )
        return shares(q_BHLK, k_BHXK, upto_LX) @ torch.cat([past_u_BHSK, u_BHLK], 2), u_BHLK


def shares(q_BHLK: Tensor, k_BHXK: Tensor, may_see_LX: Tensor) -> Tensor:
    scores_BHLX = (q_BHLK * q_BHLK.shape[-1] ** -0.5) @ k_BHXK.mT
    return torch.softmax(torch.where(may_see_LX, scores_BHLX, float("-inf")), -1)


@register
@dataclass(frozen=True, kw_only=True)
class DeltaFormerConfig(AttentionConfig):
    name, family, year, paper = "deltaformer", "attention", 2025, "2505.19488"
    title = "DeltaFormer"

    asks: Literal["key", "query"] = "key"
    """What is compared with earlier keys to find what is taken out of a value: its own key, or its query."""
    beta: Literal["sigmoid", "free"] = "sigmoid"
    """Whether the share b that is taken out lies in [0, 1], or is any number."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.d_model % (2 * self.num_heads) == 0,
            f"{self.name}: d_model={self.d_model} does not split into {self.num_heads} heads of even dimension",
        )

    def attention(self) -> DeltaAttention:
        return DeltaAttention(self)
