"""Linear attention: attention whose scores are products of features, so that the past is a sum of a fixed size.

    y_t = sum over s <= t of (f(q_t) . f(k_s)) v_s / sum over s <= t of f(q_t) . f(k_s)
    x = x + W_o y        x = x + SwiGLU(x)        each behind an RMSNorm

in each head. Katharopoulos et al. 2020 (2006.16236) take f(x) = elu(x) + 1, in every coordinate. With
`feature_map=taylor` f(q) . f(k) = 1 + z + z^2 / 2 with z = q . k / sqrt(K), the exponential of a softmax up to its
second order: Arora et al. 2024 (2402.18668), whose model is `based`. Nothing decays, and no order is known but by
`positions=sinusoidal`, which adds vectors to the stream before the first block.

Pairs of a chunk of 64 tokens meet directly. The state carries sums of f(k) (v, 1) from chunk to chunk, in fp32 at
least. Sums of elu + 1 may vanish, so 1e-6 is added to each. Weights start as torch.nn.Linear's do.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from einops import rearrange
from torch import Tensor, nn

from chomsky_ladder.models._mixers import HeadsConfig
from chomsky_ladder.models.base import register
from chomsky_ladder.models.block import Block, Context, State, require
from chomsky_ladder.models.gla import in_heads
from chomsky_ladder.models.layers.positions import Positioned
from chomsky_ladder.models.layers.residual import Layer, OneForm
from chomsky_ladder.models.scans.products import matmul

FeatureMap = Literal["elu", "taylor"]

CHUNK = 64
EPS = 1e-6


class LinearAttention(OneForm):
    """The attention. Its state is the sums of f(k) (v, 1): [B, H, F, V + 1]."""

    heeds_asked = True

    def __init__(self, width: int, num_heads: int, *, key_dim: int, feature_map: FeatureMap) -> None:
        super().__init__()
        self.num_heads, self.key_dim, self.value_dim = num_heads, key_dim, width // num_heads
        self.feature_map: FeatureMap = feature_map
        self.query, self.key = (nn.Linear(width, num_heads * key_dim, bias=False) for _ in "qk")
        self.value, self.out = (nn.Linear(width, width, bias=False) for _ in "vo")

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        return self.extend(x_BLD, None, ctx)[0]

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        features = self.key_dim if self.feature_map == "elu" else 1 + self.key_dim + self.key_dim**2
        held = torch.promote_types(dtype, torch.float32)
        return torch.zeros(batch, self.num_heads, features, self.value_dim + 1, device=device, dtype=held)

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        q_BHLK, k_BHLK, v_BHLV = (
            in_heads(layer(x_BLD), self.num_heads) for layer in (self.query, self.key, self.value)
        )
        with torch.autocast(x_BLD.device.type, enabled=False):
            y_BHLV, state = linear_attention(q_BHLK, k_BHLK, v_BHLV, state, feature_map=self.feature_map)
        y_BLD = rearrange(ctx.wanted(y_BHLV, along=2), "b h l v -> b l (h v)")
        return self.out(y_BLD.to(self.out.weight.dtype)), state


def linear_attention(
    q_BHLK: Tensor, k_BHLK: Tensor, v_BHLV: Tensor, state_BHFV: Tensor | None, *, feature_map: FeatureMap
) -> tuple[Tensor, Tensor | None]:
    """Return y [B, H, L, V], and the last state. With a state of None (zeros), one chunk's last state is None."""
    length = q_BHLK.shape[2]
    chunk = min(CHUNK, length)
    if feature_map == "elu":
        q_BHLK, k_BHLK = nn.functional.elu(q_BHLK) + 1, nn.functional.elu(k_BHLK) + 1
    else:
        q_BHLK, k_BHLK = (x_BHLK * x_BHLK.shape[-1] ** -0.25 for x_BHLK in (q_BHLK, k_BHLK))
    one_BHL1 = torch.ones_like(v_BHLV[..., :1])
    # N chunks of C tokens. After the end v and its 1 are 0, which leave the sums as they are.
    q_BHNCK, k_BHNCK, v_BHNCV = (
        nn.functional.pad(x, (0, 0, 0, -length % chunk)).unflatten(2, (-1, chunk))
        for x in (q_BHLK, k_BHLK, torch.cat([v_BHLV, one_BHL1], -1))
    )
    scores_BHNCC = matmul(q_BHNCK, k_BHNCK.mT)
    if feature_map == "taylor":
        scores_BHNCC = 1 + scores_BHNCC + scores_BHNCC.square() / 2
    sums_BHNCV = matmul(scores_BHNCC.tril(), v_BHNCV)
    if state_BHFV is not None or length > chunk:
        if feature_map == "taylor":
            q_BHNCK, k_BHNCK = taylor(q_BHNCK), taylor(k_BHNCK)
        new_BHNFV = matmul(k_BHNCK.mT, v_BHNCV)
        first_BHFV = torch.zeros_like(new_BHNFV[:, :, 0]) if state_BHFV is None else state_BHFV
        states_BHNFV = torch.cat([first_BHFV[:, :, None], new_BHNFV], 2).cumsum(2)
        sums_BHNCV, state_BHFV = sums_BHNCV + matmul(q_BHNCK, states_BHNFV[:, :, :-1]), states_BHNFV[:, :, -1]
    y_BHLV, total_BHL1 = sums_BHNCV.flatten(2, 3)[:, :, :length].split([v_BHLV.shape[-1], 1], -1)
    return y_BHLV / (total_BHL1 + EPS), state_BHFV


def taylor(x_BHNCK: Tensor) -> Tensor:
    """Return 1, x and all products of two coordinates over sqrt(2): features whose product is 1 + z + z^2 / 2."""
    squares_BHNCK = (x_BHNCK[..., None] * x_BHNCK[..., None, :]).flatten(-2) * 2**-0.5
    return torch.cat([torch.ones_like(x_BHNCK[..., :1]), x_BHNCK, squares_BHNCK], -1)


@register
@dataclass(frozen=True, kw_only=True)
class LinearAttentionConfig(HeadsConfig):
    name, family, year, paper = "linear_attention", "linear attention", 2020, "2006.16236"
    title = "Linear attention"

    feature_map: FeatureMap = "elu"
    """Features of queries and keys: elu(x) + 1, or those whose products are the exponential's first three terms."""
    key_dim: int = 0
    """Numbers in a head's query and key; 0 for as many as in its value."""
    positions: Literal["none", "sinusoidal"] = "none"
    """sinusoidal: vectors for positions are added to the stream before the first block."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.key_dim >= 0, f"{self.name}: key_dim must not be negative")

    @property
    def transition(self) -> str:
        return "fixed diagonal"

    def mixer(self, layer: int) -> Layer:
        key_dim = self.key_dim or self.d_model // self.num_heads
        return LinearAttention(self.d_model, self.num_heads, key_dim=key_dim, feature_map=self.feature_map)

    def block(self, layer: int) -> Block:
        block = super().block(layer)
        return Positioned(block, self.d_model) if layer == 0 and self.positions == "sinusoidal" else block
