"""SLiCE: a linear recurrence whose transition is the identity plus blocks that are linear in the token.

    h_t = (1 + A(x_t)) h_{t-1} + B(x_t)        A = diag(A_1 .. A_{D/K}), each [K, K]        h_0 learned
    h_t = (1 + A(x_t)) h_{t-1}                 h_1 = B(x_1)                                 with `input_at=first`
    z = x + h        x = LayerNorm(z + GLU(W z))        or with `mixer=tanh`        x = LayerNorm(z + tanh(W z))

Walker et al. 2025 (2505.17761): a structured linear controlled differential equation, in its block-diagonal form, with
one Euler step for each token. Blocks do not commute, and one of K numbers can follow any automaton of K states. Blocks
of `block_size=1` are diagonal, and do commute.

A(x) = (C x + c) / 40 and B(x) are affine in x. The factor 1/40, which also divides the gradient of C, is the authors'
time step. C and c start with the authors' standard deviation 0.5 / sqrt(K), here uniform. Nothing bounds the
transition: products of many may grow. The norm removes this from the stream up to 1e19. Beyond that its variance is
infinite in fp32, and its output is 0 or not a number. The state is kept in fp32 at least.

The authors' code has no input but that of the first token, B(x_1), whose weights start from N(0, 0.5^2)
(`input_at=first`). It adds .001 sqrt(|C|^2 + |c|^2) of each block to the loss (`norm_penalty`). And it bounds what a
token adds to the state, A(x) h, by 1e11 tanh(A(x) h / 1e11) (`saturates_at=1e11`), so that neither limit is reached.

models/operations/block_steps has the forms of the recurrence.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from chomsky_ladder.models.base import ModelConfig, register
from chomsky_ladder.models.block import Block, Context, Norm, State, require
from chomsky_ladder.models.layers.residual import OneForm
from chomsky_ladder.models.operations.block_steps import block_steps
from chomsky_ladder.models.operations.block_steps.reference import saturating_block_steps

STEPS = 40
START_STD = 0.5


class BlockDiagonal(OneForm):
    """The recurrence: D / K blocks as heads H, each with a state of K numbers."""

    def __init__(self, config: "SLiCEConfig") -> None:
        super().__init__()
        width, block = config.d_model, config.block_size
        self.at_first, self.saturates_at = config.input_at == "first", config.saturates_at
        self.transition = nn.Linear(width, width * block)
        self.input = nn.Linear(width, width)
        self.heads, self.block = width // block, block
        if self.at_first:
            for parameter in self.input.parameters():
                nn.init.normal_(parameter, std=START_STD)
        else:
            self.start_HK = nn.Parameter(torch.empty(width // block, block).uniform_(-1, 1))
        bound = START_STD * (3 / block) ** 0.5
        for parameter in self.transition.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        held = torch.promote_types(dtype, torch.float32)
        if self.at_first:  # h, and 1 until the first token has come
            zero_BHK = torch.zeros(batch, self.heads, self.block, device=device, dtype=held)
            return zero_BHK, torch.ones(batch, 1, 1, device=device, dtype=held)
        return self.start_HK.to(device, held).expand(batch, -1, -1)

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        h_BHK = state[0] if self.at_first else state
        c_BLX, b_BLD = self.transition(x_BLD), self.input(x_BLD)
        if self.at_first:
            b_BLD = torch.cat([b_BLD[:, :1] * state[1].to(b_BLD.dtype), torch.zeros_like(b_BLD[:, 1:])], 1)
        h_BLD, last_BHK = stepped(c_BLX, b_BLD, h_BHK, ctx, saturates_at=self.saturates_at)
        return h_BLD.to(x_BLD.dtype), (last_BHK, torch.zeros_like(state[1])) if self.at_first else last_BHK

    def transition_norm(self) -> Tensor:
        """Return the norm of C and c together."""
        return sum(parameter.square().sum() for parameter in self.transition.parameters()) ** 0.5


def stepped(c_BLX: Tensor, b_BLD: Tensor, h_BHK: Tensor, ctx: Context, *, saturates_at: float) -> tuple[Tensor, Tensor]:
    """Return all h and the last, by the fastest form available, in at least fp32 inside."""
    if saturates_at:
        with torch.autocast(c_BLX.device.type, enabled=False):
            numbers = c_BLX.to(h_BHK.dtype), b_BLD.to(h_BHK.dtype), h_BHK
            return saturating_block_steps(*numbers, steps=STEPS, at=saturates_at)
    return block_steps(ctx, c_BLX, b_BLD, h_BHK, steps=STEPS)


class SLiCEBlock(Block):
    def __init__(self, config: "SLiCEConfig") -> None:
        super().__init__()
        self.recurrence = BlockDiagonal(config)
        self.gated = config.mixer == "glu"
        self.mixer = nn.Linear(config.d_model, 2 * config.d_model if self.gated else config.d_model)
        self.norm = nn.LayerNorm(config.d_model)
        self.dropout, self.norm_penalty = config.dropout, config.norm_penalty

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        return ctx.dropout(self._mixed(self._recurred(x_BLD, ctx)), self.dropout)

    def at_asked(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        if ctx.masks is not None and self.dropout:
            return super().at_asked(x_BLD, ctx)
        return self._mixed(ctx.asked(self._recurred(x_BLD, ctx)))

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        return self.recurrence.init_state(batch, max_length=max_length, device=device, dtype=dtype)

    def step(self, x_BD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        h_BD, state = self.recurrence.step(x_BD, state, ctx)
        return self._mixed(x_BD + h_BD), state

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        h_BLD, state = self.recurrence.extend(x_BLD, state, ctx)
        return self._mixed(x_BLD + h_BLD), state

    def _recurred(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        if self.norm_penalty:
            ctx.add_loss("norm_penalty", self.norm_penalty * self.recurrence.transition_norm())
        return x_BLD + self.recurrence(x_BLD, ctx)

    def _mixed(self, z: Tensor) -> Tensor:
        mixed = self.mixer(z)
        return self.norm(z + (nn.functional.glu(mixed, -1) if self.gated else torch.tanh(mixed)))


@register
@dataclass(frozen=True, kw_only=True)
class SLiCEConfig(ModelConfig):
    name, family, year, paper = "slice", "linear recurrence", 2025, "2505.17761"
    title = "SLiCE"

    final_norm: Norm = "none"
    """The norm between the last block, which ends in one, and the head."""
    block_size: int = 4
    """Rows of a block of the transition. They divide the width evenly; 1 is diagonal."""
    mixer: Literal["glu", "tanh"] = "glu"
    """The layer after the recurrence, position by position."""
    input_at: Literal["every", "first"] = "every"
    """Tokens that have an input B(x): every one, or the first alone, in place of a learned start."""
    norm_penalty: float = 0.0
    """Weight in the loss of the norm of each block's transition."""
    saturates_at: float = 0.0
    """Size at which a token's addition to the state, A(x) h, saturates as tanh does; 0 for no bound."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.block_size >= 1 and self.d_model % self.block_size == 0,
            f"{self.name}: d_model={self.d_model} does not split into blocks of {self.block_size}",
        )
        for setting in ("norm_penalty", "saturates_at"):
            value = getattr(self, setting)
            require(0 <= value < math.inf, f"{self.name}: {setting} must not be negative: {value}")

    @property
    def transition(self) -> str:
        return "signed diagonal" if self.block_size == 1 else "dense blocks"

    def block(self, layer: int) -> Block:
        return SLiCEBlock(self)
