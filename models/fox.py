"""The Forgetting Transformer: softmax attention whose scores decay with forget gates on the tokens between.

    y_t = sum over s <= t of softmax_s(q_t . k_s / sqrt(K) + sum over s < l <= t of log f_l) v_s
    f_l = sigma(w x_l + b)        x = x + W_o y        x = x + SwiGLU(x)

in each head, each layer after an RMSNorm, and without other positions: Lin et al. 2025 (2503.02130). `variant=pro` is
their block for it: keys and values are shifted, queries and keys are normed, and the output has a norm in each head and
a gate,

    k_t -> RMSNorm(a_t k_{t-1} + (1 - a_t) k_t)        v_t -> a'_t v_{t-1} + (1 - a'_t) v_t        q_t -> RMSNorm(q_t)
    y -> RMSNorm(y) * sigma(W_g x)        a_t = sigma(u x_t)    a'_t = sigma(u' x_t)

with 0 before the first token. Weights start as in models/_attentions.py, so that f starts near 1/2, as in the published
code, which draws them normal with deviation 0.02. The sums of log f are kept in fp32 at least.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from einops import rearrange
from torch import Tensor, nn

from chomsky_ladder.models._attentions import (
    AttentionConfig,
    CachedAttention,
    at_least_fp32,
    kept,
    positions,
)
from chomsky_ladder.models.base import register
from chomsky_ladder.models.block import Context, State
from chomsky_ladder.models.operations.attention import causal_attention
from chomsky_ladder.models.operations.attention.reference import explicit_attention, in_blocks

NORM_EPS = 1e-5


class ForgettingAttention(CachedAttention):
    """The attention. Its state is keys, values, the sums of log f up to each position, and the next position."""

    heeds_asked = True

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__(width, num_heads)
        self.forget = nn.Linear(width, num_heads)

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        return self.whole(x_BLD, self.query_key_value(x_BLD).unflatten(-1, (-1, self.head_dim)), ctx)

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        cache = self.empty(max_length, 2 * self.head_dim, batch=batch, device=device, dtype=dtype)
        exact = torch.promote_types(dtype, torch.float32)
        total = self.empty(max_length, batch=batch, device=device, dtype=exact)
        last = self.empty(1, batch=batch, device=device, dtype=exact)
        return cache, total, last, torch.zeros((), dtype=torch.int64, device=device)

    def whole(self, x_BLD: Tensor, heads_BLXK: Tensor, ctx: Context) -> Tensor:
        total_BHL, position_L = log_forget(self.forget, x_BLD).cumsum(-1), positions(x_BLD)
        # The plain form reads in blocks of queries, as the operation's does not, so the choice is made here.
        kernel = causal_attention.chosen(heads_BLXK, ctx) if total_BHL.dtype == heads_BLXK.dtype else None
        if kernel:
            y_BLHK = kernel(heads_BLXK, None, total_BHL.mT, num_heads=self.num_heads, window=0)
            return self.read(ctx.wanted(x_BLD), ctx.wanted(y_BLHK).transpose(1, 2))
        q_BHLK, k_BHLK, v_BHLK = heads_BLXK.transpose(1, 2).chunk(3, dim=1)

        def read(block: slice, seen: slice) -> Tensor:
            k_BHSK, v_BHSK, total_BHS = k_BHLK[:, :, seen], v_BHLK[:, :, seen], total_BHL[..., seen]
            return forgetting(q_BHLK[:, :, block], k_BHSK, v_BHSK, total_BHL[..., block], total_BHS, position_L[block])

        y_BHLK = in_blocks(read, len(position_L))
        return self.read(ctx.wanted(x_BLD), ctx.wanted(y_BHLK, along=2))

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        q_BHLK, k_BHLK, v_BHLK = self.heads(x_BLD).unbind(0)
        return self.extended(x_BLD, q_BHLK, k_BHLK, v_BHLK, state)

    def extended(
        self, x_BLD: Tensor, q_BHLK: Tensor, k_BHLK: Tensor, v_BHLK: Tensor, state: State
    ) -> tuple[Tensor, State]:
        cache_BHSX, total_BHS, last_BH1, start = state
        position_L = positions(x_BLD, start)
        total_BHL = last_BH1 + log_forget(self.forget, x_BLD).cumsum(-1)
        cache_BHSX = kept(cache_BHSX, position_L, torch.cat([k_BHLK, v_BHLK], -1))
        total_BHS = kept(total_BHS, position_L, total_BHL)
        k_BHSK, v_BHSK = cache_BHSX.to(q_BHLK.dtype).chunk(2, dim=-1)
        y_BHLK = forgetting(q_BHLK, k_BHSK, v_BHSK, total_BHL, total_BHS, position_L)
        last_BH1 = total_BHL[..., -1:].to(last_BH1.dtype)
        return self.read(x_BLD, y_BHLK), (cache_BHSX, total_BHS, last_BH1, start + x_BLD.shape[1])

    def read(self, x_BLD: Tensor, y_BHLK: Tensor) -> Tensor:
        return self.out(self.joined(y_BHLK))


class ProAttention(ForgettingAttention):
    """The pro variant. Its state also has the last keys and values before the shift."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__(width, num_heads)
        self.shift = nn.Linear(width, 2 * num_heads, bias=False)
        self.query_norm, self.key_norm, self.out_norm = (HeadNorm(num_heads, self.head_dim) for _ in range(3))
        self.gate = nn.Linear(width, width, bias=False)

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        before = torch.zeros(2, batch, self.num_heads, 1, self.head_dim, device=device, dtype=dtype)
        return before, super().init_state(batch, max_length=max_length, device=device, dtype=dtype)

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        q_BHLK, k_v_2BHLK = self.heads(x_BLD).split([1, 2])
        before_2BH1K = torch.zeros_like(k_v_2BHLK[..., :1, :])
        heads = self.shifted(x_BLD, q_BHLK[0], k_v_2BHLK, before_2BH1K)
        return self.whole(x_BLD, torch.cat([x_BHLK.transpose(1, 2) for x_BHLK in heads], 2), ctx)

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        before_2BH1K, held = state
        q_BHLK, k_v_2BHLK = self.heads(x_BLD).split([1, 2])
        y_BLD, held = self.extended(x_BLD, *self.shifted(x_BLD, q_BHLK[0], k_v_2BHLK, before_2BH1K), held)
        return y_BLD, (k_v_2BHLK[..., -1:, :].to(before_2BH1K.dtype).clone(), held)

    def shifted(
        self, x_BLD: Tensor, q_BHLK: Tensor, k_v_2BHLK: Tensor, before_2BH1K: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        back_2BHLK = torch.cat([before_2BH1K.to(k_v_2BHLK.dtype), k_v_2BHLK[..., :-1, :]], -2)
        share_2BHL1 = torch.sigmoid(rearrange(self.shift(x_BLD), "b l (n h) -> n b h l 1", n=2))
        k_BHLK, v_BHLK = torch.lerp(k_v_2BHLK, back_2BHLK, share_2BHL1).unbind(0)
        return self.query_norm(q_BHLK), self.key_norm(k_BHLK), v_BHLK

    def read(self, x_BLD: Tensor, y_BHLK: Tensor) -> Tensor:
        return self.out(self.joined(self.out_norm(y_BHLK)) * torch.sigmoid(self.gate(x_BLD)))


class HeadNorm(nn.Module):
    """RMSNorm of every head's channels, each with its own weight."""

    def __init__(self, num_heads: int, head_dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(num_heads * head_dim))

    def forward(self, x_BHLK: Tensor) -> Tensor:
        weight_H1K = self.weight.view(x_BHLK.shape[1], 1, -1)
        return (nn.functional.rms_norm(x_BHLK, x_BHLK.shape[-1:], eps=NORM_EPS) * weight_H1K).to(x_BHLK.dtype)


def log_forget(gate: nn.Module, x_BLD: Tensor) -> Tensor:
    """Return log f [B, H, L]."""
    (f_BLH,) = at_least_fp32(gate(x_BLD))
    return nn.functional.logsigmoid(f_BLH).mT


def forgetting(
    q_BHLK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, total_BHL: Tensor, total_BHS: Tensor, position_L: Tensor
) -> Tensor:
    """Attend from queries at `position_L` to keys at 0, 1, .. The totals are sums of log f up to and including each."""
    may_see_LS = torch.arange(k_BHSK.shape[2], device=q_BHLK.device) <= position_L[:, None]
    forgotten_BHLS = total_BHL[..., None] - total_BHS[..., None, :]
    return explicit_attention(q_BHLK, k_BHSK, v_BHSK, torch.where(may_see_LS, forgotten_BHLS, float("-inf")))


@register
@dataclass(frozen=True, kw_only=True)
class FoXConfig(AttentionConfig):
    name, family, year, paper = "fox", "attention", 2025, "2503.02130"
    title = "Forgetting Transformer"

    variant: Literal["plain", "pro"] = "plain"
    """plain: attention with forgetting alone. pro: also shifted keys and values, norms of queries, keys and outputs,
    and an output gate.
    """

    def mixer(self, layer: int) -> ForgettingAttention:
        kind = ForgettingAttention if self.variant == "plain" else ProAttention
        return kind(self.d_model, self.num_heads)
