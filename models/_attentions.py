"""Shared code of the attentions that do not use `transformer`'s settings: a block, and a cache of keys and values.

    x = x + attention(norm(x))        x = x + SwiGLU(norm(x))

Weights start as torch.nn.Linear's do, but for those of the projections into the stream (models/_mixers.py).
"""

from dataclasses import dataclass
from typing import Self

import torch
from einops import rearrange
from torch import Tensor, nn

from chomsky_ladder.models._mixers import HeadsConfig
from chomsky_ladder.models.block import Context, State
from chomsky_ladder.models.layers.residual import Layer


@dataclass(frozen=True, kw_only=True)
class AttentionConfig(HeadsConfig):
    state_growth, cost = "length", "quadratic"

    num_heads: int = 4
    """Attention heads; they divide the width evenly."""

    @classmethod
    def tiny(cls) -> Self:
        return cls(d_model=16, num_blocks=2, num_heads=2)


class CachedAttention(Layer):
    """Causal attention with heads of equal width. The state is a cache of each position, and the next position."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads, self.head_dim = num_heads, width // num_heads
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def step(self, x_BD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        y_BLD, state = self.extend(x_BD[:, None], state, ctx)
        return y_BLD[:, 0], state

    def heads(self, x_BLD: Tensor) -> Tensor:
        """Return queries, keys and values [3, B, H, L, K]."""
        return rearrange(self.query_key_value(x_BLD), "b l (n h k) -> n b h l k", n=3, h=self.num_heads)

    def joined(self, y_BHLK: Tensor) -> Tensor:
        return rearrange(y_BHLK, "b h l k -> b l (h k)").to(self.out.weight.dtype)

    def empty(self, *sizes: int, batch: int, device: torch.device, dtype: torch.dtype) -> Tensor:
        return torch.zeros(batch, self.num_heads, *sizes, device=device, dtype=dtype)


def positions(x_BLD: Tensor, start: Tensor | int = 0) -> Tensor:
    return start + torch.arange(x_BLD.shape[1], device=x_BLD.device)


def kept(cache_BHSX: Tensor, position_L: Tensor, new_BHLX: Tensor) -> Tensor:
    """Return a cache with new entries at their positions."""
    return cache_BHSX.index_copy(2, position_L, new_BHLX.to(cache_BHSX.dtype))


def at_least_fp32(*given: Tensor) -> list[Tensor]:
    return [x.to(torch.promote_types(x.dtype, torch.float32)) for x in given]
