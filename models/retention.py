"""RetNet: linear attention whose heads decay at fixed rates, with rotated queries and keys.

    S_t = g S_{t-1} + (R(t) k_t) v_t^T        y_t = (R(t) q_t) S_t        g = 1 - 1/32, 1 - 1/64 .. over the heads
    x = x + W_o (silu(W_g x) * norm(y))        x = x + W_2 gelu(W_1 x + b_1) + b_2        each behind a LayerNorm

Sun et al. 2023 (2307.08621): values are twice as wide as queries and keys, and `norm` is over each head's channels and
without weights. The feed-forward is twice as wide as the stream, so that a block has as many parameters as a
Transformer's. q, k, v and g start as in the published code (torchscale): Xavier uniform with gain 2^-2.5, and W_o with
gain 1, which is scaled down here as everywhere.

This follows the paper, not the later published code: LayerNorm instead of RMSNorm, and GELU instead of a gated
feed-forward. The normalisers of the scores are left out: a factor on y changes nothing after `norm`, and without them
all forms are equal. R turns by t / 10000^(2i/K), as in the Transformer here, while the code spaces the same range end
to end.
"""

from dataclasses import dataclass

import torch
from einops import rearrange
from torch import Tensor, nn

from chomsky_ladder.models._mixers import MixerConfig
from chomsky_ladder.models.base import register
from chomsky_ladder.models.block import Context, Norm, State, require
from chomsky_ladder.models.layers.feed_forward import MLP
from chomsky_ladder.models.layers.gate import gated
from chomsky_ladder.models.layers.positions import rotate
from chomsky_ladder.models.layers.residual import Layer
from chomsky_ladder.models.operations.decayed import decayed

NORM_EPS = 1e-6  # as published; y starts so small that it matters


class Retention(Layer):
    heeds_asked = True

    def __init__(self, config: "RetentionConfig") -> None:
        super().__init__()
        width, values = config.d_model, config.value_factor * config.d_model
        self.num_heads, self.shortest, self.growth = config.num_heads, config.shortest, config.growth
        self.query, self.key = (nn.Linear(width, width, bias=False) for _ in "qk")
        self.value, self.gate = (nn.Linear(width, values, bias=False) for _ in "vg")
        self.out = nn.Linear(values, width, bias=False)
        for projection in (self.query, self.key, self.value, self.gate):
            nn.init.xavier_uniform_(projection.weight, gain=2**-2.5)
        nn.init.xavier_uniform_(self.out.weight)

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        return self.extend(x_BLD, (None, 0), ctx)[0]

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        """Return S, and the position of the next token."""
        key_dim, value_dim = (layer.out_features // self.num_heads for layer in (self.key, self.value))
        held = torch.promote_types(dtype, torch.float32)
        state_BHKV = torch.zeros(batch, self.num_heads, key_dim, value_dim, device=device, dtype=held)
        return state_BHKV, torch.zeros((), dtype=torch.int64, device=device)

    def step(self, x_BD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        y_BLD, state = self.extend(x_BD[:, None], state, ctx)
        return y_BLD[:, 0], state

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        (state_BHKV, start), length = state, x_BLD.shape[1]
        q_BHLK, k_BHLK, v_BHLV = (
            rearrange(project(x_BLD), "b l (h k) -> b h l k", h=self.num_heads)
            for project in (self.query, self.key, self.value)
        )
        position_L = start + torch.arange(length, device=x_BLD.device)
        q_BHLK, k_BHLK = rotate(q_BHLK, position_L), rotate(k_BHLK * k_BHLK.shape[-1] ** -0.5, position_L)
        log_decay_BHL = self._log_decay(q_BHLK)[None, :, None].expand(1, -1, length)
        y_BHLV, state_BHKV = decayed(q_BHLK, k_BHLK, v_BHLV, log_decay_BHL, state_BHKV, ctx)
        y_BHLV = nn.functional.layer_norm(ctx.wanted(y_BHLV, along=2), y_BHLV.shape[-1:], eps=NORM_EPS)
        y_BLE = gated(self.gate(ctx.wanted(x_BLD)), rearrange(y_BHLV, "b h l v -> b l (h v)"), ctx=ctx)
        return self.out(y_BLE), (state_BHKV, start + length)

    def _log_decay(self, q_BHLK: Tensor) -> Tensor:
        """Return the heads' log decays in at least fp32, like the state."""
        dtype = torch.promote_types(q_BHLK.dtype, torch.float32)
        head_H = torch.arange(self.num_heads, device=q_BHLK.device, dtype=dtype)
        return torch.log1p(-1 / (self.shortest * self.growth**head_H))


@register
@dataclass(frozen=True, kw_only=True)
class RetentionConfig(MixerConfig):
    name, family, year, paper = "retention", "linear attention", 2023, "2307.08621"
    title = "RetNet"
    transition = "fixed linear"
    norm = "layer"

    final_norm: Norm = "layer"
    """The norm between the last block and the head."""
    num_heads: int = 4
    """Heads; they divide the width evenly, each of even dimension."""
    value_factor: int = 2
    """Width of values relative to that of queries and keys."""
    shortest: float = 32.0
    """Tokens over which the first head forgets: its state is multiplied by 1 - 1/shortest at each token."""
    longest: float = 0.0
    """Tokens over which the last head forgets, with the others spaced evenly by ratio; 0 to double it from head to
    head. The paper's second range is 32 to 512.
    """
    d_inner: int = 0
    """Width inside the feed-forward; 0 for twice the model's."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.num_heads >= 1 and self.d_model % (2 * self.num_heads) == 0,
            f"{self.name}: d_model={self.d_model} does not split into {self.num_heads} heads of even dimension",
        )
        require(self.value_factor >= 1, f"{self.name}: value_factor must be at least 1, not {self.value_factor}")
        require(self.shortest > 1, f"{self.name}: shortest must be more than 1 token, not {self.shortest}")
        require(
            self.longest == 0 or self.longest >= self.shortest,
            f"{self.name}: longest={self.longest} must be 0 or at least shortest={self.shortest}",
        )

    @property
    def growth(self) -> float:
        """Return the ratio of the memory of neighbouring heads."""
        return (self.longest / self.shortest) ** (1 / max(1, self.num_heads - 1)) if self.longest else 2.0

    def mixer(self, layer: int) -> Layer:
        return Retention(self)

    def feed_forward(self) -> Layer:
        return MLP(self.d_model, self.d_inner or 2 * self.d_model, activation="gelu")
