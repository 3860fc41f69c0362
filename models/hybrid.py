"""A stack whose blocks come from other architectures, in a repeated pattern, as `--model.pattern
mamba,mamba,transformer`.

    block l = a block of the pattern's entry l mod its length

As in Griffin (De et al. 2024, 2402.19427) and Jamba (Lieber et al. 2024, 2403.19887), with every block as its own
architecture makes it. A member is that architecture's config with the width, the dropout and, where it has them, the
heads given here, and otherwise its own defaults. A member counts only its own blocks: the second `mamba` above is block
1 of 2. So what an architecture does by depth, in alternation, or from its first block on works as usual.

`settings` changes members' defaults, as `--model.settings 'kda: eigenvalues=signed; transformer: positions=none'`. Some
hybrids of the literature have a name that replaces a pattern, as `--model.pattern kimi_linear --model.num-blocks 4`. It
stands for the pattern and settings on its line, and `settings` may add to them:

    kimi_linear    3 kda, 1 transformer (positions=none)                              Kimi Team 2025 (2510.26692)
    qwen3_next     3 gated_delta_net (expand_v=2), 1 transformer (output_gate=sigmoid)              Qwen Team 2025
    olmo_hybrid    3 gated_delta_net (eigenvalues=signed, expand_v=2), 1 transformer (positions=none)    2604.03444
    samba          1 mamba, 1 sliding_window                                            Ren et al. 2024 (2406.07522)
    jamba          4 mamba, 1 transformer (positions=none), 3 mamba                  Lieber et al. 2024 (2403.19887)

These reproduce the order of layers, with the papers' positions, gates and values, from the blocks that exist here. They
lack the following. Kimi Linear, Qwen3-Next and Jamba have experts in place of feed-forwards. Samba and Jamba have a
feed-forward after Mamba, which is alone here. Attention is latent in Kimi Linear. It norms queries and keys in
Qwen3-Next and Olmo Hybrid, and in Qwen3-Next it turns only a quarter of their channels. In Qwen3-Next two heads of
values share a key, each with its own decay and b. In Olmo Hybrid keys have three quarters of the width, and the
released weights know no positions. Samba sees 2048 tokens at a time; a `sliding_window` here sees as many as its
`window` says. The order of Mamba-3's hybrids was not read, so they have a pattern and no name.
"""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from chomsky_ladder.models import _member_settings as member_settings
from chomsky_ladder.models.base import MODELS, ModelConfig, register
from chomsky_ladder.models.block import Block, Context, State, require
from chomsky_ladder.models.lstm_block import LSTMBlockConfig
from chomsky_ladder.models.transformer import TransformerConfig

GROWTHS = ("constant", "length", "unknown")
COSTS = ("linear", "n log n", "quadratic", "unknown")


class Published(NamedTuple):
    """The pattern and settings behind a name. They are part of every run that uses it, and so never change."""

    pattern: str
    settings: str = ""


PUBLISHED = {
    "kimi_linear": Published("kda,kda,kda,transformer", "transformer: positions=none"),
    "qwen3_next": Published(
        "gated_delta_net,gated_delta_net,gated_delta_net,transformer",
        "gated_delta_net: expand_v=2; transformer: output_gate=sigmoid",
    ),
    "olmo_hybrid": Published(
        "gated_delta_net,gated_delta_net,gated_delta_net,transformer",
        "gated_delta_net: eigenvalues=signed, expand_v=2; transformer: positions=none",
    ),
    "samba": Published("mamba,sliding_window"),
    "jamba": Published("mamba,mamba,mamba,mamba,transformer,mamba,mamba,mamba", "transformer: positions=none"),
}


