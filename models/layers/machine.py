"""Machines: a recurrent controller that acts on a memory and receives what it read at the next token.

    h_t = controller(x_t, r_{t-1}, h_{t-1})        memory_t, r_t = act(memory_{t-1}, what h_t asks for)

This is the shared time loop of `stack_rnn`, `tape_rnn`, `ntm`, `dnc` and `rns_rnn`. Every action depends on what was
read before, so there is no parallel form in time. Only the product with x_t and the output projection are outside the
loop. On CUDA one kernel computes all of it, except in `rns_rnn` and with a `feed_forward` controller.

The controller is `rnn`'s or `lstm`'s recurrence with V r_{t-1} added to its gates. `feed_forward` has no h_{t-1}.
Weights and bias start uniform in +-1/sqrt(width), as theirs do. Nothing in the loop is rounded to bf16: a memory that
is changed hundreds of times keeps its digits.
"""

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from chomsky_ladder.models.block import Block, Context, State
from chomsky_ladder.models.scans.recurrences import Core


class Controller(nn.Module):
    """Map x of width D and R numbers read to h of width D. The controller's own state is (h,), (h, c) or ()."""

    def __init__(self, width: int, reads: int, *, core: Core) -> None:
        super().__init__()
        self.core: Core = core
        self.width = width
        bound, gates = width**-0.5, 4 * width if core == "lstm" else width
        self.weight_ih = nn.Parameter(torch.empty(gates, width).uniform_(-bound, bound))
        self.weight_hh: nn.Parameter | None = None
        if core != "feed_forward":
            self.weight_hh = nn.Parameter(torch.empty(gates, width).uniform_(-bound, bound))
        self.weight_rh = nn.Parameter(torch.empty(gates, reads).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(gates).uniform_(-bound, bound))

    @property
    def weights(self) -> tuple[Any, Tensor]:
        """Return the weights of h, None without it, and of what was read."""
        return self.weight_hh, self.weight_rh

    def gates(self, x_BLD: Tensor) -> Tensor:
        """Return the part of the gates that only depends on x, for all tokens at once."""
        return nn.functional.linear(x_BLD, self.weight_ih, self.bias).to(self.bias.dtype)

    def init_state(self, batch: int, *, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, ...]:
        count = {"feed_forward": 0, "lstm": 2}.get(self.core, 1)
        return tuple(torch.zeros(batch, self.width, device=device, dtype=dtype) for _ in range(count))


class Machine(Block):
    """A controller and a memory, replacing the stream."""

    def __init__(self, width: int, reads: int, *, core: Core, dropout: float) -> None:
        super().__init__()
        self.controller = Controller(width, reads, core=core)
        self.dropout = dropout

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        return ctx.dropout(self.extend(x_BLD, self.start(x_BLD, ctx), ctx)[0], self.dropout)

    def start(self, x_BLD: Tensor, ctx: Context) -> State:
        """Return the initial state of `forward`. It only needs what these tokens can reach."""
        batch, length = x_BLD.shape[:2]
        return self.init_state(batch, max_length=length, device=x_BLD.device, dtype=self.controller.bias.dtype)

    def step(self, x_BD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        y_BLD, state = self.extend(x_BD[:, None], state, ctx)
        return y_BLD[:, 0], state

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        gates_BLG = self.controller.gates(x_BLD)
        with torch.autocast(x_BLD.device.type, enabled=False):
            y_BLX, state = self.turns(gates_BLG, state, ctx)
        return self.out(y_BLX), state

    @abstractmethod
    def turns(self, gates_BLG: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        """Process all tokens by the machine's operation: return the input of `out`, and the state after them."""

    def out(self, y_BLX: Tensor) -> Tensor:
        return y_BLX
