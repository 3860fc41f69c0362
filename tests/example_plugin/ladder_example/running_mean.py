"""The mean of everything so far, projected: y_t = x_t + W mean(x_1 .. x_t). It remembers sums, never an order."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from chomsky_ladder.models.base import ModelConfig, register
from chomsky_ladder.models.block import Block, Context, State


class RunningMean(Block):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        count_L = torch.arange(1, x_BLD.shape[1] + 1, device=x_BLD.device)
        return x_BLD + self.out(x_BLD.cumsum(1) / count_L[:, None])

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        width = self.out.in_features
        return torch.zeros(batch, width, device=device, dtype=dtype), torch.zeros((), device=device, dtype=torch.int64)

    def step(self, x_BD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        total_BD, count = state
        total_BD, count = total_BD + x_BD, count + 1
        return x_BD + self.out(total_BD / count), (total_BD, count)


@register
@dataclass(frozen=True, kw_only=True)
class RunningMeanConfig(ModelConfig):
    name, family, year, paper = "running_mean", "pooling", 2026, "none"

    def block(self, layer: int) -> Block:
        return RunningMean(self.d_model)
