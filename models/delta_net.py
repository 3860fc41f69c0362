"""DeltaNet: linear attention that writes by the delta rule, with short convolutions, followed by a feed-forward.

    S_t = S_{t-1} (1 - b_t k_t k_t^T) + b_t v_t k_t^T        y_t = S_t q_t        b_t = c sigmoid(w x_t)
    q, k, v = silu(conv(W x)), q and k of length 1        x = x + W_o RMSNorm(y)        x = x + SwiGLU(x)

in each head, each layer after an RMSNorm. Schlag et al. 2021 (2102.11174), in the form of Yang et al. 2024 (2406.06484)
with c = 1. `eigenvalues=signed` has c = 2, so that 1 - b k k^T may flip a sign: Grazzi et al. 2024 (2411.12537).
Without that, in finite precision, no number of layers solves parity for inputs of any length.

The rule and b are from Schlag et al. Their feature map (DPFP) and division by the sum became silu and length 1 in Yang
et al., whose norm in each head also makes a scale of q unnecessary. Weights start as torch.nn.Linear's and Conv1d's do.
With w x near 0, b starts near c / 2. Only the output projections are rescaled.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from einops import rearrange
from torch import Tensor, nn

from chomsky_ladder.models._mixers import MixerConfig
from chomsky_ladder.models.base import register
from chomsky_ladder.models.block import Context, State, require
from chomsky_ladder.models.layers.convolution import BehindConvolution, ShortConvolution
from chomsky_ladder.models.layers.residual import Layer
from chomsky_ladder.models.operations.delta.rules import by_delta_rule
from chomsky_ladder.models.operations.norm import normed

NORM_EPS = 1e-5


class DeltaRule(BehindConvolution):
    """The delta rule. Its state is the convolution's and S^T [B, H, K, V], kept in fp32 at least."""

    heeds_asked = True

    def __init__(self, config: "DeltaNetConfig") -> None:
        super().__init__()
        width, keys, self.num_heads = config.d_model, config.key_width, config.num_heads
        self.largest_beta = 2.0 if config.eigenvalues == "signed" else 1.0
        self.widths = [keys, keys, config.expand_v * keys]  # of q, k and v
        self.query_key_value = nn.Linear(width, sum(self.widths), bias=False)
        self.convolution = ShortConvolution(sum(self.widths), width=config.conv_width, bias=False, silu=True)
        self.beta = nn.Linear(width, self.num_heads, bias=False)
        self.norm = nn.RMSNorm(self.widths[2] // self.num_heads, eps=NORM_EPS)
        self.out = nn.Linear(self.widths[2], width, bias=False)

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        held = torch.promote_types(dtype, torch.float32)
        per_head = (width // self.num_heads for width in self.widths[1:])
        state_BHKV = torch.zeros(batch, self.num_heads, *per_head, device=device, dtype=held)
        return self.convolution.init_state(batch, device=device, dtype=dtype), state_BHKV

    def read(self, x_BLD: Tensor, mixed_BLE: Tensor, state_BHKV: Tensor, ctx: Context) -> tuple[Tensor, Tensor]:
        q_BHLK, k_BHLK, v_BHLV = (
            rearrange(x_BLE, "b l (h k) -> b h l k", h=self.num_heads) for x_BLE in mixed_BLE.split(self.widths, -1)
        )
        dtype = torch.promote_types(mixed_BLE.dtype, torch.float32)
        q_BHLK, k_BHLK = q_BHLK.to(dtype), k_BHLK.to(dtype)  # v may keep its precision
        beta_BLH = self.largest_beta * torch.sigmoid(self.beta(x_BLD).to(dtype))
        y_BHLV, state_BHKV = by_delta_rule(q_BHLK, k_BHLK, v_BHLV, beta_BLH.mT, state_BHKV, ctx)
        y_BLHV = ctx.wanted(rearrange(y_BHLV, "b h l v -> b l h v")).to(self.norm.weight.dtype)
        return self.out(normed(y_BLHV, self.norm, ctx).flatten(2)), state_BHKV


@register
@dataclass(frozen=True, kw_only=True)
class DeltaNetConfig(MixerConfig):
    name, family, year, paper = "delta_net", "delta rule", 2021, "2102.11174"
    title = "DeltaNet{eigenvalues}"

    num_heads: int = 4
    """Heads; they divide the width evenly, unless `head_dim` says how wide they are."""
    eigenvalues: Literal["positive", "signed"] = "positive"
    """Range of the transition's eigenvalues: [0, 1], or [-1, 1]."""
    conv_width: int = 4
    """Width of the short convolutions of queries, keys and values, in tokens; 1 for only a factor on each channel."""
    expand_v: int = 1
    """Width of values relative to that of queries and keys."""
    head_dim: int = 0
    """Channels of a head's queries and keys; 0 for its share of the model's width."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.num_heads >= 1 and (self.head_dim != 0 or self.d_model % self.num_heads == 0),
            f"{self.name}: d_model={self.d_model} does not split into {self.num_heads} heads",
        )
        require(self.head_dim >= 0, f"{self.name}: head_dim must not be negative")
        require(self.conv_width >= 1, f"{self.name}: conv_width must be at least 1, not {self.conv_width}")
        require(self.expand_v >= 1, f"{self.name}: expand_v must be at least 1, not {self.expand_v}")

    @property
    def key_width(self) -> int:
        """Return the width of queries and keys, all heads together."""
        return self.num_heads * self.head_dim or self.d_model

    @property
    def transition(self) -> str:
        return "projection" if self.eigenvalues == "positive" else "reflection"

    def mixer(self, layer: int) -> Layer:
        return DeltaRule(self)

    @classmethod
    def tiny(cls) -> "DeltaNetConfig":
        return cls(d_model=16, num_blocks=2, num_heads=2)
