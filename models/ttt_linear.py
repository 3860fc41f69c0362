"""TTT-Linear: a layer whose state is a linear model, which takes a training step at every token.

    y_t = R q_t + LN(M_t [R q_t, 1])        M_t = M - r_i sum over s <= t of the mini-batch of c_s gradient_s
    gradient_s: of |LN(M [R k_s, 1]) - (v_s - R k_s)|^2 / 2 at M        c_s = sigmoid(u x_s + e) / K
    x = x + W_o LayerNorm(y)        x = x + SwiGLU(x)        each behind an RMSNorm

in each head. M is that after the last mini-batch, i = 1, 2 .. the place of t in its mini-batch, and R the rotation by i
- 1. Sun et al. 2024 (2407.04620), in the default form of the published code: mini-batches of 16, q, k and v with their
own weights and no convolution, no gate on y. As there, the rate r_i = max(1/i + p_i, 0) has a learned p, so that a
whole mini-batch counts as its mean. LN has weights for every head, and the initial M of a sequence is learned: it
starts normal with deviation 0.02 and without a bias, as does u. p starts at 0, everything else as torch.nn.Linear's.
`base_rate` is a factor on c.

The published code can only continue inside a mini-batch token by token. Here a state may be handed in anywhere.
"""

from dataclasses import dataclass

import torch
from einops import rearrange
from torch import Tensor, nn

from chomsky_ladder.models._mixers import MixerConfig
from chomsky_ladder.models.base import register
from chomsky_ladder.models.block import Context, State, require
from chomsky_ladder.models.gla import by_heads, in_heads
from chomsky_ladder.models.layers.positions import rotate
from chomsky_ladder.models.layers.residual import Layer
from chomsky_ladder.models.operations.fast_weights import fast_weights_from
from chomsky_ladder.models.operations.fast_weights.reference import NORM_EPS, Held, Norm, fast_weights
from chomsky_ladder.models.operations.scan.reference import at_least_fp32

DEVIATION = 0.02


class FastWeights(Layer):
    """The layer. Its state is that of models/operations/fast_weights, kept in fp32 at least."""

    def __init__(self, config: "TTTLinearConfig") -> None:
        super().__init__()
        width, heads, dim = config.d_model, config.num_heads, config.d_model // config.num_heads
        self.num_heads, self.factor = heads, config.base_rate / dim
        self.query, self.key, self.value = (nn.Linear(width, width, bias=False) for _ in "qkv")
        self.rate = nn.Linear(width, heads)
        nn.init.normal_(self.rate.weight, std=DEVIATION)
        nn.init.zeros_(self.rate.bias)
        self.place_rate = nn.Parameter(torch.zeros(config.mini_batch))
        self.begin_HKK = nn.Parameter(DEVIATION * torch.randn(heads, dim, dim))
        self.begin_bias_HK = nn.Parameter(torch.zeros(heads, dim))
        self.scale, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.norm = nn.LayerNorm(width, eps=NORM_EPS)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        place_L = torch.arange(x_BLD.shape[1], device=x_BLD.device)
        given = q_BHLK, *_, norm = self._asked(x_BLD, place_L)
        z_BHLK = fast_weights_from(ctx, *given, self._begin(x_BLD))
        return self._told(q_BHLK, norm(z_BHLK))

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        M_BHXK = self._begin(torch.empty(batch, 0, device=device, dtype=dtype))
        return Held(M_BHXK, torch.zeros_like(M_BHXK), torch.zeros((), dtype=torch.int64, device=device))

    def step(self, x_BD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        y_BLD, state = self.extend(x_BD[:, None], state, ctx)
        return y_BLD[:, 0], state

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        place_L = state.place + torch.arange(x_BLD.shape[1], device=x_BLD.device)
        given = q_BHLK, *_, norm = self._asked(x_BLD, place_L)
        z_BHLK, state = fast_weights(*given, state)
        return self._told(q_BHLK, norm(z_BHLK)), state

    def _begin(self, x_BX: Tensor) -> Tensor:
        """Return the first M of every row."""
        begin_HXK = torch.cat([self.begin_HKK, self.begin_bias_HK[:, None]], 1)
        return begin_HXK.to(x_BX.device, at_least_fp32(x_BX.dtype)).expand(len(x_BX), -1, -1, -1)

    def _asked(self, x_BLD: Tensor, place_L: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Norm]:
        """Return q, k and v [B, H, L, K], the rates of tokens and of places, and the norm."""
        q_BHLK, k_BHLK = (in_heads(project(x_BLD), self.num_heads) for project in (self.query, self.key))
        v_BHLK = by_heads(self.value(x_BLD), self.num_heads)  # in its own precision: it is only added to
        size, dtype = len(self.place_rate), q_BHLK.dtype
        q_BHLK, k_BHLK = rotate(q_BHLK, place_L % size), rotate(k_BHLK, place_L % size)
        rate_BHL = self.factor * torch.sigmoid(in_heads(self.rate(x_BLD), self.num_heads)[..., 0])
        count_C = torch.arange(1, size + 1, device=x_BLD.device, dtype=dtype)
        place_rate_C = (1 / count_C + self.place_rate).clamp(min=0)
        norm = Norm(*(x.to(dtype).view(self.num_heads, 1, -1) for x in (self.scale, self.shift)))
        return q_BHLK, k_BHLK, v_BHLK, rate_BHL, place_rate_C, norm

    def _told(self, q_BHLK: Tensor, z_BHLK: Tensor) -> Tensor:
        y_BLD = rearrange(q_BHLK + z_BHLK, "b h l k -> b l (h k)")
        return self.out(self.norm(y_BLD.to(self.norm.weight.dtype)))


@register
@dataclass(frozen=True, kw_only=True)
class TTTLinearConfig(MixerConfig):
    name, family, year, paper = "ttt_linear", "delta rule", 2024, "2407.04620"
    title = "TTT-Linear"

    num_heads: int = 4
    """Heads; they divide the width evenly, each of even dimension."""
    mini_batch: int = 16
    """Tokens whose gradients are taken at the same weights."""
    base_rate: float = 1.0
    """Factor on the rate of every token."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.num_heads >= 1 and self.d_model % (2 * self.num_heads) == 0,
            f"{self.name}: d_model={self.d_model} does not split into {self.num_heads} heads of even dimension",
        )
        require(self.mini_batch >= 1, f"{self.name}: mini_batch must be at least 1, not {self.mini_batch}")
        require(self.base_rate > 0, f"{self.name}: base_rate must be positive, not {self.base_rate}")

    def mixer(self, layer: int) -> Layer:
        return FastWeights(self)
