"""HGRN2: HGRN with a matrix state, where each input is written into every channel as much as that channel forgets.

    S_t = diag(l_t) S_{t-1} + (1 - l_t) i_t^T        y_t = q_t S_t        l = bound + (1 - bound) sigmoid(W_l x)
    i = W_i x        q = silu(W_q x)        x = x + W_o RMSNorm(y)        x = x + SwiGLU(x)

in each head, each layer after an RMSNorm. Qin et al. 2024 (2404.07904): the outer product enlarges the state by the
number of a head's channels, at no cost in parameters. The gate is tied to the decay as in HGRN, whose bounds these are,
and there are no phases. As in the published code the output gate is silu and comes before the norm, which is over all
heads together. Weights start as torch.nn.Linear's do.
"""

from dataclasses import dataclass

import torch
from einops import rearrange
from torch import Tensor, nn

from chomsky_ladder.models._mixers import HeadsConfig
from chomsky_ladder.models.base import register
from chomsky_ladder.models.block import Context, State
from chomsky_ladder.models.gla import by_heads, in_heads
from chomsky_ladder.models.hgrn import LowerBounds, bounds_of, shut
from chomsky_ladder.models.layers.residual import Layer, OneForm
from chomsky_ladder.models.operations.delta.rules import by_writing_then_reading
from chomsky_ladder.models.operations.norm import normed


class ExpandedRecurrence(OneForm):
    heeds_asked = True

    def __init__(self, config: "HGRN2Config", layer: int) -> None:
        super().__init__()
        width, self.layer, self.num_heads = config.d_model, layer, config.num_heads
        self.query, self.forget, self.value = (nn.Linear(width, width, bias=False) for _ in "qfv")
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self.out = nn.Linear(width, width, bias=False)

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        dim, held = self.out.in_features // self.num_heads, torch.promote_types(dtype, torch.float32)
        return torch.zeros(batch, self.num_heads, dim, dim, device=device, dtype=held)

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        new_BLD = shut(self.forget(x_BLD), bounds_of(ctx)(self.layer))
        new_BHLK = in_heads(new_BLD, self.num_heads)
        q_BHLK, value_BHLV = (
            by_heads(x, self.num_heads) for x in (nn.functional.silu(self.query(x_BLD)), self.value(x_BLD))
        )
        y_BHLV, state = by_writing_then_reading(q_BHLK, new_BHLK, value_BHLV, 1 - new_BHLK, state, ctx)
        y_BLD = ctx.wanted(rearrange(y_BHLV, "b h l v -> b l (h v)"))
        return self.out(normed(y_BLD.to(self.norm.weight.dtype), self.norm, ctx)), state


@register
@dataclass(frozen=True, kw_only=True)
class HGRN2Config(HeadsConfig):
    name, family, year, paper = "hgrn2", "linear attention", 2024, "2404.07904"
    title = "HGRN2"
    transition = "diagonal"

    num_heads: int = 2
    """Heads; they divide the width evenly. The published models have 128 channels in each."""

    def common_module(self) -> nn.Module:
        return LowerBounds(self.num_blocks, self.d_model)

    def mixer(self, layer: int) -> Layer:
        return ExpandedRecurrence(self, layer)
