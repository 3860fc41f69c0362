"""The looped Transformer: the same blocks applied several times, each time with the input added to their last output.

    z_l = blocks(z_{l-1} + x)  for l = 1 .. loops, z_0 = 0        z_l = blocks(z_{l-1}), z_0 = x  with `injection=none`

The blocks are those of `transformer`, with its settings, so depth costs no parameters. Dehghani et al. 2018
(1807.03819) tie all layers of a Transformer. Adding the input in every loop is from Yang et al. 2023 (2311.12424) and
Fan et al. 2024 (2409.15647). The latter use no positions, the default here, and as many loops as the task has steps.
Vectors for positions, if used, are added in every loop.

`loops=0` has a number that grows with the string, as theirs: the output of position t, from 0, is that of loop t + 1.
So the depth of the last one is the number of tokens, and no position needs to know what comes behind it. Earlier
positions go on in later loops, for those behind them. A step would repeat them all, so there is none. Time grows as the
cube of the length: 40 tokens go through 40 loops.

Every loop keeps its own keys and values: a state for stepping is `loops` times as large as that of the blocks. What the
blocks write into the stream is divided by sqrt(2 blocks loops) at the start, as in a stack of that depth; by sqrt(2
blocks) if the number grows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from chomsky_ladder.models.base import register
from chomsky_ladder.models.block import Block, Context, State, require
from chomsky_ladder.models.layers.positions import Positions
from chomsky_ladder.models.transformer import TransformerConfig


class Looped(Block):
    """Blocks applied in loops; 0 for as many as a position has tokens. The state is a list of the loops' lists of the
    blocks' states.
    """

    def __init__(self, blocks: Sequence[Block], *, loops: int, injected: bool) -> None:
        super().__init__()
        self.blocks: Any = nn.ModuleList(blocks)
        self.loops, self.passes = loops, max(1, loops)
        self.injected = injected

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        if self.loops == 0:
            return self._growing(x_BLD, ctx)
        z_BLD, last = self._before_last(x_BLD, ctx)
        return last(z_BLD, ctx)

    def _growing(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        z_BLD, outputs = None, []
        for place in range(x_BLD.shape[1]):
            z_BLD = self._next(x_BLD, z_BLD)
            for block in self.blocks:
                z_BLD = block(z_BLD, ctx)
            outputs.append(z_BLD[:, place])
        return torch.stack(outputs, 1)

    def at_asked(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        if self.loops == 0:
            return super().at_asked(x_BLD, ctx)
        z_BLD, last = self._before_last(x_BLD, ctx)
        return last.at_asked(z_BLD, ctx)

    def _before_last(self, x_BLD: Tensor, ctx: Context) -> tuple[Tensor, Block]:
        """Return the input of the last block in the last loop, and that block."""
        z_BLD: Any = None
        for turn in range(self.loops):
            z_BLD = self._next(x_BLD, z_BLD)
            for block in self.blocks[: -1 if turn == self.loops - 1 else None]:
                z_BLD = block(z_BLD, ctx)
        return z_BLD, self.blocks[-1]

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        size = {"max_length": max_length, "device": device, "dtype": dtype}
        return [[block.init_state(batch, **size) for block in self.blocks] for _ in range(self.loops)]

    def step(self, x_BD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        return self._carry("step", x_BD, state, ctx)

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        return self._carry("extend", x_BLD, state, ctx)

    def _carry(self, form: Literal["step", "extend"], x: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        z: Any = None
        after = []
        for turn in state:
            z, held = self._next(x, z), []
            for block, before in zip(self.blocks, turn, strict=True):
                z, behind = getattr(block, form)(z, before, ctx)
                held.append(behind)
            after.append(held)
        return z, after

    def _next(self, x: Tensor, z: Tensor | None) -> Tensor:
        if z is None:
            return x
        return z + x if self.injected else z


@register
@dataclass(frozen=True, kw_only=True)
class LoopedTransformerConfig(TransformerConfig):
    name, family, year, paper = "looped_transformer", "attention", 2024, "2409.15647"
    title = "Looped Transformer"

    positions: Positions = "none"
    """The encoding of positions, as in `transformer`."""
    loops: int = 3
    """The number of times that the blocks are applied; 0 for as many as a position has tokens up to itself."""
    injection: Literal["input", "none"] = "input"
    """The tensor added to the stream before every loop but the first."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.loops >= 0, f"{self.name}: loops must not be negative")

    @property
    def transition(self) -> str:
        if self.loops == 0:
            return ""
        return "window" if self.window else "looped attention"

    @property
    def stepwise(self) -> bool:
        return self.loops > 0

    @property
    def cost(self) -> Literal["linear", "quadratic", "unknown"]:
        return super().cost if self.loops else "unknown"

    @property
    def num_writers(self) -> int:
        return max(1, self.loops) * super().num_writers if self.norm_place == "pre" else 1

    def blocks(self) -> list[Block]:
        return [Looped(super().blocks(), loops=self.loops, injected=self.injection == "input")]
