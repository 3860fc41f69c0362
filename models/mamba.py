"""Mamba: a short convolution and a selective state space between an expanding and a contracting projection.

    v, z = W_in x        v = silu(conv(v))        dt, B, C = softplus(W_dt W_r v + b), W_B v, W_C v
    h_t = exp(dt_t A) h_{t-1} + dt_t B_t v_t      y_t = C_t h_t + D v_t      out = W_out (y silu(z))

Gu and Dao 2023 (2312.00752). For channel e and state n, A_en = -n at the start (the real part of S4D, Gu et al. 2022,
2206.11893), dt log-uniform in 1e-3 .. 1e-1, D = 1. `eigenvalues="signed"` uses 2 exp(dt A) - 1 in place of exp(dt A):
Grazzi et al. 2024 (2411.12537), since parity needs a negative transition. As in the authors' code A is learned through
its logarithm, A and D do not decay, and W_out is divided by the root of the number of blocks.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from chomsky_ladder.models.base import ModelConfig, register
from chomsky_ladder.models.block import Block, Context, State, require
from chomsky_ladder.models.layers.convolution import ShortConvolution
from chomsky_ladder.models.layers.linear import in_parts
from chomsky_ladder.models.layers.residual import Layer, Residual, scale_down
from chomsky_ladder.models.operations.scan import mamba_scan
from chomsky_ladder.models.operations.scan.reference import at_least_fp32, initial_dt_bias
from chomsky_ladder.models.scans.products import product


class SelectiveSSM(Layer):
    """The state space. Its state is the convolution's and h [B, N, E], kept in fp32 at least."""

    heeds_asked = True

    no_decay = frozenset({"A_log", "D"})

    def __init__(self, config: "MambaConfig") -> None:
        super().__init__()
        width, states, rank = config.expansion * config.d_model, config.d_state, config.rank
        self.signed = config.eigenvalues == "signed"
        self.value_gate = nn.Linear(config.d_model, 2 * width, bias=False)
        self.convolution = ShortConvolution(width, width=config.conv_width, silu=True)
        self.select = nn.Linear(width, rank + 2 * states, bias=False)
        self.dt = nn.Linear(rank, width)
        self.A_log = nn.Parameter(torch.arange(1.0, states + 1).log().repeat(width, 1))
        self.D = nn.Parameter(torch.ones(width))
        self.out = nn.Linear(width, config.d_model, bias=False)
        with torch.no_grad():
            self.dt.weight.uniform_(-(rank**-0.5), rank**-0.5)
            self.dt.bias.copy_(initial_dt_bias(width))

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        v_BLE, z_BLE = in_parts(self.value_gate, x_BLD, [self.dt.out_features] * 2)
        return self._scan(self.convolution(v_BLE, ctx), z_BLE, None, ctx)[0]

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        width, states = self.A_log.shape
        past_BWE = self.convolution.init_state(batch, device=device, dtype=dtype)
        return past_BWE, torch.zeros(batch, states, width, device=device, dtype=at_least_fp32(dtype))

    def step(self, x_BD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        y_BLD, state = self.extend(x_BD[:, None], state, ctx)
        return y_BLD[:, 0], state

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        past_BWE, h_BNE = state
        v_BLE, z_BLE = in_parts(self.value_gate, x_BLD, [self.dt.out_features] * 2)
        v_BLE, past_BWE = self.convolution.extend(v_BLE, past_BWE)
        y_BLD, h_BNE = self._scan(v_BLE, z_BLE, h_BNE, ctx)
        return y_BLD, (past_BWE, h_BNE)

    def _scan(self, v_BLE: Tensor, z_BLE: Tensor, h_BNE: Tensor | None, ctx: Context) -> tuple[Tensor, Tensor | None]:
        states = self.A_log.shape[1]
        rank_BLR, B_BLN, C_BLN = in_parts(self.select, v_BLE, [self.dt.in_features, states, states])
        dt_BLE = product(rank_BLR, self.dt.weight)
        y_BLE, h_BNE = mamba_scan(
            ctx, v_BLE, dt_BLE, self.dt.bias, self.A_log, B_BLN, C_BLN, self.D, z_BLE, h_BNE, signed=self.signed
        )
        return self.out(y_BLE), h_BNE


@register
@dataclass(frozen=True, kw_only=True)
class MambaConfig(ModelConfig):
    name, family, year, paper = "mamba", "state space", 2023, "2312.00752"
    title = "Mamba{eigenvalues}"

    expansion: int = 2
    """Channels inside a block, per channel of the stream."""
    d_state: int = 16
    """States of each channel."""
    conv_width: int = 4
    """Width of the short convolution, in tokens."""
    dt_rank: int = 0
    """Rank of the map to the steps dt; 0 for a sixteenth of the model's width, rounded up."""
    eigenvalues: Literal["positive", "signed"] = "positive"
    """Range of the transition: exp(dt A) in (0, 1), or 2 exp(dt A) - 1 in (-1, 1)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("expansion", "d_state", "conv_width"):
            require(getattr(self, field) >= 1, f"{self.name}: {field} must be at least 1, not {getattr(self, field)}")
        require(self.dt_rank >= 0, f"{self.name}: dt_rank must not be negative")

    @property
    def transition(self) -> str:
        return "diagonal" if self.eigenvalues == "positive" else "signed diagonal"

    @property
    def rank(self) -> int:
        return self.dt_rank or -(-self.d_model // 16)

    def block(self, layer: int) -> Block:
        module = SelectiveSSM(self)
        scale_down(module.out, self.num_blocks)
        return Residual(self.d_model, [module], dropout=self.dropout)
