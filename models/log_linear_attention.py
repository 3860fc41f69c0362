"""Log-linear attention, in Mamba-2: states of 1, 2, 4 .. past tokens, each weighted anew at every token.

    z, [v, B, C], dt, l = W x        v, B, C = silu(conv([v, B, C]))        dt = softplus(dt + b)        per head:
    y_t = sum_i c_t^(i) C_t S_t^(i) + D v_t        c_t^(i) = softplus(w_i l_t^(i))        out = W_out rmsnorm(y silu(z))

S_t^(i) is the part of Mamba-2's state at t, h_t = exp(dt_t A) h_{t-1} + dt_t B_t v_t^T, that the tokens at the i-th
level of a Fenwick tree have written: the token itself, and stretches of 1, 2, 4 .. tokens, the longer the older
(models/scans/fenwick.py). Guo et al. 2025 (2506.04761), who also apply it to Gated DeltaNet, which is not here. Their
tree has 15 levels, for 16,384 tokens at most. Here the last of `num_levels` holds everything older.

Weights start as in `mamba2`, w at 1 and those of l as torch.nn.Linear's do, so that all c are near log 2. In the paper
they are normal with deviation 0.02, and the map W has a bias.
"""

from dataclasses import dataclass

import torch
from einops import rearrange
from torch import Tensor, nn

from chomsky_ladder.models.base import register
from chomsky_ladder.models.block import Block, Context, State, require
from chomsky_ladder.models.layers.gate import gated
from chomsky_ladder.models.layers.linear import in_parts
from chomsky_ladder.models.layers.residual import Residual, scale_down
from chomsky_ladder.models.mamba2 import SSD, Mamba2Config
from chomsky_ladder.models.operations.norm import normed
from chomsky_ladder.models.operations.scan.reference import at_least_fp32
from chomsky_ladder.models.scans.fenwick import Held, fenwick_attention, fenwick_extend


class FenwickSSD(SSD):
    """The layer.

    Its state is the convolution's, the sums of all stretches, in fp32 at least, and the place of the next token.
    """

    no_decay = SSD.no_decay | {"level_scale"}

    def __init__(self, config: "LogLinearAttentionConfig") -> None:
        super().__init__(config)
        heads = self.parts[-1]
        self.level = nn.Linear(config.d_model, heads * config.num_levels, bias=False)
        self.level_scale = nn.Parameter(torch.ones(heads, config.num_levels))

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        z_BLE, mixed_BLF, dt_BLH = in_parts(self.gate_value_dt, x_BLD, self.parts)
        return self._leveled(x_BLD, z_BLE, self.convolution(mixed_BLF, ctx), dt_BLH, None, ctx)[0]

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        past_BWF, h_BHNK = super().init_state(batch, max_length=max_length, device=device, dtype=dtype)
        S_BHENK = h_BHNK[:, :, None].expand(-1, -1, self.level_scale.shape[1] - 1, -1, -1).clone()
        return past_BWF, (S_BHENK, torch.zeros((), dtype=torch.int64, device=device))

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        past_BWF, held = state
        z_BLE, mixed_BLF, dt_BLH = in_parts(self.gate_value_dt, x_BLD, self.parts)
        mixed_BLF, past_BWF = self.convolution.extend(mixed_BLF, past_BWF)
        y_BLD, held = self._leveled(x_BLD, z_BLE, mixed_BLF, dt_BLH, held, ctx)
        return y_BLD, (past_BWF, held)

    def _leveled(
        self, x_BLD: Tensor, z_BLE: Tensor, mixed_BLF: Tensor, dt_BLH: Tensor, held: Held | None, ctx: Context
    ) -> tuple[Tensor, Held | None]:
        width, channels, heads = self.parts
        states = (channels - width) // 2
        dtype = at_least_fp32(dt_BLH.dtype)
        v_BLE, B_BLN, C_BLN = mixed_BLF.to(dtype).split([width, states, states], dim=-1)
        v_BHLK = rearrange(v_BLE, "b l (h k) -> b h l k", h=heads)
        dt_BHL = nn.functional.softplus(dt_BLH.to(dtype) + self.dt_bias).mT
        log_a_BHL = -dt_BHL * self.A_log.to(dtype).exp()[:, None]
        level_BHLE = rearrange(self.level(x_BLD).to(dtype), "b l (h e) -> b h l e", h=heads)
        # softplus, for whose gradient of a turned tensor a compiler assumes wrong strides (torch 2.13).
        c_BHLE = -nn.functional.logsigmoid(-self.level_scale.to(dtype)[:, None] * level_BHLE)
        given = (C_BLN[:, None], B_BLN[:, None], dt_BHL[..., None] * v_BHLK, log_a_BHL, c_BHLE)
        if held is None:
            y_BHLK = fenwick_attention(*given)
        else:
            y_BHLK, held = fenwick_extend(*given, held)
        y_BLE = rearrange(y_BHLK + self.D.to(dtype)[:, None, None] * v_BHLK, "b h l k -> b l (h k)")
        gated_BLE = gated(ctx.wanted(z_BLE), ctx.wanted(y_BLE), ctx=ctx)
        return self.out(normed(gated_BLE.to(self.norm.weight.dtype), self.norm, ctx)), held


@register
@dataclass(frozen=True, kw_only=True)
class LogLinearAttentionConfig(Mamba2Config):
    name, family, year, paper = "log_linear_attention", "state space", 2025, "2506.04761"
    title = "Log-linear Mamba-2"
    transition = ""  # reading also depends on the bits of the position, which no result for `mamba2` covers

    num_levels: int = 15
    """Levels of the tree: the token itself, stretches of 1, 2, 4 .. tokens, and the last for everything older."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.num_levels >= 2, f"{self.name}: num_levels must be at least 2, not {self.num_levels}")

    def block(self, layer: int) -> Block:
        module = FenwickSSD(self)
        scale_down(module.out, self.num_blocks)
        return Residual(self.d_model, [module], dropout=self.dropout)

    @classmethod
    def tiny(cls) -> "LogLinearAttentionConfig":
        return cls(d_model=16, num_blocks=2, head_dim=8, d_state=16, num_levels=4)
