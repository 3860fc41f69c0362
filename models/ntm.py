"""Neural Turing machine: a controller whose heads move over a memory by content and by shifts, read it and write it.

    c = softmax_n(b cos(k, M[n]))       g = s(.) c + (1 - s(.)) w_{t-1}       v[n] = sum_j p[j] g[n-j], j = -S .. S
    w_t[n] = v[n]^y / sum_m v[m]^y      M_t[n] = M_{t-1}[n] prod_h (1 - w_h[n] e_h) + sum_h w_h[n] a_h
    r_t = sum_n w_t[n] M_t[n]           output = W [h_t, r_t]

Graves et al. 2014 (1410.5401). A head's k, b = softplus, gate, shifts p = softmax, y = 1 + softplus, and for a writing
head e in (0, 1) and a, are linear in the controller's h_t = f(x_t, r_{t-1}, h_{t-1}). Rows form a ring.

What the paper leaves open. All heads look for content in M_{t-1}; then it is written, then read. All rows start at
1e-6, the constant found best by Collier and Beel 2018 (1807.08518). All heads start at row 0, so that shifts alone
find rows that nobody wrote yet. Longer inputs than `memory_rows` can be read; they overwrite what they wrote or mix it.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from chomsky_ladder.models.base import ModelConfig, register
from chomsky_ladder.models.block import Block, Context, Norm, State, require
from chomsky_ladder.models.layers.addressing import by_content
from chomsky_ladder.models.layers.machine import Machine

START = 1e-6


class NTMMachine(Machine):
    """The state is the controller's, the memory [B, N, W], the weightings [B, 2 H, N] of the heads, reading ones first,
    and what those read, [B, H, W]."""

    def __init__(self, config: "NTMConfig") -> None:
        reads = config.num_heads * config.memory_width
        super().__init__(config.d_model, reads, core=config.core, dropout=config.dropout)
        self.heads, self.rows, self.row_width = config.num_heads, config.memory_rows, config.memory_width
        self.shifts = 2 * config.shift_range + 1
        head_width = self.row_width + 3 + self.shifts
        self.sizes = [2 * self.heads * head_width, self.heads * 2 * self.row_width]
        self.ask = nn.Linear(config.d_model, sum(self.sizes))
        self.project = nn.Linear(config.d_model + reads, config.d_model)

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        core = self.controller.init_state(batch, device=device, dtype=dtype)
        memory_BNW = torch.full((batch, self.rows, self.row_width), START, device=device, dtype=dtype)
        at_row_0_N = (torch.arange(self.rows, device=device) == 0).to(dtype)
        read_BHW = torch.zeros(batch, self.heads, self.row_width, device=device, dtype=dtype)
        return core, memory_BNW, at_row_0_N.expand(batch, 2 * self.heads, -1).clone(), read_BHW

    def turn(self, gates_BG: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        core, memory_BNW, weight_BHN, read_BHW = state
        h_BD, core = self.controller.turn(gates_BG, read_BHW.flatten(1), core)
        to_find_BX, to_write_BX = self.ask(h_BD).split(self.sizes, -1)
        weight_BHN = self._find(to_find_BX.unflatten(-1, (2 * self.heads, -1)), weight_BHN, memory_BNW)

        reads_BHN, writes_BHN = weight_BHN.split(self.heads, 1)
        erase_BHW, add_BHW = to_write_BX.unflatten(-1, (2, self.heads, self.row_width)).unbind(1)
        for write_BN, erase_BW in zip(writes_BHN.unbind(1), torch.sigmoid(erase_BHW).unbind(1), strict=True):
            memory_BNW = memory_BNW * (1 - write_BN[:, :, None] @ erase_BW[:, None])
        memory_BNW = torch.baddbmm(memory_BNW, writes_BHN.mT, add_BHW)
        read_BHW = reads_BHN @ memory_BNW
        return torch.cat([h_BD, read_BHW.flatten(1)], -1), (core, memory_BNW, weight_BHN, read_BHW)

    def out(self, y_BLX: Tensor) -> Tensor:
        return self.project(y_BLX)

    def _find(self, asked_BHX: Tensor, before_BHN: Tensor, memory_BNW: Tensor) -> Tensor:
        """The weightings of all heads."""
        key_BHW, scalar_BH3, shift_BHS = asked_BHX.split([self.row_width, 3, self.shifts], -1)
        strength_BH, sharpness_BH = nn.functional.softplus(scalar_BH3[..., :2]).unbind(-1)
        content_BHN = by_content(key_BHW, strength_BH, memory_BNW)
        gated_BHN = torch.lerp(before_BHN, content_BHN, torch.sigmoid(scalar_BH3[..., 2:]))
        shifted_BHN = _shifted(gated_BHN, torch.softmax(shift_BHS, -1))
        # Over the largest, or a small weight's power would be 0 in fp32 everywhere; a constant factor changes nothing.
        scaled_BHN = shifted_BHN / shifted_BHN.detach().amax(-1, keepdim=True)
        sharp_BHN = scaled_BHN ** (1 + sharpness_BH[..., None])
        return sharp_BHN / sharp_BHN.sum(-1, keepdim=True)


def _shifted(weight_BHN: Tensor, shift_BHS: Tensor) -> Tensor:
    """The circular convolution with shifts from -S to S: one of +1 moves a head from row n to n + 1."""
    rows, most = weight_BHN.shape[-1], shift_BHS.shape[-1] // 2
    ring_BHX = torch.cat([weight_BHN[..., rows - most :], weight_BHN, weight_BHN[..., :most]], -1)
    terms = [
        shift_BH1 * ring_BHX[..., 2 * most - place : 2 * most - place + rows]
        for place, shift_BH1 in enumerate(shift_BHS.split(1, -1))
    ]
    return torch.stack(terms).sum(0)


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
