"""A causal convolution as long as the sequence (models/scans/long_convolution.py), by the fastest way there is.

On a CPU in C, where there is a compiler, up to lengths at which transforms are as fast; on a GPU by matrices.
"""

from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.choose import chosen
from chomsky_ladder.models.scans.long_convolution import by_matrices, convolved

LONGEST = 256
"""Tokens that a GPU convolves by matrices: those of a channel are 256 kB then."""


def long_convolution(z_BND: Tensor, taps_TD: Tensor, ctx: Context) -> Tensor:
    """Of sequences from their start; there are at most as many taps as tokens."""
    kernel = chosen("long_convolution", z_BND, ctx)
    if kernel:
        return kernel.call(z_BND, taps_TD)
    by_products = z_BND.device.type == "cuda" and z_BND.shape[1] <= LONGEST and ctx.backend != "reference"
    return by_matrices(z_BND, taps_TD) if by_products else convolved(z_BND, taps_TD)
