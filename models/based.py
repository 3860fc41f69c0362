"""Based: linear attention with a softmax's first terms, short windows of exact attention, and gated convolutions.

    linear       y_t = sum over s <= t of (1 + z + z^2 / 2) v_s / sum of the same factors, z = q_t . k_s / sqrt(K)
    window       y_t = sum over t - W < s <= t of softmax_s(q_t . k_s / sqrt(K)) v_s, with RoPE
    convolution  y_t = silu(conv(u)_t) * u'_t, u and u' twice as wide as the stream
    x = x + W_o y        x = x + SwiGLU(x)        each behind an RMSNorm

Arora et al. 2024 (2402.18668). The window sees the near past exactly, the linear attention all of it in a state of
fixed size. `pattern` names the blocks' layers, in turn. The released models of 27 blocks repeat `convolution, linear,
window, convolution, convolution`, with queries and keys of 16 numbers, windows of 128 or 256 tokens and convolutions of
3. Two blocks have room for a linear attention and a window, the default here. The linear attention is
models/linear_attention.py's, and has as much state as 273 keys a head.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from chomsky_ladder.models.base import register
from chomsky_ladder.models.block import Context, State, require
from chomsky_ladder.models.layers.attention import Attention
from chomsky_ladder.models.layers.convolution import ShortConvolution
from chomsky_ladder.models.layers.residual import Layer, OneForm
from chomsky_ladder.models.linear_attention import FeatureMap, LinearAttentionConfig

MIXERS = ("linear", "window", "convolution")
CONV_WIDTH = 3


class GatedConvolution(OneForm):
    """A short convolution that gates a projection. Its state is the convolution's."""

    heeds_asked = True

    def __init__(self, width: int) -> None:
        super().__init__()
        self.read = nn.Linear(width, 4 * width)
        self.convolution = ShortConvolution(2 * width, width=CONV_WIDTH, bias=False, silu=True)
        self.out = nn.Linear(2 * width, width)

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        u_BLE, by_BLE = self.read(x_BLD).chunk(2, -1)
        return self.out(ctx.wanted(self.convolution(u_BLE, ctx) * by_BLE))

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        return self.convolution.init_state(batch, device=device, dtype=dtype)

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        u_BLE, by_BLE = self.read(x_BLD).chunk(2, -1)
        u_BLE, state = self.convolution.extend(u_BLE, state)
        return self.out(u_BLE * by_BLE), state


@register
@dataclass(frozen=True, kw_only=True)
class BasedConfig(LinearAttentionConfig):
    name, family, year, paper = "based", "linear attention", 2024, "2402.18668"
    title = "Based"

    feature_map: FeatureMap = "taylor"
    """Features of queries and keys: elu(x) + 1, or those whose products are the exponential's first three terms."""
    key_dim: int = 16
    """Numbers in a head's query and key of a linear attention; 0 for as many as in its value."""
    pattern: str = "linear,window"
    """Layers that alternate as the blocks' mixers, separated by commas: linear, window, convolution."""
    window: int = 16
    """Positions that a token sees in a window, itself the last of them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.mixers:
            require(name in MIXERS, f"{self.name}: pattern has {name!r}; there are {', '.join(MIXERS)}")
        require(self.window >= 1, f"{self.name}: window must be at least 1, not {self.window}")
        dim = self.d_model // self.num_heads
        require(
            "window" not in self.mixers or dim % 2 == 0, f"{self.name}: windows need heads of even dimension, not {dim}"
        )

    @property
    def mixers(self) -> list[str]:
        """Return the mixer of each block."""
        names = [name.strip() for name in self.pattern.split(",")]
        return [names[layer % len(names)] for layer in range(self.num_blocks)]

    @property
    def transition(self) -> str:
        kinds = {"linear": "fixed diagonal", "window": "window"}
        known = all(name in kinds for name in self.mixers)
        return " + ".join(sorted({kinds[name] for name in self.mixers})) if known else ""

    def mixer(self, layer: int) -> Layer:
        if self.mixers[layer] == "linear":
            return super().mixer(layer)
        if self.mixers[layer] == "window":
            return Attention(self.d_model, self.num_heads, window=self.window)
        return GatedConvolution(self.d_model)
