"""Shared configs of models whose blocks are a mixer of positions and a feed-forward.

    x = x + mixer(norm(x))        x = x + feed_forward(norm(x))

Both projections into the stream, `out`, are divided by sqrt(2 blocks) at the start. A model's file says what its mixer
is, and may have another feed-forward or norm.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from chomsky_ladder.models.base import ModelConfig
from chomsky_ladder.models.block import Block, Norm, require
from chomsky_ladder.models.layers.feed_forward import SwiGLU, swiglu_width
from chomsky_ladder.models.layers.residual import Layer, Residual, scale_down


@dataclass(frozen=True, kw_only=True)
class MixerConfig(ModelConfig):
    norm: ClassVar[Norm] = "rms"
    """The norm before each layer."""

    d_inner: int = 0
    """Width inside the feed-forward; 0 for 8/3 of the model's, rounded up to a multiple of 8."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.d_inner >= 0, f"{self.name}: d_inner must not be negative")

    @abstractmethod
    def mixer(self, layer: int) -> Layer:
        """Return the layer that mixes positions, whose projection into the stream is `out`."""

    def feed_forward(self) -> Layer:
        """Return the layer behind the mixer, whose projection into the stream is `out`."""
        return SwiGLU(self.d_model, swiglu_width(self.d_model, self.d_inner))

    def block(self, layer: int) -> Block:
        layers: list[Any] = [self.mixer(layer), self.feed_forward()]
        for each in layers:
            scale_down(each.out, 2 * self.num_blocks)
        return Residual(self.d_model, layers, norm=self.norm, dropout=self.dropout)


@dataclass(frozen=True, kw_only=True)
class HeadsConfig(MixerConfig):
    num_heads: int = 4
    """Heads; they divide the width evenly."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.num_heads >= 1 and self.d_model % self.num_heads == 0,
            f"{self.name}: d_model={self.d_model} does not split into {self.num_heads} heads",
        )
