"""A projection's half, or a layer's output, gated by another: y * f(z), by models/operations/gate."""

from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.operations.gate import gate
from chomsky_ladder.models.operations.gate.reference import Activation


def gated(z: Tensor, y: Tensor | None = None, activation: Activation = "silu", *, ctx: Context) -> Tensor:
    """Return y f(z). Without y the first half of the last axis of z gates the second."""
    return gate(ctx, z, y, activation)
