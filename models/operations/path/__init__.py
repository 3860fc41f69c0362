"""PaTH's attention: keys pass, on their way to a query, a reflection of every token between.

    y_BHLK = attended(ctx, q_BHLK, k_BHLK, v_BHLK, w_BHLK, beta_BHL, total_BHL)

In C keys are turned where they lie, one query after the other, by vectors of keys. Measured for H = 4, K = 16, forward
and backward on one thread: 10 ms for 64 strings of 40, where the plain form's chunks take 35; 24 for 10 of 256, where
they take 66; 75 for 2 of 1,024, where they take 161. In Triton scores are so, and the softmax is left to the compiler.
"""

from torch import Tensor, autocast, float32, softmax

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.kernel import cuda_module, member
from chomsky_ladder.models.operations.in_c import Loops
from chomsky_ladder.models.operations.operation import Operation
from chomsky_ladder.models.operations.path.reference import attended as plain

LARGEST = 64  # channels of a head in Triton
_GPU = f"{__name__}.gpu"

_LOOPS = Loops(
    "path",
    "q k v w y: B L H K, beta total: B L H",
    forward="q k v w beta total -> y",
    backward="q k v w beta total d_y -> d_q d_k d_v d_w d_beta d_total",
    sizes="B L H H K 0 0",
)


def _in_c(
    q_BHLK: Tensor, k_BHLK: Tensor, v_BHLK: Tensor, w_BHLK: Tensor, beta_BHL: Tensor, total_BHL: Tensor | None
) -> Tensor:
    """C version of `attended`."""
    given = (q_BHLK, k_BHLK, v_BHLK, w_BHLK, beta_BHL, total_BHL)
    return _LOOPS(*(None if x is None else x.to(q_BHLK.dtype).transpose(1, 2) for x in given))[0].transpose(1, 2)


def in_triton(
    q_BHLK: Tensor, k_BHLK: Tensor, v_BHLK: Tensor, w_BHLK: Tensor, beta_BHL: Tensor, total_BHL: Tensor | None
) -> Tensor:
    """Triton version of `attended`: what follows the scores is left to the compiler."""
    scores_BHLL = member(_GPU, "turned_scores")(q_BHLK, k_BHLK, w_BHLK, beta_BHL)
    if total_BHL is not None:
        scores_BHLL = scores_BHLL + (total_BHL[..., None] - total_BHL[..., None, :])
    with autocast(v_BHLK.device.type, enabled=False):
        return softmax(scores_BHLL * q_BHLK.shape[-1] ** -0.5, -1) @ v_BHLK


def _takes(q_BHLK: Tensor, ctx: Context) -> bool:
    return q_BHLK.shape[-1] <= LARGEST


attended = Operation(plain, name="path_attended", serves=("path_attention",), shown=lambda q, *others: q)
attended.in_c(_in_c, name="native_path", rank=11)
attended.register(
    in_triton, name="triton_path", rank=54, device="cuda", takes=_takes, dtypes=(float32,), missing=cuda_module(_GPU)
)
