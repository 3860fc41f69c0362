"""The answer of a linear state space to a single 1: the kernel of its convolution, for every channel.

    response_HL = impulse_response(ctx, C_HM2, system, length)

In C it is the recurrence itself: N operations a step and channel, where squaring a dense transition takes N^3.
"""

import torch
from torch import Tensor

from chomsky_ladder.models.operations.in_c import Loops
from chomsky_ladder.models.operations.operation import Operation
from chomsky_ladder.models.operations.space.reference import System
from chomsky_ladder.models.operations.space.reference import impulse_response as plain

_LOOPS = Loops(
    "space",
    "system: H P 2 M, response: H L",
    forward="system -> response",
    backward="system d_response -> d_system",
    sizes="H L M P",
    settings="L",
    fold="H",
)


def _in_c(C_HM2: Tensor, system: System, length: int) -> Tensor:
    """C version of `impulse_response`. A system's P parts lie one behind the other, real and imaginary."""
    of_rank = [part for part in (system.q_HM2, system.r_HM2) if part is not None]
    return _LOOPS(torch.stack([system.d_HM2, system.b_HM2, C_HM2, *of_rank], 1).mT, length)[0]


impulse_response = Operation(plain, serves=("s4", "h3"), shown=lambda C, system, length: C)
impulse_response.in_c(_in_c, name="native_space", rank=25)
