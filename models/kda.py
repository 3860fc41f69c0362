"""Kimi Delta Attention: Gated DeltaNet with a decay of its own for every channel of a key.

    S_t = (1 - b_t k_t k_t^T) diag(w_t) S_{t-1} + b_t k_t v_t^T        y_t = q_t S_t / sqrt(K)
    b_t = c sigmoid(u x_t)        w_t = exp(-A softplus(W_2 W_1 x_t + d))
    x = x + W_o (RMSNorm(y) * sigmoid(G_2 G_1 x + e))        x = x + SwiGLU(x)

in each head, with q, k and v as in `delta_net`, each layer after an RMSNorm. Kimi Team 2025 (2510.26692), whose Kimi
Linear has three such layers before each layer of attention without positions: `hybrid` makes it. The inner width of the
maps W_2 W_1 and G_2 G_1 is the number of a head's values. c is 1, or 2 with `eigenvalues=signed`. Published layers have
heads of 128, `head_dim=128`; by default here they divide the width.

A starts uniform in 1 .. 16, one for each head and learned through its logarithm, and softplus(d) log-uniform in 1e-3 ..
1e-1, one for each channel. Everything else starts as in `delta_net`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from einops import rearrange
from torch import Tensor, nn

from chomsky_ladder.models.base import register
from chomsky_ladder.models.block import Context, State
from chomsky_ladder.models.delta_net import NORM_EPS, DeltaNetConfig
from chomsky_ladder.models.layers.convolution import BehindConvolution, ShortConvolution
from chomsky_ladder.models.layers.linear import of_one
from chomsky_ladder.models.layers.residual import Layer
from chomsky_ladder.models.operations.delta.rules import by_channel_delta_rule
from chomsky_ladder.models.operations.norm import normed
from chomsky_ladder.models.operations.scan.reference import initial_dt_bias

Given = Sequence[Tensor]


class ConvolvedDelta(BehindConvolution):
    """Queries, keys and values after one short convolution. The state is the convolution's and S [B, H, K, V], in fp32
    at least.

    A subclass adds its gates and its rule, computed from the outputs of the layers `beside` queries, keys and values.
    """

    heeds_asked = True

    def __init__(self, config: "KDAConfig") -> None:
        super().__init__()
        width, keys, self.num_heads = config.d_model, config.key_width, config.num_heads
        self.largest_beta = 2.0 if config.eigenvalues == "signed" else 1.0
        self.widths = [keys, keys, config.expand_v * keys]  # of q, k and v
        self.query_key_value = nn.Linear(width, sum(self.widths), bias=False)
        self.convolution = ShortConvolution(sum(self.widths), width=config.conv_width, bias=False, silu=True)
        self.norm = nn.RMSNorm(self.widths[2] // self.num_heads, eps=NORM_EPS)
        self.out = nn.Linear(self.widths[2], width, bias=False)

    def beside(self) -> list[nn.Module]:
        """Return all other layers that read the stream. They are one product where that is faster."""
        raise NotImplementedError

    def ruled(
        self, given: Given, q_BHLK: Tensor, k_BHLK: Tensor, v_BHLV: Tensor, state: State, ctx: Context
    ) -> tuple[Tensor, State]:
        """Return y [B, H, L, V] and the last state. Queries and keys still have to be normalised to length 1."""
        raise NotImplementedError

    def output_gate(self, given: Given) -> Tensor:
        raise NotImplementedError

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        held, heads = torch.promote_types(dtype, torch.float32), self.num_heads
        state_BHKV = torch.zeros(
            batch, heads, self.widths[1] // heads, self.widths[2] // heads, device=device, dtype=held
        )
        return self.convolution.init_state(batch, device=device, dtype=dtype), state_BHKV

    def read(self, x_BLD: Tensor, mixed_BLE: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        q_BHLK, k_BHLK, v_BHLV = map(self.heads, mixed_BLE.split(self.widths, -1))
        dtype = torch.promote_types(mixed_BLE.dtype, torch.float32)
        q_BHLK, k_BHLK = q_BHLK.to(dtype), k_BHLK.to(dtype)  # v may keep its precision
        given = of_one(self.beside(), x_BLD)
        y_BHLV, state = self.ruled(given, q_BHLK, k_BHLK, v_BHLV, state, ctx)
        y_BLHV = ctx.wanted(rearrange(y_BHLV, "b h l v -> b l h v")).to(self.norm.weight.dtype)
        gate_BLE = self.output_gate([ctx.wanted(x_BLX) for x_BLX in given])
        return self.out(normed(y_BLHV, self.norm, ctx).flatten(2) * gate_BLE), state

    def heads(self, x_BLE: Tensor) -> Tensor:
        return rearrange(x_BLE, "b l (h k) -> b h l k", h=self.num_heads)

    def squashed(self, gate_BLE: Tensor) -> Tensor:
        """Return a gate between 0 and 1, by heads, in the precision of the state."""
        return self.heads(torch.sigmoid(gate_BLE.to(torch.promote_types(gate_BLE.dtype, torch.float32))))


class ChannelDelta(ConvolvedDelta):
    """The rule with a decay in every channel of keys, and an output gate of low rank."""

    def __init__(self, config: "KDAConfig") -> None:
        super().__init__(config)
        width, (keys, _, values) = config.d_model, self.widths
        per_head = values // self.num_heads
        self.decay = nn.Sequential(nn.Linear(width, per_head, bias=False), nn.Linear(per_head, keys, bias=False))
        rate_H = torch.empty(self.num_heads, dtype=torch.float64).uniform_(1, 16)
        self.A_log = nn.Parameter(rate_H.log().float())
        self.dt_bias = nn.Parameter(initial_dt_bias(keys, dtype=torch.float64))
        self.gate = nn.Sequential(nn.Linear(width, per_head, bias=False), nn.Linear(per_head, values))

    def beside(self) -> list[nn.Module]:
        return [self.decay[0], self.gate[0]]

    def log_decay(self, low_BLR: Tensor) -> Tensor:
        dtype = torch.promote_types(low_BLR.dtype, torch.float32)
        dt_BHLK = nn.functional.softplus(self.heads(self.decay[1](low_BLR).to(dtype) + self.dt_bias))
        return -self.A_log.to(dtype).exp()[:, None, None] * dt_BHLK

    def output_gate(self, given: Given) -> Tensor:
        return torch.sigmoid(self.gate[1](given[1]))


class KimiDelta(ChannelDelta):
    def __init__(self, config: "KDAConfig") -> None:
        super().__init__(config)
        self.beta = nn.Linear(config.d_model, self.num_heads, bias=False)

    def beside(self) -> list[nn.Module]:
        return [*super().beside(), self.beta]

    def ruled(
        self, given: Given, q_BHLK: Tensor, k_BHLK: Tensor, v_BHLV: Tensor, state: State, ctx: Context
    ) -> tuple[Tensor, State]:
        low_BLR, _, beta_BLH = given
        beta_BHL1, log_decay_BHLK = self.largest_beta * self.squashed(beta_BLH), self.log_decay(low_BLR)
        return by_channel_delta_rule(q_BHLK, k_BHLK, v_BHLV, beta_BHL1, None, log_decay_BHLK, state, ctx)


@register
@dataclass(frozen=True, kw_only=True)
class KDAConfig(DeltaNetConfig):
    name, family, year, paper = "kda", "delta rule", 2025, "2510.26692"
    title = "KDA{eigenvalues}"

    @property
    def transition(self) -> str:
        return "generalised delta" if self.eigenvalues == "positive" else "reflection"

    def mixer(self, layer: int) -> Layer:
        return KimiDelta(self)

    @classmethod
    def tiny(cls) -> "KDAConfig":
        return cls(d_model=16, num_blocks=2, num_heads=2)
