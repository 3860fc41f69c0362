"""SLiCE's recurrence: h_t = (1 + C_t / S) h_{t-1} + b_t with C_t in blocks, where S steps make one.

    h_BLX, last_BHK = block_steps(ctx, c_BLX, b_BLX, h_BHK, steps=S)

In Triton one kernel takes the place of log2(L) levels, each of which writes half as many transitions as the one before.
"""

import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.operations.block_steps.reference import block_steps as plain
from chomsky_ladder.models.operations.block_steps.reference import block_steps_by_halves
from chomsky_ladder.models.operations.in_c import Loops
from chomsky_ladder.models.operations.operation import Operation

LONGEST = 2048  # positions; of more a GPU with few rows would wait for one position after the other
LARGEST = 16  # rows of a block that a program holds

_LOOPS = Loops(
    "block_steps",
    "c: B L C, b h: B L X, first: B H K",
    forward="c b first -> h",
    backward="c first h d_h -> d_c d_b +d_first",
    sizes="B L H K steps",
    settings="steps",
)


def _in_c(c_BLX: Tensor, b_BLX: Tensor, h_BHK: Tensor, *, steps: int) -> tuple[Tensor, Tensor]:
    """C version of `block_steps`."""
    (h_BLX,) = _LOOPS(c_BLX, b_BLX.to(c_BLX.dtype), h_BHK.to(c_BLX.dtype), steps)
    return h_BLX, h_BLX[:, -1].unflatten(-1, h_BHK.shape[1:])


def _plain(c_BLX: Tensor, b_BLX: Tensor, h_BHK: Tensor, *, steps: int) -> tuple[Tensor, Tensor]:
    """The form with the fewest kernels on a GPU, and with the least work elsewhere."""
    form = block_steps_by_halves if c_BLX.device.type == "cuda" else plain
    return form(c_BLX, b_BLX, h_BHK, steps=steps)


def _shown(c_BLX: Tensor, b_BLX: Tensor, h_BHK: Tensor, *, steps: int) -> Tensor | None:
    """The blocks; a single token is left to the plain form."""
    return c_BLX.unflatten(-1, (*h_BHK.shape[1:], h_BHK.shape[-1])) if c_BLX.shape[1] > 1 else None


def _takes(c_BLHKK: Tensor, ctx: Context) -> bool:
    return c_BLHKK.shape[1] <= LONGEST and c_BLHKK.shape[-1] <= LARGEST


block_steps = Operation(plain, fused=_plain, serves=("slice", "bd_lru", "bilinear_rnn", "d_linoss"), shown=_shown)
block_steps.in_c(_in_c, name="native_block_steps", rank=14)
block_steps.in_triton(
    f"{__name__}.gpu", name="triton_block_steps", rank=46, takes=_takes, dtypes=(torch.float32, torch.bfloat16)
)
