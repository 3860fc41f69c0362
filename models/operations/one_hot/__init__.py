"""PD-SSM's recurrence, h_t = d_t P_t h_{t-1} + b_t, where a map P_t has a single 1 in each row or each column.

    h_BLN2 = one_hot(ctx, share_BLK, maps_KNN, d_BLN2, b_BLN2, h_BN2, form)

In C one row of sixteen tokens' maps is made at a time, read for its largest or its softmax, and made again in the
backward pass. Measured for B = 64, L = 40, N = 64, K = 8, forward and backward on one thread: 14 ms, where products and
a softmax of a few tokens' maps take 55. The plain form writes and reads every token's map, on a GPU four fifths of a
step's traffic; in Triton states are one kernel more each way in place of log2(L) rounds.
"""

from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.operations.in_c import Loops
from chomsky_ladder.models.operations.one_hot.reference import Form, one_hot_loop, one_hot_scan
from chomsky_ladder.models.operations.operation import Operation

LARGEST = 256  # places in Triton; of more a comparison of all with all does not stay in a program's registers

_LOOPS = Loops(
    "one_hot",
    "share: R B L K, maps: R K N N, d b h: R B L N 2, first: R B N 2, place: R B L N",
    forward="share maps d b first -> h place",
    backward="share maps d first h place d_h -> d_share d_maps d_d d_b d_first",
    sizes="R B L N K gathers",
    settings="gathers",
    integers="place",
)


def _in_c(share_BLK: Tensor, maps_KNN: Tensor, d_BLN2: Tensor, b_BLN2: Tensor, h_BN2: Tensor, form: Form) -> Tensor:
    """C version of `one_hot_loop`. Each replica has maps of its own."""
    return _LOOPS(*(x[None] for x in (share_BLK, maps_KNN, d_BLN2, b_BLN2, h_BN2)), int(form == "gather"))[0].squeeze(0)


def _takes(d_BLN2: Tensor, ctx: Context) -> bool:
    return d_BLN2.shape[-2] <= LARGEST


one_hot = Operation(one_hot_loop, fused=one_hot_scan, serves=("pd_ssm",), shown=lambda share, maps, d, b, h, form: d)
one_hot.in_c(_in_c, name="native_one_hot", rank=26)
one_hot.in_triton(f"{__name__}.gpu", name="triton_one_hot", rank=38, takes=_takes)
