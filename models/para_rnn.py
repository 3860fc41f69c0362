"""ParaRNN: GRU and LSTM cells whose numbers only read themselves, so that Newton's method can solve them in parallel.

    GRU     z = sigmoid(a_z h + u_z)    r = sigmoid(a_r h + u_r)    c = tanh(a_c r h + u_c)    h' = (1 - z) h + z c
    LSTM    f = sigmoid(a_f h + p_f c + u_f)    c' = f c + (1 - f) tanh(a_c h + u_c)
            o = sigmoid(a_o h + p_o c' + u_o)   h' = o tanh(c')        all u = W x + b, a and p a number a channel
    x = x + W_o h        x = x + SwiGLU(x)        each behind an RMSNorm

Danieli et al. 2025 (2510.21450). They solve for all states of a string at once by Newton's method, whose steps are
linear scans. The states it arrives at are those of the loop over tokens, which runs here and is exact. The cells are
theirs, and the block around them is that of `lstm_block`. W and b start as torch.nn.Linear's do, a and p normal with
variance 2 / (1 + D), as Xavier's rule has it for one row.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from chomsky_ladder.models._mixers import MixerConfig
from chomsky_ladder.models.base import register
from chomsky_ladder.models.block import Context, State
from chomsky_ladder.models.layers.residual import Layer, OneForm

Cell = Literal["gru", "lstm"]


class DiagonalCell(OneForm):
    """The cell with its projections. Its state is h, or c and h: [B, S, D], kept in fp32 at least."""

    heeds_asked = True
    no_decay = frozenset({"recurrent_ND"})

    def __init__(self, width: int, cell: Cell) -> None:
        super().__init__()
        self.cell: Cell = cell
        self.read = nn.Linear(width, 3 * width)
        count = 3 if cell == "gru" else 5
        self.recurrent_ND = nn.Parameter((2 / (1 + width)) ** 0.5 * torch.randn(count, width))
        self.out = nn.Linear(width, width, bias=False)

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        held, numbers = torch.promote_types(dtype, torch.float32), 1 if self.cell == "gru" else 2
        return torch.zeros(batch, numbers, self.read.in_features, device=device, dtype=held)

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        gates_BL3D = self.read(x_BLD).to(state.dtype).unflatten(-1, (3, -1))
        step, outputs = gru_step if self.cell == "gru" else lstm_step, []
        # A copy for each row: its gradient is added up token by token, and summed over rows once.
        recurrent_NBD = self.recurrent_ND.to(state.dtype)[:, None].expand(-1, len(x_BLD), -1)
        for gates_B3D in gates_BL3D.unbind(1):
            state = step(gates_B3D, state, recurrent_NBD)
            outputs.append(state[:, -1])
        return self.out(ctx.wanted(torch.stack(outputs, 1)).to(self.out.weight.dtype)), state


def gru_step(gates_B3D: Tensor, state_B1D: Tensor, recurrent_NBD: Tensor) -> Tensor:
    (h_BD,), (z_BD, r_BD, c_BD) = state_B1D.unbind(1), gates_B3D.unbind(1)
    a_z, a_r, a_c = recurrent_NBD.unbind(0)
    z_BD, r_BD = torch.sigmoid(torch.addcmul(z_BD, a_z, h_BD)), torch.sigmoid(torch.addcmul(r_BD, a_r, h_BD))
    return torch.lerp(h_BD, torch.tanh(torch.addcmul(c_BD, a_c, r_BD * h_BD)), z_BD)[:, None]


def lstm_step(gates_B3D: Tensor, state_B2D: Tensor, recurrent_NBD: Tensor) -> Tensor:
    (c_BD, h_BD), (f_BD, new_BD, o_BD) = state_B2D.unbind(1), gates_B3D.unbind(1)
    a_f, a_c, a_o, p_f, p_o = recurrent_NBD.unbind(0)
    f_BD = torch.sigmoid(torch.addcmul(torch.addcmul(f_BD, a_f, h_BD), p_f, c_BD))
    c_BD = torch.lerp(torch.tanh(torch.addcmul(new_BD, a_c, h_BD)), c_BD, f_BD)
    o_BD = torch.sigmoid(torch.addcmul(torch.addcmul(o_BD, a_o, h_BD), p_o, c_BD))
    return torch.stack([c_BD, o_BD * torch.tanh(c_BD)], 1)


@register
@dataclass(frozen=True, kw_only=True)
class ParaRNNConfig(MixerConfig):
    name, family, year, paper = "para_rnn", "recurrent", 2025, "2510.21450"
    title = "ParaRNN[{cell}]"

    cell: Cell = "gru"
    """The cell: a GRU, or an LSTM whose forget gate also sets what enters, with peepholes."""

    def mixer(self, layer: int) -> Layer:
        return DiagonalCell(self.d_model, self.cell)
