"""TTT-Linear's weights, which descend on what they make of a key, in mini-batches: z_t = q_t M_t.

    z_BHLK = fast_weights_from(ctx, q_BHLK, k_BHLK, v_BHLK, rate_BHL, place_rate_C, norm, M_BHXK)

Measured in C for B = 64, H = 4, L = 40, forward and backward on one thread: 4.2 ms where K = 16 and the plain form
takes 19; 23 ms where K = 64 and it takes 107. In Triton one kernel takes the place of dozens a mini-batch.
"""

from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.operations.fast_weights.reference import Norm
from chomsky_ladder.models.operations.fast_weights.reference import fast_weights_from as plain
from chomsky_ladder.models.operations.in_c import Loops, Sizes, whole_vectors
from chomsky_ladder.models.operations.operation import Operation

LEAST = 16  # tokens or keys in a product in Triton: filled up to a power of two
MOST = 1024  # of both together, as in 16 tokens of 64 keys; of more, registers would spill


def _derived(sizes: Sizes) -> Sizes:
    """Rows of a replica, and for a backward pass the weights before each mini-batch, in rows of whole vectors."""
    starts = sizes["keeps"] * -(-sizes["L"] // sizes["C"])
    return {"rows": sizes["B"] // sizes["R"], "N": starts, "W": whole_vectors(sizes, "K")}


_LOOPS = Loops(
    "fast_weights",
    "q k v z: B H L K, rate: B H L, place_rate: R C, scale shift: R H K, M: B H X K, starts: B H N X W",
    forward="q k v rate place_rate scale shift M -> z starts",
    backward="q k v rate place_rate scale shift starts d_z -> d_q d_k d_v d_rate +d_place_rate +d_scale +d_shift d_M",
    sizes="R rows H L K C",
    derived=_derived,
)


def _in_c(
    q_BHLK: Tensor, k_BHLK: Tensor, v_BHLK: Tensor, rate_BHL: Tensor, place_rate_C: Tensor, norm: Norm, M_BHXK: Tensor
) -> Tensor:
    """C version of `fast_weights_from`. Each replica has place rates, a scale and a shift of its own."""
    of_replicas = (x[None] for x in (place_rate_C, norm.scale_H1K.squeeze(1), norm.shift_H1K.squeeze(1)))
    given = (x.to(M_BHXK.dtype) for x in (q_BHLK, k_BHLK, v_BHLK, rate_BHL, *of_replicas, M_BHXK))
    return _LOOPS(*given)[0]


def _shown(
    q_BHLK: Tensor, k_BHLK: Tensor, v_BHLK: Tensor, rate_BHL: Tensor, place_rate_C: Tensor, norm: Norm, M_BHXK: Tensor
) -> Tensor:
    """The weights as the tokens of a mini-batch see them, [B, H, C, K + 1, K]."""
    return M_BHXK[:, :, None].expand(-1, -1, len(place_rate_C), -1, -1)


def _takes(M_BHCXK: Tensor, ctx: Context) -> bool:
    return _filled_up(M_BHCXK.shape[2]) * _filled_up(M_BHCXK.shape[4]) <= MOST


def _filled_up(size: int) -> int:
    return max(LEAST, 1 << (size - 1).bit_length())


fast_weights_from = Operation(plain, serves=("ttt_linear",), shown=_shown)
fast_weights_from.in_c(_in_c, name="native_fast_weights", rank=10)
fast_weights_from.in_triton(f"{__name__}.gpu", name="triton_fast_weights", rank=49, takes=_takes)
