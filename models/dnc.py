"""Differentiable neural computer: a controller with a memory that tracks which rows are free and the order of writes.

    u_t = (u + w - u w) prod_h (1 - f_h r_h)          usage, of the last write w and reads r_h, which f_h set free
    a[n] = (1 - u[n]) prod_{m before n} u[m]          the freest row first, by a stable sort of u
    w_t = g (g_a a + (1 - g_a) content(k_w))          M_t = M_{t-1} (1 - w_t e) + w_t v
    L_t[n,m] = (1 - w_t[n] - w_t[m]) L[n,m] + w_t[n] p[m], 0 for n = m        p_t = (1 - sum w_t) p + w_t
    r_t = back L_t^T r + content(k_r) + forth L_t r   each times its share of a softmax; reads M_t^T r_t

Graves et al. 2016 (Nature 538). The controller is one layer of LSTM that reads x and the last reads. The output is
linear in its h_t and the reads. Keys, strengths = 1 + softplus, gates and vectors are, too. Memory, usage, links and
weightings start at 0. Rows of equal usage keep their order, so an empty memory fills from row 0.

No gradient goes through the sort. Inputs longer than `memory_rows` can be read: where no row is free, a is near 0 and
little is written.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from chomsky_ladder.models.base import ModelConfig, register
from chomsky_ladder.models.block import Block, Context, Norm, State, require
from chomsky_ladder.models.layers.machine import Machine
from chomsky_ladder.models.operations.linked import linked_machine
from chomsky_ladder.models.operations.linked.reference import asked_of


class DNCMachine(Machine):
    """The machine. Its state is the controller's; the memory [B, W, N]; usage, the last write and precedence, [B, N];
    the links [B, N, N]; the reading weightings [B, H, N]; and what they read [B, H, W].
    """

    def __init__(self, config: "DNCConfig") -> None:
        reads = config.num_reads * config.memory_width
        super().__init__(config.d_model, reads, core="lstm", dropout=config.dropout)
        self.reads, self.rows, self.row_width = config.num_reads, config.memory_rows, config.memory_width
        self.ask = nn.Linear(config.d_model, sum(asked_of(self.reads, self.row_width)))
        self.project = nn.Linear(config.d_model + reads, config.d_model)

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        rows, width, reads = self.rows, self.row_width, self.reads
        shapes = ((width, rows), (rows,), (rows,), (rows,), (rows, rows), (reads, rows), (reads, width))
        zeros = (torch.zeros(batch, *shape, device=device, dtype=dtype) for shape in shapes)
        return self.controller.init_state(batch, device=device, dtype=dtype), *zeros

    def turns(self, gates_BLG: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        core, *memory = state
        weights = (*self.controller.weights, self.ask.weight, self.ask.bias)
        y_BLX, (h_BD, c_BD, *memory) = linked_machine(ctx, gates_BLG, weights, (*core, *memory))
        return y_BLX, ((h_BD, c_BD), *memory)

    def out(self, y_BLX: Tensor) -> Tensor:
        return self.project(y_BLX)


@register
@dataclass(frozen=True, kw_only=True)
class DNCConfig(ModelConfig):
    name, family, year, paper = "dnc", "memory", 2016, "Graves et al., Nature 538"
    title = "DNC"
    transition = "memory"

    num_blocks: int = 1
    """Number of machines, each of which reads the one before."""
    final_norm: Norm = "none"
    """The norm between the last block and the head."""
    num_reads: int = 1
    """Reading heads."""
    memory_rows: int = 64
    """Rows of the memory."""
    memory_width: int = 16
    """Numbers in a row."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("num_reads", "memory_rows", "memory_width"):
            require(getattr(self, field) >= 1, f"{self.name}: {field} must be at least 1, not {getattr(self, field)}")

    def block(self, layer: int) -> Block:
        return DNCMachine(self)

    @classmethod
    def tiny(cls) -> "DNCConfig":
        return cls(d_model=16, num_reads=2, memory_rows=7, memory_width=5)
