"""RWKV-5 (Eagle, 5.2): linear attention with a matrix state that decays at a learned rate in every channel.

    y_t = r_t (S_{t-1} + diag(u) k_t v_t^T)        S_t = diag(w) S_{t-1} + k_t v_t^T        w = exp(-exp(a))
    x = x + W_o (silu(g) * GroupNorm(y))           x = x + channel_mix(x)         each behind a LayerNorm

Peng et al. 2024 (2404.05892), in each head. r, k, v, g are token-shifted. The GroupNorm is over each head's channels,
with eps = 64e-5: the published code divides y by 8 before an eps of 1e-5.

Initial values are those of the published code (RWKV-LM, RWKV-v5, x052): shifts, a, u and the GroupNorm's weight by
channel and layer; receptance and value orthogonal, key and gate the same with gain 0.1. The code's zeros in the
projections into the stream would leave the rest without gradient in the first step. Here they are torch's default,
scaled down. a learns twice as fast as the rest. a is cut off at 8, where w is 0 even in float64, so that its gradient
stays finite. The first block normalises the embedding (ln0), whose small initial values are replaced by the Backbone's.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from einops import rearrange
from torch import Tensor, nn

from chomsky_ladder.models.base import ModelConfig, register
from chomsky_ladder.models.block import Block, Context, Norm, State, require
from chomsky_ladder.models.layers.gate import gated
from chomsky_ladder.models.layers.linear import of_each
from chomsky_ladder.models.layers.residual import OneForm, scale_down
from chomsky_ladder.models.layers.token_shift import (
    ChannelMix,
    depth,
    initial_mix,
    orthogonal,
    rwkv_block,
    shifted,
)
from chomsky_ladder.models.operations.delta.rules import by_reading_the_past

LARGEST_LOG_RATE = 8.0
NORM_EPS = 64e-5


class TimeMix(OneForm):
    no_decay = frozenset({"mix_4D"})
    rate_multipliers = {"log_rate_D": 2.0}

    def __init__(self, config: "RWKV5Config", layer: int) -> None:
        super().__init__()
        width, self.num_heads = config.d_model, config.num_heads
        toward_1, _ = depth(layer, config.num_blocks)
        channel_D = torch.arange(width, dtype=torch.float64)
        place_D = channel_D / max(1, width - 1)
        self.mix_4D = nn.Parameter(initial_mixes(width, layer, config.num_blocks))
        self.log_rate_D = nn.Parameter((-6 + 5 * place_D ** (0.7 + 1.3 * toward_1)).float())
        self.bonus_D = nn.Parameter((toward_1 * (1 - place_D) + 0.1 * ((channel_D + 1) % 3 - 1)).float())
        self.receptance = orthogonal(width, width, gain=1.0)
        self.key = orthogonal(width, width, gain=0.1)
        self.value = orthogonal(width, width, gain=1.0)
        self.gate = orthogonal(width, width, gain=0.1)
        self.norm = nn.GroupNorm(self.num_heads, width, eps=NORM_EPS)
        nn.init.constant_(self.norm.weight, ((1 + layer) / config.num_blocks) ** 0.7)
        self.out = nn.Linear(width, width, bias=False)

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        width, held = self.out.in_features, torch.promote_types(dtype, torch.float32)
        head_dim = width // self.num_heads
        state_BHKV = torch.zeros(batch, self.num_heads, head_dim, head_dim, device=device, dtype=held)
        return torch.zeros(batch, width, device=device, dtype=dtype), state_BHKV

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        last_BD, state_BHKV = state
        *r_k_v, gate_BLD, log_rate_BLD = self.read(x_BLD, last_BD, ctx)
        r_BHLK, k_BHLK, v_BHLV = map(self._heads, r_k_v)
        log_rate_BLD = log_rate_BLD.to(torch.promote_types(log_rate_BLD.dtype, torch.float32))
        decay_BHLK = torch.exp(-torch.exp(self._heads(log_rate_BLD).clamp(max=LARGEST_LOG_RATE)))
        bonus_HLK = self._heads(self.bonus_D[None, None])[0]
        y_BHLV, state_BHKV = by_reading_the_past(r_BHLK, k_BHLK, v_BHLV, decay_BHLK, state_BHKV, ctx)
        y_BHLV = y_BHLV + (r_BHLK * bonus_HLK * k_BHLK).sum(-1, keepdim=True) * v_BHLV
        y_BLD = self.norm(rearrange(y_BHLV, "b h l v -> (b l) (h v)")).view(x_BLD.shape)
        return self.out(gated(gate_BLD, y_BLD, ctx=ctx)), (x_BLD[:, -1], state_BHKV)

    @property
    def readers(self) -> tuple[nn.Linear, ...]:
        return self.receptance, self.key, self.value, self.gate

    def read(self, x_BLD: Tensor, last_BD: Tensor, ctx: Context) -> Sequence[Tensor]:
        """Return r, k, v, g, and a, which is the same for every row and position here."""
        mixed = shifted(x_BLD, last_BD, *self.mix_4D.unbind(0), ctx=ctx)
        return *of_each(self.readers, mixed), self.log_rate_D.expand(1, x_BLD.shape[1], -1)

    def _heads(self, x_BLD: Tensor) -> Tensor:
        return rearrange(x_BLD, "b l (h k) -> b h l k", h=self.num_heads)


def initial_mixes(width: int, layer: int, num_blocks: int) -> Tensor:
    """Return the shares of the previous token in r, k, v and g."""
    toward_1, toward_0 = depth(layer, num_blocks)
    for_r_D = initial_mix(width, power=0.5 * toward_0)
    for_k_D = initial_mix(width, power=toward_0)
    for_v_D = initial_mix(width, power=toward_0, less=0.3 * toward_1)
    return torch.stack([for_r_D, for_k_D, for_v_D, for_r_D])


@register
@dataclass(frozen=True, kw_only=True)
class RWKV5Config(ModelConfig):
    name, family, year, paper = "rwkv5", "linear recurrence", 2024, "2404.05892"
    title = "RWKV-5"
    transition = "fixed diagonal"

    final_norm: Norm = "layer"
    """The norm between the last block and the head."""
    num_heads: int = 2
    """Heads; they divide the width evenly. The published models have 64 channels in each, as the default has."""
    d_inner: int = 0
    """Width inside the channel mix; 0 for 3.5 times the model's, rounded down."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.num_heads >= 1 and self.d_model % self.num_heads == 0,
            f"{self.name}: d_model={self.d_model} does not split into {self.num_heads} heads",
        )
        require(self.d_inner >= 0, f"{self.name}: d_inner must not be negative")

    def block(self, layer: int) -> Block:
        inner = self.d_inner or self.d_model * 7 // 2
        channel_mix = ChannelMix(self.d_model, inner, layer=layer, num_blocks=self.num_blocks, key_gain=1.0)
        layers = [self.time_mix(layer), channel_mix]
        for each in layers:
            scale_down(each.out, 2 * self.num_blocks)
        return rwkv_block(self.d_model, layers, layer=layer, dropout=self.dropout)

    def time_mix(self, layer: int) -> TimeMix:
        return TimeMix(self, layer)
