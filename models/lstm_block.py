"""An LSTM in place of the attention of a pre-norm Transformer block: "LSTM (Block)" of the xLSTM paper.

    x = x + W_o LSTM(norm(x))        x = x + SwiGLU(norm(x))

Beck et al. 2024 (2405.04517), appendix B.1.1. The recurrence is that of `lstm`, the rest that of `transformer`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from chomsky_ladder.models.base import ModelConfig, register
from chomsky_ladder.models.block import Block, Context, State, require
from chomsky_ladder.models.layers.feed_forward import SwiGLU, swiglu_width
from chomsky_ladder.models.layers.residual import Layer, Residual, scale_down
from chomsky_ladder.models.lstm import LSTMCell


class LSTMLayer(Layer):
    """The cell with an output projection."""

    heeds_asked = True

    def __init__(self, config: "LSTMBlockConfig") -> None:
        super().__init__()
        self.cell = LSTMCell(config.d_model, forget_bias=config.forget_bias)
        self.out = nn.Linear(config.d_model, config.d_model, bias=False)

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        return self.out(ctx.wanted(self.cell(x_BLD, ctx)))

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        return self.cell.init_state(batch, device=device, dtype=dtype)

    def step(self, x_BD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        h_BD, state = self.cell.step(x_BD, state)
        return self.out(h_BD), state

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        h_BLD, state = self.cell.extend(x_BLD, state, ctx)
        return self.out(h_BLD), state


@register
@dataclass(frozen=True, kw_only=True)
class LSTMBlockConfig(ModelConfig):
    name, family, year, paper = "lstm_block", "recurrent", 2024, "2405.04517"
    title = "LSTM (Block)"
    transition = "lstm"

    forget_bias: float = 0.0
    """Added to the forget gate's bias at the start."""
    d_inner: int = 0
    """Width inside the feed-forward; 0 for 8/3 of the model's, rounded up to a multiple of 8."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.d_inner >= 0, f"{self.name}: d_inner must not be negative")

    @property
    def inner_width(self) -> int:
        return swiglu_width(self.d_model, self.d_inner)

    def block(self, layer: int) -> Block:
        layers = [LSTMLayer(self), SwiGLU(self.d_model, self.inner_width)]
        for each in layers:
            scale_down(each.out, 2 * self.num_blocks)
        return Residual(self.d_model, layers, dropout=self.dropout)
