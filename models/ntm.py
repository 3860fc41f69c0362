"""Neural Turing machine: a controller whose heads move over a memory by content and by shifts, read it and write it.

    c = softmax_n(b cos(k, M[n]))       g = s(.) c + (1 - s(.)) w_{t-1}       v[n] = sum_j p[j] g[n-j], j = -S .. S
    w_t[n] = v[n]^y / sum_m v[m]^y      M_t[n] = M_{t-1}[n] prod_h (1 - w_h[n] e_h) + sum_h w_h[n] a_h
    r_t = sum_n w_t[n] M_t[n]           output = W [h_t, r_t]

Graves et al. 2014 (1410.5401). A head's k, b = softplus, gate, shifts p = softmax, y = 1 + softplus, and for a writing
head e in (0, 1) and a, are linear in the controller's h_t = f(x_t, r_{t-1}, h_{t-1}). Rows form a ring.

The paper leaves some points open. Here all heads look for content in M_{t-1}, then the memory is written, then read.
All rows start at 1e-6, the constant found best by Collier and Beel 2018 (1807.08518). All heads start at row 0, so that
shifts alone find unwritten rows. Inputs longer than `memory_rows` can be read; they overwrite what they wrote or mix
it.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from chomsky_ladder.models.base import ModelConfig, register
from chomsky_ladder.models.block import Block, Context, Norm, State, require
from chomsky_ladder.models.layers.machine import Machine
from chomsky_ladder.models.operations.turing import turing_machine
from chomsky_ladder.models.operations.turing.reference import asked_of

START = 1e-6


class NTMMachine(Machine):
    """The machine. Its state is the controller's, the memory [B, W, N], the heads' weightings [B, 2 H, N], reading ones
    first, and what those read, [B, H, W].
    """

    def __init__(self, config: "NTMConfig") -> None:
        reads = config.num_heads * config.memory_width
        super().__init__(config.d_model, reads, core=config.core, dropout=config.dropout)
        self.heads, self.rows, self.row_width = config.num_heads, config.memory_rows, config.memory_width
        self.shifts = 2 * config.shift_range + 1
        self.ask = nn.Linear(config.d_model, sum(asked_of(self.heads, self.row_width, self.shifts)))
        self.project = nn.Linear(config.d_model + reads, config.d_model)

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        core = self.controller.init_state(batch, device=device, dtype=dtype)
        memory_BWN = torch.full((batch, self.row_width, self.rows), START, device=device, dtype=dtype)
        at_row_0_N = (torch.arange(self.rows, device=device) == 0).to(dtype)
        read_BHW = torch.zeros(batch, self.heads, self.row_width, device=device, dtype=dtype)
        return core, memory_BWN, at_row_0_N.expand(batch, 2 * self.heads, -1).clone(), read_BHW

    def turns(self, gates_BLG: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        core, *memory = state
        weights = (*self.controller.weights, self.ask.weight, self.ask.bias)
        y_BLX, (*core, memory_BWN, weight_BHN, read_BHW) = turing_machine(
            ctx, gates_BLG, weights, (*core, *memory), core=self.controller.core, shifts=self.shifts
        )
        return y_BLX, (tuple(core), memory_BWN, weight_BHN, read_BHW)

    def out(self, y_BLX: Tensor) -> Tensor:
        return self.project(y_BLX)


@register
@dataclass(frozen=True, kw_only=True)
class NTMConfig(ModelConfig):
    name, family, year, paper = "ntm", "memory", 2014, "1410.5401"
    title = "NTM"
    transition = "memory"

    num_blocks: int = 1
    """Number of machines, each of which reads the one before."""
    final_norm: Norm = "none"
    """The norm between the last block and the head."""
    core: Literal["lstm", "feed_forward"] = "lstm"
    """The controller: an LSTM, or one hidden layer of tanh that remembers nothing."""
    num_heads: int = 1
    """Reading heads, and as many writing ones."""
    memory_rows: int = 128
    """Rows of the memory."""
    memory_width: int = 20
    """Numbers in a row."""
    shift_range: int = 1
    """Rows a head may move in a step, either way."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("num_heads", "memory_rows", "memory_width"):
            require(getattr(self, field) >= 1, f"{self.name}: {field} must be at least 1, not {getattr(self, field)}")
        require(
            0 <= self.shift_range <= self.memory_rows // 2,
            f"{self.name}: shift_range={self.shift_range} does not lie in 0..{self.memory_rows // 2}",
        )

    def block(self, layer: int) -> Block:
        return NTMMachine(self)

    @classmethod
    def tiny(cls) -> "NTMConfig":
        return cls(d_model=16, num_heads=2, memory_rows=7, memory_width=5)
