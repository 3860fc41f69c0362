"""RWKV-7 (Goose): a state that decays in every channel, and from which one key's value is removed before another is
written.

    S_t = S_{t-1} (diag(w_t) - f_t (a_t * f_t)^T) + v_t k_t^T        y_t = S_t r_t        in every head of its own
    f = m * k' / |m * k'|        k = k' * (1 + n * (a - 1))          v = v' + (v_1 - v') * sigmoid(c + C x^v)
    w = exp(-e^{-1/2} sigmoid(d + D x^w))        a = sigmoid(e + E x^a)        g = G x^g
    x = x + W_o (g * (GroupNorm(y) + (r . u k) v))        x = x + W_v relu(W_k x^k)^2        each behind a LayerNorm

Peng et al. 2025 (2503.14456). r, k', v' and each x^i have their own token shift. v_1 is the v' of the first layer. C,
D, E and G are of low rank, with tanh inside D and a sigmoid inside G. The eigenvalues of the transition lie between the
smallest w minus 1, which is -0.45, and 1. A block's state is S, num_heads x head_dim^2 numbers, and two shifted tokens.

Initial values are those of the published code (RWKV-LM, RWKV-v7, x070): shifts, a, c, d, m, n, u and the GroupNorm's
weight by channel and layer; receptance, value and the channel mix's key orthogonal; key, and the second halves of the
maps of low rank, the same with gain 0.1. The code's zeros in their first halves and in the projections into the stream
would leave the rest without gradient in the first step. Here they are uniform within 1e-4, and torch's default, scaled
down. d learns twice as fast as the rest, and shifts and maps of low rank do not decay. The first block normalises the
embedding (ln0), whose small initial values are replaced by the Backbone's.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from einops import rearrange
from torch import Tensor, nn

from chomsky_ladder.models.base import ModelConfig, register
from chomsky_ladder.models.block import Block, Context, Norm, State, require
from chomsky_ladder.models.layers.linear import of_each
from chomsky_ladder.models.layers.residual import OneForm, scale_down
from chomsky_ladder.models.layers.token_shift import (
    depth,
    initial_mix,
    orthogonal,
    rwkv_block,
    shifted,
    squared,
    wanted_and_before,
)
from chomsky_ladder.models.operations.goose import by_goose_rule
from chomsky_ladder.models.operations.goose.reference import Channels
from chomsky_ladder.models.scans.products import product_of_each

LARGEST_RATE = math.exp(-0.5)  # -log of the smallest w
NORM_EPS = 64e-5
FIRST_VALUES = "rwkv7_first_values"


class LowRank(nn.Module):
    """The map B f(A x) + c, or without c."""

    no_decay = frozenset({"down", "up"})

    def __init__(self, width: int, rank: int, inside: Callable[[Tensor], Tensor] | None = None) -> None:
        super().__init__()
        self.inside = inside
        self.down = nn.Parameter(torch.empty(width, rank).uniform_(-1e-4, 1e-4))
        gain = 0.1 * max(1, rank / width) ** 0.5
        self.up = nn.Parameter(nn.init.orthogonal_(torch.empty(rank, width, dtype=torch.float64), gain=gain).float())


def of_low_rank(maps: Sequence[LowRank], inputs: Sequence[Tensor], starts: Sequence[Tensor | None]) -> list[Tensor]:
    """Apply each map to its input. Maps of equal rank are computed as products of one size."""
    if len({each.down.shape for each in maps}) > 1:
        one_by_one = zip(maps, inputs, starts, strict=True)
        return [of_low_rank([each], [x], [start])[0] for each, x, start in one_by_one]
    low_NBLR = product_of_each(inputs, [each.down.mT for each in maps])
    low_NBLR = [each.inside(low) if each.inside else low for each, low in zip(maps, low_NBLR, strict=True)]
    return list(product_of_each(low_NBLR, [each.up.mT for each in maps], starts))


class TimeMix(OneForm):
    no_decay = frozenset({"mix_6D"})
    rate_multipliers = {"decay_D": 2.0}

    def __init__(self, config: "RWKV7Config", layer: int) -> None:
        super().__init__()
        width, self.num_heads = config.d_model, config.num_heads
        toward_1, toward_0 = depth(layer, config.num_blocks)
        channel_D = torch.arange(width, dtype=torch.float64)
        place_D, head_dim = channel_D / max(1, width - 1), width // self.num_heads
        within_D = 2 * (channel_D % head_dim) / max(1, head_dim - 1) - 1  # from -1 to 1 in every head
        within_D = within_D * within_D.abs()
        powers = (0.2, 0.7, 0.7, 0.9, 0.9, 0.2)  # for r, k, v, w, a, g
        self.mix_6D = nn.Parameter(torch.stack([initial_mix(width, power=power * toward_0) for power in powers]))
        self.decay_D = nn.Parameter((-5.5 + 6 * place_D ** (1 + toward_1**0.3) + 2.5 * within_D).float())
        self.rate_D = nn.Parameter((-0.19 + 0.3 * within_D + 0.4 * (place_D - 0.5)).float())
        self.out_key_D = nn.Parameter((0.71 - 0.1 * (place_D - 0.5)).float())
        self.key_rate_D = nn.Parameter(torch.full((width,), 1.02))
        self.bonus_D = nn.Parameter(torch.full((width,), -0.04))
        self.to_decay = LowRank(width, config.decay_rank, torch.tanh)
        self.to_rate = LowRank(width, config.rate_rank)
        self.to_gate = LowRank(width, config.gate_rank, torch.sigmoid)
        self.is_first = layer == 0
        if not self.is_first:
            self.share_D = nn.Parameter((0.73 - 0.4 * (place_D - 0.5)).float())
            self.to_share = LowRank(width, config.value_rank)
        self.receptance = orthogonal(width, width, gain=1.0)
        self.key = orthogonal(width, width, gain=0.1)
        self.value = orthogonal(width, width, gain=1.0)
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
        mixed = shifted(x_BLD, last_BD, *self.mix_6D.unbind(0), ctx=ctx)
        for_r_BLD, for_k_BLD, for_v_BLD, for_w_BLD, for_a_BLD, for_g_BLD = mixed
        r_BLD, k_BLD, v_BLD = of_each((self.receptance, self.key, self.value), (for_r_BLD, for_k_BLD, for_v_BLD))
        maps, inputs, starts = self._maps(for_a_BLD, for_w_BLD, for_g_BLD, for_v_BLD)
        rate_BLD, log_decay_BLD, gate_BLD, *share = of_low_rank(maps, inputs, starts)
        v_BLD = self._shared(v_BLD, *share, ctx=ctx)
        rate_BLD, log_decay_BLD = torch.sigmoid(rate_BLD), -LARGEST_RATE * torch.sigmoid(log_decay_BLD)
        r_BHLK, k_BHLK, rate_BHLK, v_BHLV, log_decay_BHLK = map(
            self._heads, (r_BLD, k_BLD, rate_BLD, v_BLD, log_decay_BLD)
        )
        of_channels = self.out_key_D, self.key_rate_D, self.bonus_D
        channels = Channels(*(self._heads(x_D[None, None])[0, :, 0] for x_D in of_channels))
        y_BHLV, present_BHL1, state_BHKV = by_goose_rule(
            r_BHLK, k_BHLK, rate_BHLK, v_BHLV, log_decay_BHLK, channels, state_BHKV, ctx
        )
        y_BLD = self.norm(rearrange(y_BHLV, "b h l v -> (b l) (h v)")).view(x_BLD.shape)
        y_BLD = y_BLD + rearrange(present_BHL1 * v_BHLV, "b h l v -> b l (h v)")
        return self.out(gate_BLD * y_BLD), (x_BLD[:, -1], state_BHKV)

    def _maps(self, *inputs: Tensor) -> tuple[list[LowRank], Sequence[Tensor], list[Tensor | None]]:
        """Return the maps of rates, decays, gates and, after the first layer, shares, with their inputs and starts."""
        maps, starts = [self.to_rate, self.to_decay, self.to_gate], [self.rate_D, self.decay_D, None]
        if self.is_first:
            return maps, inputs[:3], starts
        return [*maps, self.to_share], inputs, [*starts, self.share_D]

    def _shared(self, v_BLD: Tensor, share_BLD: Tensor | None = None, *, ctx: Context) -> Tensor:
        """Return a mix of this layer's own values and the first layer's."""
        if share_BLD is None:
            ctx.shared[FIRST_VALUES] = v_BLD
            return v_BLD
        return v_BLD + (ctx.shared[FIRST_VALUES] - v_BLD) * torch.sigmoid(share_BLD)

    def _heads(self, x_BLD: Tensor) -> Tensor:
        """Return [B, H, L, K], in at least fp32."""
        x_BHLK = rearrange(x_BLD, "b l (h k) -> b h l k", h=self.num_heads)
        return x_BHLK.to(torch.promote_types(x_BLD.dtype, torch.float32))


class PlainChannelMix(OneForm):
    """A channel mix without receptance. Its state is the last token."""

    heeds_asked = True

    def __init__(self, width: int, inner: int, *, layer: int, num_blocks: int) -> None:
        super().__init__()
        _, toward_0 = depth(layer, num_blocks)
        self.mix_D = nn.Parameter(initial_mix(width, power=toward_0**4))
        self.key = orthogonal(width, inner, gain=1.0)
        self.out = nn.Linear(inner, width, bias=False)

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        return torch.zeros(batch, self.out.out_features, device=device, dtype=dtype)

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        (shifted_BLD,) = shifted(*wanted_and_before(x_BLD, state, ctx), self.mix_D, ctx=ctx)
        return self.out(squared(self.key(shifted_BLD), ctx)), x_BLD[:, -1]


@register
@dataclass(frozen=True, kw_only=True)
class RWKV7Config(ModelConfig):
    name, family, year, paper = "rwkv7", "delta rule", 2025, "2503.14456"
    title = "RWKV-7"
    transition = "generalised delta"
    hands_on = True

    final_norm: Norm = "layer"
    """The norm between the last block and the head."""
    num_heads: int = 2
    """Heads; they divide the width evenly. The published models have 64 channels in each, as the default has."""
    d_inner: int = 0
    """Width inside the channel mix; 0 for 4 times the model's."""
    decay_rank: int = 32
    """Rank of the map from the data to the decay. The published code's advice at the default width is 32 for all."""
    rate_rank: int = 32
    """Rank of the map from the data to the rate at which old values are removed."""
    value_rank: int = 32
    """Rank of the map from the data to the share of the first layer's values."""
    gate_rank: int = 32
    """Rank of the map from the data to the gate."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.num_heads >= 1 and self.d_model % self.num_heads == 0,
            f"{self.name}: d_model={self.d_model} does not split into {self.num_heads} heads",
        )
        require(self.d_inner >= 0, f"{self.name}: d_inner must not be negative")
        for field in ("decay_rank", "rate_rank", "value_rank", "gate_rank"):
            require(getattr(self, field) >= 1, f"{self.name}: {field} must be at least 1, not {getattr(self, field)}")

    def block(self, layer: int) -> Block:
        inner = self.d_inner or 4 * self.d_model
        channel_mix = PlainChannelMix(self.d_model, inner, layer=layer, num_blocks=self.num_blocks)
        layers = [TimeMix(self, layer), channel_mix]
        for each in layers:
            scale_down(each.out, 2 * self.num_blocks)
        return rwkv_block(self.d_model, layers, layer=layer, dropout=self.dropout)

    @classmethod
    def tiny(cls) -> "RWKV7Config":
        return cls(d_model=16, num_blocks=2, decay_rank=4, rate_rank=4, value_rank=4, gate_rank=4)
