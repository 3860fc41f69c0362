"""A prefix-scannable model: a gated feed-forward merges the states of two stretches, in a tree of logarithmic depth.

    e_t = unit(W_e x_t)        s_t = the fold of e_1 .. e_t by the operator
    a . b = unit(a + b + W_o (silu(W_g [a, b]) * W_u [a, b]))        unit: an RMSNorm without weights
    x = x + W s        x = x + SwiGLU(x)        each behind an RMSNorm

Yau et al. 2025 (2506.10918) put any learned operator in the place of the associative one of a parallel scan. Theirs is
a Transformer on chunks. This one merges single tokens, as the log-depth recurrent unit of Pert et al. 2026 (2605.26035)
does with an MLP. The equations of that unit are not known here, so the operator is ours. Without its product it is a
sum, which is associative. With it, it can be the table of any finite group, and a prefix of L tokens is composed in at
most 2 log L steps that wait for each other. models/scans/tree.py says which parts are merged.

Weights start as torch.nn.Linear's do. W_e and those of the operator have biases.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from chomsky_ladder.models._mixers import MixerConfig
from chomsky_ladder.models.base import register
from chomsky_ladder.models.block import Context, State, require
from chomsky_ladder.models.layers.gate import gated
from chomsky_ladder.models.layers.residual import Layer
from chomsky_ladder.models.scans.tree import empty_counter, fold_next, fold_prefixes


class TreeFold(Layer):
    """The fold. Its state is a binary counter of trees, one state for each bit of the number of tokens."""

    heeds_asked = True

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.leaf = nn.Linear(width, width)
        self.gate_up = nn.Linear(2 * width, 2 * inner)
        self.merge = nn.Linear(inner, width)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        s_BLD = fold_prefixes(unit(self.leaf(x_BLD)), lambda a, b: self._merged(a, b, ctx))
        return self.out(ctx.wanted(s_BLD))

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        return empty_counter(batch, max_length, self.leaf.out_features, device=device, dtype=dtype)

    def step(self, x_BD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        s_BD, state = fold_next(unit(self.leaf(x_BD)), state, lambda a, b: self._merged(a, b, ctx))
        return self.out(s_BD), state

    def _merged(self, earlier_XD: Tensor, later_XD: Tensor, ctx: Context) -> Tensor:
        inner_XE = gated(self.gate_up(torch.cat([earlier_XD, later_XD], -1)), ctx=ctx)
        return unit(earlier_XD + later_XD + self.merge(inner_XE))


def unit(x_XD: Tensor) -> Tensor:
    return nn.functional.rms_norm(x_XD, x_XD.shape[-1:])


@register
@dataclass(frozen=True, kw_only=True)
class PSMConfig(MixerConfig):
    name, family, year, paper = "psm", "recurrent", 2025, "2506.10918"
    title = "PSM (gated)"
    state_growth = "length"  # with its logarithm

    merge_width: int = 0
    """Width inside the operator; 0 for twice the model's."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.merge_width >= 0, f"{self.name}: merge_width must not be negative")

    def mixer(self, layer: int) -> Layer:
        return TreeFold(self.d_model, self.merge_width or 2 * self.d_model)
