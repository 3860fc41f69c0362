"""The steps between RWKV's products: each token mixed with the one before it, and squares of positive parts.

    shifted = token_shifts(ctx, x_BLD, last_BD, mixes)        y = squared_relu(ctx, x)

The autograd functions are by hand (in_c.py): shifts are as many outputs as there are mixes, by a call of C each.
"""

from chomsky_ladder.models.kernels.native import worth_a_call
from chomsky_ladder.models.operations.operation import Operation
from chomsky_ladder.models.operations.shift.in_c import SquaredRelu, native_token_shifts
from chomsky_ladder.models.operations.shift.reference import squared_relu as plain_square
from chomsky_ladder.models.operations.shift.reference import token_shifts as plain_shifts

RWKV = ("rwkv4", "rwkv5", "rwkv6", "rwkv7")
token_shifts = Operation(plain_shifts, serves=RWKV, shown=lambda x, last, mixes: x)
token_shifts.in_c(native_token_shifts, name="native_token_shifts", rank=17, takes=worth_a_call)
squared_relu = Operation(plain_square, serves=RWKV, shown=lambda x: x)
squared_relu.in_c(SquaredRelu.apply, name="native_squared_relu", rank=17, takes=worth_a_call)
