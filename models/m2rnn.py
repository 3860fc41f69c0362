"""M2RNN: a recurrence with a matrix state and a nonlinear transition.

    h_t = f_t h_{t-1} + (1 - f_t) tanh(h_{t-1} W + k_t v_t^T)        y_t = q_t h_t + s * v_t
    f_t = exp(-A softplus(w x_t + d))        q, k, v = silu(conv(W_q x)), silu(conv(W_k x)), silu(conv(W_v x))
    x = x + W_o RMSNorm(y * silu(W_g x))        x = x + SwiGLU(x)

in each head, with W [V, V] and s in R^V, each layer after an RMSNorm. The norm of y is over all heads. Mishra et al.
2026 (2603.14360), in the form of the authors' public code. Its clipping of the state's gradient, off by default, is
left out. With f = 0 and k = 1 each of the K rows of h is an Elman network. So what is proven for `rnn` with tanh holds
here, and all numbers stay in [-1, 1].

W starts as the identity, s as 1, A and d as those of `gated_delta_net`, everything else at torch.nn.Linear's default,
and the two projections into the stream are divided by sqrt(2 blocks). The state is kept in fp32 at least. There is no
parallel form (models/operations/matrix_rnn).
"""

from dataclasses import dataclass

import torch
from einops import rearrange
from torch import Tensor, nn

from chomsky_ladder.models._mixers import HeadsConfig
from chomsky_ladder.models.base import register
from chomsky_ladder.models.block import Context, State, require
from chomsky_ladder.models.gated_delta_net import initial_decay
from chomsky_ladder.models.layers.convolution import ShortConvolution
from chomsky_ladder.models.layers.gate import gated
from chomsky_ladder.models.layers.residual import Layer
from chomsky_ladder.models.operations.matrix_rnn import matrix_rnn
from chomsky_ladder.models.operations.norm import normed


class MatrixRNN(Layer):
    """The recurrence. Its state is the convolution's and h [B, H, K, V]."""

    heeds_asked = True

    no_decay = frozenset({"skip_HV"})

    def __init__(self, config: "M2RNNConfig") -> None:
        super().__init__()
        width, self.num_heads = config.d_model, config.num_heads
        head_dim = width // self.num_heads
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.convolution = ShortConvolution(3 * width, width=config.conv_width, bias=False, silu=True)
        self.dt = nn.Linear(width, self.num_heads, bias=False)
        self.A_log, self.dt_bias = map(nn.Parameter, initial_decay(self.num_heads))
        self.weight_HVV = nn.Parameter(torch.eye(head_dim).repeat(self.num_heads, 1, 1))
        self.skip_HV = nn.Parameter(torch.ones(self.num_heads, head_dim))
        self.gate = nn.Linear(width, width, bias=False)
        self.norm = nn.RMSNorm(width)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        _, h_BHKV = self.init_state(x_BLD.shape[0], max_length=0, device=x_BLD.device, dtype=x_BLD.dtype)
        return self._read(x_BLD, self.convolution(self.query_key_value(x_BLD), ctx), h_BHKV, ctx)[0]

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        held = torch.promote_types(dtype, torch.float32)
        head_dim = self.weight_HVV.shape[-1]
        h_BHKV = torch.zeros(batch, self.num_heads, head_dim, head_dim, device=device, dtype=held)
        return self.convolution.init_state(batch, device=device, dtype=dtype), h_BHKV

    def step(self, x_BD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        y_BLD, state = self.extend(x_BD[:, None], state, ctx)
        return y_BLD[:, 0], state

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        past_BWE, h_BHKV = state
        mixed_BLE, past_BWE = self.convolution.extend(self.query_key_value(x_BLD), past_BWE)
        y_BLD, h_BHKV = self._read(x_BLD, mixed_BLE, h_BHKV, ctx)
        return y_BLD, (past_BWE, h_BHKV)

    def _read(self, x_BLD: Tensor, mixed_BLE: Tensor, h_BHKV: Tensor, ctx: Context) -> tuple[Tensor, Tensor]:
        dtype = h_BHKV.dtype
        q_BLHK, k_BLHK, v_BLHV = rearrange(
            mixed_BLE.to(dtype), "b l (n h k) -> n b l h k", n=3, h=self.num_heads
        ).unbind(0)
        dt_BLH = nn.functional.softplus(self.dt(x_BLD).to(dtype) + self.dt_bias)
        f_BLH = torch.exp(-self.A_log.to(dtype).exp() * dt_BLH)
        with torch.autocast(x_BLD.device.type, enabled=False):
            y_BLHV, h_BHKV = matrix_rnn(ctx, q_BLHK, k_BLHK, v_BLHV, f_BLH, self.weight_HVV.to(dtype), h_BHKV)
        y_BLD = (ctx.wanted(y_BLHV) + self.skip_HV * ctx.wanted(v_BLHV)).flatten(2)
        return self.out(normed(gated(self.gate(ctx.wanted(x_BLD)), y_BLD, ctx=ctx), self.norm, ctx)), h_BHKV


@register
@dataclass(frozen=True, kw_only=True)
class M2RNNConfig(HeadsConfig):
    name, family, year, paper = "m2rnn", "recurrent", 2026, "2603.14360"
    title = "M2RNN"
    transition = "gated units"

    conv_width: int = 4
    """Width of the convolution of queries, keys and values, in tokens."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.conv_width >= 1, f"{self.name}: conv_width must be at least 1, not {self.conv_width}")

    def mixer(self, layer: int) -> Layer:
        return MatrixRNN(self)
