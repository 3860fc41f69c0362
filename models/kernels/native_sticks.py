"""Stick-breaking attention (models/stick_breaking.py) on a CPU in C, by the tiles of softmax attention."""

from torch import Tensor

from chomsky_ladder.models.kernels.kernel import Kernel, register
from chomsky_ladder.models.kernels.native import REAL, missing, untraced
from chomsky_ladder.models.kernels.native_attention import Attention


def native_sticks(heads_BLXK: Tensor, *, num_heads: int) -> Tensor:
    """As `over_the_past`; it stacks under vmap."""
    return Attention.apply(heads_BLXK, None, None, num_heads, 0, True)[0]


register(
    Kernel(
        name="native_sticks",
        computes="stick_breaking",
        reference="chomsky_ladder.models.stick_breaking.over_the_past",
        call=native_sticks,
        serves=("stick_breaking",),
        device="cpu",
        dtypes=tuple(REAL),
        stacks=True,
        takes=untraced,
        missing=missing,
        rank=17,
    )
)
