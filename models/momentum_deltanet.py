"""Momentum DeltaNet: the gated delta rule whose writes and removals go on with momentum at the tokens after them.

    M_t = m_t M_{t-1} + n_t k_t^T (a_t k_t S_{t-1} - v_t)     S_t = a_t S_{t-1} - b_t M_t     y_t = (q_t - d k_t) S_t
    n = 1 + tanh(w_n x / sqrt(D))        b = sin(c)^2 sigmoid(w_b x)        a = cos(c)^2 exp(-A softplus(w_a x + e))
    m = exp(-A' softplus(w_m x + e'))    c = arctan(F n)                    q, k, v = silu(conv(W x))
    x = x + W_o (RMSNorm(y) sigmoid(W_g x))        x = x + SwiGLU(x)        each behind an RMSNorm

in each head, with k and what is read of length 1: 2605.05838, as in its public code. m is at least e^-2. A, A', F and d
are learned through their logarithms, and start uniform in 0 .. 16, 0 .. 16, 0 .. 4 and 0 .. 1; e and e' start equal, as
in `gated_delta_net`. Values there are twice as wide as keys, here as wide. All else starts as in `delta_net`.

With -b_t M_t for the momentum, b_t n_t a_t for the rate and v_t / a_t for the value this is the rule of
models/operations/momentum, at a momentum of m_t b_t / b_{t-1}, whose kernels run. Gates stay logarithms, and those of a
and b above -30.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from einops import rearrange
from torch import Tensor, nn

from chomsky_ladder.models._mixers import HeadsConfig
from chomsky_ladder.models.base import register
from chomsky_ladder.models.block import Context, State, require
from chomsky_ladder.models.delta_net import NORM_EPS
from chomsky_ladder.models.gated_delta_net import initial_decay
from chomsky_ladder.models.gla import in_heads
from chomsky_ladder.models.layers.convolution import BehindConvolution, ShortConvolution
from chomsky_ladder.models.layers.residual import Layer
from chomsky_ladder.models.operations.momentum import momentum
from chomsky_ladder.models.operations.norm import normed
from chomsky_ladder.models.scans.delta import of_length_1

SMALLEST = -30.0  # logarithm of a and b
LEAST_MOMENTUM = -2.0  # logarithm of m


class Gates(NamedTuple):
    """The logarithms of a, b, m and n."""

    a_BHL: Tensor
    b_BHL: Tensor
    m_BHL: Tensor
    n_BHL: Tensor


class Held(NamedTuple):
    """S, the momentum -b M, and the logarithm of the last b [B, H, 1]."""

    S_BHKV: Tensor
    momentum_BHKV: Tensor
    b_BH1: Tensor


class MomentumDeltaRule(BehindConvolution):
    """The rule. Its state is the convolution's and `Held`, kept in fp32 at least."""

    heeds_asked = True

    def __init__(self, config: "MomentumDeltaNetConfig") -> None:
        super().__init__()
        width, heads = config.d_model, config.num_heads
        self.num_heads = heads
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.convolution = ShortConvolution(3 * width, width=config.conv_width, bias=False, silu=True)
        self.gates = nn.Linear(width, 4 * heads, bias=False)  # of a, b, m and n
        self.A_log, self.dt_bias = map(nn.Parameter, initial_decay(heads))
        self.momentum_log, self.momentum_bias = (
            nn.Parameter(initial_decay(heads)[0]),
            nn.Parameter(self.dt_bias.clone()),
        )
        self.factor_log, self.less_log = (
            nn.Parameter(torch.empty(heads, dtype=torch.float64).uniform_(0, most).log().float()) for most in (4, 1)
        )
        self.norm = nn.RMSNorm(width // heads, eps=NORM_EPS)
        self.gate, self.out = (nn.Linear(width, width, bias=False) for _ in "go")

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        dim, held = self.out.in_features // self.num_heads, torch.promote_types(dtype, torch.float32)
        sizes = (dim, dim), (dim, dim), (1,)
        own = Held(*(torch.zeros(batch, self.num_heads, *size, device=device, dtype=held) for size in sizes))
        return self.convolution.init_state(batch, device=device, dtype=dtype), own

    def read(self, x_BLD: Tensor, mixed_BLE: Tensor, state: Held, ctx: Context) -> tuple[Tensor, Held]:
        q_BHLK, k_BHLK, v_BHLV = (in_heads(x, self.num_heads) for x in mixed_BLE.chunk(3, -1))
        q_BHLK = of_length_1(q_BHLK - self.less_log.to(q_BHLK.dtype).exp()[:, None, None] * k_BHLK)
        given = (q_BHLK, of_length_1(k_BHLK), v_BHLV, self.logarithms(x_BLD, q_BHLK.dtype))
        y_BHLV, state = momentum_rule(ctx, *given, state)
        y_BHLV = normed(ctx.wanted(y_BHLV, along=2).to(self.norm.weight.dtype), self.norm, ctx)
        gate_BLD = torch.sigmoid(self.gate(ctx.wanted(x_BLD)))
        return self.out(gate_BLD * rearrange(y_BHLV, "b h l v -> b l (h v)")), state

    def logarithms(self, x_BLD: Tensor, dtype: torch.dtype) -> Gates:
        a, b, m, n = rearrange(self.gates(x_BLD).to(dtype), "b l (n h) -> n b l h", n=4)
        n = math.log(2) + nn.functional.logsigmoid(2 * n * x_BLD.shape[-1] ** -0.5)  # of 1 + tanh
        turn = 2 * (n + self.factor_log)  # of tan(c)^2
        a = -self.A_log.exp() * nn.functional.softplus(a + self.dt_bias) - nn.functional.softplus(turn)
        b = nn.functional.logsigmoid(b) - nn.functional.softplus(-turn)
        m = -self.momentum_log.exp() * nn.functional.softplus(m + self.momentum_bias)
        return Gates(a.clamp_min(SMALLEST).mT, b.clamp_min(SMALLEST).mT, m.clamp_min(LEAST_MOMENTUM).mT, n.mT)


def momentum_rule(
    ctx: Context, q_BHLK: Tensor, k_BHLK: Tensor, v_BHLV: Tensor, gates: Gates, state: Held
) -> tuple[Tensor, Held]:
    """Return y [B, H, L, V] and the last state."""
    before_BHL = torch.cat([state.b_BH1, gates.b_BHL[..., :-1]], -1)
    value_BHLV = v_BHLV * torch.exp(-gates.a_BHL)[..., None]
    rate_BHL = torch.exp(gates.a_BHL + gates.b_BHL + gates.n_BHL)
    more_BHL = gates.m_BHL + gates.b_BHL - before_BHL
    held = state.S_BHKV, state.momentum_BHKV
    y_BHLV, held = momentum(ctx, q_BHLK, k_BHLK, value_BHLV, rate_BHL, gates.a_BHL, more_BHL, held)
    return y_BHLV, Held(*held, gates.b_BHL[..., -1:])


@register
@dataclass(frozen=True, kw_only=True)
class MomentumDeltaNetConfig(HeadsConfig):
    name, family, year, paper = "momentum_deltanet", "delta rule", 2026, "2605.05838"
    title = "Momentum DeltaNet"

    conv_width: int = 4
    """Width of the short convolutions of queries, keys and values, in tokens; 1 for only a factor on each channel."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.conv_width >= 1, f"{self.name}: conv_width must be at least 1, not {self.conv_width}")

    def mixer(self, layer: int) -> Layer:
        return MomentumDeltaRule(self)
