"""What a block is: one layer that acts on the residual stream, and the context that travels beside that stream.

forward(x_BLD, ctx) -> x_BLD      the whole sequence; step(x_BD, state, ctx) -> x_BD, state is one token of the same
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

State = Any  # a tensor, or tuples, lists and dicts of states: whatever a block carries from one token to the next

Backend = str  # auto, reference or the name of a kernel (models/kernels/kernel.py)
Norm = Literal["rms", "layer", "none"]


class Masks(Protocol):
    """The one thing dropout needs of a random stream."""

    def uniform(self, shape: Sequence[int]) -> Tensor: ...


@dataclass(kw_only=True)
class Context:
    """What travels beside the stream through one forward pass; made afresh for each.

    Causal blocks may ignore `valid_BL` and `prompt_B`: what stands behind a position cannot reach it anyway.
    """

    valid_BL: Tensor | None = None  # bool, positions inside the string; None: all
    prompt_B: Tensor | None = None  # positions up to the one where the first answer is read; None: all
    asked_B: Tensor | None = None  # the one position of each string whose output is wanted; None: all are
    ends: bool = False  # in the last layer that mixes positions, where nothing else is asked of its output either
    masks: Masks | None = None  # the stream of dropout; None: no dropout, as in every evaluation
    backend: Backend = "auto"  # "reference": plain torch everywhere, which stacks under vmap; else a kernel
    stacked: bool = False  # under vmap over replicas, where a kernel without a vmap rule may not be taken
    common: nn.Module | None = None  # the config's `common_module()`: parameters no single block owns
    shared: dict[str, Tensor] = field(default_factory=dict)  # what an earlier block hands to later ones
    losses: dict[str, list[Tensor]] = field(default_factory=dict)
    metrics: dict[str, list[Tensor]] = field(default_factory=dict)
    backends: set[str] = field(default_factory=set)  # the fast paths that ran, for the record
    taps: frozenset[int] = frozenset()  # layers whose stream is wanted: 0 the embedding, l the output of block l
    tapped: dict[int, Tensor] = field(default_factory=dict)
    edits: Mapping[int, Callable[[Tensor], Tensor]] = field(default_factory=dict)  # layer -> what replaces its stream

    def add_loss(self, name: str, value: Tensor) -> None:
        """Add a scalar, already weighted, to the training loss (an MoE's balance loss)."""
        self.losses.setdefault(name, []).append(value)

    def add_metric(self, name: str, value: Tensor) -> None:
        """Report a scalar; the record keeps its mean over layers."""
        self.metrics.setdefault(name, []).append(value.detach())

    def mean_valid(self, x_BLX: Tensor) -> Tensor:
        """The mean over valid positions of [B, L, ...]: the only average a loss or metric may take over them."""
        if self.valid_BL is None:
            return x_BLX.mean(dim=(0, 1))
        weight_BLX = self.valid_BL.to(x_BLX.dtype).reshape(*x_BLX.shape[:2], *(1 for _ in x_BLX.shape[2:]))
        # A product and a sum, not an einsum, which autocast would take to bf16.
        return (x_BLX * weight_BLX).sum(dim=(0, 1)) / weight_BLX.sum()

    def asked(self, x_BLX: Tensor, *, along: int = 1) -> Tensor:
        """What is asked for of [B, L, ...], [B, 1, ...]; its positions lie `along` an axis behind the first."""
        assert self.asked_B is not None
        goes_back = x_BLX.is_floating_point() and x_BLX.device.type != "cpu"
        return (summed if goes_back else gathered)(x_BLX, self.asked_B, along)

    def wanted(self, x_BLX: Tensor, *, along: int = 1) -> Tensor:
        """What a layer needs of x once it mixes positions no more: all, or, where the model `ends`, what is asked."""
        return self.asked(x_BLX, along=along) if self.ends else x_BLX

    def dropout(self, x_BLD: Tensor, rate: float) -> Tensor:
        if self.masks is None or rate == 0:
            return x_BLD
        keep_BLD = self.masks.uniform(x_BLD.shape[1:]) >= rate
        return torch.where(keep_BLD, x_BLD / (1 - rate), 0)

    def visit(self, layer: int, x: Tensor) -> Tensor:
        """The stream of a layer, after its edit if it has one, kept if it is wanted."""
        if layer in self.edits:
            x = self.edits[layer](x)
        if layer in self.taps:
            self.tapped[layer] = x
        return x


class Block(nn.Module):
    """One layer of the stream: a residual one adds to it; one that replaces it (plain LSTM) returns something new."""

    no_decay: frozenset[str] = frozenset()
    """Names of this module's own parameters without weight decay. Vectors, norms and embeddings never have any.
    This and `rate_multipliers` are read of every submodule, not of blocks alone."""
    rate_multipliers: Mapping[str, float] = {}
    """Name of an own parameter -> factor on its learning rate (S4's A, B, dt)."""
    passes: int = 1
    """How often a token goes through its weights."""

    @abstractmethod
    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        """The whole sequence at once. No in-place writes into fresh buffers: they break stacking under vmap."""

    def at_asked(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        """What `ctx.asked` takes of `forward`, of the last block; one that can do so with less work overrides."""
        return ctx.asked(self(x_BLD, ctx))

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        """The state before the first token; a cache is allocated for `max_length` tokens."""
        raise NotImplementedError

    def step(self, x_BD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        """One token; equal to `forward` (without dropout) token by token. Pure: the state given stays as it was."""
        raise NotImplementedError

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        """Several tokens on from a state (a prefill). A block with a parallel form that returns its state overrides."""
        outputs = []
        for x_BD in x_BLD.unbind(1):
            y_BD, state = self.step(x_BD, state, ctx)
            outputs.append(y_BD)
        return torch.stack(outputs, 1), state


def gathered(x_BLX: Tensor, place_B: Tensor, along: int) -> Tensor:
    """What x has at one place of each row, of an axis behind the first."""
    place = place_B.reshape(-1, *(1 for _ in x_BLX.shape[1:]))
    return x_BLX.gather(along, place.expand(*x_BLX.shape[:along], 1, *x_BLX.shape[along + 1 :]))


def summed(x_BLX: Tensor, place_B: Tensor, along: int) -> Tensor:
    """The same as a sum of nothing else: a gather goes back by filling zeros and adding to them, this one is fused."""
    behind = [1] * len(x_BLX.shape[along + 1 :])
    position = torch.arange(x_BLX.shape[along], device=x_BLX.device).view(-1, *behind)
    is_place = position == place_B.view(-1, *([1] * along), *behind)
    return torch.where(is_place, x_BLX, 0).sum(along, keepdim=True, dtype=x_BLX.dtype)


def require(condition: bool, message: str) -> None:
    """Refuse a user's setting in one line."""
    if not condition:
        raise ValueError(message)


def make_norm(kind: Norm, width: int) -> nn.Module:
    return {"rms": nn.RMSNorm, "layer": nn.LayerNorm, "none": nn.Identity}[kind](width)
