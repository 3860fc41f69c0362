"""Preconditioned DeltaNet: a gated delta rule that writes less along channels of keys that were used a lot.

    S_t = (1 - b_t p_t k_t^T) diag(w_t) S_{t-1} + b_t p_t v_t^T      y_t = q_t S_t / sqrt(K)      p_t = m_t k_t
    A_t = a_t A_{t-1} + e_t k_t^2      r_t = log(A_t + 1e-6) - c      m_t = 1.5^(-r_t / (1 + |r_t|))
    a_t = exp(-B softplus(u x_t + d))      e_t = sigmoid(u' x_t)

in each head, with q and k of length 1: Tumma et al. 2026 (2604.21100), as in its public code. The delta rule is a step
of gradient descent on least squares, and A the diagonal of their curvature: m takes the place of its inverse, between
2/3 and 3/2. All else is `gated_delta_net` with `decay=head`, where w is one number for each head, and `kda` with
`decay=channel`. c starts at -0.2; B and d start as those of w do.

k p^T has at most length 1.5, so with b up to 1 no eigenvalue of 1 - b p k^T is below -1/2. With b up to 2 states could
grow, so there is no `eigenvalues=signed`. For `head` the published layer has values twice as wide as keys.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from chomsky_ladder.models.base import register
from chomsky_ladder.models.block import Context, State, require
from chomsky_ladder.models.gated_delta_net import initial_decay
from chomsky_ladder.models.kda import ConvolvedDelta, Given, KDAConfig, KimiDelta
from chomsky_ladder.models.operations.delta.rules import by_any_delta_rule
from chomsky_ladder.models.operations.diagonal import diagonal_scan
from chomsky_ladder.models.scans.decayed_delta import decayed_delta_rule
from chomsky_ladder.models.scans.delta import of_length_1

LARGEST = 1.5  # of m
CENTRE = -0.2  # c at the start
LEAST = 1e-6  # added to A


class Curvature(nn.Module):
    """The scaling of keys. Its state is A [B, H, K]."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.asked = nn.Linear(width, 2 * num_heads, bias=False)  # of a and e
        self.A_log, self.dt_bias = map(nn.Parameter, initial_decay(num_heads))
        self.centre = nn.Parameter(torch.full((num_heads,), CENTRE))

    def forward(self, asked_BLX: Tensor, k_BHLK: Tensor, A_BHK: Tensor, ctx: Context) -> tuple[Tensor, Tensor]:
        """Return m k [B, H, L, K] and the last A."""
        dt_BHL, e_BHL = asked_BLX.to(k_BHLK.dtype).mT.chunk(2, 1)
        rate_H1, bias_H1, centre_H11 = self.A_log.exp()[:, None], self.dt_bias[:, None], self.centre[:, None, None]
        a_BHL = torch.exp(-rate_H1 * nn.functional.softplus(dt_BHL + bias_H1))
        added_BHLK = torch.sigmoid(e_BHL)[..., None] * k_BHLK.square()
        A_BHLK, A_BHK = diagonal_scan(a_BHL[..., None].expand_as(added_BHLK), added_BHLK, A_BHK, ctx)
        r_BHLK = torch.log(A_BHLK + LEAST) - centre_H11
        return k_BHLK * torch.exp(-math.log(LARGEST) * r_BHLK / (1 + r_BHLK.abs())), A_BHK


