"""An LSTM in place of the attention of a pre-norm Transformer block: "LSTM (Block)" of the xLSTM paper.

    x = x + W_o LSTM(norm(x))        x = x + SwiGLU(norm(x))

Beck et al. 2024 (2405.04517), appendix B.1.1. The recurrence is that of `lstm`, the rest that of `transformer`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from chomsky_ladder.models._mixers import MixerConfig
from chomsky_ladder.models.base import register
from chomsky_ladder.models.block import Context, State
from chomsky_ladder.models.layers.residual import Layer
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
class LSTMBlockConfig(MixerConfig):
    name, family, year, paper = "lstm_block", "recurrent", 2024, "2405.04517"
    title = "LSTM (Block)"
    transition = "lstm"

    forget_bias: float = 0.0
    """Added to the forget gate's bias at the start."""

    def mixer(self, layer: int) -> Layer:
        return LSTMLayer(self)
