"""A layer of flash-linear-attention, on a CUDA device: x + layer(norm(x)), x + SwiGLU(norm(x)).

    --plugin chomsky_ladder.models.bridges.fla --model.layer GatedDeltaNet --model.args '{"allow_neg_eigval": true}'

`layer` is a class of `fla.layers` that is called with the stream and returns (output, None, cache), as most do. The
number of heads is given here, and each has its share of the width, where the class has such settings; its own defaults
are large. `args` take precedence. Three kinds are left out: classes that need another layer's tensors (the YOCO
classes), the mixture whose loss would be lost (MoM) and quantised attention (BitAttention). The layers compute in fp32
inside and in Triton, so replicas do not stack, and strings of up to 64 positions are scored with another of their
kernels than in training. This was written from their documented signatures. The glue was tested here, but not on a GPU.
"""

import inspect
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from chomsky_ladder.models.base import register
from chomsky_ladder.models.block import require
from chomsky_ladder.models.bridges import needed
from chomsky_ladder.models.plain import PlainArgsConfig, PlainLayerConfig

LEFT_OUT = ("YOCO", "MoM", "MomAttention", "BitAttention")


class Outermost(nn.Module):
    """A layer of theirs whose first output is the stream."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x_BLD: Tensor) -> Any:
        return self.layer(x_BLD, use_cache=False)


@register
@dataclass(frozen=True, kw_only=True)
class FLAConfig(PlainArgsConfig, PlainLayerConfig):
    name, family, year, paper = "fla", "bridge", 2024, "2312.06635"
    device, exact = "cuda", False
    packages = ("flash-linear-attention", "fla-core")

    layer: str = "GatedDeltaNet"
    """A class of fla.layers."""
    num_heads: int = 4
    """Heads, if the class has them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.d_model % self.num_heads == 0, f"{self.name}: {self.d_model} does not split into heads")
        require(not self.layer.startswith(LEFT_OUT), f"{self.name}: {self.layer} does not stand alone in a block")

    def make(self) -> nn.Module:
        layers: Any = needed("fla.layers", install="flash-linear-attention>=0.6")
        cls: Any = getattr(layers, self.layer, None)
        require(isinstance(cls, type), f"fla.layers has no class {self.layer!r}")
        ours = {
            "hidden_size": self.d_model,
            "num_heads": self.num_heads,
            "head_dim": self.d_model // self.num_heads,
            "num_hidden_layers": self.num_blocks,
            "layer_idx": 0,
        }
        known = inspect.signature(cls).parameters
        return Outermost(cls(**({name: value for name, value in ours.items() if name in known} | self.given)))
