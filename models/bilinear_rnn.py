"""The bilinear RNN: each token multiplies the state by a matrix that is linear in it, and adds nothing.

    h_t = A(x_t) h_{t-1}        A = diag(A_1 .. A_{D/K}), each [K, K], every entry a product w . x        h_0 learned
    x = x + W_o (h / |h|)       x = x + SwiGLU(x)        each behind an RMSNorm, and |h| that of each block

Ebrahimi and Memisevic 2025 (2505.21749), in the block-diagonal form; `block_size` of the width is their full form. With
neither a bias nor an input of its own, a state may be scaled at any token without another answer. They scale it when a
trained model runs on long strings. Here every block's is read at length 1, in training too, which is the same function
at every length. With blocks of one number all that is left is a sign. Their factored form is not here.

Products run by models/operations/block_steps in fp32 at least, and are scaled anew after every 8 tokens. The paper's
start is not known here: weights start as torch.nn.Linear's do, h_0 normal.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from chomsky_ladder.models._mixers import MixerConfig
from chomsky_ladder.models.base import register
from chomsky_ladder.models.block import Context, State, require
from chomsky_ladder.models.layers.residual import Layer, OneForm
from chomsky_ladder.models.operations.block_steps import block_steps

SPAN = 8  # tokens between two scalings


class BilinearRecurrence(OneForm):
    """The recurrence: D / K blocks as heads H, each with a state of K numbers and length 1."""

    heeds_asked = True

    def __init__(self, width: int, block_size: int) -> None:
        super().__init__()
        self.transition = nn.Linear(width, width * block_size, bias=False)
        self.start_HK = nn.Parameter(torch.randn(width // block_size, block_size))
        self.out = nn.Linear(width, width, bias=False)

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        start_HK = self.start_HK.to(device, torch.promote_types(dtype, torch.float32))
        return unit(start_HK).expand(batch, -1, -1)

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        size = state.shape[-1]
        with torch.autocast(x_BLD.device.type, enabled=False):  # long products would multiply the rounding of bf16
            A_BLX = self.transition(x_BLD.to(self.transition.weight.dtype))
        A_BLHKK = A_BLX.to(state.dtype).unflatten(-1, (-1, size, size))
        change_BLX = (A_BLHKK - torch.eye(size, device=x_BLD.device, dtype=state.dtype)).flatten(2)
        outputs = []
        for part_BLX in change_BLX.split(SPAN, 1):
            nothing_BLD = torch.zeros_like(part_BLX[..., : state[0].numel()])
            h_BLD, state = block_steps(ctx, part_BLX, nothing_BLD, state, steps=1)
            outputs.append(unit(h_BLD.unflatten(-1, (-1, size))).flatten(2))
            state = unit(state)
        return self.out(ctx.wanted(torch.cat(outputs, 1)).to(self.out.weight.dtype)), state


def unit(h_XK: Tensor) -> Tensor:
    """Return vectors of length 1. Those whose squares are too small or too large for their precision lose no digits."""
    largest_X1 = h_XK.detach().abs().amax(-1, keepdim=True).clamp_min(torch.finfo(h_XK.dtype).tiny)
    return nn.functional.normalize(h_XK / largest_X1, dim=-1)


@register
@dataclass(frozen=True, kw_only=True)
class BilinearRNNConfig(MixerConfig):
    name, family, year, paper = "bilinear_rnn", "linear recurrence", 2025, "2505.21749"
    title = "Bilinear RNN"

    block_size: int = 4
    """Rows of a block of the transition. They divide the width evenly; 1 is diagonal."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.block_size >= 1 and self.d_model % self.block_size == 0,
            f"{self.name}: d_model={self.d_model} does not split into blocks of {self.block_size}",
        )

    @property
    def transition(self) -> str:
        return "dense blocks" if self.block_size > 1 else ""

    def mixer(self, layer: int) -> Layer:
        return BilinearRecurrence(self.d_model, self.block_size)
