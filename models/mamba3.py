"""Mamba-3: a state that rotates as it decays, with a trapezoid of the last two inputs in place of a short convolution.

    z, x, B, C, dt, A, g, w = W_in u        B, C = rmsnorm(B) + b, rmsnorm(C) + c        dt = softplus(dt + d)
    h_t = a_t R_t h_{t-1} + (1 - g_t) dt_t a_t R_t B_{t-1} x_{t-1}^T + g_t dt_t B_t x_t^T        y_t = C_t h_t + D x_t
    a_t = exp(-dt_t softplus(A_t))        R_t turns pairs of states by dt_t pi tanh(w_t)        g_t = sigmoid(g_t)
    u = u + W_out (y * silu(z))        u = u + SwiGLU(u)        each behind an RMSNorm

Lahoti et al. 2026 (2603.15569). Heads share B, C and w and nothing else. Rotating the state is the same as rotating B
and C back by the sum of angles so far: a rotary embedding that depends on the data. Without it (`rotation=none`) no
layer can count modulo anything. With `mimo_rank` R there are R of B and C, and x, z and y have R learnt scalings, the
same everywhere. A head writes the sum of its R products and reads the sum of its R outputs.

Three points follow the published code: the tanh, the least decay of 1e-4 in place of softplus(A), and rotating only
half of the states; the paper rotates all (`rotation=all`). Since June 2026 that code has, in place of softplus(A), 1 +
A above 0 and 1 / (1 - A) below. dt starts log-uniform in dt_min .. dt_max. b, c and D start at 1 and do not decay.
Scalings start at 1 for z and 1 / R for x and y, and do not decay either. The rest starts as torch.nn.Linear's weights
do.

With v_t = B_t x_t^T, what a_{t+1} multiplies is h_t + (1 - g_{t+1}) dt_{t+1} v_t. So later positions see v_t with the
factor g_t dt_t + (1 - g_{t+1}) dt_{t+1}, its own position with g_t dt_t. One pass of models/operations/ssd computes
both.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from einops import rearrange
from torch import Tensor, nn

from chomsky_ladder.models._mixers import MixerConfig
from chomsky_ladder.models.base import register
from chomsky_ladder.models.block import Context, State, require
from chomsky_ladder.models.layers.gate import gated
from chomsky_ladder.models.layers.linear import in_parts
from chomsky_ladder.models.layers.residual import Layer, OneForm
from chomsky_ladder.models.operations.norm import normed
from chomsky_ladder.models.operations.scan.reference import at_least_fp32, initial_dt_bias
from chomsky_ladder.models.operations.ssd import ssd_chunks
from chomsky_ladder.models.operations.ssd.reference import ssd_step

NORM_EPS = 1e-5
LEAST_DECAY = 1e-4
Rotation = Literal["half", "all", "none"]
STATES_AN_ANGLE: dict[Rotation, int] = {"half": 4, "all": 2}


class TrapezoidalSSM(OneForm):
    """The state space.

    Its state: angles [B, H, A], h [B, H, N, K] and the last B [B, H, R, N], turned back, and x [B, H, K].
    """

    heeds_asked = True

    no_decay = frozenset({"B_bias_HRN", "C_bias_HRN"})

    def __init__(self, config: "Mamba3Config") -> None:
        super().__init__()
        width, self.heads, self.rank = config.inner_width, config.inner_width // config.head_dim, config.mimo_rank
        self.states = config.d_state
        per_head = (self.heads, self.heads, self.heads)
        self.parts = [width, width, *2 * [self.rank * self.states], *per_head, config.num_angles]
        self.project = nn.Linear(config.d_model, sum(self.parts), bias=False)
        self.dt_bias = nn.Parameter(
            initial_dt_bias(self.heads, smallest=config.dt_min, largest=config.dt_max, dtype=torch.float64)
        )
        self.B_norm, self.C_norm = (nn.RMSNorm(self.states, eps=NORM_EPS) for _ in "BC")
        self.B_bias_HRN, self.C_bias_HRN = (nn.Parameter(torch.ones(self.heads, self.rank, self.states)) for _ in "BC")
        self.D = nn.Parameter(torch.ones(self.heads))
        if self.rank > 1:
            self.no_decay = self.no_decay | {"x_scale_HRK", "z_scale_HRK", "y_scale_HRK"}
            self.x_scale_HRK, self.z_scale_HRK, self.y_scale_HRK = (
                nn.Parameter(torch.full((self.heads, self.rank, config.head_dim), value))
                for value in (1 / self.rank, 1.0, 1 / self.rank)
            )
        self.out = nn.Linear(width, config.d_model, bias=False)

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        head_dim, angles = self.parts[0] // self.heads, self.parts[-1]
        sizes = ((angles,), (self.states, head_dim), (self.rank, self.states), (head_dim,))
        return tuple(torch.zeros(batch, self.heads, *size, device=device, dtype=at_least_fp32(dtype)) for size in sizes)

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        return self.extend(x_BLD, None, ctx)[0]

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        """Process tokens from a state. Without a state, none is returned at the end either."""
        dtype, length = at_least_fp32(x_BLD.dtype), x_BLD.shape[1]
        z_BLE, x_BLE, B_BLM, C_BLM, dt_BLH, A_BLH, g_BLH, w_BLA = in_parts(self.project, x_BLD, self.parts)
        with torch.autocast(x_BLD.device.type, enabled=False):  # its products belong to a state, not to a layer
            z_BLHK, x_BLHK = (rearrange(e, "b l (h k) -> b l h k", h=self.heads).to(dtype) for e in (z_BLE, x_BLE))
            dt_BLH = nn.functional.softplus(dt_BLH.to(dtype) + self.dt_bias)
            A_BLH = nn.functional.softplus(A_BLH.to(dtype)).clamp(min=LEAST_DECAY)
            # exp(-100) is practically 0; smaller ones would cost the later decays of their chunk their digits.
            log_a_BLH = (-dt_BLH * A_BLH).clamp(min=-100)
            own_BLH, next_BLH = dt_BLH * torch.sigmoid(g_BLH.to(dtype)), dt_BLH * torch.sigmoid(-g_BLH.to(dtype))

            turn_BLHA = math.pi * dt_BLH[..., None] * torch.tanh(w_BLA.to(dtype))[:, :, None]
            # In fp64: in a sum of thousands of radians fp32 keeps three decimals.
            turned_BLHA = turn_BLHA.cumsum(1, dtype=torch.float64)
            if state is not None:
                turned_BLHA = state[0][:, None] + turned_BLHA
            angle_BLHA = turned_BLHA.remainder(2 * math.pi).to(dtype)
            cos_BLH1A, sin_BLH1A = angle_BLHA.cos()[..., None, :], angle_BLHA.sin()[..., None, :]
            B_BLHRN, C_BLHRN = (
                turned_back(self._normed(e, norm, ctx) + bias_HRN, cos_BLH1A, sin_BLH1A)
                for e, norm, bias_HRN in ((B_BLM, self.B_norm, self.B_bias_HRN), (C_BLM, self.C_norm, self.C_bias_HRN))
            )
            x_BLHRK, h_BHNK = self._ranked(x_BLHK, "x"), None
            if state is not None:
                _, h_BHNK, B_BHRN, x_BHK = state
                h_BHNK = h_BHNK + next_BLH[:, 0, :, None, None] * (B_BHRN.mT @ self._ranked(x_BHK, "x"))
            if length == 1 and h_BHNK is not None:
                u_BLHRK = own_BLH[..., None, None] * x_BLHRK
                y_BLHRK, h_BHNK = ssd_step(u_BLHRK, log_a_BLH, B_BLHRN, C_BLHRN, h_BHNK)
                y_BLHRK = y_BLHRK + self.D[:, None, None] * x_BLHRK
            else:
                later_BLH = own_BLH + nn.functional.pad(next_BLH[:, 1:], (0, 0, 0, 1))
                given = (x_BLHRK, log_a_BLH, B_BLHRN, C_BLHRN, h_BHNK)
                y_BLHRK, h_BHNK = ssd_chunks(ctx, *given, weight_BLH=later_BLH, own_BLH=own_BLH, skip_H=self.D)
            y_BLHRK = gated(self._ranked(ctx.wanted(z_BLHK), "z"), ctx.wanted(y_BLHRK), ctx=ctx)
            y_BLHK = y_BLHRK.squeeze(-2) if self.rank == 1 else (y_BLHRK * self.y_scale_HRK).sum(-2)
        y_BLD = self.out(rearrange(y_BLHK, "b l h k -> b l (h k)").to(self.out.weight.dtype))
        if state is None:
            return y_BLD, None
        angle_BHA, B_BHRN, x_BHK = (e.clone() for e in (angle_BLHA[:, -1], B_BLHRN[:, -1], x_BLHK[:, -1]))
        return y_BLD, (angle_BHA, h_BHNK, B_BHRN, x_BHK)  # clones: a view would keep all of the prompt

    def _normed(self, e_BLM: Tensor, norm: nn.RMSNorm, ctx: Context) -> Tensor:
        """Return the normed tensor, [B, L, 1, R, N]."""
        return normed(rearrange(e_BLM, "b l (r n) -> b l 1 r n", r=self.rank).to(norm.weight.dtype), norm, ctx)

    def _ranked(self, e_XHK: Tensor, name: Literal["x", "z"]) -> Tensor:
        """Return the R scalings, [..., H, R, K]."""
        if self.rank == 1:
            return e_XHK[..., None, :]
        return e_XHK[..., None, :] * (self.x_scale_HRK if name == "x" else self.z_scale_HRK)


def turned_back(e_BLHRN: Tensor, cos_BLH1A: Tensor, sin_BLH1A: Tensor) -> Tensor:
    """Turn each pair (e_n, e_{n + A}) of the first 2 A states by minus its angle."""
    num_angles = cos_BLH1A.shape[-1]
    a_BLHRA, b_BLHRA, rest_BLHRN = e_BLHRN.split([num_angles, num_angles, e_BLHRN.shape[-1] - 2 * num_angles], -1)
    turned = (a_BLHRA * cos_BLH1A + b_BLHRA * sin_BLH1A, b_BLHRA * cos_BLH1A - a_BLHRA * sin_BLH1A)
    return torch.cat([*turned, rest_BLHRN], -1)


@register
@dataclass(frozen=True, kw_only=True)
class Mamba3Config(MixerConfig):
    name, family, year, paper = "mamba3", "state space", 2026, "2603.15569"
    title = "Mamba-3"

    expansion: int = 2
    """Channels inside a block, per channel of the stream."""
    head_dim: int = 64
    """Channels of a head, which share a decay; it divides all channels evenly."""
    d_state: int = 64
    """States of each channel: 64 in the paper's tests of state tracking, 128 in its language models."""
    rotation: Rotation = "half"
    """The share of the states that rotate."""
    mimo_rank: int = 1
    """Inputs and outputs of a head at a position; 1 is the paper's SISO, 4 its MIMO."""
    dt_min: float = 0.001
    """The smallest initial step dt."""
    dt_max: float = 0.1
    """The largest initial step dt, at which a pair of states turns by no more than pi dt."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("expansion", "head_dim", "d_state", "mimo_rank"):
            require(getattr(self, field) >= 1, f"{self.name}: {field} must be at least 1, not {getattr(self, field)}")
        require(
            self.inner_width % self.head_dim == 0,
            f"{self.name}: {self.inner_width} channels do not split into heads of head_dim={self.head_dim}",
        )
        multiple = STATES_AN_ANGLE.get(self.rotation, 1)
        require(
            self.d_state % multiple == 0,
            f"{self.name}: rotation={self.rotation} needs a d_state that {multiple} divides, not {self.d_state}",
        )
        require(
            0 < self.dt_min <= self.dt_max < float("inf"),
            f"{self.name}: dt_min={self.dt_min} must be above 0 and not above dt_max={self.dt_max}",
        )

    @property
    def transition(self) -> str:
        return "diagonal" if self.rotation == "none" else "complex diagonal"

    @property
    def inner_width(self) -> int:
        return self.expansion * self.d_model

    @property
    def num_angles(self) -> int:
        return 0 if self.rotation == "none" else self.d_state // STATES_AN_ANGLE[self.rotation]

    def mixer(self, layer: int) -> Layer:
        return TrapezoidalSSM(self)

    @classmethod
    def tiny(cls) -> "Mamba3Config":
        return cls(d_model=16, num_blocks=2, head_dim=8, d_state=8)
