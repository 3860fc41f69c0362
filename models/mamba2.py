"""Mamba-2: a state space with one decay for each head and position, computed as masked attention within chunks.

    z, [v, B, C], dt = W_in x        v, B, C = silu(conv([v, B, C]))        dt = softplus(dt + b)        per head:
    h_t = exp(dt_t A) h_{t-1} + dt_t B_t v_t^T        y_t = C_t h_t + D v_t        out = W_out rmsnorm(y silu(z))

Dao and Gu 2024 (2405.21060), with one group: all heads share B and C. Chunks are those of models/operations/ssd. A
starts uniform in -16 .. -1, dt log-uniform in 1e-3 .. 1e-1, D = 1. As in the authors' code A is learned through its
logarithm, A and D do not decay, the gate comes before the norm, and W_out is divided by the root of the number of
blocks.
"""

from dataclasses import dataclass

import torch
from einops import rearrange
from torch import Tensor, nn

from chomsky_ladder.models.base import ModelConfig, register
from chomsky_ladder.models.block import Block, Context, State, require
from chomsky_ladder.models.layers.convolution import ShortConvolution
from chomsky_ladder.models.layers.gate import gated
from chomsky_ladder.models.layers.linear import in_parts
from chomsky_ladder.models.layers.residual import Layer, Residual, scale_down
from chomsky_ladder.models.operations.norm import normed
from chomsky_ladder.models.operations.scan.reference import at_least_fp32, initial_dt_bias
from chomsky_ladder.models.operations.ssd import ssd_chunks
from chomsky_ladder.models.operations.ssd.reference import ssd_step


class SSD(Layer):
    """The state space. Its state is the convolution's and h [B, H, N, K], kept in fp32 at least."""

    heeds_asked = True

    no_decay = frozenset({"A_log", "D"})

    def __init__(self, config: "Mamba2Config") -> None:
        super().__init__()
        width, heads, states = config.inner_width, config.inner_width // config.head_dim, config.d_state
        self.parts = [width, width + 2 * states, heads]
        self.gate_value_dt = nn.Linear(config.d_model, sum(self.parts), bias=False)
        self.convolution = ShortConvolution(width + 2 * states, width=config.conv_width, silu=True)
        self.dt_bias = nn.Parameter(initial_dt_bias(heads))
        self.A_log = nn.Parameter(torch.empty(heads).uniform_(1, 16).log())
        self.D = nn.Parameter(torch.ones(heads))
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self.out = nn.Linear(width, config.d_model, bias=False)

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        z_BLE, mixed_BLF, dt_BLH = in_parts(self.gate_value_dt, x_BLD, self.parts)
        return self._scan(z_BLE, self.convolution(mixed_BLF, ctx), dt_BLH, None, ctx)[0]

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        width, channels, heads = self.parts
        past_BWF = self.convolution.init_state(batch, device=device, dtype=dtype)
        shape = (batch, heads, (channels - width) // 2, width // heads)
        return past_BWF, torch.zeros(shape, device=device, dtype=at_least_fp32(dtype))

    def step(self, x_BD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        y_BLD, state = self.extend(x_BD[:, None], state, ctx)
        return y_BLD[:, 0], state

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        past_BWF, h_BHNK = state
        z_BLE, mixed_BLF, dt_BLH = in_parts(self.gate_value_dt, x_BLD, self.parts)
        mixed_BLF, past_BWF = self.convolution.extend(mixed_BLF, past_BWF)
        y_BLD, h_BHNK = self._scan(z_BLE, mixed_BLF, dt_BLH, h_BHNK, ctx)
        return y_BLD, (past_BWF, h_BHNK)

    def _scan(
        self, z_BLE: Tensor, mixed_BLF: Tensor, dt_BLH: Tensor, h_BHNK: Tensor | None, ctx: Context
    ) -> tuple[Tensor, Tensor | None]:
        width, channels, heads = self.parts
        states = (channels - width) // 2
        dtype = at_least_fp32(dt_BLH.dtype)
        v_BLE, B_BLN, C_BLN = mixed_BLF.to(dtype).split([width, states, states], dim=-1)
        v_BLHK = rearrange(v_BLE, "b l (h k) -> b l h k", h=heads)
        dt_BLH = nn.functional.softplus(dt_BLH.to(dtype) + self.dt_bias)
        with torch.autocast(dt_BLH.device.type, enabled=False):  # its products belong to a state, not to a layer
            # exp(-100) is practically 0; smaller ones would cost the later decays of their chunk their digits.
            log_a_BLH = (-dt_BLH * self.A_log.to(dtype).exp()).clamp(min=-100)
            v_BLHRK, B_BLHRN, C_BLHRN = v_BLHK[..., None, :], B_BLN[:, :, None, None], C_BLN[:, :, None, None]
            if z_BLE.shape[1] == 1 and h_BHNK is not None:
                u_BLHRK = dt_BLH[..., None, None] * v_BLHRK
                y_BLHRK, h_BHNK = ssd_step(u_BLHRK, log_a_BLH, B_BLHRN, C_BLHRN, h_BHNK.to(dtype))
                y_BLHRK = y_BLHRK + self.D[:, None, None] * v_BLHRK
            else:
                given = (v_BLHRK, log_a_BLH, B_BLHRN, C_BLHRN, h_BHNK)
                y_BLHRK, h_BHNK = ssd_chunks(ctx, *given, weight_BLH=dt_BLH, skip_H=self.D)
        y_BLE = rearrange(y_BLHRK, "b l h r k -> b l (h r k)")
        gated_BLE = gated(ctx.wanted(z_BLE), ctx.wanted(y_BLE), ctx=ctx)
        return self.out(normed(gated_BLE.to(self.norm.weight.dtype), self.norm, ctx)), h_BHNK


@register
@dataclass(frozen=True, kw_only=True)
class Mamba2Config(ModelConfig):
    name, family, year, paper = "mamba2", "state space", 2024, "2405.21060"
    title = "Mamba-2"
    transition = "diagonal"

    expansion: int = 2
    """Channels inside a block, per channel of the stream."""
    head_dim: int = 64
    """Channels of a head, which share a decay. It must divide all channels evenly."""
    d_state: int = 64
    """States of each channel."""
    conv_width: int = 4
    """Width of the short convolution, in tokens."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("expansion", "head_dim", "d_state", "conv_width"):
            require(getattr(self, field) >= 1, f"{self.name}: {field} must be at least 1, not {getattr(self, field)}")
        require(
            self.inner_width % self.head_dim == 0,
            f"{self.name}: {self.inner_width} channels do not split into heads of head_dim={self.head_dim}",
        )

    @property
    def inner_width(self) -> int:
        return self.expansion * self.d_model

    def block(self, layer: int) -> Block:
        module = SSD(self)
        scale_down(module.out, self.num_blocks)
        return Residual(self.d_model, [module], dropout=self.dropout)

    @classmethod
    def tiny(cls) -> "Mamba2Config":
        return cls(d_model=16, num_blocks=2, head_dim=8, d_state=16)
