"""A step of AdamW over stacked weights [R, P], in place.

    adamw_step(ctx, gradient_RP, weight_RP, mean_RP, square_RP, decayed_P, multiplier_P, scalars)

In C it is one pass. It has no gradient and no replicas but its own, so that it is registered as it is.
"""

from chomsky_ladder.models.kernels import native
from chomsky_ladder.models.operations.adamw.in_c import native_adamw_step
from chomsky_ladder.models.operations.adamw.reference import adamw_step as plain
from chomsky_ladder.models.operations.operation import Operation

adamw_step = Operation(plain, serves=(), shown=lambda gradient, weight, *others: weight)
adamw_step.register(
    native_adamw_step,
    name="native_adamw",
    rank=8,
    device="cpu",
    dtypes=tuple(native.REAL),
    takes=native.untraced,
    missing=native.missing,
    stacks=False,
)
