"""S4: long convolutions whose kernel is that of a linear state space, diagonal plus rank one, in every channel.

    x' = A x + B u        y = C x + D u        A = diag(a) - P P^H (form=dplr)  or  diag(a) (form=diagonal, S4D)
    x_t = Abar x_{t-1} + Bbar u_t        y_t = C x_t + D u_t = sum_k K_k u_{t-k} + D u_t        K_k = C Abar^k Bbar
    stream = stream + (W GELU(y) + b) * sigmoid(V GELU(y) + c)        behind a norm

    dplr, bilinear:         Abar = (1 - dt/2 A)^-1 (1 + dt/2 A)        Bbar = (1 - dt/2 A)^-1 dt B
    diagonal, zero hold:    Abar = exp(dt A)                           Bbar = A^-1 (Abar - 1) B

Gu et al. 2021 (2111.00396) and Gu et al. 2022 (2206.11893). A = diag(a) - P P^H, not P Q^H, is from Goel et al. 2022
(2202.09729): with Re a = -exp(.) < 0 the Hermitian part of A is negative, so the norm of Abar is at most 1 whatever is
learnt. States come in conjugate pairs. One of each pair is stored, as real and imaginary part.

The kernel is that of models/operations/space, from sqrt(L) rows and sqrt(L) columns, or on a CPU the recurrence's own.
The published one is the inverse transform of C (1 - Abar^L z^L) (1 - Abar z)^-1 Bbar at the L-th roots of unity, by
Woodbury's identity from Cauchy sums. It also needs Abar^L, or takes C (1 - Abar^L) as its parameter and one L for all
sequences. And it holds L numbers for every state and channel, where this one holds 2 sqrt(L) at most. Here the
parameter is C, and a kernel is the beginning of any longer one.

Initial values: every channel has all of HiPPO-LegS for A and B (dplr), or LegS's a or -1/2 + i pi n (S4D-Lin) and B =
1; C complex normal of variance 1, D normal, dt log-uniform in [dt_min, dt_max]. a, P, B and dt have a tenth of the
learning rate and no decay; published are 0.001 for them and 0.004 to 0.01 for the rest.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from chomsky_ladder.models.base import ModelConfig, register
from chomsky_ladder.models.block import Block, Context, State, require
from chomsky_ladder.models.layers.linear import of_one
from chomsky_ladder.models.layers.residual import Layer, Residual, scale_down
from chomsky_ladder.models.operations.long_conv import long_convolution
from chomsky_ladder.models.operations.space import System, impulse_response
from chomsky_ladder.models.scans.hippo import legs_modes
from chomsky_ladder.models.scans.pairs import (
    conjugate,
    exponential,
    exponential_less_1,
    inverse,
    pair,
    plus_1,
    real_of,
    times,
)

Form = Literal["dplr", "diagonal"]
Init = Literal["legs", "lin"]


class StateSpace(Layer):
    """One system of N states for each channel H. M = N/2 are stored. A last dimension of 2 is a complex number's."""

    heeds_asked = True

    def __init__(self, config: "S4Config") -> None:
        super().__init__()
        channels, self.is_diagonal = config.d_model, config.form == "diagonal"
        a_M, P_M = legs_modes(config.d_state)
        if config.init == "lin":
            a_M = torch.complex(a_M.real, math.pi * torch.arange(len(a_M), dtype=a_M.real.dtype))
        self.log_decay_HM = _in_all((-a_M.real).log(), channels)
        self.frequency_HM = _in_all(a_M.imag, channels)
        self.B_HM2 = _in_all(torch.ones_like(P_M) + 0j if self.is_diagonal else 2**0.5 * P_M + 0j, channels)
        self.P_HM2 = None if self.is_diagonal else _in_all(P_M + 0j, channels)
        self.C_HM2 = nn.Parameter(torch.randn(channels, len(a_M), 2) * 0.5**0.5)
        self.D_H = nn.Parameter(torch.randn(channels))
        self.log_dt_H = nn.Parameter(torch.empty(channels).uniform_(math.log(config.dt_min), math.log(config.dt_max)))
        slow = {"log_decay_HM", "frequency_HM", "B_HM2", "log_dt_H"} | (set() if self.is_diagonal else {"P_HM2"})
        self.no_decay, self.rate_multipliers = frozenset(slow), dict.fromkeys(sorted(slow), 0.1)
        self.gate = nn.Linear(channels, channels)
        self.out = nn.Linear(channels, channels)

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        u_BLH, length = wide(x_BLD), x_BLD.shape[1]
        with torch.autocast(x_BLD.device.type, enabled=False):
            kernel_LH = self.kernel(length, ctx).to(u_BLH.dtype).T
            taps_LH = kernel_LH + nn.functional.pad(self.D_H[None], (0, 0, 0, length - 1))
            y_BLH = long_convolution(ctx, u_BLH, taps_LH)
        return self._mixed(ctx.wanted(y_BLH))

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        return torch.zeros(batch, *self.C_HM2.shape, device=device, dtype=torch.promote_types(dtype, torch.float32))

    def step(self, x_BD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        y_BLD, state = self.extend(x_BD[:, None], state, ctx)
        return y_BLD[:, 0], state

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        u_BLH, outputs = wide(x_BLD), []
        with torch.autocast(x_BLD.device.type, enabled=False):
            system, C_HM2 = self.discrete(), wide(self.C_HM2)
            for u_BH in u_BLH.unbind(1):
                state = system.carried(state) + system.b_HM2 * u_BH[..., None, None]
                outputs.append(2 * real_of(C_HM2, state).sum(-1) + self.D_H * u_BH)
        return self._mixed(torch.stack(outputs, 1)), state

    def discrete(self) -> System:
        a_HM2 = pair(-wide(self.log_decay_HM).exp(), wide(self.frequency_HM))
        B_HM2, dt_H11 = wide(self.B_HM2), wide(self.log_dt_H).exp()[:, None, None]
        if self.P_HM2 is None:
            gained_HM2 = times(exponential_less_1(dt_H11 * a_HM2), inverse(a_HM2))
            return System(exponential(dt_H11 * a_HM2), None, None, times(gained_HM2, B_HM2))
        # By Woodbury's identity Abar = 2 (1 - dt/2 A)^-1 - 1 has, with g = 1 / (1 - dt/2 a) and a conjugate pair of
        # states counting twice its real part: (1 - dt/2 A)^-1 v = g v - g P share P^H (g v).
        P_HM2, g_HM2 = wide(self.P_HM2), inverse(plus_1(-dt_H11 / 2 * a_HM2))
        gP_HM2, conjugate_HM2 = times(g_HM2, P_HM2), conjugate(P_HM2)
        share_H11 = dt_H11 / 2 / (1 + dt_H11 * real_of(conjugate_HM2, gP_HM2).sum(-1)[:, None, None])
        r_HM2 = 2 * share_H11 * times(conjugate_HM2, g_HM2)
        b_HM2 = times(g_HM2, B_HM2) - gP_HM2 * real_of(r_HM2, B_HM2).sum(-1)[:, None, None]
        return System(-plus_1(-2 * g_HM2), 2 * gP_HM2, r_HM2, dt_H11 * b_HM2)

    def kernel(self, length: int, ctx: Context) -> Tensor:
        """Return K_0 .. K_(length - 1) of every channel, [H, L]."""
        C_HM2, system = wide(self.C_HM2), self.discrete()
        return impulse_response(ctx, C_HM2, system, length)

    def _mixed(self, y_BLH: Tensor) -> Tensor:
        y_BLH = nn.functional.gelu(y_BLH.to(self.out.weight.dtype))
        out_BLH, gate_BLH = of_one([self.out, self.gate], y_BLH)
        return out_BLH * torch.sigmoid(gate_BLH)


def wide(x: Tensor) -> Tensor:
    """Return x in at least fp32, the precision of convolutions and systems."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _in_all(x_M: Tensor, channels: int) -> nn.Parameter:
    """Return a parameter with the same initial values in every channel; a complex one as a pair of reals."""
    x_M = torch.view_as_real(x_M) if x_M.is_complex() else x_M
    return nn.Parameter(x_M.float().repeat(channels, *(1 for _ in x_M.shape)))


@register
@dataclass(frozen=True, kw_only=True)
class S4Config(ModelConfig):
    name, family, year, paper = "s4", "state space", 2021, "2111.00396"
    title = "S4"
    transition = "fixed linear"
    cost = "n log n"

    d_state: int = 64
    """States of each channel's system; an even number."""
    form: Form = "dplr"
    """The matrix of each system: diagonal plus rank one (S4), or diagonal (S4D)."""
    init: Init = "legs"
    """The initial value of A: HiPPO-LegS (its diagonal part with `form=diagonal`), or even frequencies (S4D-Lin)."""
    dt_min: float = 0.001
    """The smallest initial time step. A system remembers about 1 / dt tokens."""
    dt_max: float = 0.1
    """The largest initial time step."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.d_state >= 2 and self.d_state % 2 == 0,
            f"{self.name}: d_state must be even and at least 2, not {self.d_state}",
        )
        require(
            self.form == "diagonal" or self.init == "legs",
            f"{self.name}: init={self.init} is of form=diagonal alone",
        )
        require(
            0 < self.dt_min <= self.dt_max < float("inf"),
            f"{self.name}: dt_min={self.dt_min} must be above 0 and not above dt_max={self.dt_max}",
        )

    def block(self, layer: int) -> Block:
        mixer = StateSpace(self)
        scale_down(mixer.out, self.num_blocks)
        return Residual(self.d_model, [mixer], dropout=self.dropout)

    @classmethod
    def tiny(cls) -> "S4Config":
        return cls(d_model=16, num_blocks=2, d_state=8)