def preconditioned(
    curvature: Curvature, asked_BLX: Tensor, given: tuple[Tensor, ...], state: tuple[Tensor, Tensor], ctx: Context
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Apply the rule to queries, keys, values, b [B, H, L, 1] and log w; the state is S and A."""
    q_BHLK, k_BHLK, v_BHLV, beta_BHL1, log_decay_BHLK = given
    (S_BHKV, A_BHK), k_BHLK = state, of_length_1(k_BHLK)
    p_BHLK, A_BHK = curvature(asked_BLX, k_BHLK, A_BHK, ctx)
    r_BHLK, f_BHLK = k_BHLK.shape[-1] ** -0.5 * of_length_1(q_BHLK), torch.exp(log_decay_BHLK) * k_BHLK
    bp_BHLK = beta_BHL1 * p_BHLK
    rest = (v_BHLV, log_decay_BHLK, S_BHKV, ctx)
    y_BHLV, S_BHKV = by_any_delta_rule(decayed_delta_rule, r_BHLK, f_BHLK, bp_BHLK, bp_BHLK, *rest)
    return y_BHLV, (S_BHKV, A_BHK)


class WithCurvature(ConvolvedDelta):
    """A layer whose state has an A of zeros beside S at the start."""

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        past_BWE, S_BHKV = super().init_state(batch, max_length=max_length, device=device, dtype=dtype)
        return past_BWE, (S_BHKV, torch.zeros_like(S_BHKV[..., 0]))


class OfHeads(WithCurvature):
    """The layer with one decay for each head."""

    def __init__(self, config: "PreconditionedDeltaNetConfig") -> None:
        super().__init__(config)
        self.beta, self.dt = (nn.Linear(config.d_model, self.num_heads, bias=False) for _ in range(2))
        self.A_log, self.dt_bias = map(nn.Parameter, initial_decay(self.num_heads))
        self.gate = nn.Linear(config.d_model, self.widths[2], bias=False)
        self.curvature = Curvature(config.d_model, self.num_heads)

    def beside(self) -> list[nn.Module]:
        return [self.gate, self.beta, self.dt, self.curvature.asked]

    def ruled(
        self, given: Given, q_BHLK: Tensor, k_BHLK: Tensor, v_BHLV: Tensor, state: State, ctx: Context
    ) -> tuple[Tensor, State]:
        _, beta_BLH, dt_BLH, asked_BLX = given
        dt_BLH = nn.functional.softplus(dt_BLH.to(k_BHLK.dtype) + self.dt_bias)
        log_decay_BHL1 = self.heads(-self.A_log.to(k_BHLK.dtype).exp() * dt_BLH)
        ruled = (q_BHLK, k_BHLK, v_BHLV, self.squashed(beta_BLH), log_decay_BHL1)
        return preconditioned(self.curvature, asked_BLX, ruled, state, ctx)

    def output_gate(self, given: Given) -> Tensor:
        return nn.functional.silu(given[0])


class OfChannels(WithCurvature, KimiDelta):
    """The layer with a decay in every channel."""

    def __init__(self, config: "PreconditionedDeltaNetConfig") -> None:
        super().__init__(config)
        self.curvature = Curvature(config.d_model, self.num_heads)

    def beside(self) -> list[nn.Module]:
        return [*super().beside(), self.curvature.asked]

    def ruled(
        self, given: Given, q_BHLK: Tensor, k_BHLK: Tensor, v_BHLV: Tensor, state: State, ctx: Context
    ) -> tuple[Tensor, State]:
        low_BLR, _, beta_BLH, asked_BLX = given
        ruled = (q_BHLK, k_BHLK, v_BHLV, self.squashed(beta_BLH), self.log_decay(low_BLR))
        return preconditioned(self.curvature, asked_BLX, ruled, state, ctx)


@register
@dataclass(frozen=True, kw_only=True)
class PreconditionedDeltaNetConfig(KDAConfig):
    name, family, year, paper = "preconditioned_delta_net", "delta rule", 2026, "2604.21100"
    title = "Preconditioned DeltaNet"

    decay: Literal["head", "channel"] = "head"
    """The part that decays by a rate of its own: the state of a head, as in `gated_delta_net`, or every channel of its
    keys, as in `kda`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.eigenvalues == "positive", f"{self.name}: eigenvalues=signed is not possible, states could grow")

    def mixer(self, layer: int) -> ConvolvedDelta:
        return OfHeads(self) if self.decay == "head" else OfChannels(self)

    @classmethod
    def tiny(cls) -> "PreconditionedDeltaNetConfig":
        return cls(d_model=16, num_blocks=2, num_heads=2)
