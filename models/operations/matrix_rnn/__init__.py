"""M2RNN's recurrence: z_t = tanh(h_{t-1} W + k_t v_t^T), h_t = f_t h_{t-1} + (1 - f_t) z_t, y_t = q_t h_t.

    y_BLHV, last_BHKV = matrix_rnn(ctx, q_BLHK, k_BLHK, v_BLHV, f_BLH, W_HVV, h_BHKV)

Measured in C for B = 64, H = 4, L = 40, forward and backward on one thread: 8 ms where K = V = 16 and the plain form
takes 24; 294 ms where K = V = 64 and it takes 564. On a GPU the plain form is 2,414 kernels a step at 40 positions.
"""

from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.operations.in_c import Loops, Sizes, whole_vectors
from chomsky_ladder.models.operations.matrix_rnn.reference import matrix_rnn_loop, matrix_rnn_scan
from chomsky_ladder.models.operations.operation import Operation

LARGEST = 32  # keys or values of a head in Triton; of 64 registers spill


def _kept(sizes: Sizes) -> Sizes:
    """All z are kept for a backward pass, in rows of whole vectors."""
    return {"T": sizes["keeps"] * sizes["L"], "W": whole_vectors(sizes, "V")}


_LOOPS = Loops(
    "matrix_rnn",
    "q k: B L H K, v y: B L H V, f: B L H, W: H V V, first last: B H K V, z: B H T K W",
    forward="q k v f W first -> y last z",
    backward="q k v f W first z d_y -> d_q d_k d_v d_f d_W d_first=d_last",
    sizes="B L H K V",
    derived=_kept,
    fold="H",
)


def _in_c(
    q_BLHK: Tensor, k_BLHK: Tensor, v_BLHV: Tensor, f_BLH: Tensor, W_HVV: Tensor, h_BHKV: Tensor
) -> tuple[Tensor, Tensor]:
    """C version of `matrix_rnn_scan`."""
    y_BLHV, last_BHKV = _LOOPS(*(x.to(h_BHKV.dtype) for x in (q_BLHK, k_BLHK, v_BLHV, f_BLH, W_HVV, h_BHKV)))
    return y_BLHV, last_BHKV


def _takes(h_BHKV: Tensor, ctx: Context) -> bool:
    return max(h_BHKV.shape[-2:]) <= LARGEST


matrix_rnn = Operation(
    matrix_rnn_loop,
    name="matrix_rnn_scan",
    fused=matrix_rnn_scan,
    serves=("m2rnn",),
    shown=lambda q, k, v, f, W, h: h,
)
matrix_rnn.in_c(_in_c, name="native_matrix_rnn", rank=14)
matrix_rnn.in_triton(f"{__name__}.gpu", name="triton_matrix_rnn", rank=40, takes=_takes)
