"""Stack attention: a Transformer that replaces the attention of its middle block by a differentiable stack.

    push, pop, stay = softmax(A x_t)        v = V x_t        y_t = W_o S_t[0]
    S_t[0] = push v + pop S_{t-1}[1] + stay S_{t-1}[0]
    S_t[n] = push S_{t-1}[n-1] + pop S_{t-1}[n+1] + stay S_{t-1}[n]

DuSell and Chiang 2023 (2310.01749), in the form with a superposition stack (Joulin and Mikolov 2015, 1503.01007): S_t
is the mean of the stacks after every sequence of actions, by its probability. So y_t attends to all v that may be on
top. Unlike a Stack-RNN's, actions depend on the token's own stream and not on what was read. The stack starts empty,
that is 0, and a pop of its last cell leaves 0.

The authors replace the third attention of five. Here it is that of block `num_blocks // 2`, from 0. Their cells are as
wide as the stream on formal languages, with one stack. All else is `transformer`, with its settings. Theirs are
`positions=sinusoidal`, `norm=layer`, `feed_forward=relu`. Their second form, a nondeterministic automaton, is not here.

A stack has a cell for every token, so that nothing is lost. `forward` keeps those that tokens may have filled and later
ones may read.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from chomsky_ladder.models.base import register
from chomsky_ladder.models.block import Context, State, require
from chomsky_ladder.models.layers.residual import Layer, OneForm, scale_down
from chomsky_ladder.models.operations.moves import after_moves
from chomsky_ladder.models.operations.moves.reference import of_stack
from chomsky_ladder.models.transformer import TransformerConfig

ACTIONS = 3
SPAN = 8  # tokens for which a stack has one size


class StackAttention(OneForm):
    """The layer. Its state is the stacks [B, H, N, W], the top at n = 0."""

    heeds_asked = True

    def __init__(self, width: int, *, num_stacks: int, cell: int) -> None:
        super().__init__()
        self.num_stacks, self.cell = num_stacks, cell
        self.action_value = nn.Linear(width, num_stacks * (ACTIONS + cell), bias=False)
        self.out = nn.Linear(num_stacks * cell, width, bias=False)

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        (batch, length), tops = x_BLD.shape[:2], []
        stack_BHNW = self.init_state(batch, max_length=0, device=x_BLD.device, dtype=x_BLD.dtype)
        for first, asked_BLX in zip(range(0, length, SPAN), self.action_value(x_BLD).split(SPAN, 1), strict=True):
            # A token fills one more, and reads after at most one pop: deeper cells than tokens are left are never read.
            cells = min(first + asked_BLX.shape[1], length - first + 1)
            missing = max(0, cells - stack_BHNW.shape[2])
            stack_BHNW = nn.functional.pad(stack_BHNW[:, :, :cells], (0, 0, 0, missing))
            top_BLX, stack_BHNW = self.moved(asked_BLX, stack_BHNW, ctx)
            tops.append(top_BLX)
        return self.read(ctx.wanted(torch.cat(tops, 1)))

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        held = torch.promote_types(dtype, torch.float32)
        return torch.zeros(batch, self.num_stacks, max_length, self.cell, device=device, dtype=held)

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        top_BLX, state = self.moved(self.action_value(x_BLD), state, ctx)
        return self.read(top_BLX), state

    def moved(self, asked_BLX: Tensor, stack_BHNW: Tensor, ctx: Context) -> tuple[Tensor, Tensor]:
        """Return the tops after every token [B, L, H W], and the stacks after the last."""
        asked_BLHX = asked_BLX.to(stack_BHNW.dtype).unflatten(-1, (self.num_stacks, -1))
        action_BLHA, value_BLHW = asked_BLHX.split([ACTIONS, self.cell], -1)
        moves, tops = of_stack(stack_BHNW.shape[2]), []
        with torch.autocast(asked_BLX.device.type, enabled=False):
            for share_BHA, value_BHW in zip(action_BLHA.softmax(-1).unbind(1), value_BLHW.unbind(1), strict=True):
                stack_BHNW = after_moves(ctx, value_BHW, stack_BHNW, share_BHA, moves, replaces=False)
                tops.append(stack_BHNW[:, :, 0].flatten(1))
        return torch.stack(tops, 1), stack_BHNW

    def read(self, top_BLX: Tensor) -> Tensor:
        return self.out(top_BLX.to(self.out.weight.dtype))


@register
@dataclass(frozen=True, kw_only=True)
class StackAttentionConfig(TransformerConfig):
    name, family, year, paper = "stack_attention", "attention", 2023, "2310.01749"
    title = "Stack attention"

    num_stacks: int = 1
    """Stacks, each with its own actions."""
    stack_cell: int = 0
    """Numbers in a cell of a stack; 0 for the model's width."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.num_stacks >= 1, f"{self.name}: num_stacks must be at least 1, not {self.num_stacks}")
        require(self.stack_cell >= 0, f"{self.name}: stack_cell must not be negative")

    @property
    def transition(self) -> str:
        return ""  # nothing is proven of a stack that tokens move by themselves, after attention

    @property
    def state_growth(self) -> Literal["constant", "length"]:
        return "length"

    @property
    def cost(self) -> Literal["linear", "quadratic"]:
        return "quadratic"

    def make_mixer(self, layer: int) -> Layer:
        if layer != self.num_blocks // 2:
            return super().make_mixer(layer)
        stack = StackAttention(self.d_model, num_stacks=self.num_stacks, cell=self.stack_cell or self.d_model)
        scale_down(stack.out, self.num_writers)
        return stack

    @classmethod
    def tiny(cls) -> "StackAttentionConfig":
        return cls(d_model=16, num_blocks=2, num_heads=2, num_stacks=2, stack_cell=3)
