"""BD-LRU: a linear recurrence in blocks, whose rows mix the block's old numbers and a new one by shares of the token.

    (A_t, a_t) = softmax over each row of G x_t + g: blocks of [m, m] and of m        v = W_v x
    h_t = A_t h_{t-1} + a_t v_t        x = x + W_o h        x = x + SwiGLU(x)        each behind an RMSNorm

Dubinin et al. 2026 (2602.12021), the selective form, as in its public code. The sizes of a row's m + 1 shares sum to 1,
so no product of transitions grows. `gates=softmax` and `sigmoid`, which divides sigmoids by their sum, have no negative
shares. `tanh` divides by the sum of sizes and has them. With `block_size=1` this is a gated mean in every channel. The
number of blocks is free there; here all blocks together are as wide as the stream. Weights start as torch.nn.Linear's
do. The recurrence is that of models/operations/block_steps, of the identity plus A - 1, in fp32 at least.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from chomsky_ladder.models._mixers import MixerConfig
from chomsky_ladder.models.base import register
from chomsky_ladder.models.block import Context, State, require
from chomsky_ladder.models.layers.residual import Layer, OneForm
from chomsky_ladder.models.operations.block_steps import block_steps

Gates = Literal["softmax", "sigmoid", "tanh"]

EPS = 1e-6  # the smallest sum that is divided by


class BlockDiagonalLRU(OneForm):
    """The recurrence: D / m blocks as heads H, each with a state of K = m numbers."""

    heeds_asked = True

    def __init__(self, config: "BDLRUConfig") -> None:
        super().__init__()
        width, self.block_size = config.d_model, config.block_size
        self.gates: Gates = config.gates
        self.gate = nn.Linear(width, width * (self.block_size + 1))
        self.value, self.out = (nn.Linear(width, width, bias=False) for _ in "vo")

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        held, heads = torch.promote_types(dtype, torch.float32), self.value.out_features // self.block_size
        return torch.zeros(batch, heads, self.block_size, device=device, dtype=held)

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        size = self.block_size
        gate_BLHKG = self.gate(x_BLD).to(state.dtype).unflatten(-1, (-1, size, size + 1))
        A_BLHKK, a_BLHK1 = shares(gate_BLHKG, self.gates).split([size, 1], -1)
        change_BLX = (A_BLHKK - torch.eye(size, device=x_BLD.device, dtype=state.dtype)).flatten(2)
        h_BLD, state = block_steps(ctx, change_BLX, a_BLHK1.flatten(2) * self.value(x_BLD), state, steps=1)
        return self.out(ctx.wanted(h_BLD).to(self.out.weight.dtype)), state


def shares(gate_BLHKG: Tensor, gates: Gates) -> Tensor:
    """Return rows whose sizes sum to 1."""
    if gates == "softmax":
        return torch.softmax(gate_BLHKG, -1)
    gate_BLHKG = torch.sigmoid(gate_BLHKG) if gates == "sigmoid" else torch.tanh(gate_BLHKG)
    return gate_BLHKG / gate_BLHKG.abs().sum(-1, keepdim=True).clamp_min(EPS)


@register
@dataclass(frozen=True, kw_only=True)
class BDLRUConfig(MixerConfig):
    name, family, year, paper = "bd_lru", "linear recurrence", 2026, "2602.12021"
    title = "BD-LRU"

    block_size: int = 4
    """Rows of a block of the transition. They divide the width evenly; 1 is diagonal."""
    gates: Gates = "softmax"
    """The function that makes shares of a row's gates; tanh has negative ones."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.block_size >= 1 and self.d_model % self.block_size == 0,
            f"{self.name}: d_model={self.d_model} does not split into blocks of {self.block_size}",
        )

    def mixer(self, layer: int) -> Layer:
        return BlockDiagonalLRU(self)
