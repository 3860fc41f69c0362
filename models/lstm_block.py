"""An LSTM in place of the attention of a pre-norm Transformer block: "LSTM (Block)" of the xLSTM paper.

    x = x + W_o LSTM(norm(x))        x = x + SwiGLU(norm(x))

Beck et al. 2024 (2405.04517), appendix B.1.1. The recurrence is that of `lstm`, the rest that of `transformer`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from models.base import Block, Context, ModelConfig, State, register, require
from models.lstm import LSTMCell
from models.transformer import SwiGLU, swiglu_width


class LSTMResidualBlock(Block):
    def __init__(self, config: "LSTMBlockConfig") -> None:
        super().__init__()
        self.dropout = config.dropout
        self.cell_norm = nn.RMSNorm(config.d_model)
        self.cell = LSTMCell(config.d_model, forget_bias=config.forget_bias)
        self.out = nn.Linear(config.d_model, config.d_model, bias=False)
        self.feed_forward_norm = nn.RMSNorm(config.d_model)
        self.feed_forward = SwiGLU(config.d_model, config.inner_width)
        with torch.no_grad():
            for projection in (self.out, self.feed_forward.out):
                projection.weight *= (2 * config.num_blocks) ** -0.5

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        return self._around(x_BLD, self.cell(self.cell_norm(x_BLD), ctx), ctx)

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        return self.cell.init_state(batch, device=device, dtype=dtype)

    def step(self, x_BD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        h_BD, state = self.cell.step(self.cell_norm(x_BD), state)
        return self._around(x_BD, h_BD, ctx), state

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        h_BLD, state = self.cell.extend(self.cell_norm(x_BLD), state, ctx)
        return self._around(x_BLD, h_BLD, ctx), state

    def _around(self, x: Tensor, h: Tensor, ctx: Context) -> Tensor:
        x = x + ctx.dropout(self.out(h), self.dropout)
        return x + ctx.dropout(self.feed_forward(self.feed_forward_norm(x), ctx), self.dropout)


@register
@dataclass(frozen=True, kw_only=True)
class LSTMBlockConfig(ModelConfig):
    name, family, year, paper = "lstm_block", "recurrent", 2024, "2405.04517"

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
        return LSTMResidualBlock(self)
