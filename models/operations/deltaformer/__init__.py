"""DeltaFormer's attentions, from the projection's heads to what they read.

y_BLHK = delta_attention(ctx, heads_BLXK, turns_2LK, beta_BLH, asks_by_query=False)
"""

from torch import Tensor

from chomsky_ladder.models.operations.deltaformer.reference import over_the_past
from chomsky_ladder.models.operations.in_c import Loops
from chomsky_ladder.models.operations.operation import Operation

_LOOPS = Loops(
    "deltaformer",
    "heads: B L X K, turns: 2 L D, beta: B L H, y: B L H K, u: B H L K",
    forward="heads turns beta -> y u",
    backward="heads turns beta u d_y -> d_heads d_beta",
    sizes="B L H H K 0 by_query",
    settings="by_query",
)
"""Turns are those of places, the same for all replicas."""


def _in_c(heads_BLXK: Tensor, turns_2LK: Tensor, beta_BLH: Tensor, *, asks_by_query: bool) -> Tensor:
    """C version of `over_the_past`."""
    return _LOOPS(heads_BLXK, turns_2LK, beta_BLH, int(asks_by_query))[0]


delta_attention = Operation(
    over_the_past,
    name="delta_attention",
    serves=("deltaformer",),
    shown=lambda heads, turns, beta, *, asks_by_query: heads,
)
delta_attention.in_c(_in_c, name="native_deltaformer", rank=16)
