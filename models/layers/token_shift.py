"""Shared code of the RWKV models: the token shift, the channel mix, and the norm after the embedding.

    shift:        x_t + (x_{t-1} - x_t) * mix                  x_0 = 0; mix is the share of the previous token
    channel mix:  y = sigmoid(W_r x^r) * W_v relu(W_k x^k)^2    x^r, x^k: two shifts of x

Peng et al. 2023 (2305.13048) and 2024 (2404.05892). RWKV-4 defines the share of the present token instead, 1 - mix.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from chomsky_ladder.models.block import Context, State
from chomsky_ladder.models.layers.residual import OneForm, Residual
from chomsky_ladder.models.operations.shift import squared_relu, token_shifts


def shifted(x_BLD: Tensor, last_BD: Tensor, *mixes: Tensor, ctx: Context) -> tuple[Tensor, ...]:
    """Return x_t + (x_{t-1} - x_t) * mix for each mix, by the fastest form. `last_BD` is the x before the first."""
    return token_shifts(ctx, x_BLD, last_BD, mixes)


def squared(x: Tensor, ctx: Context) -> Tensor:
    """Return relu(x)^2."""
    return squared_relu(ctx, x)


def initial_mix(width: int, *, power: float, less: float = 0.0) -> Tensor:
    """Return 1 - (channel / width) ** power - less: the first channels look back most."""
    channel_D = torch.arange(width, dtype=torch.float64)  # CPUs differ in the last bit of a power in fp32
    return (1 - (channel_D / width) ** power - less).float()


def depth(layer: int, num_blocks: int) -> tuple[float, float]:
    """Return a layer's place from 0 at the first to 1 at the last, and from 1 at the first to nearly 0 at the last."""
    return layer / max(1, num_blocks - 1), 1 - layer / num_blocks


def wanted_and_before(x_BLD: Tensor, state_BD: Tensor, ctx: Context) -> tuple[Tensor, Tensor]:
    """Return the tokens that a shift needs if its layer mixes positions by nothing else, and the tokens before them.

    If the model `ends`, only the asked tokens are returned, each with its predecessor.
    """
    if not ctx.ends:
        return x_BLD, state_BD
    before_BLD = torch.cat([state_BD[:, None], x_BLD[:, :-1]], 1)
    return ctx.wanted(x_BLD), ctx.wanted(before_BLD)[:, 0]


class ChannelMix(OneForm):
    """The feed-forward of RWKV-4 to RWKV-6. Its state is the last token.

    `key_gain` is the gain of the key's orthogonal initial values. The published code starts `receptance` at zero. Its
    shift would then have no gradient in the first step, so here it starts orthogonal with gain 0.1.
    """

    heeds_asked = True

    no_decay = frozenset({"mix_2D"})

    def __init__(self, width: int, inner: int, *, layer: int, num_blocks: int, key_gain: float) -> None:
        super().__init__()
        _, toward_0 = depth(layer, num_blocks)
        self.mix_2D = nn.Parameter(initial_mix(width, power=toward_0).repeat(2, 1))
        self.key = orthogonal(width, inner, gain=key_gain)
        self.receptance = orthogonal(width, width, gain=0.1)
        self.out = nn.Linear(inner, width, bias=False)

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        return torch.zeros(batch, self.out.out_features, device=device, dtype=dtype)

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        given = wanted_and_before(x_BLD, state, ctx)
        for_receptance_BLD, for_key_BLD = shifted(*given, *self.mix_2D.unbind(0), ctx=ctx)
        key_BLE, receptance_BLD = squared(self.key(for_key_BLD), ctx), self.receptance(for_receptance_BLD)
        return torch.sigmoid(receptance_BLD) * self.out(key_BLE), x_BLD[:, -1]


class NormedEntry(Residual):
    """A residual block that normalises the stream where it enters: RWKV's first, after the embedding."""

    def __init__(self, width: int, layers: Sequence[nn.Module], *, dropout: float) -> None:
        super().__init__(width, layers, norm="layer", dropout=dropout)
        self.entry = nn.LayerNorm(width)

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        return super().forward(self.entry(x_BLD), ctx)

    def step(self, x_BD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        return super().step(self.entry(x_BD), state, ctx)

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        return super().extend(self.entry(x_BLD), state, ctx)


def rwkv_block(width: int, layers: Sequence[nn.Module], *, layer: int, dropout: float) -> Residual:
    """Return layers after LayerNorms.

    The embedding belongs to the Backbone, so its norm (ln0) opens the first block.
    """
    if layer == 0:
        return NormedEntry(width, layers, dropout=dropout)
    return Residual(width, layers, norm="layer", dropout=dropout)


def orthogonal(width: int, out: int, *, gain: float) -> nn.Linear:
    projection = nn.Linear(width, out, bias=False)
    weight = torch.empty(out, width, dtype=torch.float64)  # as `initial_mix`: the same in fp32 on every CPU
    projection.weight = nn.Parameter(nn.init.orthogonal_(weight, gain=gain).float())
    return projection
