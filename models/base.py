"""A model: a frozen config whose blocks act on the residual stream. This file also has the registry of configs.

You write ordinary PyTorch on [B, L, D], in one file. Tasks, losses, optimisers and devices are handled elsewhere:

    class Mean(Block):
        "y_t = x_t + W mean(x_1 .. x_t)"
        ...

    @register
    @dataclass(frozen=True, kw_only=True)
    class MeanConfig(ModelConfig):
        name, family, year, paper = "mean", "pooling", 2026, "none"

        def block(self, layer: int) -> Block:
            return Mean(self.d_model)

Embedding, final norm and head belong to the Backbone (models/backbone.py), which is the same for all models. `ladder
check mean` runs the conformance suite on the result.

Shape suffixes, here and everywhere: B batch, L time, D width, H heads, K key/head dim, V vocabulary or value dim,
N state, E experts, R replicas.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

from torch import nn

from chomsky_ladder.models.backbone import Backbone, Model
from chomsky_ladder.models.block import Block, Norm, require
from chomsky_ladder.models.layers.canon import Places
from chomsky_ladder.models.layers.feedback import Feedback

Device = Literal["any", "cuda"]


@dataclass(frozen=True, kw_only=True)
class ModelConfig(ABC):
    """The size and the settings of one architecture. Every field is part of the run's identity.

    Capabilities are read from the instance, so one that depends on a setting may be a property.
    """

    name: ClassVar[str]
    version: ClassVar[int] = 1  # raised whenever the same config and seed would give other numbers
    family: ClassVar[str]
    year: ClassVar[int]
    paper: ClassVar[str]
    title: ClassVar[str] = ""
    """The name in tables, with settings that make it another model: xLSTM[{ratio}]; by default its name."""
    known_as: ClassVar[dict[str, dict[str, Any]]] = {}
    """Names in tables for exactly these changes of settings."""

    sees: ClassVar[Literal["past", "prompt", "prompt_alone", "all"]] = "past"
    """What a position may depend on: the past; the whole prompt and, after it, the past; the prompt and nothing after
    it; or every valid position.
    """
    stepwise: ClassVar[bool] = True  # has init_state and step
    stackable: ClassVar[bool] = True  # forward works under vmap over parameters
    state_growth: ClassVar[Literal["constant", "length", "unknown"]] = "constant"
    cost: ClassVar[Literal["linear", "n log n", "quadratic", "unknown"]] = "linear"  # of forward, in the length
    device: ClassVar[Device] = "any"
    """The devices it runs on: any, or CUDA devices alone."""
    exact: ClassVar[bool] = True
    """True if it computes in the precision of its weights. One that uses fp32 inside is no more exact in float64."""
    packages: ClassVar[tuple[str, ...]] = ()
    """Installed packages whose code it runs. A record names their versions."""
    names_others: ClassVar[bool] = False
    """True if a setting names other models, so that these must be known first."""
    convolves: ClassVar[bool] = True
    """True if `short_conv` may stand in front of its layers: its blocks are mixers, with or without a feed-forward."""
    hands_on: ClassVar[bool] = False
    """True if a block hands tensors to later ones (`ctx.shared`)."""
    transition: ClassVar[str] = ""
    """The transition of its state, a name of harness/config/theory.py, which has the proven results. A stack of several
    kinds joins them by " + ". "" if none fits.
    """

    d_model: int = 128
    """Width of the residual stream."""
    num_blocks: int = 2
    """Number of blocks."""
    final_norm: Norm = "rms"
    """The norm between the last block and the head."""
    dropout: float = 0.0
    """Share of each block's output that is dropped in training."""
    before_head: Literal["none", "relu"] = "none"
    """The function between the final norm and the head."""
    ends_init: Literal["unit", "small"] = "unit"
    """Initial deviations of embedding and head. unit: 1 and 1/sqrt(d_model). small: sqrt(2/(5 d_model)) for both."""
    short_conv: int = 0
    """Width of a causal convolution, one filter a channel, added to what layers read; 0 for none. The author's is 4."""
    conv_places: Places = "AC"
    """Layers that read it. A: the mixer of each block. C: the feed-forward. AC: both."""
    feedback: Feedback = "none"
    """Let each block's mixer, or the whole block, also read its own output before a token."""

    def __post_init__(self) -> None:
        require(self.d_model >= 1, f"{self.name}: d_model must be at least 1, not {self.d_model}")
        require(self.num_blocks >= 1, f"{self.name}: num_blocks must be at least 1, not {self.num_blocks}")
        require(0 <= self.dropout < 1, f"{self.name}: dropout must lie in [0, 1), not {self.dropout}")
        require(
            self.short_conv in (0, *range(2, 65)), f"{self.name}: short_conv is 0, or 2 to 64, not {self.short_conv}"
        )
        require(self.convolves or not self.short_conv, f"{self.name}: short_conv stands in front of no block of it")
        placed = self.short_conv or self.conv_places == "AC"
        require(bool(placed), f"{self.name}: conv_places={self.conv_places} needs a short_conv")
        if self.feedback != "none":
            fed = self.convolves and self.stepwise and self.sees == "past" and not self.hands_on
            require(fed, f"{self.name}: feedback needs blocks that each read token after token")

    @abstractmethod
    def block(self, layer: int) -> Block:
        """Return a freshly initialised block, for the place `layer` (from 0) of `num_blocks`."""

    def blocks(self) -> list[Block]:
        """Return all blocks, from the input to the output."""
        return [self.block(layer) for layer in range(self.num_blocks)]

    def common_module(self) -> nn.Module | None:
        """Return parameters that no single block owns. Every block finds them in `ctx.common`."""
        return None

    def build(self, vocab_size: int) -> Model:
        """Return the model.

        An architecture that is not a stack of blocks overrides this and returns its own `Model`.
        """
        return Backbone(self, vocab_size)

    def unworkable(self) -> str:
        """Return why it must fail before a run begins, such as settings that a foreign module refuses; else ""."""
        return ""

    @property
    def moves(self) -> str:
        """Return the transition of its state as it is used. With feedback it is nonlinear, and nothing proven fits."""
        return self.transition if self.feedback == "none" else ""

    @property
    def longest_input(self) -> int | None:
        """Return the most positions it can take; None for any number."""
        return None

    @property
    def idle_parameters(self) -> int:
        """Return the number of parameters that a token does not use: those of experts to which it is not sent."""
        return 0

    @classmethod
    def tiny(cls) -> "ModelConfig":
        """Return a small instance for the conformance suite."""
        return cls(d_model=16, num_blocks=2)


MODELS: list[
    type[ModelConfig]
] = []  # in the order of registration; harness/config/registry.py resolves names and conflicts

AnyConfig = TypeVar("AnyConfig", bound=type[ModelConfig])


def register(cls: AnyConfig) -> AnyConfig:
    """Make a model known under its `name`."""
    MODELS.append(cls)
    return cls
