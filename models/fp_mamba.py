"""FP-Mamba: a selective state space that reads its own output, which is solved for as a fixed point.

    v, z = W_in x        dt = softplus(W_dt W_r v + b)        B, C = unit(W_BC v + U_BC y_{t-1})
    Q = prod_i (I - 2 a_i u_i u_i')      u = unit(silu(W_u v + U_u y_{t-1}))      a = sigmoid(W_a v + U_a y_{t-1} + b)
    s_t = Q (v_t - y_t) + y_t            h_t = exp(dt_t A) h_{t-1} + dt_t B_t s_t
    y_t = LN(silu(z) (C_t h_t + D s_t))                       out = W_out y

Movahedi et al. 2025 (2503.10799), the form with Householder reflections. y stands on both sides. The paper starts all
tokens at zero and repeats Mamba's scan over the whole string until y hardly moves. So h mixes its channels at every
token by Q, as a dense recurrence does, and tokens are computed in parallel. Here each token is solved in turn, from
zero: its past is solved already. Where steps bring y closer, both ways arrive at the same fixed point. In both, the
gradient is that of one more scan with y held fixed (their section 3.5).

`iterations` is the number of steps, the same for all tokens, so that no row depends on another. At climb-v1's size and
the initial weights, eight leave y some 3 % away; the paper stops below a tenth. In narrow layers some tokens alternate
between two values. The paper damps such steps, this model does not.

A, D and dt are those of `mamba`, LN is a LayerNorm, and there is no convolution. The authors' code has weight norm on
all maps of y and on those that make Q, and can put the gate outside the loop; the text has it inside, as here.

A training step takes three and a half times as long as an LSTM block's, at climb-v1's size on a CPU.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, normalize, silu, softplus

from chomsky_ladder.models.base import ModelConfig, register
from chomsky_ladder.models.block import Block, Context, State, require
from chomsky_ladder.models.layers.linear import in_parts
from chomsky_ladder.models.layers.residual import OneForm, Residual, scale_down
from chomsky_ladder.models.operations.scan import mamba_scan
from chomsky_ladder.models.operations.scan.reference import at_least_fp32, initial_dt_bias
from chomsky_ladder.models.scans.products import product


class FixedPointSSM(OneForm):
    """The state space. Its state is the last y [B, E] and h [B, N, E], kept in fp32 at least."""

    heeds_asked = True
    no_decay = frozenset({"A_log", "D"})

    def __init__(self, config: "FPMambaConfig") -> None:
        super().__init__()
        width, states, rank = config.expansion * config.d_model, config.d_state, config.rank
        self.reflections, self.iterations = config.reflections, config.iterations
        self.value_gate = nn.Linear(config.d_model, 2 * width, bias=False)
        self.select = nn.Linear(width, rank + 2 * states, bias=False)
        self.mix = nn.Linear(width, self.reflections * (width + 1))
        self.read = nn.Linear(width, 2 * states + self.reflections * (width + 1), bias=False)
        self.dt = nn.Linear(rank, width)
        self.A_log = nn.Parameter(torch.arange(1.0, states + 1).log().repeat(width, 1))
        self.D = nn.Parameter(torch.ones(width))
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, config.d_model, bias=False)
        with torch.no_grad():
            self.dt.weight.uniform_(-(rank**-0.5), rank**-0.5)
            self.dt.bias.copy_(initial_dt_bias(width))

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        width, states = self.A_log.shape
        held = {"device": device, "dtype": at_least_fp32(dtype)}
        return torch.zeros(batch, width, **held), torch.zeros(batch, states, width, **held)

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        y_BE, h_BNE = state
        width, states = self.A_log.shape
        v_BLE, z_BLE = in_parts(self.value_gate, x_BLD, [width] * 2)
        rank_BLR, B_BLN, C_BLN = in_parts(self.select, v_BLE, [self.dt.in_features, states, states])
        dt_BLE = product(rank_BLR, self.dt.weight)
        own_BLM = torch.cat([B_BLN, C_BLN, self.mix(v_BLE)], -1)
        with torch.no_grad(), torch.autocast(x_BLD.device.type, enabled=False):
            given = [z.to(y_BE.dtype) for z in (v_BLE, z_BLE, dt_BLE, own_BLM)]
            fixed_BLE, before_BLE, y_BE = self._solved(given, y_BE, h_BNE)
        mixed_BLM = own_BLM + self.read(before_BLE)
        B_BLN, C_BLN, u_BLKE, a_BLK1 = self._directions(mixed_BLM)
        s_BLE = _reflected(v_BLE - fixed_BLE, u_BLKE, a_BLK1) + fixed_BLE
        y_BLE, h_BNE = mamba_scan(
            ctx, s_BLE, dt_BLE, self.dt.bias, self.A_log, B_BLN, C_BLN, self.D, z_BLE, h_BNE, signed=False
        )
        return self.out(self.norm(y_BLE)), (y_BE, h_BNE)

    def _directions(self, mixed_XM: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return B and C of length 1, and the reflections' directions u and strengths 2 a."""
        width, states = self.A_log.shape
        sizes = [states, states, self.reflections * width, self.reflections]
        B_XN, C_XN, u_XE, a_XK = mixed_XM.split(sizes, -1)
        u_XKE = normalize(silu(u_XE).unflatten(-1, (self.reflections, width)), dim=-1)
        return normalize(B_XN, dim=-1), normalize(C_XN, dim=-1), u_XKE, 2 * torch.sigmoid(a_XK)[..., None]

    def _solved(self, given: list[Tensor], y_BE: Tensor, h_BNE: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return what every token's y is after `iterations` steps, the y before each token, and the last y."""
        v_BLE, z_BLE, dt_BLE, own_BLM = given
        dt_BLE, gate_BLE = softplus(dt_BLE + self.dt.bias), silu(z_BLE)
        A_NE = -self.A_log.exp().mT
        tokens = zip(*(x.unbind(1) for x in (v_BLE, gate_BLE, dt_BLE, own_BLM)), strict=True)
        fixed, before = [], []
        for v_BE, gate_BE, dt_BE, own_BM in tokens:
            before.append(y_BE)
            B_BN, C_BN, u_BKE, a_BK1 = self._directions(own_BM + self.read(y_BE))
            h_BNE = torch.exp(dt_BE[:, None] * A_NE) * h_BNE
            kept_BE = gate_BE * (C_BN[:, None] @ h_BNE)[:, 0]
            gain_BE = gate_BE * (dt_BE * (B_BN * C_BN).sum(-1, keepdim=True) + self.D)
            fixed_BE = s_BE = y_BE = torch.zeros_like(y_BE)
            for _ in range(self.iterations + 1):
                fixed_BE = y_BE
                s_BE = _reflected(v_BE - y_BE, u_BKE, a_BK1) + y_BE
                y_BE = layer_norm(
                    torch.addcmul(kept_BE, gain_BE, s_BE), y_BE.shape[-1:], self.norm.weight, self.norm.bias
                )
            fixed.append(fixed_BE)
            h_BNE = torch.addcmul(h_BNE, B_BN[..., None], (dt_BE * s_BE)[:, None])
        return torch.stack(fixed, 1), torch.stack(before, 1), y_BE


def _reflected(x_XE: Tensor, u_XKE: Tensor, a_XK1: Tensor) -> Tensor:
    for u_XE, a_X1 in zip(u_XKE.unbind(-2), a_XK1.unbind(-2), strict=True):
        x_XE = x_XE - a_X1 * (u_XE * x_XE).sum(-1, keepdim=True) * u_XE
    return x_XE


@register
@dataclass(frozen=True, kw_only=True)
class FPMambaConfig(ModelConfig):
    name, family, year, paper = "fp_mamba", "state space", 2025, "2503.10799"
    title = "FP-Mamba"

    num_blocks: int = 1
    """Number of blocks; the paper has one, and two for arithmetic."""
    expansion: int = 2
    """Channels inside a block, per channel of the stream."""
    d_state: int = 16
    """States of each channel."""
    dt_rank: int = 0
    """Rank of the map to the steps dt; 0 for a sixteenth of the model's width, rounded up."""
    reflections: int = 1
    """Householder reflections in the mixer Q of every token; the paper has one, two or four."""
    iterations: int = 8
    """Steps towards a token's fixed point."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("expansion", "d_state", "reflections", "iterations"):
            require(getattr(self, field) >= 1, f"{self.name}: {field} must be at least 1, not {getattr(self, field)}")
        require(self.dt_rank >= 0, f"{self.name}: dt_rank must not be negative")

    @property
    def rank(self) -> int:
        return self.dt_rank or -(-self.d_model // 16)

    def block(self, layer: int) -> Block:
        module = FixedPointSSM(self)
        scale_down(module.out, self.num_blocks)
        return Residual(self.d_model, [module], dropout=self.dropout)
