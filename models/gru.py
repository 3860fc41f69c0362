"""Plain stacked GRU layers, without residuals or norms between them.

    r, z = s(W x_t + U h_{t-1} + b)        n = tanh(W_n x_t + b_n + r (U_n h_{t-1} + c_n))
    h_t = (1 - z) n + z h_{t-1}

Cho et al. 2014 (1406.1078), whose reset gate acts before the product with U_n. In torch.nn.GRU, cuDNN and here it acts
after it, so that all products with h are one. Weights and biases start uniform in +-1/sqrt(width), as torch.nn.GRU's
do. Its two biases of r and of z only act as their sum, so here there is one.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from chomsky_ladder.models.base import ModelConfig, register
from chomsky_ladder.models.block import Block, Context, Norm
from chomsky_ladder.models.operations.recurrent import gru_layer
from chomsky_ladder.models.rnn import Cell, CellBlock
from chomsky_ladder.models.scans.recurrences import gru_step


class GRUCell(Cell):
    def __init__(self, width: int) -> None:
        super().__init__()
        bound = width**-0.5
        self.weight_ih = nn.Parameter(torch.empty(3 * width, width).uniform_(-bound, bound))
        self.weight_hh = nn.Parameter(torch.empty(3 * width, width).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(3 * width).uniform_(-bound, bound))
        self.bias_n = nn.Parameter(torch.empty(width).uniform_(-bound, bound))

    def extend(self, x_BLD: Tensor, h_BD: Tensor, ctx: Context) -> tuple[Tensor, Tensor]:
        return gru_layer(ctx, x_BLD, h_BD, self.weight_ih, self.weight_hh, self.bias, self.bias_n)

    def step(self, x_BD: Tensor, h_BD: Tensor) -> Tensor:
        gates_BG = nn.functional.linear(x_BD, self.weight_ih, self.bias)
        return gru_step(gates_BG, h_BD, self.weight_hh, self.bias_n)


@register
@dataclass(frozen=True, kw_only=True)
class GRUConfig(ModelConfig):
    name, family, year, paper = "gru", "recurrent", 2014, "1406.1078"
    title = "GRU"
    transition = "gated units"

    final_norm: Norm = "none"
    """The norm between the last block and the head."""

    def block(self, layer: int) -> Block:
        return CellBlock(GRUCell(self.d_model), dropout=self.dropout)
