"""Plain stacked LSTM layers, without residuals or norms between them.

    i, f, g, o = W x_t + U h_{t-1} + b        c_t = s(f) c_{t-1} + s(i) tanh(g)        h_t = s(o) tanh(c_t)

Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000. Weights and biases start uniform in
+-1/sqrt(width), as torch.nn.LSTM's do. `forget_bias` is added to the forget gate (Jozefowicz et al. 2015 advise 1).
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from chomsky_ladder.models.base import ModelConfig, register
from chomsky_ladder.models.block import Block, Context, Norm, State
from chomsky_ladder.models.operations.recurrent import lstm_layer
from chomsky_ladder.models.scans.recurrences import lstm_step


class LSTMCell(nn.Module):
    """The recurrence alone, from width D to D: parameters, all its forms and its state (h, c)."""

    def __init__(self, width: int, *, forget_bias: float) -> None:
        super().__init__()
        bound = width**-0.5
        self.weight_ih = nn.Parameter(torch.empty(4 * width, width).uniform_(-bound, bound))
        self.weight_hh = nn.Parameter(torch.empty(4 * width, width).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(4 * width).uniform_(-bound, bound))
        with torch.no_grad():
            self.bias[width : 2 * width] += forget_bias

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        zero_BD = torch.zeros_like(x_BLD[:, 0])
        return self.extend(x_BLD, (zero_BD, zero_BD), ctx)[0]

    def init_state(self, batch: int, *, device: torch.device, dtype: torch.dtype) -> State:
        width = self.weight_hh.shape[1]
        return tuple(torch.zeros(batch, width, device=device, dtype=dtype) for _ in "hc")

    def step(self, x_BD: Tensor, state: State) -> tuple[Tensor, State]:
        gates_BG = nn.functional.linear(x_BD, self.weight_ih, self.bias)
        state = lstm_step(gates_BG, state[0], state[1], self.weight_hh)
        return state[0], state

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        h_BLD, h_BD, c_BD = lstm_layer(ctx, x_BLD, state[0], state[1], self.weight_ih, self.weight_hh, self.bias)
        return h_BLD, (h_BD, c_BD)


class LSTMBlock(Block):
    """The recurrence, replacing the stream."""

    def __init__(self, config: "LSTMConfig") -> None:
        super().__init__()
        self.cell = LSTMCell(config.d_model, forget_bias=config.forget_bias)
        self.dropout = config.dropout

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        return ctx.dropout(self.cell(x_BLD, ctx), self.dropout)

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        return self.cell.init_state(batch, device=device, dtype=dtype)

    def step(self, x_BD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        return self.cell.step(x_BD, state)

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        return self.cell.extend(x_BLD, state, ctx)


@register
@dataclass(frozen=True, kw_only=True)
class LSTMConfig(ModelConfig):
    name, family, year, paper = "lstm", "recurrent", 1997, "Hochreiter and Schmidhuber, Neural Computation 9(8)"
    title = "LSTM"
    transition = "lstm"

    final_norm: Norm = "none"
    forget_bias: float = 0.0
    """Added to the forget gate's bias at the start."""

    def block(self, layer: int) -> Block:
        return LSTMBlock(self)
