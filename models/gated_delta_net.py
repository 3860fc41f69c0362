"""Gated DeltaNet: the delta rule with a decay, which can forget a whole state where the rule replaces one key's value.

    S_t = a_t S_{t-1} (1 - b_t k_t k_t^T) + b_t v_t k_t^T        y_t = S_t q_t        b_t = c sigmoid(w x_t)
    a_t = exp(-A softplus(w' x_t + d))        x = x + W_o (RMSNorm(y) * silu(W_g x))        x = x + SwiGLU(x)

in each head, with q, k and v as in `delta_net`, each layer after an RMSNorm. Yang et al. 2024 (2412.06464).
`eigenvalues=signed` has c = 2 instead of 1, so that those of 1 - b k k^T lie in [-1, 1] (Grazzi et al. 2024,
2411.12537). As in `delta_net` queries, keys and values are all as wide as the model. The published layer has values
twice as wide as keys, `expand_v=2`, and heads of fixed width, `head_dim`.

A starts uniform in 0 .. 16 and softplus(d) log-uniform in 1e-3 .. 1e-1, as in the published code. A is learned through
its logarithm. Everything else starts as in `delta_net`.
"""

from dataclasses import dataclass

import torch
from einops import rearrange
from torch import Tensor, nn

from chomsky_ladder.models.base import register
from chomsky_ladder.models.block import Context, State
from chomsky_ladder.models.delta_net import NORM_EPS, DeltaNetConfig
from chomsky_ladder.models.layers.convolution import BehindConvolution, ShortConvolution
from chomsky_ladder.models.layers.gate import gated
from chomsky_ladder.models.layers.linear import of_one
from chomsky_ladder.models.operations.delta.rules import by_gated_delta_rule
from chomsky_ladder.models.operations.norm import normed
from chomsky_ladder.models.operations.scan.reference import initial_dt_bias


class GatedDeltaRule(BehindConvolution):
    """The gated delta rule, `steps` times for each token.

    Its state is the convolution's and S^T [B, H, K, V], in fp32 at least.
    """

    heeds_asked = True

    def __init__(self, config: "GatedDeltaNetConfig", *, steps: int = 1) -> None:
        super().__init__()
        width, keys, values = config.d_model, config.key_width, config.expand_v * config.key_width
        self.num_heads, self.steps = config.num_heads, steps
        self.largest_beta = 2.0 if config.eigenvalues == "signed" else 1.0
        self.widths = [keys, steps * keys, steps * values]  # of q and of all steps' k and v
        self.query_key_value = nn.Linear(width, sum(self.widths), bias=False)
        self.convolution = ShortConvolution(sum(self.widths), width=config.conv_width, bias=False, silu=True)
        self.beta = nn.Linear(width, steps * self.num_heads, bias=False)
        self.dt = nn.Linear(width, self.num_heads, bias=False)
        self.A_log, self.dt_bias = map(nn.Parameter, initial_decay(self.num_heads))
        self.norm = nn.RMSNorm(values // self.num_heads, eps=NORM_EPS)
        self.gate = nn.Linear(width, values, bias=False)
        self.out = nn.Linear(values, width, bias=False)

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        held = torch.promote_types(dtype, torch.float32)
        per_head = (width // self.num_heads // self.steps for width in self.widths[1:])
        state_BHKV = torch.zeros(batch, self.num_heads, *per_head, device=device, dtype=held)
        return self.convolution.init_state(batch, device=device, dtype=dtype), state_BHKV

    def read(self, x_BLD: Tensor, mixed_BLE: Tensor, state_BHKV: Tensor, ctx: Context) -> tuple[Tensor, Tensor]:
        dtype = torch.promote_types(mixed_BLE.dtype, torch.float32)
        q_BHLK, k_BHMK, v_BHMV = (
            rearrange(x_BLE, "b l (n h k) -> b h (l n) k", n=steps, h=self.num_heads)
            for x_BLE, steps in zip(mixed_BLE.split(self.widths, -1), (1, self.steps, self.steps), strict=True)
        )
        q_BHLK, k_BHMK = q_BHLK.to(dtype), k_BHMK.to(dtype)  # v may keep its precision
        gate_BLD, beta_BLM, dt_BLH = of_one([self.gate, self.beta, self.dt], x_BLD)
        beta_BLM = self.largest_beta * torch.sigmoid(beta_BLM.to(dtype))
        beta_BHM = rearrange(beta_BLM, "b l (n h) -> b h (l n)", h=self.num_heads)
        log_decay_BLH = -self.A_log.to(dtype).exp() * nn.functional.softplus(dt_BLH.to(dtype) + self.dt_bias)
        y_BHLV, state_BHKV = by_gated_delta_rule(q_BHLK, k_BHMK, v_BHMV, beta_BHM, log_decay_BLH.mT, state_BHKV, ctx)
        y_BLHV = ctx.wanted(rearrange(y_BHLV, "b h l v -> b l h v")).to(self.norm.weight.dtype)
        return self.out(gated(ctx.wanted(gate_BLD), normed(y_BLHV, self.norm, ctx).flatten(2), ctx=ctx)), state_BHKV


def initial_decay(num_heads: int) -> tuple[Tensor, Tensor]:
    """Return log A and d; in float64, as CPUs differ in the last bit of a logarithm in fp32."""
    A_H = torch.empty(num_heads, dtype=torch.float64).uniform_(0, 16)
    return A_H.log().float(), initial_dt_bias(num_heads, dtype=torch.float64)


@register
@dataclass(frozen=True, kw_only=True)
class GatedDeltaNetConfig(DeltaNetConfig):
    name, family, year, paper = "gated_delta_net", "delta rule", 2024, "2412.06464"
    title = "Gated DeltaNet{eigenvalues}"

    def mixer(self, layer: int) -> GatedDeltaRule:
        return GatedDeltaRule(self)

    @classmethod
    def tiny(cls) -> "GatedDeltaNetConfig":
        return cls(d_model=16, num_blocks=2, num_heads=2)
