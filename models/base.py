"""What a model is: a frozen config whose blocks act on the residual stream, and the registry of such configs.

An author writes ordinary PyTorch on [B, L, D], in one file, and never meets a task, a loss, an optimiser or a device:

    class Mean(Block):
        "y_t = x_t + W mean(x_1 .. x_t)"
        ...

    @register
    @dataclass(frozen=True, kw_only=True)
    class MeanConfig(ModelConfig):
        name, family, year, paper = "mean", "pooling", 2026, "none"

        def block(self, layer: int) -> Block:
            return Mean(self.d_model)

Embedding, final norm and head belong to the Backbone (models/backbone.py), the same for all. `ladder check mean` runs
the conformance suite over the result.

Shape suffixes, here and everywhere: B batch, L time, D width, H heads, K key/head dim, V vocabulary or value dim,
N state, E experts, R replicas.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeVar

from torch import nn

from chomsky_ladder.models.backbone import Backbone, Model
from chomsky_ladder.models.block import Block, Norm, require

Device = Literal["any", "cuda"]


@dataclass(frozen=True, kw_only=True)
class ModelConfig(ABC):
    """The size and the choices of one architecture. Every field is part of the run's identity.

    Capabilities are read of the instance, so one that depends on a setting may be a property.
    """

    name: ClassVar[str]
    version: ClassVar[int] = 1  # raised whenever the same config and seed would give other numbers
    family: ClassVar[str]
    year: ClassVar[int]
    paper: ClassVar[str]
    title: ClassVar[str] = ""
    """How tables name it, with settings that make another model of it: xLSTM[{ratio}]; its name if it has none."""

    sees: ClassVar[Literal["past", "prompt", "prompt_alone", "all"]] = "past"
    """What a position may depend on: the past; the whole prompt and, past it, the past; the prompt and nothing behind
    it; or every valid position."""
    stepwise: ClassVar[bool] = True  # has init_state and step
    stackable: ClassVar[bool] = True  # forward works under vmap over parameters
    state_growth: ClassVar[Literal["constant", "length", "unknown"]] = "constant"
    cost: ClassVar[Literal["linear", "n log n", "quadratic", "unknown"]] = "linear"  # of forward, in the length
    device: ClassVar[Device] = "any"
    """Where it runs: anywhere, or on a CUDA device alone."""
    exact: ClassVar[bool] = True
    """Whether it computes in the precision of its weights throughout; if in fp32 inside, float64 shows no more."""
    packages: ClassVar[tuple[str, ...]] = ()
    """Installed packages whose code it runs; a record names their versions."""
    names_others: ClassVar[bool] = False
    """Whether a setting names other models, so that all of them must be known before it is."""
    transition: ClassVar[str] = ""
    """How its state moves, a name of harness/config/theory.py, which says what is proven of it; several joined by " + "
    for a stack of several kinds; "" where none fits."""

    d_model: int = 128
    """Width of the residual stream."""
    num_blocks: int = 2
    """Number of blocks."""
    final_norm: Norm = "rms"
    """The norm between the last block and the head."""
    dropout: float = 0.0
    """Share of each block's output that is dropped in training."""
    before_head: Literal["none", "relu"] = "none"
    """What stands between the final norm and the head."""
    ends_init: Literal["unit", "small"] = "unit"
    """Deviations at the start of embedding and head: 1 and 1/sqrt(d_model), or of both the smaller sqrt(2/(5 d_model)).
    """

    def __post_init__(self) -> None:
        require(self.d_model >= 1, f"{self.name}: d_model must be at least 1, not {self.d_model}")
        require(self.num_blocks >= 1, f"{self.name}: num_blocks must be at least 1, not {self.num_blocks}")
        require(0 <= self.dropout < 1, f"{self.name}: dropout must lie in [0, 1), not {self.dropout}")

    @abstractmethod
    def block(self, layer: int) -> Block:
        """A freshly initialised block, for the place `layer` (from 0) of `num_blocks`."""

    def blocks(self) -> list[Block]:
        """All blocks, from the input's side."""
        return [self.block(layer) for layer in range(self.num_blocks)]

    def common_module(self) -> nn.Module | None:
        """Parameters that no single block owns; every block finds them in `ctx.common`."""
        return None

    def build(self, vocab_size: int) -> Model:
        """The model. An architecture that is not a stack of blocks overrides this and returns its own `Model`."""
        return Backbone(self, vocab_size)

    def unworkable(self) -> str:
        """Why it can be seen to fail before a run begins: settings that a foreign module does not take; "" if not."""
        return ""

    @property
    def longest_input(self) -> int | None:
        """The most positions it can take; None for any number."""
        return None

    @property
    def idle_parameters(self) -> int:
        """How many parameters a token does not use: those of the experts it is not sent to."""
        return 0

    @classmethod
    def tiny(cls) -> "ModelConfig":
        """A small instance for the conformance suite."""
        return cls(d_model=16, num_blocks=2)


MODELS: list[
    type[ModelConfig]
] = []  # in the order of registration; harness/config/registry.py settles names and conflicts

AnyConfig = TypeVar("AnyConfig", bound=type[ModelConfig])


def register(cls: AnyConfig) -> AnyConfig:
    """Make a model known under its `name`."""
    MODELS.append(cls)
    return cls
