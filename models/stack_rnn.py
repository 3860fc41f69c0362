"""Stack-RNN: a recurrent controller that pushes onto differentiable stacks, pops them, or leaves them alone.

    h_t = f(W x_t + U h_{t-1} + V top_{t-1} + b)        push, pop, stay = softmax(A h_t)        v = P h_t
    S_t[0] = push v + pop S_{t-1}[1] + stay S_{t-1}[0]
    S_t[n] = push S_{t-1}[n-1] + pop S_{t-1}[n+1] + stay S_{t-1}[n]

Joulin and Mikolov 2015 (1503.01007), in the form of Deletang et al. 2022 (2207.02098): a ReLU recurrence or an LSTM as
the controller, and values of any sign. Every stack has its own softmax; in the paper they share one.

A stack starts empty, that is 0, and has `stack_depth` cells. What is pushed below the last one is lost, and 0 moves up
from there. n tokens push at most n cells, so nothing is lost on inputs of up to `stack_depth` positions. In a
transduction, whose answers are popped, this holds for lengths up to twice that. `forward` only keeps cells that tokens
may have filled and later ones may read.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from chomsky_ladder.models.base import ModelConfig, register
from chomsky_ladder.models.block import Block, Context, Norm, State, require
from chomsky_ladder.models.layers.machine import Machine
from chomsky_ladder.models.operations.moves import stack_machine

SPAN = 64  # tokens for which a stack has one size


class StackMachine(Machine):
    """The machine. Its state is the controller's and the stacks [B, H, N, W], the top at n = 0."""

    def __init__(self, config: "StackRNNConfig") -> None:
        reads = config.num_stacks * config.stack_cell
        super().__init__(config.d_model, reads, core=config.core, dropout=config.dropout)
        self.num_stacks, self.cell, self.depth = config.num_stacks, config.stack_cell, config.stack_depth
        self.action_value = nn.Linear(config.d_model, self.num_stacks * (3 + self.cell))

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        (core, stack_BHNW), length, outputs = self.start(x_BLD, ctx), x_BLD.shape[1], []
        whole_BHNW = stack_BHNW[:, :, : length // 2 + 1]  # half of the tokens fill them, half read them
        # A kernel takes all tokens at once. Spans stay with the plain form, which multiplies each by the weights alone:
        # one product of all would sum gradients in another order.
        if stack_machine.chosen(whole_BHNW, ctx):
            return ctx.dropout(self.extend(x_BLD, (core, whole_BHNW), ctx)[0], self.dropout)
        for first, part_BLD in zip(range(0, length, SPAN), x_BLD.split(SPAN, 1), strict=True):
            # A token fills one more and reads one: cells deeper than the number of tokens left are never read.
            cells = min(self.depth, first + part_BLD.shape[1], length - first)
            missing = max(0, cells - stack_BHNW.shape[2])
            stack_BHNW = nn.functional.pad(stack_BHNW[:, :, :cells], (0, 0, 0, missing))
            y_BLD, (core, stack_BHNW) = self.extend(part_BLD, (core, stack_BHNW), ctx)
            outputs.append(y_BLD)
        return ctx.dropout(torch.cat(outputs, 1), self.dropout)

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        core = self.controller.init_state(batch, device=device, dtype=dtype)
        return core, torch.zeros(batch, self.num_stacks, self.depth, self.cell, device=device, dtype=dtype)

    def turns(self, gates_BLG: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        core, stack_BHNW = state
        weights = (*self.controller.weights, self.action_value.weight, self.action_value.bias)
        y_BLD, (*core, stack_BHNW) = stack_machine(
            ctx, gates_BLG, weights, (*core, stack_BHNW), core=self.controller.core
        )
        return y_BLD, (tuple(core), stack_BHNW)


@register
@dataclass(frozen=True, kw_only=True)
class StackRNNConfig(ModelConfig):
    name, family, year, paper = "stack_rnn", "memory", 2022, "2207.02098"
    title = "Stack-RNN"
    transition = "stack"

    num_blocks: int = 1
    """Number of machines, each of which reads the one before."""
    final_norm: Norm = "none"
    """The norm between the last block and the head."""
    core: Literal["relu", "tanh", "lstm"] = "relu"
    """The controller's recurrence: `rnn`'s with either activation, or `lstm`'s."""
    num_stacks: int = 1
    """Stacks of each machine."""
    stack_cell: int = 8
    """Numbers in a cell."""
    stack_depth: int = 512
    """Cells of a stack. What is pushed below the last is lost."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("num_stacks", "stack_cell", "stack_depth"):
            require(getattr(self, field) >= 1, f"{self.name}: {field} must be at least 1, not {getattr(self, field)}")

    def block(self, layer: int) -> Block:
        return StackMachine(self)

    @classmethod
    def tiny(cls) -> "StackRNNConfig":
        return cls(d_model=16, num_blocks=2, num_stacks=2, stack_cell=3, stack_depth=9)
