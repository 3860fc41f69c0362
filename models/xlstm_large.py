"""xLSTM large: the mLSTM block of the 7-billion model, with a feed-forward and no convolution, up-projection or skip.

    q, k, v = W_q n, W_k n, W_v n        i, f = cap(W_i n + b_i), cap(W_f n + b_f)        n = norm(x)
    x = x + W_o (sigmoid(W_g n) * norm(h))        x = x + SwiGLU(norm(x))        logits = 30 tanh(W x / 30)

with cap(a) = 15 tanh(a / 15), queries and keys of half the model's width, and h of q, k, v, i and f as in
models/operations/mlstm/reference.py: Beck et al. 2025 (2503.13427). The norm of h is over each head's channels. The
others are RMSNorms, all with eps 1e-6.

Weights start as in the release in transformers: those that read the stream from N(0, 2/(5 D)), those that write into it
from N(0, (2 / blocks)^2 / inputs), those of i and f from 0 with biases of -10 and of 3 to 6. At -10 the norm's eps is
most of what it divides by, and the layer adds little at first. In the release W_g and the feed-forward's gate start
from 0, with every other matrix whose name contains "gate"; here they are drawn. The release also draws embedding and
head from N(0, 2/(5 D)): `--model.ends_init small`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from einops import rearrange
from torch import Tensor, nn

from chomsky_ladder.models.backbone import Backbone, Model
from chomsky_ladder.models.base import ModelConfig, register
from chomsky_ladder.models.block import Block, Context, State, require
from chomsky_ladder.models.layers.feed_forward import SwiGLU
from chomsky_ladder.models.layers.linear import in_parts
from chomsky_ladder.models.layers.residual import Layer, Residual
from chomsky_ladder.models.operations.mlstm import by_exponential_gates, memory_at_once
from chomsky_ladder.models.operations.mlstm.reference import mlstm_start, mlstm_step
from chomsky_ladder.models.xlstm import HeadNorm

EPS = 1e-6
GATE_CAP, LOGIT_CAP = 15.0, 30.0


def capped(x: Tensor, cap: float) -> Tensor:
    return cap * torch.tanh(x / cap)


class LargeMLSTM(Layer):
    """The mLSTM. Its state is the matrix memory and its stabiliser, as in models/operations/mlstm/reference.py."""

    heeds_asked = True

    def __init__(self, config: "XLSTMLargeConfig") -> None:
        super().__init__()
        width, self.num_heads = config.d_model, config.num_heads
        self.sizes = [width // 2, width // 2, width]
        self.query_key_value = nn.Linear(width, sum(self.sizes), bias=False)
        self.gates = nn.Linear(width, 2 * self.num_heads)
        self.out_gate = nn.Linear(width, width, bias=False)
        self.norm = HeadNorm(width, self.num_heads, eps=EPS)
        self.out = nn.Linear(width, width, bias=False)
        for reader in (self.query_key_value, self.out_gate):
            nn.init.normal_(reader.weight, std=config.small)
        nn.init.zeros_(self.gates.weight)
        with torch.no_grad():
            self.gates.bias[: self.num_heads] = config.input_bias
            self.gates.bias[self.num_heads :] = torch.linspace(3, 6, self.num_heads)
        nn.init.normal_(self.out.weight, std=config.into_stream(width))

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        scan = memory_at_once(x_BLD, x_BLD[:, None, :, : self.sizes[1] // self.num_heads], ctx)
        if scan is None:
            state = self.init_state(x_BLD.shape[0], max_length=x_BLD.shape[1], device=x_BLD.device, dtype=x_BLD.dtype)
            return self.extend(x_BLD, state, ctx)[0]
        h_BHLV = self._run(scan, x_BLD)
        return self._out(ctx.wanted(x_BLD), ctx.wanted(h_BHLV, along=2))

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        held = torch.promote_types(dtype, torch.float32)
        key_dim, _, value_dim = (size // self.num_heads for size in self.sizes)
        return mlstm_start(batch, self.num_heads, key_dim, value_dim, device=device, dtype=held)

    def step(self, x_BD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        h_BHV, state = self._run(mlstm_step, x_BD, state)
        return self._out(x_BD, h_BHV), state

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        h_BHLV, state = self._run(partial(by_exponential_gates, ctx=ctx), x_BLD, state)
        return self._out(ctx.wanted(x_BLD), ctx.wanted(h_BHLV, along=2)), state

    def _run(self, scan: Callable[..., Any], x: Tensor, *state: State) -> Any:
        """Run a scan over q, k and v [B, H, (L,) K] and the gates i and f [B, H, (L)], in at least fp32."""
        qkv = in_parts(self.query_key_value, x, self.sizes)
        heads = [part.unflatten(-1, (self.num_heads, -1)).movedim(-2, 1) for part in qkv]
        gates = [part.movedim(-1, 1) for part in self.gates(x).chunk(2, dim=-1)]
        q, k, v, i, f = (part.to(torch.promote_types(part.dtype, torch.float32)) for part in (*heads, *gates))
        with torch.autocast(x.device.type, enabled=False):
            return scan(q, k * k.shape[-1] ** -0.5, v, capped(i, GATE_CAP), capped(f, GATE_CAP), *state)

    def _out(self, x: Tensor, h: Tensor) -> Tensor:
        h = rearrange(h, "b h ... v -> b ... (h v)")
        return self.out(torch.sigmoid(self.out_gate(x)) * self.norm(h))


class CappedBackbone(Backbone):
    """A backbone whose logits are capped to (-30, 30)."""

    def _logits(self, x: Tensor, ctx: Context) -> Tensor:
        return capped(super()._logits(x, ctx), LOGIT_CAP)


@register
@dataclass(frozen=True, kw_only=True)
class XLSTMLargeConfig(ModelConfig):
    name, family, year, paper = "xlstm_large", "recurrent", 2025, "2503.13427"
    title = "xLSTM (large)"
    transition = "diagonal"

    num_heads: int = 4
    """Heads; they divide half the width evenly."""
    input_bias: float = -10.0
    """The input gates' bias at the start."""
    d_inner: int = 0
    """Width inside the feed-forward; 0 for 8/3 of the model's, rounded up to a multiple of 64."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.num_heads >= 1 and self.d_model % (2 * self.num_heads) == 0,
            f"{self.name}: half of d_model={self.d_model} does not split into {self.num_heads} heads",
        )
        require(self.d_inner >= 0, f"{self.name}: d_inner must not be negative")

    @property
    def inner_width(self) -> int:
        return self.d_inner or -(-8 * self.d_model // (3 * 64)) * 64

    @property
    def small(self) -> float:
        """Return the standard deviation of weights that read the stream (Nguyen and Salazar 2019, 1910.05895)."""
        return (2 / (5 * self.d_model)) ** 0.5

    def into_stream(self, inputs: int) -> float:
        """Return the standard deviation of weights that write into it (Wang and Komatsuzaki's, as in GPT-NeoX)."""
        return 2 / self.num_blocks / inputs**0.5

    def block(self, layer: int) -> Block:
        behind = SwiGLU(self.d_model, self.inner_width)
        nn.init.normal_(behind.gate_up.weight, std=self.small)
        nn.init.normal_(behind.out.weight, std=self.into_stream(self.inner_width))
        block = Residual(self.d_model, [LargeMLSTM(self), behind], dropout=self.dropout)
        for norm in block.norms:
            _set_eps(norm)
        return block

    def build(self, vocab_size: int) -> Model:
        model = CappedBackbone(self, vocab_size)
        _set_eps(model.norm)
        return model


def _set_eps(norm: nn.Module) -> None:
    if isinstance(norm, nn.RMSNorm):
        norm.eps = EPS
