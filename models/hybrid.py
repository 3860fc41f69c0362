"""A stack whose blocks other architectures lend, in a repeated pattern, as `--model.pattern mamba,mamba,transformer`.

    block l = a block of the pattern's entry l mod its length

As in Griffin (De et al. 2024, 2402.19427) and Jamba (Lieber et al. 2024, 2403.19887), with every block as its own
architecture makes it. A member is that architecture's config with the width, the dropout and, where it has them, the
heads given here, and its own defaults besides. It counts its own blocks alone, the second `mamba` above as
block 1 of 2, so that what an architecture does by depth, by turns, or from its first block on works as at home.
"""

from collections import Counter
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from chomsky_ladder.models.base import MODELS, ModelConfig, register
from chomsky_ladder.models.block import Block, Context, State, require
from chomsky_ladder.models.lstm_block import LSTMBlockConfig
from chomsky_ladder.models.transformer import TransformerConfig

GROWTHS = ("constant", "length")
COSTS = ("linear", "n log n", "quadratic")


class Member(Block):
    """A block that finds its own architecture's common module where the hybrid's is."""

    def __init__(self, block: Block, name: str) -> None:
        super().__init__()
        self.block, self.name = block, name

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        return self.block(x_BLD, self._own(ctx))

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        return self.block.init_state(batch, max_length=max_length, device=device, dtype=dtype)

    def step(self, x_BD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        return self.block.step(x_BD, state, self._own(ctx))

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        return self.block.extend(x_BLD, state, self._own(ctx))

    def _own(self, ctx: Context) -> Context:
        """A copy, which adds to the same losses, metrics and shared tensors."""
        common: Any = ctx.common
        return replace(ctx, common=common[self.name])


@register
@dataclass(frozen=True, kw_only=True)
class HybridConfig(ModelConfig):
    name, family, year, paper = "hybrid", "hybrid", 2024, "2403.19887"
    title = "Hybrid"

    num_heads: int = 4
    """Heads of the members that have heads."""
    pattern: str = f"{LSTMBlockConfig.name},{TransformerConfig.name}"
    """Names of architectures, separated by commas, that take turns as the blocks. The last turn may be cut short, but
    every name must get a block, except in a model of one block, which is the first's."""

    def __post_init__(self) -> None:
        super().__post_init__()
        known = {cls.name: cls for cls in MODELS}
        for name in self.names:
            of = f"{self.name}: pattern {self.pattern!r}"
            there = ", ".join(sorted(key for key, cls in known.items() if not _why_not(cls)))
            require(name in known, f"{of} names no model {name!r}; there are {there}")
            require(not _why_not(known[name]), f"{of}: {name} {_why_not(known[name])}; what can stand there: {there}")
        left_out = list(dict.fromkeys(name for name in self.names if name not in self.members))
        require(
            not left_out or self.num_blocks == 1,
            f"{self.name}: num_blocks={self.num_blocks} leaves no block to {', '.join(left_out)}; "
            f"the pattern has {len(self.names)}",
        )

    @property
    def names(self) -> list[str]:
        return [name.strip() for name in self.pattern.split(",")]

    @property
    def turns(self) -> list[str]:
        """The name behind each block."""
        return [self.names[layer % len(self.names)] for layer in range(self.num_blocks)]

    @property
    def members(self) -> dict[str, ModelConfig]:
        known = {cls.name: cls for cls in MODELS}
        found = {}
        for name, count in Counter(self.turns).items():
            shared = {"d_model": self.d_model, "dropout": self.dropout, "num_heads": self.num_heads}
            own = {field.name for field in fields(known[name])}
            found[name] = known[name](num_blocks=count, **{key: shared[key] for key in shared if key in own})
        return found

    @property
    def stepwise(self) -> bool:
        return all(member.stepwise for member in self.members.values())

    @property
    def transition(self) -> str:
        kinds = {member.transition for member in self.members.values()}
        return " + ".join(sorted(kinds)) if all(kinds) else ""

    @property
    def stackable(self) -> bool:
        return all(member.stackable for member in self.members.values())

    @property
    def state_growth(self) -> Literal["constant", "length"]:
        return max((member.state_growth for member in self.members.values()), key=GROWTHS.index)  # pyright: ignore[reportReturnType]

    @property
    def cost(self) -> Literal["linear", "n log n", "quadratic"]:
        return max((member.cost for member in self.members.values()), key=COSTS.index)  # pyright: ignore[reportReturnType]

    @property
    def idle_parameters(self) -> int:
        return sum(member.idle_parameters for member in self.members.values())

    def block(self, layer: int) -> Block:
        name, member = self.turns[layer], self.members[self.turns[layer]]
        block = member.block(self.turns[:layer].count(name))
        return block if member.common_module() is None else Member(block, name)

    def common_module(self) -> nn.Module | None:
        modules = {name: member.common_module() for name, member in self.members.items()}
        present = {name: module for name, module in modules.items() if module is not None}
        return nn.ModuleDict(present) if present else None

    @classmethod
    def tiny(cls) -> "HybridConfig":
        return cls(d_model=16, num_blocks=2, num_heads=2)


def _why_not(cls: type[ModelConfig]) -> str:
    """Why a model's blocks cannot stand among others; empty if they can."""
    if issubclass(cls, HybridConfig):
        return "is a pattern itself"
    if cls.build is not ModelConfig.build or cls.blocks is not ModelConfig.blocks:
        return "is no stack of blocks"
    if cls.sees != "past":
        return "sees more than the past"
    return ""
