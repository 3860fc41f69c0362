"""Differentiable neural computer: a controller with a memory that knows which rows are free and in what order it wrote.

    u_t = (u + w - u w) prod_h (1 - f_h r_h)          usage, of the last write w and reads r_h, which f_h set free
    a[n] = (1 - u[n]) prod_{m before n} u[m]          the freest row first, by a stable sort of u
    w_t = g (g_a a + (1 - g_a) content(k_w))          M_t = M_{t-1} (1 - w_t e) + w_t v
    L_t[n,m] = (1 - w_t[n] - w_t[m]) L[n,m] + w_t[n] p[m], 0 for n = m        p_t = (1 - sum w_t) p + w_t
    r_t = back L_t^T r + content(k_r) + forth L_t r   each times its share of a softmax; reads M_t^T r_t

Graves et al. 2016 (Nature 538), with one layer of LSTM for a controller of x and the last reads; the output is linear
in its h_t and the reads, and so are the keys, strengths = 1 + softplus, gates and vectors. All memory, usage, links and
weightings start at 0. Rows of equal usage stand in their own order, so that an empty memory fills from row 0.

No gradient goes through the order. Longer inputs than `memory_rows` can be read: where no row is free, a is near 0 and
so is what it writes.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from chomsky_ladder.models.base import ModelConfig, register
from chomsky_ladder.models.block import Block, Context, Norm, State, require
from chomsky_ladder.models.layers.addressing import by_content
from chomsky_ladder.models.layers.machine import Machine


class DNCMachine(Machine):
    """The state is the controller's; the memory [B, N, W]; usage, the last write and precedence, [B, N]; the links
    [B, N, N]; the reading weightings [B, H, N] and what they read [B, H, W]."""

    def __init__(self, config: "DNCConfig") -> None:
        reads = config.num_reads * config.memory_width
        super().__init__(config.d_model, reads, core="lstm", dropout=config.dropout)
        self.reads, self.rows, self.row_width = config.num_reads, config.memory_rows, config.memory_width
        # Of every reading head a key, a strength, a free gate and three modes; then a key, erasure, vector and gates.
        self.sizes = [self.reads * (self.row_width + 5), 3 * self.row_width + 3]
        self.ask = nn.Linear(config.d_model, sum(self.sizes))
        self.project = nn.Linear(config.d_model + reads, config.d_model)

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        rows, width, reads = self.rows, self.row_width, self.reads
        shapes = ((rows, width), (rows,), (rows,), (rows,), (rows, rows), (reads, rows), (reads, width))
        zeros = (torch.zeros(batch, *shape, device=device, dtype=dtype) for shape in shapes)
        return self.controller.init_state(batch, device=device, dtype=dtype), *zeros

    def turn(self, gates_BG: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        core, memory_BNW, usage_BN, write_BN, precedence_BN, link_BNN, weight_BHN, read_BHW = state
        h_BD, core = self.controller.turn(gates_BG, read_BHW.flatten(1), core)
        to_read_BX, to_write_BX = self.ask(h_BD).split(self.sizes, -1)
        read_key_BHW, read_scalar_BH5 = to_read_BX.unflatten(-1, (self.reads, -1)).split([self.row_width, 5], -1)
        key_BW, erase_BW, vector_BW, scalar_B3 = to_write_BX.split([*[self.row_width] * 3, 3], -1)
        gate_B2 = torch.sigmoid(scalar_B3[:, 1:])

        usage_BN = torch.addcmul(usage_BN + write_BN, usage_BN, write_BN, value=-1)
        for freed_BN in (torch.sigmoid(read_scalar_BH5[..., 1:2]) * weight_BHN).unbind(1):
            usage_BN = torch.addcmul(usage_BN, usage_BN, freed_BN, value=-1)
        content_BN = by_content(key_BW[:, None], _strength(scalar_B3[:, :1]), memory_BNW)[:, 0]
        write_BN = gate_B2[:, :1] * torch.lerp(content_BN, allocation(usage_BN), gate_B2[:, 1:])
        memory_BNW = memory_BNW * (1 - write_BN[:, :, None] @ torch.sigmoid(erase_BW)[:, None])
        memory_BNW = torch.baddbmm(memory_BNW, write_BN[:, :, None], vector_BW[:, None])

        link_BNN = linked(link_BNN, write_BN, precedence_BN)
        precedence_BN = torch.addcmul(write_BN, 1 - write_BN.sum(-1, keepdim=True), precedence_BN)
        back, content, forth = torch.softmax(read_scalar_BH5[..., 2:], -1).split(1, -1)
        found_BHN = by_content(read_key_BHW, _strength(read_scalar_BH5[..., 0]), memory_BNW)
        followed_BHN = torch.addcmul(back * (weight_BHN @ link_BNN), forth, weight_BHN @ link_BNN.mT)
        weight_BHN = torch.addcmul(followed_BHN, content, found_BHN)
        read_BHW = weight_BHN @ memory_BNW
        state = core, memory_BNW, usage_BN, write_BN, precedence_BN, link_BNN, weight_BHN, read_BHW
        return torch.cat([h_BD, read_BHW.flatten(1)], -1), state

    def out(self, y_BLX: Tensor) -> Tensor:
        return self.project(y_BLX)


def _strength(x: Tensor) -> Tensor:
    return 1 + nn.functional.softplus(x)


def allocation(usage_BN: Tensor) -> Tensor:
    """How much of a write goes to each row if all of it goes to free ones."""
    order_BN = torch.sort(usage_BN.detach(), stable=True).indices
    sorted_BN = usage_BN.gather(-1, order_BN)
    # The product of those before each, by doubling: torch.cumprod's backward pass reads on the host whether one is 0.
    product_BN = torch.cat([torch.ones_like(sorted_BN[:, :1]), sorted_BN[:, :-1]], -1)
    reach = 1
    while reach < sorted_BN.shape[-1]:
        product_BN = torch.cat([product_BN[:, :reach], product_BN[:, reach:] * product_BN[:, :-reach]], -1)
        reach *= 2
    return ((1 - sorted_BN) * product_BN).gather(-1, torch.argsort(order_BN))


def linked(link_BNN: Tensor, write_BN: Tensor, precedence_BN: Tensor) -> Tensor:
    """The links after a write: [n, m] is how much row n was written right after row m."""
    link_BNN = link_BNN * ((1 - write_BN)[:, :, None] - write_BN[:, None])
    link_BNN = torch.baddbmm(link_BNN, write_BN[:, :, None], precedence_BN[:, None])
    rows = link_BNN.shape[-1]
    return link_BNN * (1 - torch.eye(rows, device=link_BNN.device, dtype=link_BNN.dtype))


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
