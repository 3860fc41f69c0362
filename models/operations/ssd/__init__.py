"""State space duality (Mamba-2, Mamba-3): a recurrence whose decay is one number a head and position, in chunks.

    y_BLHRK, h_BHNK = ssd_chunks(ctx, u_BLHRK, log_a_BLH, B_BLHRN, C_BLHRN, h_BHNK, weight_BLH=w_BLH, skip_H=D_H)

In C a chunk's matrix and the states of its heads stay in the cache. Measured on one thread for states of 64 x 64, both
ways in brackets, beside products by torch around a matrix in C: 16 strings of 256 in four heads that share B and C take
5 ms (22) for 16 (51), 64 of 40 in two .9 (3.8) for 1.2 (5.7).
"""

from torch import Tensor

from chomsky_ladder.models.operations.in_c import Loops, Sizes, whole_vectors
from chomsky_ladder.models.operations.operation import Operation
from chomsky_ladder.models.operations.ssd.reference import positions_of_a_chunk
from chomsky_ladder.models.operations.ssd.reference import ssd_chunks as plain


def _derived(sizes: Sizes) -> Sizes:
    """For a backward pass the states that chunks start from are kept, unless the only one starts from zeros."""
    size = positions_of_a_chunk(sizes["L"], sizes["P"])
    chunks = -(-sizes["L"] // size)
    kept = sizes["keeps"] and not (chunks == 1 and sizes["X"] == 0)
    return {"rows": sizes["B"] // sizes["R"], "chunk": size, "T": chunks * bool(kept), "W": whole_vectors(sizes, "K")}


_LOOPS = Loops(
    "ssd",
    "u y: B L H P K, log_a weight own: B L H, B C: B L G P N, h last: B X N K, skip: R H, starts: B T H N W",
    forward="u log_a B C h weight own skip -> y last starts",
    backward="u log_a B C h weight own skip starts d_y -> d_u d_log_a d_B d_C d_h=d_last d_weight d_own +d_skip",
    sizes="R rows L H G P N K chunk row_u row_B row_C",
    derived=_derived,
    rows={"u": 3, "B": 3, "C": 3},
)


def _in_c(
    u_BLHRK: Tensor,
    log_a_BLH: Tensor,
    B_BLGRN: Tensor,
    C_BLGRN: Tensor,
    h_BHNK: Tensor | None,
    *,
    weight_BLH: Tensor,
    own_BLH: Tensor | None = None,
    skip_H: Tensor,
) -> tuple[Tensor, Tensor | None]:
    """C version of `ssd_chunks` with weights and skips, of which each replica has its own; ranks are P."""
    from_none = u_BLHRK.new_empty(len(u_BLHRK), 0, B_BLGRN.shape[-1], u_BLHRK.shape[-1])  # of no heads
    h_BXNK = from_none if h_BHNK is None else h_BHNK
    given = (u_BLHRK, log_a_BLH, B_BLGRN, C_BLGRN, h_BXNK, weight_BLH, weight_BLH if own_BLH is None else own_BLH)
    y_BLHRK, last_BHNK = _LOOPS(*(x.to(u_BLHRK.dtype) for x in (*given, skip_H[None])))
    return y_BLHRK, None if h_BHNK is None else last_BHNK


def _shown(u_BLHRK: Tensor, *given: Tensor | None, **named: Tensor | None) -> Tensor:
    return u_BLHRK


ssd_chunks = Operation(plain, serves=(), shown=_shown)
ssd_chunks.in_c(_in_c, name="native_ssd", rank=27)
