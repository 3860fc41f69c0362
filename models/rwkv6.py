"""RWKV-6 (Finch): RWKV-5 whose decay and token shifts depend on the data, through maps of low rank.

    ddlerp_i(x_t) = x_t + (x_{t-1} - x_t) * (m_i + tanh(z A_i) B_i)        z = x_t + (x_{t-1} - x_t) * m_x
    w_t = exp(-exp(a + tanh(ddlerp_w(x_t) A_w) B_w))

for i = r, k, v, g, w; the rest is RWKV-5's. Peng et al. 2024 (2404.05892).

Initial values are those of the published code (RWKV-LM, RWKV-v5, x060), B uniform within 0.01. A is zero there, which
would leave B without gradient in the first step; here it is uniform within 1e-4. These maps do not decay, as in the
code.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from chomsky_ladder.models.base import register
from chomsky_ladder.models.block import Context, require
from chomsky_ladder.models.layers.linear import of_each
from chomsky_ladder.models.layers.token_shift import depth, initial_mix, shifted
from chomsky_ladder.models.rwkv5 import RWKV5Config, TimeMix
from chomsky_ladder.models.scans.products import product, product_of_each


class DynamicTimeMix(TimeMix):
    no_decay = TimeMix.no_decay | {"mix_down", "mix_up", "rate_down", "rate_up"}

    def __init__(self, config: "RWKV6Config", layer: int) -> None:
        super().__init__(config, layer)
        width = config.d_model
        mix_D = initial_mix(width, power=depth(layer, config.num_blocks)[1])
        self.mix_x_D, self.mix_w_D = nn.Parameter(mix_D), nn.Parameter(mix_D.clone())
        self.mix_down = nn.Parameter(torch.empty(width, 5 * config.mix_rank).uniform_(-1e-4, 1e-4))
        self.mix_up = nn.Parameter(torch.empty(5, config.mix_rank, width).uniform_(-0.01, 0.01))
        self.rate_down = nn.Parameter(torch.empty(width, config.decay_rank).uniform_(-1e-4, 1e-4))
        self.rate_up = nn.Parameter(torch.empty(config.decay_rank, width).uniform_(-0.01, 0.01))

    def read(self, x_BLD: Tensor, last_BD: Tensor, ctx: Context) -> Sequence[Tensor]:
        (for_mix_BLD,) = shifted(x_BLD, last_BD, self.mix_x_D, ctx=ctx)
        low_BL5R = torch.tanh(product(for_mix_BLD, self.mix_down.mT)).unflatten(-1, (5, -1))
        starts_5D = torch.cat([self.mix_4D, self.mix_w_D[None]])
        mixes = product_of_each(low_BL5R.movedim(-2, 0), self.mix_up.mT, starts_5D)
        readers = [*self.readers, self.rate_down.mT]
        *r_k_v_g, low_rate_BLR = of_each(readers, shifted(x_BLD, last_BD, *mixes, ctx=ctx))
        return *r_k_v_g, product(torch.tanh(low_rate_BLR), self.rate_up.mT, self.log_rate_D)


@register
@dataclass(frozen=True, kw_only=True)
class RWKV6Config(RWKV5Config):
    name, family, year, paper = "rwkv6", "linear recurrence", 2024, "2404.05892"
    title = "RWKV-6"
    transition = "diagonal"

    mix_rank: int = 32
    """Rank of the maps from the data to the five token shifts."""
    decay_rank: int = 64
    """Rank of the map from the data to the decay."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.mix_rank >= 1, f"{self.name}: mix_rank must be at least 1, not {self.mix_rank}")
        require(self.decay_rank >= 1, f"{self.name}: decay_rank must be at least 1, not {self.decay_rank}")

    def time_mix(self, layer: int) -> TimeMix:
        return DynamicTimeMix(self, layer)

    @classmethod
    def tiny(cls) -> "RWKV6Config":
        return cls(d_model=16, num_blocks=2, mix_rank=4, decay_rank=4)
