"""The pre-norm Transformer of the Llama family: causal attention with RoPE, RMSNorm, SwiGLU.

    x = x + attention(norm(x))        x = x + W_3 (silu(W_1 norm(x)) * W_2 norm(x))

Vaswani et al. 2017 (1706.03762), as in Touvron et al. 2023 (2302.13971). Weights start at torch.nn.Linear's default.
The two projections that write into the stream are divided by sqrt(2 blocks), so that its variance does not grow with
depth (Radford et al. 2019). Settings give the other members of the family. The published one is `positions=sinusoidal`,
`norm=layer`, `norm_place=post`, `feed_forward=relu`, `final_norm=none`; nothing is scaled down before a post-norm.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from chomsky_ladder.models.base import ModelConfig, register
from chomsky_ladder.models.block import Block, require
from chomsky_ladder.models.layers.attention import Attention, Sees
from chomsky_ladder.models.layers.feed_forward import FeedForward, feed_forward, inner_width
from chomsky_ladder.models.layers.positions import ADDED, Positioned, Positions
from chomsky_ladder.models.layers.residual import Layer, Residual, scale_down


@register
@dataclass(frozen=True, kw_only=True)
class TransformerConfig(ModelConfig):
    name, family, year, paper = "transformer", "attention", 2017, "1706.03762"
    title = "Transformer"
    sees: ClassVar[Sees] = "past"

    num_heads: int = 4
    """Attention heads; they divide the width evenly, with RoPE each of even dimension."""
    num_kv_heads: int = 0
    """Heads of keys and values, each shared by several heads of queries; 0 for as many as attention heads."""
    window: int = 0
    """Positions that a token sees, itself the last of them; also later ones if it sees both directions; 0 for all."""
    positions: Positions = "rope"
    """Encoding of positions: rope rotates queries and keys; sinusoidal and learnt add vectors to the stream before the
    first block; alibi and kerple add a bias to scores that falls with distance; t5 has a number for each range of
    distances; fire a function of the distance as a share of the position (only for the past); none.
    """
    max_length: int = 0
    """Number of learnt positions: the longest possible input. Only for `positions=learnt`."""
    position_range: int = 0
    """Positions in training are a sorted sample of this many, drawn for every string; in an evaluation they are evenly
    spread. 0 for 0, 1, 2 ... Only for models that see the whole string at once.
    """
    output_gate: Literal["none", "sigmoid"] = "none"
    """sigmoid: attention's output is multiplied by sigmoid(W x), a gate in every channel."""
    norm: Literal["rms", "layer"] = "rms"
    """The norms inside the blocks."""
    norm_place: Literal["pre", "post"] = "pre"
    """pre: a norm before each layer. post: a norm after the sum of the stream and the layer."""
    feed_forward: FeedForward = "swiglu"
    """The layer after each attention: gated, or with one hidden layer of ReLU or GELU."""
    d_inner: int = 0
    """Width inside the feed-forward; 0 for 8/3 of the model's, rounded up to a multiple of 8, or 4 times it ungated."""

    def __post_init__(self) -> None:
        super().__post_init__()
        even, smallest = (" of even dimension", 2) if self.positions == "rope" else ("", 1)
        require(
            self.num_heads >= 1 and self.d_model % (smallest * self.num_heads) == 0,
            f"{self.name}: d_model={self.d_model} does not split into {self.num_heads} heads{even}",
        )
        require(
            self.num_kv_heads >= 0 and (self.num_kv_heads == 0 or self.num_heads % self.num_kv_heads == 0),
            f"{self.name}: num_kv_heads={self.num_kv_heads} does not divide num_heads={self.num_heads}",
        )
        require(self.window >= 0, f"{self.name}: window must not be negative")
        require(
            self.max_length >= 1 if self.positions == "learnt" else self.max_length == 0,
            f"{self.name}: max_length is the number of learnt positions: "
            "at least 1 with positions='learnt', 0 with any other",
        )
        require(
            self.positions != "fire" or self.sees == "past",
            f"{self.name}: positions='fire' measures a distance by the position it is seen from, so that nothing may "
            "lie ahead",
        )
        require(
            self.position_range >= 0 and (self.position_range == 0 or self.positions != "none"),
            f"{self.name}: position_range is how many positions there are to draw of: not negative, and 0 with none",
        )
        require(
            self.position_range == 0 or not self.stepwise,
            f"{self.name}: position_range spreads a string's positions by its length, which a model that goes token by "
            "token does not know; encoder and prefix_lm do",
        )
        require(
            self.positions != "learnt" or self.position_range <= self.max_length,
            f"{self.name}: max_length={self.max_length} learnt positions are too few for "
            f"position_range={self.position_range}",
        )
        require(self.d_inner >= 0, f"{self.name}: d_inner must not be negative")

    @property
    def transition(self) -> str:
        return "window" if self.window and self.sees == "past" else "attention"

    @property
    def state_growth(self) -> Literal["constant", "length"]:
        return "constant" if self.window else "length"

    @property
    def cost(self) -> Literal["linear", "quadratic", "unknown"]:
        return "linear" if self.window and self.sees == "past" else "quadratic"

    @property
    def inner_width(self) -> int:
        return inner_width(self.feed_forward, self.d_model, self.d_inner)

    @property
    def num_writers(self) -> int:
        """Return the number of layers whose outputs add up in the stream before a norm resets it."""
        return 2 * self.num_blocks if self.norm_place == "pre" else 1

    @property
    def longest_input(self) -> int | None:
        return self.position_range or (self.max_length if self.positions == "learnt" else None)

    def block(self, layer: int) -> Block:
        behind = self.make_feed_forward()
        mixer = self.make_mixer(layer)
        block = Residual(self.d_model, [mixer, behind], norm=self.norm, place=self.norm_place, dropout=self.dropout)
        if layer == 0 and self.positions in ADDED:
            return Positioned(block, self.d_model, max_length=self.max_length, among=self.position_range)
        return block

    def make_mixer(self, layer: int) -> Layer:
        """Return the layer that mixes positions. Its projection into the stream is scaled down."""
        attention = Attention(
            self.d_model,
            self.num_heads,
            sees=self.sees,
            positions=self.positions,
            window=self.window,
            num_kv_heads=self.num_kv_heads,
            gated=self.output_gate == "sigmoid",
            among=self.position_range,
        )
        scale_down(attention.out, self.num_writers)
        return attention

    def make_feed_forward(self) -> Layer:
        """Return the layer after the attention. Its projection into the stream is scaled down like the attention's."""
        module = feed_forward(self.feed_forward, self.d_model, self.inner_width)
        scale_down(module.out, self.num_writers)
        return module

    @classmethod
    def tiny(cls) -> "TransformerConfig":
        return cls(d_model=16, num_blocks=2, num_heads=2)
