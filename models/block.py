"""A block: one layer that acts on the residual stream. This file also has the context that accompanies the stream.

forward(x_BLD, ctx) -> x_BLD      the whole sequence; step(x_BD, state, ctx) -> x_BD, state is one token of the same
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

State = Any  # a tensor, or tuples, lists and dicts of states: what a block carries from one token to the next

Backend = str  # auto, reference or the name of a kernel (models/kernels/kernel.py)
Norm = Literal["rms", "layer", "none"]


class Masks(Protocol):
    """The part of a random stream that dropout needs."""

    def uniform(self, shape: Sequence[int]) -> Tensor: ...


@dataclass(kw_only=True)
class Context:
    """The data that accompany the stream in one forward pass. Each pass has a new one.

    Causal blocks may ignore `valid_BL` and `prompt_B`, since later positions cannot affect earlier ones anyway.
    """

    valid_BL: Tensor | None = None  # bool, positions inside the string; None: all
    prompt_B: Tensor | None = None  # positions up to the one where the first answer is read; None: all
    asked_B: Tensor | None = None  # the one position of each string whose output is needed; None: all are
    ends: bool = False  # in the last layer that mixes positions, if only asked outputs are needed
    masks: Masks | None = None  # the stream of dropout; None: no dropout, as in every evaluation
    backend: Backend = "auto"  # "reference": plain torch everywhere, which stacks under vmap; else a kernel
    stacked: bool = False  # under vmap over replicas: only kernels with a vmap rule may be used
    common: nn.Module | None = None  # the config's `common_module()`: parameters no single block owns
    shared: dict[str, Tensor] = field(default_factory=dict)  # tensors that an earlier block hands to later ones
    losses: dict[str, list[Tensor]] = field(default_factory=dict)
    metrics: dict[str, list[Tensor]] = field(default_factory=dict)
    backends: set[str] = field(default_factory=set)  # the kernels that ran, for the record
    taps: frozenset[int] = frozenset()  # layers whose stream is kept: 0 the embedding, l the output of block l
    tapped: dict[int, Tensor] = field(default_factory=dict)
    edits: Mapping[int, Callable[[Tensor], Tensor]] = field(default_factory=dict)  # layer -> what replaces its stream

    def add_loss(self, name: str, value: Tensor) -> None:
        """Add a scalar, already weighted, to the training loss (for example an MoE's balance loss)."""
        self.losses.setdefault(name, []).append(value)

    def add_metric(self, name: str, value: Tensor) -> None:
        """Report a scalar. The record keeps its mean over layers."""
        self.metrics.setdefault(name, []).append(value.detach())

    def mean_valid(self, x_BLX: Tensor) -> Tensor:
        """Return the mean over valid positions of [B, L, ...], the only average over them that losses may take."""
        if self.valid_BL is None:
            return x_BLX.mean(dim=(0, 1))
        weight_BLX = self.valid_BL.to(x_BLX.dtype).reshape(*x_BLX.shape[:2], *(1 for _ in x_BLX.shape[2:]))
        # A product and a sum, not an einsum, which autocast would run in bf16.
        return (x_BLX * weight_BLX).sum(dim=(0, 1)) / weight_BLX.sum()

    def asked(self, x_BLX: Tensor, *, along: int = 1) -> Tensor:
        """Return the asked positions of [B, L, ...] as [B, 1, ...].

        `along` is the axis of positions, after the first.
        """
        assert self.asked_B is not None
        goes_back = x_BLX.is_floating_point() and x_BLX.device.type != "cpu"
        return (summed if goes_back else gathered)(x_BLX, self.asked_B, along)

    def wanted(self, x_BLX: Tensor, *, along: int = 1) -> Tensor:
        """Return what layers after the mixing of positions need of x: all, or if the model `ends`, asked positions."""
        return self.asked(x_BLX, along=along) if self.ends else x_BLX

    def dropout(self, x_BLD: Tensor, rate: float) -> Tensor:
        if self.masks is None or rate == 0:
            return x_BLD
        keep_BLD = self.masks.uniform(x_BLD.shape[1:]) >= rate
        return torch.where(keep_BLD, x_BLD / (1 - rate), 0)

    def visit(self, layer: int, x: Tensor) -> Tensor:
        """Return the stream of a layer, after its edit if it has one. Keep it if it is tapped."""
        if layer in self.edits:
            x = self.edits[layer](x)
        if layer in self.taps:
            self.tapped[layer] = x
        return x


class Block(nn.Module):
    """One layer of the stream. A residual block adds to it; one that replaces it (plain LSTM) returns something new."""

    no_decay: frozenset[str] = frozenset()
    """Names of this module's own parameters without weight decay. Vectors, norms and embeddings never have any. This
    and `rate_multipliers` are read from every submodule, not only from blocks.
    """
    rate_multipliers: Mapping[str, float] = {}
    """Maps the name of an own parameter to a factor on its learning rate (S4's A, B, dt)."""
    passes: int = 1
    """The number of times a token passes through its weights."""

    @abstractmethod
    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        """Process the whole sequence at once.

        Do not write in place into fresh buffers: this breaks stacking under vmap.
        """

    def at_asked(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        """Return `ctx.asked` of `forward`, for the last block. A block that can do this with less work overrides it."""
        return ctx.asked(self(x_BLD, ctx))

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        """Return the state before the first token. A cache is allocated for `max_length` tokens."""
        raise NotImplementedError

    def step(self, x_BD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        """Process one token, equal to `forward` (without dropout) token by token. The given state is not changed."""
        raise NotImplementedError

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        """Process several tokens from a state (a prefill).

        A block with a parallel form that returns its state overrides this.
        """
        outputs = []
        for x_BD in x_BLD.unbind(1):
            y_BD, state = self.step(x_BD, state, ctx)
            outputs.append(y_BD)
        return torch.stack(outputs, 1), state


def gathered(x_BLX: Tensor, place_B: Tensor, along: int) -> Tensor:
    """Return x at one place of each row, along an axis after the first."""
    place = place_B.reshape(-1, *(1 for _ in x_BLX.shape[1:]))
    return x_BLX.gather(along, place.expand(*x_BLX.shape[:along], 1, *x_BLX.shape[along + 1 :]))


def summed(x_BLX: Tensor, place_B: Tensor, along: int) -> Tensor:
    """Return the same by a masked sum.

    The backward pass of a gather fills zeros and adds to them; this one is fused.
    """
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
