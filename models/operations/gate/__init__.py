"""One half of a projection, or one layer's output, gated by another: y * f(z).

    out = gate(ctx, z, y, "silu")

In C it is one pass each way, where torch takes two and four. The autograd functions are by hand (in_c.py): z and y may
be the halves of one projection, whose gradients are written into their places in one.
"""

from torch import Tensor

from chomsky_ladder.models.kernels.native import worth_a_call
from chomsky_ladder.models.operations.gate.in_c import native_gated
from chomsky_ladder.models.operations.gate.reference import Activation, plain_gated
from chomsky_ladder.models.operations.operation import Operation


def _shown(z: Tensor, y: Tensor | None = None, activation: Activation = "silu") -> Tensor | None:
    """z; what is of two shapes or precisions is left to torch."""
    return z if y is None or (z.dtype == y.dtype and z.shape == y.shape) else None


gate = Operation(plain_gated, name="gate", serves=(), shown=_shown)
gate.in_c(native_gated, name="native_gate", rank=18, takes=worth_a_call)
