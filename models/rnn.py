"""Plain stacked Elman layers, without residuals or norms between them.

    h_t = f(W x_t + U h_{t-1} + b)        f = tanh or relu

Elman 1990. Weights and bias start uniform in +-1/sqrt(width), as torch.nn.RNN's do. Its two biases only act as their
sum, so here there is one.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from chomsky_ladder.models.base import ModelConfig, register
from chomsky_ladder.models.block import Block, Context, Norm, State
from chomsky_ladder.models.operations.recurrent import rnn_layer
from chomsky_ladder.models.scans.recurrences import Activation, rnn_step


class Cell(nn.Module):
    """A recurrence from width D to D whose state is its output, h."""

    weight_hh: nn.Parameter

    def extend(self, x_BLD: Tensor, h_BD: Tensor, ctx: Context) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    def step(self, x_BD: Tensor, h_BD: Tensor) -> Tensor:
        raise NotImplementedError


class RNNCell(Cell):
    def __init__(self, width: int, *, activation: Activation) -> None:
        super().__init__()
        self.activation: Activation = activation
        bound = width**-0.5
        self.weight_ih = nn.Parameter(torch.empty(width, width).uniform_(-bound, bound))
        self.weight_hh = nn.Parameter(torch.empty(width, width).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(width).uniform_(-bound, bound))

    def extend(self, x_BLD: Tensor, h_BD: Tensor, ctx: Context) -> tuple[Tensor, Tensor]:
        return rnn_layer(ctx, x_BLD, h_BD, self.weight_ih, self.weight_hh, self.bias, activation=self.activation)

    def step(self, x_BD: Tensor, h_BD: Tensor) -> Tensor:
        gates_BD = nn.functional.linear(x_BD, self.weight_ih, self.bias)
        return rnn_step(gates_BD, h_BD, self.weight_hh, activation=self.activation)


class CellBlock(Block):
    """A cell, replacing the stream."""

    def __init__(self, cell: Cell, *, dropout: float) -> None:
        super().__init__()
        self.cell, self.dropout = cell, dropout

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        return ctx.dropout(self.cell.extend(x_BLD, torch.zeros_like(x_BLD[:, 0]), ctx)[0], self.dropout)

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        return torch.zeros(batch, self.cell.weight_hh.shape[1], device=device, dtype=dtype)

    def step(self, x_BD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        h_BD = self.cell.step(x_BD, state)
        return h_BD, h_BD

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        return self.cell.extend(x_BLD, state, ctx)


@register
@dataclass(frozen=True, kw_only=True)
class RNNConfig(ModelConfig):
    name, family, year, paper = "rnn", "recurrent", 1990, "Elman, Cognitive Science 14(2)"
    title = "RNN"

    final_norm: Norm = "none"
    """The norm between the last block and the head."""
    activation: Activation = "tanh"
    """The activation of each layer; relu is unbounded."""

    @property
    def transition(self) -> str:
        return "gated units" if self.activation == "tanh" else "lstm"

    def block(self, layer: int) -> Block:
        return CellBlock(RNNCell(self.d_model, activation=self.activation), dropout=self.dropout)
