"""The mesa layer: at every token the best linear map from all keys to all values, read by its query.

    y_BHLV, (H_BHKK, G_BHKV) = mesa(ctx, q_BHLK, k_BHLK, v_BHLV, beta_BHL, log_decay_BHL, state, steps=0)

In C it is Cholesky's method token by token, for as many rows at once as a vector has lanes. Measured for B = 64, H = 4,
L = 40, forward and backward on one thread: 6 ms where K = V = 16 and factors by a library take 49; 150 ms where K = V =
64 and they take 830. In Triton it is conjugate gradients: a plain step is 4,033 kernels at 40 positions.
"""

import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.native import untraced
from chomsky_ladder.models.operations.in_c import Loops, Sizes, whole_vectors
from chomsky_ladder.models.operations.mesa.reference import Held
from chomsky_ladder.models.operations.mesa.reference import mesa as plain
from chomsky_ladder.models.operations.operation import Operation

CHUNK = 8  # tokens between the states that are kept for the backward pass
LARGEST = 64  # keys of a head


def _derived(sizes: Sizes) -> Sizes:
    """The states that chunks start from have a lane for each row, which may be of two replicas."""
    return {"chunk": CHUNK, "N": -(-sizes["L"] // CHUNK), "lane": whole_vectors(sizes, "B")}


_LOOPS = Loops(
    "mesa",
    "q k x: B L K, v y: B L V, a b: B L, first last: B K X, starts: lane N K X",
    forward="q k v a b first -> y last x starts",
    backward="k v a b x starts d_y -> d_first=d_last d_q d_k d_v d_a d_b",
    sizes="B L K V chunk",
    derived=_derived,
)


def _in_c(
    q_BHLK: Tensor, k_BHLK: Tensor, v_BHLV: Tensor, beta_BHL: Tensor, log_decay_BHL: Tensor, state: Held
) -> tuple[Tensor, Held]:
    """C version of `mesa` without steps. Rows and heads are one axis; a state is H and G side by side."""
    shape, widths = q_BHLK.shape[:2], [q_BHLK.shape[-1], v_BHLV.shape[-1]]
    given = (q_BHLK, k_BHLK, v_BHLV, torch.exp(log_decay_BHL), beta_BHL, torch.cat(state, -1))
    y_BLV, last_BKX = _LOOPS(*(x.flatten(0, 1) for x in given))
    last_BHKK, last_BHKV = last_BKX.unflatten(0, shape).split(widths, -1)
    return y_BLV.unflatten(0, shape), (last_BHKK, last_BHKV)


def _takes(q_BHLK: Tensor, ctx: Context) -> bool:
    return q_BHLK.shape[-1] <= LARGEST


def _query(q_BHLK: Tensor, *others: object, steps: int = 0) -> Tensor:
    return q_BHLK


exact = Operation(plain, serves=("mesa_net",), shown=_query, inside=("mesa_by_steps",))
exact.in_c(_in_c, name="native_mesa", rank=29, takes=lambda x, ctx: untraced(x, ctx) and _takes(x, ctx))
by_steps = Operation(plain, name="mesa_by_steps", serves=("mesa_net",), shown=_query)
by_steps.in_triton(f"{__name__}.gpu", name="triton_mesa", rank=44, takes=_takes)


def mesa(
    ctx: Context,
    q_BHLK: Tensor,
    k_BHLK: Tensor,
    v_BHLV: Tensor,
    beta_BHL: Tensor,
    log_decay_BHL: Tensor,
    state: Held,
    *,
    steps: int,
) -> tuple[Tensor, Held]:
    """Solve exactly, if no number of steps is asked for and there is a kernel; or else by conjugate gradients."""
    given = (q_BHLK, k_BHLK, v_BHLV, beta_BHL, log_decay_BHL, state)
    solve = None if steps else exact.chosen(q_BHLK, ctx)
    return solve(*given) if solve else by_steps(ctx, *given, steps=steps)