class Member(Block):
    """A block that finds its own architecture's common module in the hybrid's."""

    def __init__(self, block: Block, name: str) -> None:
        super().__init__()
        self.block, self.name = block, name

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        return self.block(x_BLD, self._own(ctx))

    def at_asked(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        return self.block.at_asked(x_BLD, self._own(ctx))

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        return self.block.init_state(batch, max_length=max_length, device=device, dtype=dtype)

    def step(self, x_BD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        return self.block.step(x_BD, state, self._own(ctx))

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        return self.block.extend(x_BLD, state, self._own(ctx))

    def _own(self, ctx: Context) -> Context:
        """Return a copy of the context that adds to the same losses, metrics and shared tensors."""
        common: Any = ctx.common
        return replace(ctx, common=common[self.name])


@register
@dataclass(frozen=True, kw_only=True)
class HybridConfig(ModelConfig):
    name, family, year, paper = "hybrid", "hybrid", 2024, "2403.19887"
    names_others = True
    title = "Hybrid"
    known_as = {
        "Bilinear RNN + attention": {
            "short_conv": 4,
            "pattern": "bilinear_rnn,transformer",
            "settings": "transformer: positions=none",
        }
    }

    num_heads: int = 4
    """Heads of the members that have heads."""
    pattern: str = f"{LSTMBlockConfig.name},{TransformerConfig.name}"
    """Names of architectures, separated by commas, that alternate as the blocks, or the name of a published hybrid. The
    last repetition may be cut short, but every name must get a block, except in a model of one block, which is the
    first's.
    """
    settings: str = ""
    """Non-default settings of members, as 'kda: eigenvalues=signed, expand_v=2; mamba: d_state=8'."""

    def __post_init__(self) -> None:
        super().__post_init__()
        known = {cls.name: cls for cls in MODELS}
        for name in self.names:
            of = f"{self.name}: pattern {self.pattern!r}"
            there = ", ".join(sorted(key for key, cls in known.items() if not _why_not(cls)))
            named = f"there are {there}; and as a whole {', '.join(PUBLISHED)}"
            require(name in known, f"{of} names no model {name!r}; {named}")
            require(not _why_not(known[name]), f"{of}: {name} {_why_not(known[name])}; what can stand there: {there}")
        classes = {name: known[name] for name in self.names}
        usual = self.published.settings
        one_form = member_settings.settled(self.settings, classes, of=self.name, usual=usual)
        object.__setattr__(self, "settings", one_form)
        left_out = list(dict.fromkeys(name for name in self.names if name not in self.members))
        require(
            not left_out or self.num_blocks == 1,
            f"{self.name}: num_blocks={self.num_blocks} leaves no block to {', '.join(left_out)}; "
            f"the pattern has {len(self.names)}",
        )

    @property
    def published(self) -> Published:
        """Return the pattern and its settings. A pattern that is no name stands for itself."""
        return PUBLISHED.get(self.pattern.strip(), Published(self.pattern))

    @property
    def names(self) -> list[str]:
        return [name.strip() for name in self.published.pattern.split(",")]

    @property
    def turns(self) -> list[str]:
        """Return the architecture's name for each block."""
        return [self.names[layer % len(self.names)] for layer in range(self.num_blocks)]

    @property
    def members(self) -> dict[str, ModelConfig]:
        known = {cls.name: cls for cls in MODELS}
        classes = {name: known[name] for name in self.names}
        texts = (self.published.settings, self.settings)
        settings = member_settings.merged(*(member_settings.read(text, classes) for text in texts))
        return {
            name: member_settings.made(known[name], settings.get(name, {}), stack=self, num_blocks=count)
            for name, count in Counter(self.turns).items()
        }

    @property
    def stepwise(self) -> bool:
        return all(member.stepwise for member in self.members.values())

    @property
    def hands_on(self) -> bool:
        return any(member.hands_on for member in self.members.values())

    @property
    def transition(self) -> str:
        kinds = {member.transition for member in self.members.values()}
        return " + ".join(sorted(kinds)) if all(kinds) else ""

    @property
    def stackable(self) -> bool:
        return all(member.stackable for member in self.members.values())

    @property
    def state_growth(self) -> Literal["constant", "length", "unknown"]:
        return max((member.state_growth for member in self.members.values()), key=GROWTHS.index)  # pyright: ignore[reportReturnType]

    @property
    def cost(self) -> Literal["linear", "n log n", "quadratic", "unknown"]:
        return max((member.cost for member in self.members.values()), key=COSTS.index)  # pyright: ignore[reportReturnType]

    @property
    def longest_input(self) -> int | None:
        found = [member.longest_input for member in self.members.values()]
        return min((longest for longest in found if longest is not None), default=None)

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
    """Return why a model's blocks cannot stand among others; "" if they can."""
    if issubclass(cls, HybridConfig):
        return "is a pattern itself"
    if cls.build is not ModelConfig.build or cls.blocks is not ModelConfig.blocks:
        return "is no stack of blocks"
    if cls.sees != "past":
        return "sees more than the past"
    return ""
