"""The Transformer as published: an encoder over the prompt, and a causal decoder over the answers that attends to it.

    encoder   x = N(x + attention(x))  x = N(x + ffn(x))                              x_0 = token + sinusoid(position)
    decoder   y = N(y + attention(y))  y = N(y + attention(y, x))  y = N(y + ffn(y))  y_0 = token + sinusoid(slot)

Vaswani et al. 2017 (1706.03762): layer norm after each sum, ReLU feed-forwards of four times the width, and the same
token embedding on both sides. Slot 0 is the prompt's last position, where the first answer is read. Slot j holds the
token j positions later: blank, or the answer before. There are four differences. The head has its own weights. Tokens
start at unit variance, which the published sqrt(D) gives theirs. Weights start at torch.nn.Linear's default. Positions
are added without dropout.

Both sides run over all positions, so that the model has the shape of any other. Nobody sees the encoder's output at
answer slots. Inside the prompt, each position is slot 0 of its own: the first answer if it were read there.
"""

from dataclasses import dataclass, replace

from einops import rearrange
from torch import Tensor, nn

from chomsky_ladder.models.base import ModelConfig, register
from chomsky_ladder.models.block import Block, Context, Norm, require
from chomsky_ladder.models.layers.attention import Attention, masked_attention
from chomsky_ladder.models.layers.feed_forward import MLP
from chomsky_ladder.models.layers.positions import sinusoids
from chomsky_ladder.models.layers.prompt import in_prompt, last_of_prompt, positions, slots
from chomsky_ladder.models.layers.residual import Layer, Residual


class Encoder(Residual):
    """A block over the prompt. The lowest one keeps the tokens for the decoder and adds their positions."""

    def __init__(self, config: "EncoderDecoderConfig", *, lowest: bool) -> None:
        width = config.d_model
        attention = Attention(width, config.num_heads, sees="all", positions="none")
        layers = [attention, MLP(width, config.inner_width, activation="relu")]
        super().__init__(width, layers, norm="layer", place="post", dropout=config.dropout)
        self.lowest = lowest

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        if self.lowest:
            ctx.shared["tokens"] = x_BLD
            x_BLD = x_BLD + sinusoids(positions(x_BLD), x_BLD.shape[-1], dtype=x_BLD.dtype)
        return super().forward(x_BLD, replace(ctx, valid_BL=in_prompt(x_BLD, ctx)))


class Decoder(Residual):
    """A block over the answers. The lowest one passes the encoder's stream to all and starts again from the tokens."""

    def __init__(self, config: "EncoderDecoderConfig", *, lowest: bool) -> None:
        width = config.d_model
        layers = [
            SelfAttention(width, config.num_heads, positions="none"),
            CrossAttention(width, config.num_heads),
            MLP(width, config.inner_width, activation="relu"),
        ]
        super().__init__(width, layers, norm="layer", place="post", dropout=config.dropout)
        self.lowest = lowest

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        if self.lowest:
            ctx.shared["memory"], x_BLD = x_BLD, ctx.shared["tokens"]
            x_BLD = x_BLD + sinusoids(slots(x_BLD, ctx), x_BLD.shape[-1], dtype=x_BLD.dtype)
        return super().forward(x_BLD, ctx)


class SelfAttention(Attention):
    """Attention over the slots up to one's own."""

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        position_L = positions(x_BLD)
        is_slot_BL = position_L >= last_of_prompt(x_BLD, ctx)
        ahead_LL = position_L[:, None] - position_L
        may_see = (is_slot_BL[:, None, None, :] & (ahead_LL >= 0)) | (ahead_LL == 0)
        y_BHLK = masked_attention(*self._project(x_BLD, position_L), may_see, ctx=ctx)
        return self.out(rearrange(y_BHLK, "b h l k -> b l (h k)"))


class CrossAttention(Layer):
    """Attention from the decoder to the encoder's output on the prompt."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.query = nn.Linear(width, width, bias=False)
        self.key_value = nn.Linear(width, 2 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        q_BHLK = rearrange(self.query(x_BLD), "b l (h k) -> b h l k", h=self.num_heads)
        k_BHLK, v_BHLK = rearrange(
            self.key_value(ctx.shared["memory"]), "b l (two h k) -> two b h l k", two=2, h=self.num_heads
        ).unbind(0)
        y_BHLK = masked_attention(q_BHLK, k_BHLK, v_BHLK, in_prompt(x_BLD, ctx)[:, None, None, :], ctx=ctx)
        return self.out(rearrange(y_BHLK, "b h l k -> b l (h k)"))


@register
@dataclass(frozen=True, kw_only=True)
class EncoderDecoderConfig(ModelConfig):
    name, family, year, paper = "encoder_decoder", "attention", 2017, "1706.03762"
    title = "Transformer (encoder-decoder)"
    transition = "attention"
    sees, stepwise = "prompt", False
    convolves = False
    cost = "quadratic"

    num_blocks: int = 2
    """Blocks of the decoder."""
    num_encoder_blocks: int = 0
    """Blocks of the encoder; 0 for as many as the decoder's."""
    final_norm: Norm = "none"
    num_heads: int = 4
    """Attention heads; they divide the width evenly."""
    d_inner: int = 0
    """Width inside the feed-forwards; 0 for 4 times the model's."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.num_heads >= 1 and self.d_model % self.num_heads == 0,
            f"{self.name}: d_model={self.d_model} does not split into {self.num_heads} heads",
        )
        require(self.num_encoder_blocks >= 0, f"{self.name}: num_encoder_blocks must not be negative")
        require(self.d_inner >= 0, f"{self.name}: d_inner must not be negative")

    @property
    def inner_width(self) -> int:
        return self.d_inner or 4 * self.d_model

    @property
    def encoder_depth(self) -> int:
        return self.num_encoder_blocks or self.num_blocks

    def block(self, layer: int) -> Block:
        if layer < self.encoder_depth:
            return Encoder(self, lowest=layer == 0)
        return Decoder(self, lowest=layer == self.encoder_depth)

    def blocks(self) -> list[Block]:
        """Return the encoder's blocks, then the decoder's."""
        return [self.block(layer) for layer in range(self.encoder_depth + self.num_blocks)]
