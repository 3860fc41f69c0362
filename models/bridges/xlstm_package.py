"""The block stack of the xLSTM authors' package, unchanged, behind our embedding and head.

    --plugin chomsky_ladder.models.bridges.xlstm_package --model.slstm-at 1 --model.num-blocks 2

`slstm_at` names the blocks that are sLSTM; the others are mLSTM. Every string is padded to `context_length` inside an
mLSTM's mask, which is made once. The sLSTM runs the package's backend for CPUs. Our own `xlstm` computes the same
(tests/oracles_external/test_xlstm_package.py), faster and with a step form. Use this one for features that only the
package has.
"""

from dataclasses import dataclass
from typing import Any

from torch import nn

from chomsky_ladder.models.base import register
from chomsky_ladder.models.block import Norm, require
from chomsky_ladder.models.bridges import needed
from chomsky_ladder.models.plain import PlainStackConfig


@register
@dataclass(frozen=True, kw_only=True)
class XLSTMPackageConfig(PlainStackConfig):
    name, family, year, paper = "xlstm_package", "bridge", 2024, "2405.04517"
    exact = False  # the sLSTM's cell is made in fp32
    cost = "quadratic"
    packages = ("xlstm",)

    final_norm: Norm = "none"
    """The norm between the package's own and the head."""
    num_heads: int = 4
    """Heads of every block."""
    slstm_at: tuple[int, ...] = (1,)
    """The blocks, from 0, that are sLSTM."""
    context_length: int = 1024
    """The longest string it takes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        there = all(0 <= place < self.num_blocks for place in self.slstm_at)
        require(there or self.num_blocks == 1, f"{self.name}: slstm_at={self.slstm_at}, of {self.num_blocks} blocks")
        require(self.d_model % self.num_heads == 0, f"{self.name}: {self.d_model} does not split into heads")

    @property
    def longest_input(self) -> int | None:
        return self.context_length

    def make(self) -> nn.Module:
        xlstm: Any = needed("xlstm", install="xlstm>=2.0.6")
        places = [place for place in self.slstm_at if place < self.num_blocks]
        mlstm = xlstm.mLSTMLayerConfig(num_heads=self.num_heads)
        slstm = xlstm.sLSTMLayerConfig(backend="vanilla", num_heads=self.num_heads, dtype="float32")
        feed_forward = xlstm.FeedForwardConfig(proj_factor=4 / 3, act_fn="gelu")
        settings = xlstm.xLSTMBlockStackConfig(
            mlstm_block=xlstm.mLSTMBlockConfig(mlstm=mlstm),
            slstm_block=xlstm.sLSTMBlockConfig(slstm=slstm, feedforward=feed_forward),
            context_length=self.context_length,
            num_blocks=self.num_blocks,
            embedding_dim=self.d_model,
            slstm_at=places,
        )
        return xlstm.xLSTMBlockStack(settings)
