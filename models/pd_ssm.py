"""PD-SSM: a linear recurrence whose transition rearranges the state's numbers by a map, and turns and scales each of
them.

    h_t = d_t * (P_t h_{t-1}) + b_t        h in C^N        h_0 = (1, 0, .. 0)        with `form=gather`
    h_t = P_t (d_t * h_{t-1}) + b_t                                                  with `form=scatter`
    x = LayerNorm(W [Re h, Im h] + c + d * x)

P_t has zeros and a single one in every row (gather) or column (scatter): where M_t = sum of softmax(S x)_k A_k is
largest, with K learnt matrices A. Its gradient is that of a softmax in its place (models/operations/one_hot). Here d_t
= sigmoid(f(x)) e^(2 pi i sigmoid(g(x))), with f and g of one hidden layer of 2 N with GELU; b_t = B x, B complex.

Terzic et al. 2025 (2509.22284) prove for the scatter form that one layer of N numbers follows every automaton of N
states. Their tables were made with the gather form (their public code for state tracking), the default here. Both do
the same for permutations. But in the gather form several numbers may read the same one, while in the scatter form
several may add to the same one.

Blocks have no residual stream. A starts from N(0, 1/N), B's parts from N(0, 1/(2 N)), d from N(0, 1/D), the rest at
torch.nn.Linear's default. State and maps are kept in fp32 at least.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from chomsky_ladder.models.base import ModelConfig, register
from chomsky_ladder.models.block import Block, Context, Norm, State, require
from chomsky_ladder.models.operations.one_hot import one_hot
from chomsky_ladder.models.scans.pairs import pair


class PDBlock(Block):
    """The recurrence. Its state is h as [B, N, 2], real and imaginary parts."""

    def __init__(self, config: "PDSSMConfig") -> None:
        super().__init__()
        width, self.places = config.d_model, config.places
        self.form: Literal["gather", "scatter"] = config.form
        self.dropout = config.dropout
        self.size, self.phase = (
            nn.Sequential(nn.Linear(width, 2 * self.places), nn.GELU(), nn.Linear(2 * self.places, self.places))
            for _ in range(2)
        )
        self.select = nn.Linear(width, config.num_maps, bias=False)
        self.maps_KNN = nn.Parameter(torch.randn(config.num_maps, self.places, self.places) * self.places**-0.5)
        self.input = nn.Linear(width, 2 * self.places, bias=False)
        self.out = nn.Linear(2 * self.places, width)
        self.skip = nn.Parameter(torch.randn(width) * width**-0.5)
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.input.weight, std=(2 * self.places) ** -0.5)

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        state = self.init_state(x_BLD.shape[0], max_length=x_BLD.shape[1], device=x_BLD.device, dtype=x_BLD.dtype)
        return self.extend(x_BLD, state, ctx)[0]

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        held = torch.promote_types(dtype, torch.float32)
        first_N2 = torch.nn.functional.pad(torch.ones(1, 1, device=device, dtype=held), (0, 1, 0, self.places - 1))
        return first_N2.expand(batch, -1, -1)

    def step(self, x_BD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        y_BLD, state = self.extend(x_BD[:, None], state, ctx)
        return y_BLD[:, 0], state

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        size_BLN, phase_BLN = (self._wide(part(x_BLD), state) for part in (self.size, self.phase))
        b_BLN2 = pair(*self._wide(self.input(x_BLD), state).chunk(2, -1))
        with torch.autocast(x_BLD.device.type, enabled=False):
            # In full precision: a rounded score may choose another map.
            share_BLK = torch.softmax(self._wide(nn.functional.linear(x_BLD, self.select.weight), state), -1)
            angle_BLN, size_BLN = 2 * math.pi * torch.sigmoid(phase_BLN), torch.sigmoid(size_BLN)
            d_BLN2 = pair(size_BLN * angle_BLN.cos(), size_BLN * angle_BLN.sin())
            maps_KNN = self._wide(self.maps_KNN, state)
            h_BLN2 = one_hot(ctx, share_BLK, maps_KNN, d_BLN2, b_BLN2, state, self.form)
        seen_BLX = ctx.dropout(h_BLN2.mT.flatten(2).to(x_BLD.dtype), self.dropout)
        return self.norm(self.out(seen_BLX) + self.skip * x_BLD), h_BLN2[:, -1]

    @staticmethod
    def _wide(x: Tensor, state: Tensor) -> Tensor:
        return x.to(state.dtype)


@register
@dataclass(frozen=True, kw_only=True)
class PDSSMConfig(ModelConfig):
    name, family, year, paper = "pd_ssm", "linear recurrence", 2025, "2509.22284"
    title = "PD-SSM"

    final_norm: Norm = "none"
    """The norm between the last block, which ends in one, and the head."""
    dropout: float = 0.0
    """Share of the state's numbers that is dropped before they are read, in training."""
    d_state: int = 0
    """Complex numbers of a block's state; 0 for as many as the width."""
    num_maps: int = 8
    """Matrices from which a token's map is made."""
    form: Literal["gather", "scatter"] = "gather"
    """gather: every number of the new state reads one of the old. scatter: every number of the old state is added to
    one of the new.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.d_state >= 0, f"{self.name}: d_state must not be negative")
        require(self.num_maps >= 1, f"{self.name}: num_maps must be at least 1, not {self.num_maps}")

    @property
    def places(self) -> int:
        return self.d_state or self.d_model

    @property
    def transition(self) -> str:
        return f"one-hot {'rows' if self.form == 'gather' else 'columns'}"

    def block(self, layer: int) -> Block:
        return PDBlock(self)
