"""The linear memory of Titans: a matrix that learns by gradient descent with momentum, and forgets.

    S_t = h_t S_{t-1} - r_t k_t^T (k_t M_{t-1} - v_t)        M_t = (1 - a_t) M_{t-1} + S_t        y_t = q_t M_t
    r_t, h_t, a_t = sigmoid(w x_t + c)        q, k, v = silu(conv(W x)), q and k of length 1
    x = x + W_o (RMSNorm(y) * silu(W_g x))        x = x + SwiGLU(x)

in each head, each layer after an RMSNorm. Behrouz et al. 2024 (2501.00663): S is the surprise, of this token and, by h,
of those before. Without momentum, h = 0, it is a gated delta rule.

This is only the paper's memory, of one layer, with its gates, convolutions and gated output. There are no persistent
tokens and no attention before, beside or behind the memory (its MAC, MAG and MAL). There is no memory of several
layers, whose steps are not linear, and the paper's claims for those are not made here. Gradients are those at the last
M, as in its equations. The paper trains with gradients at the M before a chunk of tokens, which a linear memory does
not need (models/operations/momentum). The naive functions of flash-linear-attention have a LayerNorm inside the loss,
as `ttt_linear` has.

The paper says neither which functions the gates are nor how they start. Here c starts at 0 for r and h, and at -4 for
a, so that M is halved in 40 tokens. Everything else starts as in `delta_net`.
"""

from dataclasses import dataclass

import torch
from einops import rearrange
from torch import Tensor, nn

from chomsky_ladder.models._mixers import HeadsConfig
from chomsky_ladder.models.base import register
from chomsky_ladder.models.block import Context, State, require
from chomsky_ladder.models.delta_net import NORM_EPS
from chomsky_ladder.models.gla import in_heads
from chomsky_ladder.models.layers.convolution import BehindConvolution, ShortConvolution
from chomsky_ladder.models.layers.gate import gated
from chomsky_ladder.models.layers.residual import Layer
from chomsky_ladder.models.operations.momentum import Held, momentum
from chomsky_ladder.models.operations.norm import normed
from chomsky_ladder.models.scans.delta import of_length_1

FORGETS = -4.0  # initial argument of a's sigmoid


class LinearMemory(BehindConvolution):
    """The memory. Its state is the convolution's and M and S [B, H, K, V], kept in fp32 at least."""

    heeds_asked = True

    def __init__(self, config: "TitansConfig") -> None:
        super().__init__()
        width, self.num_heads = config.d_model, config.num_heads
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.convolution = ShortConvolution(3 * width, width=config.conv_width, bias=False, silu=True)
        self.rate, self.momentum, self.forget = (nn.Linear(width, self.num_heads) for _ in range(3))
        for gate, bias in ((self.rate, 0.0), (self.momentum, 0.0), (self.forget, FORGETS)):
            nn.init.constant_(gate.bias, bias)
        self.norm = nn.RMSNorm(width // self.num_heads, eps=NORM_EPS)
        self.gate = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        dim, held = self.out.in_features // self.num_heads, torch.promote_types(dtype, torch.float32)
        M_BHKV, S_BHKV = (torch.zeros(batch, self.num_heads, dim, dim, device=device, dtype=held) for _ in "MS")
        return self.convolution.init_state(batch, device=device, dtype=dtype), (M_BHKV, S_BHKV)

    def read(self, x_BLD: Tensor, mixed_BLE: Tensor, state: Held, ctx: Context) -> tuple[Tensor, Held]:
        q_BHLK, k_BHLK, v_BHLV = (in_heads(x, self.num_heads) for x in mixed_BLE.chunk(3, -1))
        rate_BHL, momentum_BHL, forget_BHL = (
            in_heads(gate(x_BLD), self.num_heads)[..., 0] for gate in (self.rate, self.momentum, self.forget)
        )
        y_BHLV, state = momentum(
            ctx,
            of_length_1(q_BHLK),
            of_length_1(k_BHLK),
            v_BHLV,
            torch.sigmoid(rate_BHL),
            nn.functional.logsigmoid(-forget_BHL),
            nn.functional.logsigmoid(momentum_BHL),
            state,
        )
        y_BHLV = normed(ctx.wanted(y_BHLV, along=2).to(self.norm.weight.dtype), self.norm, ctx)
        gated_BLD = gated(self.gate(ctx.wanted(x_BLD)), rearrange(y_BHLV, "b h l v -> b l (h v)"), ctx=ctx)
        return self.out(gated_BLD), state


@register
@dataclass(frozen=True, kw_only=True)
class TitansConfig(HeadsConfig):
    name, family, year, paper = "titans", "delta rule", 2024, "2501.00663"
    title = "Titans (linear memory)"

    conv_width: int = 4
    """Width of the short convolutions of queries, keys and values, in tokens; 1 for only a factor on each channel."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.conv_width >= 1, f"{self.name}: conv_width must be at least 1, not {self.conv_width}")

    def mixer(self, layer: int) -> Layer:
        return LinearMemory(self)
