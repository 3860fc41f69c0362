"""A causal convolution as long as the sequence, one filter a channel: y_n = sum over t of taps_t z_{n-t}.

    y_BND = long_convolution(ctx, z_BND, taps_TD)

In C it is the plain sum: channels stand side by side, so that a tap meets sixteen of them at once, with neither a
transform of twice the length nor complex numbers. Up to LONGEST_IN_C tokens transforms are no faster: of 2,048 they
take three quarters of its time. On a GPU short strings are convolved by matrices.
"""

from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.native import untraced
from chomsky_ladder.models.operations.in_c import Loops
from chomsky_ladder.models.operations.long_conv.reference import by_matrices, convolved
from chomsky_ladder.models.operations.operation import Operation

LONGEST_IN_C = 1024
LONGEST = 256
"""Tokens that a GPU convolves by matrices: those of a channel are 256 kB then."""

_LOOPS = Loops(
    "long_conv",
    "z y: R B N D, taps: R T D",
    forward="z taps -> y",
    backward="d_y z taps -> d_z d_taps",
    sizes="R B N D T row_z",
    rows={"z": 1},
)


def _in_c(z_BND: Tensor, taps_TD: Tensor) -> Tensor:
    """C version of `convolved`. Each replica has taps of its own."""
    return _LOOPS(z_BND[None], taps_TD[None].to(z_BND.dtype))[0].squeeze(0)


def _takes(z_BND: Tensor, ctx: Context) -> bool:
    return untraced(z_BND, ctx) and z_BND.shape[-2] <= LONGEST_IN_C


def _plain(z_BND: Tensor, taps_TD: Tensor) -> Tensor:
    by_products = z_BND.device.type == "cuda" and z_BND.shape[1] <= LONGEST
    return by_matrices(z_BND, taps_TD) if by_products else convolved(z_BND, taps_TD)


long_convolution = Operation(
    convolved, name="long_convolution", fused=_plain, serves=("hyena", "h3", "s4"), shown=lambda z, taps: z
)
long_convolution.in_c(_in_c, name="native_long_conv", rank=9, takes=_takes)
