"""The Differential Transformer: attention by the difference of two softmaxes, which cancels what both look at.

    y_t = (1 - c) RMSNorm(sum over s <= t of (softmax_s(q_t . k_s / sqrt(K)) - l softmax_s(q'_t . k'_s / sqrt(K))) v_s)
    l = exp(a . b) - exp(a' . b') + c        c = 0.8 - 0.6 exp(-0.3 layer), the first layer being 0
    x = x + W_o y        x = x + SwiGLU(x)        each behind an RMSNorm

in each pair of heads, queries and keys with RoPE: Ye et al. 2024 (2410.05258). A pair shares a value of 2 K numbers, so
that it has the weights of two heads of a Transformer. All pairs of a layer share l. Its vectors a, b, a', b' start
normal with deviation 0.1. The norm is over a pair's channels, without weights, as in transformers' DiffLlama. Other
weights start as in models/_attentions.py.
"""

import math
from dataclasses import dataclass

import torch
from einops import rearrange
from torch import Tensor, nn

from chomsky_ladder.models._attentions import AttentionConfig, CachedAttention, at_least_fp32, kept, positions
from chomsky_ladder.models.base import register
from chomsky_ladder.models.block import Context, State, require
from chomsky_ladder.models.layers.positions import rotate
from chomsky_ladder.models.operations.attention.reference import in_blocks
from chomsky_ladder.models.scans.products import matmul

NORM_EPS = 1e-5


class DifferentialAttention(CachedAttention):
    """The attention. Its state is keys and values, and the position of the next token. The first half of the heads are
    those of the first softmax.
    """

    heeds_asked = True
    no_decay = frozenset({"share_4K"})

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__(width, num_heads)
        self.share_4K = nn.Parameter(0.1 * torch.randn(4, self.head_dim))
        self.start = 0.0  # c, which the config sets

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        position_L = positions(x_BLD)
        q_BHLK, k_BHLK, v_BHLK = self.turned(x_BLD, position_L)

        def read(block: slice, seen: slice) -> Tensor:
            return self.read(q_BHLK[:, :, block], k_BHLK[:, :, seen], v_BHLK[:, :, seen], position_L[block])

        return self.out(self.joined(ctx.wanted(in_blocks(read, len(position_L)), along=2)))

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        cache = self.empty(max_length, 2 * self.head_dim, batch=batch, device=device, dtype=dtype)
        return cache, torch.zeros((), dtype=torch.int64, device=device)

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        cache_BHSX, start = state
        position_L = positions(x_BLD, start)
        q_BHLK, k_BHLK, v_BHLK = self.turned(x_BLD, position_L)
        cache_BHSX = kept(cache_BHSX, position_L, torch.cat([k_BHLK, v_BHLK], -1))
        k_BHSK, v_BHSK = cache_BHSX.to(q_BHLK.dtype).chunk(2, dim=-1)
        y_BHLV = self.read(q_BHLK, k_BHSK, v_BHSK, position_L)
        return self.out(self.joined(y_BHLV)), (cache_BHSX, start + x_BLD.shape[1])

    def turned(self, x_BLD: Tensor, position_L: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q_BHLK, k_BHLK, v_BHLK = self.heads(x_BLD).unbind(0)
        return rotate(q_BHLK, position_L), rotate(k_BHLK, position_L), v_BHLK

    def read(self, q_BHLK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, position_L: Tensor) -> Tensor:
        """Return what queries at `position_L` read of keys at 0, 1, .., normed: [B, H, L, 2 K]."""
        ahead_LS = torch.arange(k_BHSK.shape[2], device=q_BHLK.device) > position_L[:, None]
        scores_BHLS = matmul(q_BHLK * self.head_dim**-0.5, k_BHSK.mT).masked_fill(ahead_LS, float("-inf"))
        first_BHLS, second_BHLS = torch.softmax(scores_BHLS, -1).chunk(2, 1)
        weight_BHLS = (first_BHLS - self.share() * second_BHLS).to(v_BHSK.dtype)
        y_BHLV = matmul(weight_BHLS, rearrange(v_BHSK, "b (n h) s k -> b h s (n k)", n=2))
        (y_BHLV,) = at_least_fp32(y_BHLV)
        return (1 - self.start) * nn.functional.rms_norm(y_BHLV, y_BHLV.shape[-1:], eps=NORM_EPS)

    def share(self) -> Tensor:
        """Return l, the share of the second softmax."""
        (share_4K,) = at_least_fp32(self.share_4K)
        first, second = (share_4K[::2] * share_4K[1::2]).sum(-1).exp()
        return first - second + self.start


@register
@dataclass(frozen=True, kw_only=True)
class DiffTransformerConfig(AttentionConfig):
    name, family, year, paper = "diff_transformer", "attention", 2024, "2410.05258"
    title = "Differential Transformer"

    num_heads: int = 4
    """Softmaxes, of which two make a pair; 1 for one pair. They divide the width evenly, each of even dimension."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.num_heads in (1, self.softmaxes), f"{self.name}: num_heads={self.num_heads} must be even, or 1")
        require(
            self.d_model % (2 * self.softmaxes) == 0,
            f"{self.name}: d_model={self.d_model} does not split into {self.softmaxes} heads of even dimension",
        )

    @property
    def softmaxes(self) -> int:
        return 2 * max(1, self.num_heads // 2)

    def mixer(self, layer: int) -> DifferentialAttention:
        attention = DifferentialAttention(self.d_model, self.softmaxes)
        attention.start = 0.8 - 0.6 * math.exp(-0.3 * layer)
        return attention
