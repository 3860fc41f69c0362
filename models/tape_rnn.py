"""Tape-RNN: a recurrent controller that writes under the head of a differentiable tape and moves it, by one cell or
far.

    h_t = f(W x_t + U h_{t-1} + V T_{t-1}[0] + b)        a_t = softmax(A h_t)        T' = T_{t-1} with T'[0] = mlp(h_t)
    T_t[n] = a_stay T'[n] + a_left T'[n+1] + a_right T'[n-1] + a_far_left T'[n+j] + a_far_right T'[n-j]

Deletang et al. 2022 (2207.02098), after Suzgun et al. 2019 (1911.03329). Cell 0 is under the head: the tape moves. The
tape is a ring of `tape_cells` cells, 0 at the start: cell -1 is the last, and what is written goes round.

A far move is by j cells. In the paper j is the length of the input (the string before the first answer), which the
machine knows from the first token on. That is no function of the past (`jump="input"`: it sees the prompt, and has no
step). By default j is the number of tokens before this one. At the token where the first answer is read, the place from
which to rewind the tape, the two are equal. Before it, the machine is not told what it cannot know, and after it j
grows.

    3 1 4 ACT . .        j = 0 1 2 3 4 5, or with `jump="input"` 3 at every token
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor, nn

from chomsky_ladder.models.base import ModelConfig, register
from chomsky_ladder.models.block import Block, Context, Norm, State, require
from chomsky_ladder.models.layers.machine import Machine
from chomsky_ladder.models.operations.moves import tape_machine


class TapeMachine(Machine):
    """The machine. Its state is the controller's, the tapes [B, H, N, W], the head at n = 0, and the jump [B]. Inside
    `forward` all rows are at one token, so the jump is a number, and moving by it needs no gathering.
    """

    def __init__(self, config: "TapeRNNConfig") -> None:
        reads = config.num_tapes * config.tape_cell
        super().__init__(config.d_model, reads, core=config.core, dropout=config.dropout)
        self.num_tapes, self.cell, self.cells = config.num_tapes, config.tape_cell, config.tape_cells
        self.knows_input = config.jump == "input"
        self.action = nn.Linear(config.d_model, self.num_tapes * 5)
        widths = [config.d_model, *[config.write_width] * 2, reads]
        self.write = nn.ModuleList(nn.Linear(*pair) for pair in pairwise(widths))

    def start(self, x_BLD: Tensor, ctx: Context) -> State:
        core, tape_BHNW, _ = super().start(x_BLD, ctx)
        if not self.knows_input:
            return core, tape_BHNW, 0
        return core, tape_BHNW, x_BLD.shape[1] - 1 if ctx.prompt_B is None else ctx.prompt_B - 1

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        core = self.controller.init_state(batch, device=device, dtype=dtype)
        tape_BHNW = torch.zeros(batch, self.num_tapes, self.cells, self.cell, device=device, dtype=dtype)
        return core, tape_BHNW, torch.zeros(batch, device=device, dtype=torch.int64)

    def turns(self, gates_BLG: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        core, tape_BHNW, jump = state
        asks: Any = (part for layer in (self.action, *self.write) for part in (layer.weight, layer.bias))
        weights, grows = (*self.controller.weights, *asks), not self.knows_input
        y_BLD, (*core, tape_BHNW) = tape_machine(
            ctx, gates_BLG, weights, (*core, tape_BHNW), core=self.controller.core, jump=jump, grows=grows
        )
        return y_BLD, (tuple(core), tape_BHNW, jump + gates_BLG.shape[1] if grows else jump)


@register
@dataclass(frozen=True, kw_only=True)
class TapeRNNConfig(ModelConfig):
    name, family, year, paper = "tape_rnn", "memory", 2022, "2207.02098"
    title = "Tape-RNN"
    transition = "tape"

    num_blocks: int = 1
    """Number of machines, each of which reads the one before."""
    final_norm: Norm = "none"
    """The norm between the last block and the head."""
    core: Literal["relu", "tanh", "lstm"] = "relu"
    """The controller's recurrence: `rnn`'s with either activation, or `lstm`'s."""
    num_tapes: int = 1
    """Tapes of each machine."""
    tape_cell: int = 8
    """Numbers in a cell."""
    tape_cells: int = 256
    """Cells of a tape, which is a ring."""
    write_width: int = 64
    """Width of the two hidden layers of ReLU between the controller and the written value."""
    jump: Literal["past", "input"] = "past"
    """Cells of a far move: the number of tokens before this one, or before the first answer is read."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("num_tapes", "tape_cell", "tape_cells", "write_width"):
            require(getattr(self, field) >= 1, f"{self.name}: {field} must be at least 1, not {getattr(self, field)}")

    @property
    def sees(self) -> Literal["past", "prompt"]:
        return "prompt" if self.jump == "input" else "past"

    @property
    def stepwise(self) -> bool:
        return self.jump == "past"

    def block(self, layer: int) -> Block:
        return TapeMachine(self)

    @classmethod
    def tiny(cls) -> "TapeRNNConfig":
        return cls(d_model=16, num_blocks=2, num_tapes=2, tape_cell=3, tape_cells=9, write_width=8)
