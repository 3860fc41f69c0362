"""RG-LRU, the recurrence of Hawk and Griffin: a gated decay in every channel, with inputs scaled to keep its size.

    r = sigmoid(W_a u + b_a)    i = sigmoid(W_i u + b_i)    a = sigmoid(L)^(8 r)    u = conv(W_u x + b_u)
    h_t = a_t h_{t-1} + sqrt(1 - a_t^2) i_t u_t             out = W_o (gelu(W_y x + b_y) * h) + b_o
    x = x + out        x = x + W_2 (gelu(W_g x) * W_1 x)    each behind an RMSNorm

De et al. 2024 (2402.19427). A stack of these blocks is their Hawk. Griffin has a local attention after every two of
them: `hybrid` with the pattern `rg_lru,rg_lru,sliding_window`. W_a and W_i are block-diagonal, with `num_heads` blocks.
As in the released RecurrentGemma the recurrence is as wide as the stream, and sigmoid(L) starts with its square uniform
in 0.9^2 .. 0.999^2. That code leaves the first token of a document unscaled, and its feed-forward has biases; the paper
says neither. Other weights start as torch.nn.Linear's and Conv1d's do.

1 - a^2 is computed from log a, without a difference. Below 1e-12 it is held there, so that its root has a gradient.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from chomsky_ladder.models._mixers import HeadsConfig
from chomsky_ladder.models.base import register
from chomsky_ladder.models.block import Context, State, require
from chomsky_ladder.models.layers.convolution import ShortConvolution
from chomsky_ladder.models.layers.gate import gated
from chomsky_ladder.models.layers.residual import Layer, OneForm
from chomsky_ladder.models.operations.diagonal import diagonal_scan

SHARPNESS = 8.0  # c in the paper
LONGEST, SHORTEST = 0.999, 0.9  # sigmoid(L) at the start
SMALLEST = 1e-12  # of 1 - a^2


class RealGatedLRU(OneForm):
    """The recurrent block. Its state is the convolution's and h [B, D], kept in fp32 at least."""

    heeds_asked = True

    def __init__(self, config: "RGLRUConfig") -> None:
        super().__init__()
        width, heads = config.d_model, config.num_heads
        self.gate, self.value, self.out = (nn.Linear(width, width) for _ in "guo")
        self.convolution = ShortConvolution(width, width=config.conv_width)
        bound = (width // heads) ** -0.5
        self.gates_HKG = nn.Parameter(torch.empty(heads, width // heads, 2 * width // heads).uniform_(-bound, bound))
        self.gates_bias_HG = nn.Parameter(torch.empty(heads, 2 * width // heads).uniform_(-bound, bound))
        self.decay_D = nn.Parameter(initial_logits(width))

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        _, h_BD = self.init_state(x_BLD.shape[0], max_length=0, device=x_BLD.device, dtype=x_BLD.dtype)
        return self._scan(x_BLD, self.convolution(self.value(x_BLD), ctx), h_BD, ctx)[0]

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        h_BD = torch.zeros(batch, len(self.decay_D), device=device, dtype=torch.promote_types(dtype, torch.float32))
        return self.convolution.init_state(batch, device=device, dtype=dtype), h_BD

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        past_BWD, h_BD = state
        u_BLD, past_BWD = self.convolution.extend(self.value(x_BLD), past_BWD)
        y_BLD, h_BD = self._scan(x_BLD, u_BLD, h_BD, ctx)
        return y_BLD, (past_BWD, h_BD)

    def _scan(self, x_BLD: Tensor, u_BLD: Tensor, h_BD: Tensor, ctx: Context) -> tuple[Tensor, Tensor]:
        heads_BLHK = u_BLD.unflatten(-1, (len(self.gates_HKG), -1))
        gates_BLHG = torch.einsum("blhk,hkg->blhg", heads_BLHK, self.gates_HKG) + self.gates_bias_HG
        r_BLHK, i_BLHK = torch.sigmoid(gates_BLHG.to(h_BD.dtype)).chunk(2, -1)
        log_decay_BLD = SHARPNESS * r_BLHK.flatten(2) * nn.functional.logsigmoid(self.decay_D.to(h_BD.dtype))
        scale_BLD = torch.sqrt((-torch.expm1(2 * log_decay_BLD)).clamp_min(SMALLEST))
        h_BLD, h_BD = diagonal_scan(torch.exp(log_decay_BLD), scale_BLD * i_BLHK.flatten(2) * u_BLD, h_BD, ctx)
        h_BLD = ctx.wanted(h_BLD).to(self.out.weight.dtype)
        return self.out(gated(self.gate(ctx.wanted(x_BLD)), h_BLD, "gelu", ctx=ctx)), h_BD


def initial_logits(width: int) -> Tensor:
    """Return logits of decays whose squares are uniform between the two bounds."""
    decay_D = torch.empty(width, dtype=torch.float64).uniform_(SHORTEST**2, LONGEST**2).sqrt()
    return torch.logit(decay_D).float()


class GeGLU(Layer):
    """The gated feed-forward of Shazeer 2020 (2002.05202) with a GELU, without biases."""

    each_alone = True

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate_up = nn.Linear(width, 2 * inner, bias=False)
        self.out = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor, ctx: Context) -> Tensor:
        return self.out(gated(self.gate_up(x), activation="gelu", ctx=ctx))


@register
@dataclass(frozen=True, kw_only=True)
class RGLRUConfig(HeadsConfig):
    name, family, year, paper = "rg_lru", "linear recurrence", 2024, "2402.19427"
    title = "Hawk (RG-LRU)"
    transition = "diagonal"

    num_heads: int = 4
    """Blocks of the gates' weights; they divide the width evenly."""
    conv_width: int = 4
    """Width of the short convolution, in tokens."""
    d_inner: int = 0
    """Width inside the feed-forward; 0 for three times the model's."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.conv_width >= 1, f"{self.name}: conv_width must be at least 1, not {self.conv_width}")

    def mixer(self, layer: int) -> Layer:
        return RealGatedLRU(self)

    def feed_forward(self) -> Layer:
        return GeGLU(self.d_model, self.d_inner or 3 * self.d_model)
