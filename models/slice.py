"""SLiCE: a linear recurrence whose transition is the identity plus blocks that are linear in the token.

    h_t = (1 + A(x_t)) h_{t-1} + B(x_t)        A = diag(A_1 .. A_{D/K}), each [K, K]        h_0 learned
    h_t = (1 + A(x_t)) h_{t-1}                 h_1 = B(x_1)                                 with `input_at=first`
    z = x + h        x = LayerNorm(z + GLU(W z))        or with `mixer=tanh`        x = LayerNorm(z + tanh(W z))

Walker et al. 2025 (2505.17761): a structured linear controlled differential equation, in its block-diagonal form and
one Euler step a token. Blocks do not commute, and one of K numbers can follow any automaton of K states; those of
`block_size=1` are a diagonal, and do commute.

A(x) = (C x + c) / 40 and B(x) are affine in x. The 1/40, which divides the gradient of C too, is the authors' step of
time, and C, c start with their standard deviation 0.5 / sqrt(K), here uniform. Nothing bounds the transition: products
of many may grow, which the norm takes out of the stream. The state is kept in fp32 at least.

The authors' code has no input but that of the first token, B(x_1), whose weights start from N(0, 0.5^2)
(`input_at=first`), and adds .001 sqrt(|C|^2 + |c|^2) of each block to the loss (`norm_penalty`).

On CUDA the recurrence runs in log2(L) levels, whose products of transitions are K times the work of L steps. A CPU
takes the steps: forward and backward of 40 tokens, 32 rows, 16 blocks of 4 on one core, 10 ms to the levels' 24.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from chomsky_ladder.models.base import ModelConfig, register
from chomsky_ladder.models.block import Block, Context, Norm, State, require
from chomsky_ladder.models.layers.residual import OneForm

TIME_STEP = 1 / 40
START_STD = 0.5


class BlockDiagonal(OneForm):
    """The recurrence: D / K blocks as heads H, each with a state of K numbers."""

    def __init__(self, config: "SLiCEConfig") -> None:
        super().__init__()
        width, block = config.d_model, config.block_size
        self.at_first = config.input_at == "first"
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
        heads, block = self.heads, self.block
        h_BHK = state[0] if self.at_first else state
        a_BLHKK = (TIME_STEP * self.transition(x_BLD)).unflatten(-1, (heads, block, block)).to(h_BHK.dtype)
        b_BLHK = self.input(x_BLD).unflatten(-1, (heads, block)).to(h_BHK.dtype)
        if self.at_first:
            later_BLHK = torch.zeros_like(b_BLHK[:, 1:])
            b_BLHK = torch.cat([(b_BLHK[:, 0] * state[1])[:, None], later_BLHK], 1)
        with torch.autocast(x_BLD.device.type, enabled=False):
            one_KK = torch.eye(block, device=a_BLHKK.device, dtype=a_BLHKK.dtype)
            parallel = ctx.backend != "reference" and x_BLD.device.type == "cuda"
            h_BLHK = (by_halves if parallel else in_turn)(one_KK + a_BLHKK, b_BLHK, h_BHK)
        last_BHK = h_BLHK[:, -1]
        return h_BLHK.flatten(2).to(x_BLD.dtype), (last_BHK, torch.zeros_like(state[1])) if self.at_first else last_BHK

    def transition_norm(self) -> Tensor:
        """Of C and c together."""
        return sum(parameter.square().sum() for parameter in self.transition.parameters()) ** 0.5


def in_turn(a_BLHKK: Tensor, b_BLHK: Tensor, h_BHK: Tensor) -> Tensor:
    """h_t = a_t h_{t-1} + b_t, one after the other."""
    outputs = []
    for a_BHKK, b_BHK in zip(a_BLHKK.unbind(1), b_BLHK.unbind(1), strict=True):
        h_BHK = applied(a_BHKK, h_BHK) + b_BHK
        outputs.append(h_BHK)
    return torch.stack(outputs, 1)


def by_halves(a_BLHKK: Tensor, b_BLHK: Tensor, h_BHK: Tensor) -> Tensor:
    """The same: two tokens are one of the recurrence of every other h; those between follow at once."""
    length = a_BLHKK.shape[1]
    if length <= 2:
        return in_turn(a_BLHKK, b_BLHK, h_BHK)
    pairs = length // 2
    first_BLHKK, second_BLHKK = a_BLHKK[:, ::2], a_BLHKK[:, 1::2]
    b_first_BLHK, b_second_BLHK = b_BLHK[:, ::2], b_BLHK[:, 1::2]
    a_pair_BLHKK = second_BLHKK @ first_BLHKK[:, :pairs]
    b_pair_BLHK = applied(second_BLHKK, b_first_BLHK[:, :pairs]) + b_second_BLHK
    h_second_BLHK = by_halves(a_pair_BLHKK, b_pair_BLHK, h_BHK)
    before_BLHK = torch.cat([h_BHK[:, None], h_second_BLHK], 1)[:, : length - pairs]
    h_first_BLHK = applied(first_BLHKK, before_BLHK) + b_first_BLHK
    h_BLHK = torch.stack([h_first_BLHK[:, :pairs], h_second_BLHK], 2).flatten(1, 2)
    return h_BLHK if length % 2 == 0 else torch.cat([h_BLHK, h_first_BLHK[:, -1:]], 1)


def applied(a_XKK: Tensor, h_XK: Tensor) -> Tensor:
    """As a sum of products: matrices this small cost a CPU's batched product more than they hold."""
    return (a_XKK * h_XK[..., None, :]).sum(-1)


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
    """Rows of a block of the transition; they divide the width evenly, and are diagonal at 1."""
    mixer: Literal["glu", "tanh"] = "glu"
    """What follows the recurrence, position by position."""
    input_at: Literal["every", "first"] = "every"
    """Which tokens have an input B(x): every one, or the first alone, in place of a learned start."""
    norm_penalty: float = 0.0
    """Weight in the loss of the norm of each block's transition."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.block_size >= 1 and self.d_model % self.block_size == 0,
            f"{self.name}: d_model={self.d_model} does not split into blocks of {self.block_size}",
        )
        require(
            0 <= self.norm_penalty < math.inf, f"{self.name}: norm_penalty must not be negative: {self.norm_penalty}"
        )

    @property
    def transition(self) -> str:
        return "signed diagonal" if self.block_size == 1 else "dense blocks"

    def block(self, layer: int) -> Block:
        return SLiCEBlock(self)
