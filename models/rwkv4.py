"""RWKV-4: in every channel an average of the past, weighted by keys and by age, between token shifts.

    wkv_t = (sum_{s<t} e^{k_s - (t-1-s) e^a} v_s + e^{u + k_t} v_t) / (sum_{s<t} e^{k_s - (t-1-s) e^a} + e^{u + k_t})
    x = x + W_o (sigmoid(r) * wkv)        x = x + channel_mix(x)        each behind a LayerNorm; r, k, v token-shifted

Peng et al. 2023 (2305.13048): e^a is the rate of decay, u the bonus of the present token. Numerator and denominator are
kept relative to the largest exponent so far, which cancels and therefore needs no gradient. It is computed separately,
so that two plain channel recurrences remain (models/operations/diagonal).

Initial values are those of the published code (RWKV-LM, RWKV-v4): shifts, a and u by channel and layer, value and
channel-mix key orthogonal. The code starts key, receptance and the projections into the stream at zero, which would
leave others without gradient in the first step. Here key and receptance are orthogonal with gain 0.1 (RWKV-5's for its
key) and the projections torch's default, scaled down. a learns twice, u three times as fast, as in the code of the Pile
models. a is cut off at 8, where e^{-e^a} is 0 even in float64, so that gradients stay finite. The first block
normalises the embedding (ln0), whose small initial values are replaced by the Backbone's.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from chomsky_ladder.models.base import ModelConfig, register
from chomsky_ladder.models.block import Block, Context, Norm, State, require
from chomsky_ladder.models.layers.residual import OneForm, scale_down
from chomsky_ladder.models.layers.token_shift import (
    ChannelMix,
    depth,
    initial_mix,
    orthogonal,
    rwkv_block,
    shifted,
)
from chomsky_ladder.models.operations.wkv import wkv
from chomsky_ladder.models.operations.wkv.reference import NOTHING_YET

LARGEST_LOG_RATE = 8.0


class TimeMix(OneForm):
    no_decay = frozenset({"mix_3D"})
    rate_multipliers = {"log_rate_D": 2.0, "bonus_D": 3.0}

    def __init__(self, width: int, *, layer: int, num_blocks: int) -> None:
        super().__init__()
        toward_1, toward_0 = depth(layer, num_blocks)
        receptance_D = initial_mix(width, power=0.5 * toward_0)
        key_D = initial_mix(width, power=toward_0)
        value_D = initial_mix(width, power=toward_0, less=0.3 * toward_1)
        self.mix_3D = nn.Parameter(torch.stack([receptance_D, key_D, value_D]))
        channel_D = torch.arange(width, dtype=torch.float64)
        log_rate_D = -5 + 8 * (channel_D / max(1, width - 1)) ** (0.7 + 1.3 * toward_1)
        self.log_rate_D = nn.Parameter(log_rate_D.float())
        self.bonus_D = nn.Parameter(math.log(0.3) + 0.5 * ((channel_D + 1) % 3 - 1).float())
        self.receptance = orthogonal(width, width, gain=0.1)
        self.key = orthogonal(width, width, gain=0.1)
        self.value = orthogonal(width, width, gain=1.0)
        self.out = nn.Linear(width, width, bias=False)

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        width, held = self.out.in_features, torch.promote_types(dtype, torch.float32)
        sums_B2D = torch.zeros(batch, 2, width, device=device, dtype=held)
        top_BD = torch.full((batch, width), NOTHING_YET, device=device, dtype=held)
        return torch.zeros(batch, width, device=device, dtype=dtype), (sums_B2D, top_BD)

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        last_BD, sums = state
        for_r_BLD, for_k_BLD, for_v_BLD = shifted(x_BLD, last_BD, *self.mix_3D.unbind(0), ctx=ctx)
        receptance_BLD, k_BLD, v_BLD = self.receptance(for_r_BLD), self.key(for_k_BLD), self.value(for_v_BLD)
        dtype = torch.promote_types(k_BLD.dtype, torch.float32)
        rate_D = torch.exp(self.log_rate_D.to(dtype).clamp(max=LARGEST_LOG_RATE))
        wkv_BLD, sums = wkv(k_BLD, v_BLD, rate_D, self.bonus_D.to(dtype), sums, ctx)
        return self.out(torch.sigmoid(receptance_BLD) * wkv_BLD), (x_BLD[:, -1], sums)


@register
@dataclass(frozen=True, kw_only=True)
class RWKV4Config(ModelConfig):
    name, family, year, paper = "rwkv4", "linear recurrence", 2023, "2305.13048"
    title = "RWKV-4"
    transition = "fixed diagonal"

    final_norm: Norm = "layer"
    """The norm between the last block and the head."""
    d_inner: int = 0
    """Width inside the channel mix; 0 for 4 times the model's."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.d_inner >= 0, f"{self.name}: d_inner must not be negative")

    def block(self, layer: int) -> Block:
        inner = self.d_inner or 4 * self.d_model
        place = {"layer": layer, "num_blocks": self.num_blocks}
        layers = [
            TimeMix(self.d_model, **place),
            ChannelMix(self.d_model, inner, **place, key_gain=max(1.0, inner / self.d_model) ** 0.5),
        ]
        for each in layers:
            scale_down(each.out, 2 * self.num_blocks)
        return rwkv_block(self.d_model, layers, layer=layer, dropout=self.dropout)
