"""RNS-RNN: a recurrent controller that weighs the actions of a nondeterministic stack, and reads the mean of all runs.

    h_t = f(W x_t + U h_{t-1} + V r_{t-1} + b)        push, replace, pop = exp(A h_t), a weight for each state and top
    r_t[q, y] = weight of the runs with state q and top y after t tokens / weight of all runs

DuSell and Chiang 2021 (2109.01982), after theirs of 2020 (2010.04674): a pushdown automaton takes all of its runs at
once. A run starts in state 0 with symbol 0, which cannot be popped, and takes one action a token. Its weight is the
product of its actions' weights, which need not sum to 1. models/scans/pushdown.py sums over the runs.

Time grows with the third power of the length, memory with the second. With a `window` both are linear: a symbol can
lie under others for that many tokens, and runs that leave it there for longer end. A training step on 32 strings of 40
tokens takes five to six times as long as an LSTM block's on a CPU, more than three times the cost of a Stack-RNN.

The papers' controller is an LSTM. Here it is a tanh recurrence by default. On one seed of the climb's reversal, two
machines with LSTMs learned the training lengths and reversed no longer strings. One machine with an LSTM did.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from chomsky_ladder.models.base import ModelConfig, register
from chomsky_ladder.models.block import Block, Context, Norm, State, require
from chomsky_ladder.models.layers.machine import Machine
from chomsky_ladder.models.scans.products import product
from chomsky_ladder.models.scans.pushdown import Runs, first_runs, num_weights
from chomsky_ladder.models.scans.recurrences import controller_step


class RNSMachine(Machine):
    """The machine. Its state is the controller's, and C and B of models/scans/pushdown.py."""

    def __init__(self, config: "RNSRNNConfig") -> None:
        nodes = config.num_states * config.num_symbols
        super().__init__(config.d_model, nodes, core=config.core, dropout=config.dropout)
        self.states, self.symbols, self.window = config.num_states, config.num_symbols, config.window
        self.weigh = nn.Linear(config.d_model, num_weights(self.states, self.symbols))

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        core, *first = self.start(x_BLD[:, :0], ctx)
        runs, gates_BLG = Runs(*first, places=self.window or x_BLD.shape[1] + 1), self.controller.gates(x_BLD)
        with torch.autocast(x_BLD.device.type, enabled=False):
            y_BLD, _ = self.taken(gates_BLG, core, runs)
        return ctx.dropout(y_BLD, self.dropout)

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        core = self.controller.init_state(batch, device=device, dtype=dtype)
        places = min(max_length + 1, self.window or max_length + 1)
        runs = first_runs(batch, states=self.states, symbols=self.symbols, places=places, device=device, dtype=dtype)
        return core, *runs

    def turns(self, gates_BLG: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        core, column_BSQN, below_BSKN = state
        runs = Runs(column_BSQN, below_BSKN, places=column_BSQN.shape[3] // (self.states * self.symbols))
        y_BLD, core = self.taken(gates_BLG, core, runs)
        return y_BLD, (core, *runs.state())

    def taken(self, gates_BLG: Tensor, core: tuple[Tensor, ...], runs: Runs) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Take every token's actions in all runs. Return all h, and the controller's last state."""
        outputs = []
        for gates_BG in gates_BLG.unbind(1):
            h_BD, core = controller_step(
                gates_BG, runs.reading, core, *self.controller.weights, core=self.controller.core
            )
            runs.advance(product(h_BD, self.weigh.weight, self.weigh.bias))
            outputs.append(h_BD)
        return torch.stack(outputs, 1), core


@register
@dataclass(frozen=True, kw_only=True)
class RNSRNNConfig(ModelConfig):
    name, family, year, paper = "rns_rnn", "memory", 2021, "2109.01982"
    title = "RNS-RNN"

    num_blocks: int = 1
    """Number of machines, each of which reads the one before."""
    final_norm: Norm = "none"
    """The norm between the last block and the head."""
    core: Literal["relu", "tanh", "lstm"] = "tanh"
    """The controller's recurrence: `rnn`'s with either activation, or `lstm`'s, as in the paper."""
    num_states: int = 2
    """States of the pushdown automaton."""
    num_symbols: int = 3
    """Symbols of its stack, one of which lies at the bottom."""
    window: int = 0
    """Tokens for which a symbol can lie under others, and be uncovered again; 0 for any number."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("num_states", "num_symbols"):
            require(getattr(self, field) >= 1, f"{self.name}: {field} must be at least 1, not {getattr(self, field)}")
        require(self.window == 0 or self.window >= 2, f"{self.name}: window is 0, or at least 2, not {self.window}")

    @property
    def transition(self) -> str:
        return "" if self.window else "stack"

    @property
    def state_growth(self) -> Literal["constant", "length"]:
        return "constant" if self.window else "length"  # with its square

    @property
    def cost(self) -> Literal["linear", "unknown"]:
        return "linear" if self.window else "unknown"  # the third power of the length

    def block(self, layer: int) -> Block:
        return RNSMachine(self)

    @classmethod
    def tiny(cls) -> "RNSRNNConfig":
        return cls(d_model=16, num_blocks=2, window=9)
