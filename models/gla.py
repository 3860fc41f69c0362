"""GLA: linear attention whose state decays at a rate that depends on the token, in every key channel.

    S_t = diag(a_t) S_{t-1} + k_t v_t^T        y_t = (q_t / sqrt K) S_t        a = sigmoid(W_2 W_1 x + b)^(1/16)
    x = x + W_o (silu(W_r x + b_r) * LayerNorm(y))        x = x + SwiGLU(x)        each behind an RMSNorm

in each head. Yang et al. 2023 (2312.06635): queries and keys are half as wide as the stream, W_1 maps to 16 numbers,
and the root, of order `temperature`, keeps the decays near 1. The LayerNorm is over each head's channels, and all heads
share its weights. The later published code (flash-linear-attention) has an RMSNorm there and no b_r. Weights start as
torch.nn.Linear's do.

The parallel form is that of `_decayed`, which reads before it writes: q_t S_t = (a_t q_t) S_{t-1} + (q_t . k_t) v_t.
"""

from dataclasses import dataclass

import torch
from einops import rearrange
from torch import Tensor, nn

from chomsky_ladder.models._mixers import MixerConfig
from chomsky_ladder.models.base import register
from chomsky_ladder.models.block import Context, State, require
from chomsky_ladder.models.layers.gate import gated
from chomsky_ladder.models.layers.residual import Layer, OneForm
from chomsky_ladder.models.operations.delta.rules import by_writing_then_reading


class GatedLinearAttention(OneForm):
    heeds_asked = True

    def __init__(self, config: "GLAConfig") -> None:
        super().__init__()
        width, keys = config.d_model, config.key_width
        self.num_heads, self.temperature = config.num_heads, config.temperature
        self.query, self.key = (nn.Linear(width, keys, bias=False) for _ in "qk")
        self.value = nn.Linear(width, width, bias=False)
        self.decay_down, self.decay_up = (
            nn.Linear(width, config.decay_rank, bias=False),
            nn.Linear(config.decay_rank, keys),
        )
        self.gate = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width // self.num_heads)
        self.out = nn.Linear(width, width, bias=False)

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        key_dim, value_dim = (layer.out_features // self.num_heads for layer in (self.key, self.value))
        held = torch.promote_types(dtype, torch.float32)
        return torch.zeros(batch, self.num_heads, key_dim, value_dim, device=device, dtype=held)

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        q_BHLK, gate_BHLK = (
            in_heads(x, self.num_heads) for x in (self.query(x_BLD), self.decay_up(self.decay_down(x_BLD)))
        )
        k_BHLK, v_BHLV = (by_heads(project(x_BLD), self.num_heads) for project in (self.key, self.value))
        decay_BHLK = torch.exp(nn.functional.logsigmoid(gate_BHLK) / self.temperature)
        q_BHLK = q_BHLK * q_BHLK.shape[-1] ** -0.5
        y_BHLV, state = by_writing_then_reading(q_BHLK, k_BHLK, v_BHLV, decay_BHLK, state, ctx)
        y_BHLV = self.norm(ctx.wanted(y_BHLV, along=2).to(self.norm.weight.dtype))
        y_BLD = gated(self.gate(ctx.wanted(x_BLD)), rearrange(y_BHLV, "b h l v -> b l (h v)"), ctx=ctx)
        return self.out(y_BLD), state


def in_heads(x_BLD: Tensor, num_heads: int) -> Tensor:
    """Return [B, H, L, K], in at least fp32."""
    return by_heads(x_BLD, num_heads).to(torch.promote_types(x_BLD.dtype, torch.float32))


def by_heads(x_BLD: Tensor, num_heads: int) -> Tensor:
    """Return [B, H, L, K]."""
    return rearrange(x_BLD, "b l (h k) -> b h l k", h=num_heads)


@register
@dataclass(frozen=True, kw_only=True)
class GLAConfig(MixerConfig):
    name, family, year, paper = "gla", "linear attention", 2023, "2312.06635"
    title = "GLA"
    transition = "diagonal"

    num_heads: int = 4
    """Heads; they divide keys and values evenly."""
    d_key: int = 0
    """Width of queries and keys, all heads together; 0 for half of the model's."""
    decay_rank: int = 16
    """Rank of the map from the data to the decays."""
    temperature: float = 16.0
    """Order of the root of the decays' sigmoid. The larger, the longer the memory at the start."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.num_heads >= 1, f"{self.name}: num_heads must be at least 1, not {self.num_heads}")
        require(self.d_key >= 0, f"{self.name}: d_key must not be negative")
        for of, width in (("", self.d_model), (" of queries and keys", self.key_width)):
            require(
                width >= 1 and width % self.num_heads == 0,
                f"{self.name}: a width{of} of {width} does not split into {self.num_heads} heads",
            )
        require(self.decay_rank >= 1, f"{self.name}: decay_rank must be at least 1, not {self.decay_rank}")
        require(self.temperature > 0, f"{self.name}: temperature must be positive, not {self.temperature}")

    @property
    def key_width(self) -> int:
        return self.d_key or self.d_model // 2

    def mixer(self, layer: int) -> Layer:
        return GatedLinearAttention(self)
