"""A prefix-scannable model: a gated feed-forward merges the states of two stretches, in a tree of logarithmic depth.

    e_t = f(W_e x_t)        s_t = the fold of e_1 .. e_t by the operator
    a . b = f(a + b + W_o (silu(W_g [a, b]) * W_u [a, b]))        f: an RMSNorm without weights, or tanh(g * that)
    x = x + W s        x = x + SwiGLU(x)        each behind an RMSNorm

Yau et al. 2025 (2506.10918) put any learned operator in the place of the associative one of a parallel scan. Theirs is
a Transformer on chunks. This one merges single tokens, and the operator is ours. Without its product it is a sum, which
is associative. With it, it can be the table of any finite group, and a prefix of L tokens is composed in at most 2 log
L steps that wait for each other. models/scans/tree.py says which parts are merged.

`operator=ldru` is that of the log-depth recurrent unit (Pert et al. 2026, 2605.26035), as in its public code: weights
for both parts from both, a map of each that starts as the identity, and a feed-forward with a LayerNorm.

    [u, v] = W_3 relu(W_2 relu(W_1 [a, b]))        h = W_o (W_a (u * a) + W_b (v * b))        LN(h + W_2' relu(W_1' h))

All have biases. Theirs reduces a whole string to one state, at dropout .25. Here every prefix is folded.

`bound=tanh` is meant for long strings: where tanh saturates, a small error in a part is gone after the merge. A norm
hands it on, and taller trees than in training add up errors. g is learned for each channel and starts at 1.

Weights start as torch.nn.Linear's do. W_e and those of the operator have biases.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from chomsky_ladder.models._mixers import MixerConfig
from chomsky_ladder.models.base import register
from chomsky_ladder.models.block import Context, State, require
from chomsky_ladder.models.layers.gate import gated
from chomsky_ladder.models.layers.residual import Layer
from chomsky_ladder.models.scans.tree import empty_counter, fold_next, fold_prefixes

Bound = Literal["norm", "tanh"]
Operator = Literal["gated", "ldru"]


class LogDepthUnit(nn.Module):
    """The operator of the log-depth recurrent unit."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weigh = _feed_forward(2 * width, 2 * width, 4 * width, 2 * width)
        self.earlier, self.later, self.both = (nn.Linear(width, width) for _ in range(3))
        self.rest = _feed_forward(width, 4 * width, width)
        self.norm = nn.LayerNorm(width)
        for each in (self.earlier, self.later, self.both):
            nn.init.eye_(each.weight)
            nn.init.zeros_(each.bias)
        for each in self.weigh:
            if isinstance(each, nn.Linear):
                nn.init.xavier_normal_(each.weight)
                nn.init.zeros_(each.bias)

    def forward(self, earlier_XD: Tensor, later_XD: Tensor) -> Tensor:
        u_XD, v_XD = self.weigh(torch.cat([earlier_XD, later_XD], -1)).chunk(2, -1)
        h_XD = self.both(self.earlier(u_XD * earlier_XD) + self.later(v_XD * later_XD))
        return self.norm(h_XD + self.rest(h_XD))


def _feed_forward(*widths: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class TreeFold(Layer):
    """The fold. Its state is a binary counter of trees, one state for each bit of the number of tokens."""

    heeds_asked = True

    def __init__(self, width: int, inner: int, *, bound: Bound, operator: Operator = "gated") -> None:
        super().__init__()
        self.leaf = nn.Linear(width, width)
        self.gain_D = nn.Parameter(torch.ones(width)) if bound == "tanh" else None
        self.operator = LogDepthUnit(width) if operator == "ldru" else None
        if self.operator is None:
            self.gate_up = nn.Linear(2 * width, 2 * inner)
            self.merge = nn.Linear(inner, width)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        s_BLD = fold_prefixes(self._bound(self.leaf(x_BLD)), lambda a, b: self._merged(a, b, ctx))
        return self.out(ctx.wanted(s_BLD))

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        return empty_counter(batch, max_length, self.leaf.out_features, device=device, dtype=dtype)

    def step(self, x_BD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        s_BD, state = fold_next(self._bound(self.leaf(x_BD)), state, lambda a, b: self._merged(a, b, ctx))
        return self.out(s_BD), state

    def _merged(self, earlier_XD: Tensor, later_XD: Tensor, ctx: Context) -> Tensor:
        if self.operator is not None:
            dtype = self.leaf.weight.dtype
            with torch.autocast(earlier_XD.device.type, enabled=False):  # a ReLU that bf16 flips is merged on and on
                return self._bound(self.operator(earlier_XD.to(dtype), later_XD.to(dtype)))
        inner_XE = gated(self.gate_up(torch.cat([earlier_XD, later_XD], -1)), ctx=ctx)
        return self._bound(earlier_XD + later_XD + self.merge(inner_XE))

    def _bound(self, x_XD: Tensor) -> Tensor:
        unit_XD = nn.functional.rms_norm(x_XD, x_XD.shape[-1:])
        return unit_XD if self.gain_D is None else torch.tanh(self.gain_D * unit_XD)


@register
@dataclass(frozen=True, kw_only=True)
class PSMConfig(MixerConfig):
    name, family, year, paper = "psm", "recurrent", 2025, "2506.10918"
    title = "PSM"
    state_growth = "length"  # with its logarithm

    bound: Bound = "norm"
    """The function that bounds the states: a norm, or tanh behind it, which forgets small errors."""
    merge_width: int = 0
    """Width inside the gated operator; 0 for twice the model's."""
    operator: Operator = "gated"
    """The operator: a gated feed-forward of both parts, or that of the log-depth recurrent unit."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.merge_width >= 0, f"{self.name}: merge_width must not be negative")
        is_gated = self.operator == "gated" or self.merge_width == 0
        require(is_gated, f"{self.name}: operator={self.operator} has no merge_width")

    def mixer(self, layer: int) -> Layer:
        inner = self.merge_width or 2 * self.d_model
        return TreeFold(self.d_model, inner, bound=self.bound, operator=self.operator)
