"""Stick-breaking attention: each position takes its share of what nearer ones have left.

    y_BLHK = stick_breaking(ctx, heads_BLXK, num_heads=H)

In C it runs by the tiles of softmax attention (models/operations/attention).
"""

from torch import Tensor

from chomsky_ladder.models.operations.attention import LOOPS
from chomsky_ladder.models.operations.operation import Operation
from chomsky_ladder.models.operations.sticks.reference import over_the_past


def _in_c(heads_BLXK: Tensor, *, num_heads: int) -> Tensor:
    """C version of `over_the_past`."""
    return LOOPS(heads_BLXK, None, None, num_heads, 0, 1)[0]


stick_breaking = Operation(
    over_the_past, name="stick_breaking", serves=("stick_breaking",), shown=lambda heads, *, num_heads: heads
)
stick_breaking.in_c(_in_c, name="native_sticks", rank=17)
