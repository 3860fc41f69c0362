"""The scores of PaTH as two Triton kernels: `attended` of reference.py as far as its softmax.

    k_s^t = k_s^{t-1} - b_t w_t (w_t . k_s^{t-1})   for s < t        k_t^t = k_t        score_ts = q_t . k_s^t

Keys have nothing to do with one another, so a program turns one tile of keys [tile, K] of one head of one row in
registers, token after token from the tile's first on. The forward pass keeps how far keys lay along w, c_s =
w_t . k_s^{t-1}, and the keys after every `SPAN` tokens; the backward pass turns them back by it, k_s^{t-1} =
k_s^t + b_t c_s w_t, and takes the gradients off them. G is that of the keys after t, and c_s and g_s = G_s . w_t are 0
unless s < t:

    dq_t = sum_s d_ts k_s^t        G_s <- G_s + d_ts q_t        db_t = - sum_s g_s c_s
    dw_t = -b_t sum_s (g_s k_s^{t-1} + c_s G_s)        G_s <- G_s - b_t g_s w_t

Sums over tiles of keys are added outside, so the result does not depend on the order in which programs run.
"""

import torch
import triton
from torch import Tensor

from chomsky_ladder.models.operations.in_c import Sizes
from chomsky_ladder.models.operations.in_triton import Plan, Programs
from chomsky_ladder.models.operations.path.gpu_programs import backward_kernel, forward_kernel

TILE = 16  # keys of a program
CHUNK = 2  # tokens that are read at once: of four, going back, not all fits into registers
SPAN = 64  # tokens over which keys are turned back
PER_WARP = 256  # elements of a tile; so few, as what lies along keys or channels alone is held many times


def turned_scores(q_BHLK: Tensor, k_BHLK: Tensor, w_BHLK: Tensor, beta_BHL: Tensor) -> Tensor:
    """Scores [B, H, L, L] in fp32, -inf ahead."""
    given = (q_BHLK, k_BHLK, w_BHLK, beta_BHL)
    assert all(x.dtype == torch.float32 for x in given), "the kernel takes fp32 alone"
    return _PROGRAMS(*given)[0]


def plan(sizes: Sizes) -> Plan:
    """P are the positions that are kept, X the ends of spans, of TILE keys each."""
    padded, tiles = triton.next_power_of_2(sizes["K"]), triton.cdiv(sizes["L"], TILE)
    kept = sizes["L"] if sizes["KEEP"] else 0
    return Plan(
        sizes["R"] * sizes["B"] * sizes["H"] * tiles,
        warps=max(1, TILE * padded // PER_WARP),
        constants={"KEYS": padded, "TILE": TILE, "CHUNK": CHUNK, "SPAN": SPAN},
        sizes={"T": tiles, "S": sizes["L"], "P": kept, "X": triton.cdiv(kept, SPAN)},
    )


_PROGRAMS = Programs(
    "path",
    (forward_kernel, backward_kernel),
    inputs="q k w: B H L K, b: B H L",
    outputs="scores: B H S S",
    kept="along: B H P P, ends: B H T X TILE K",
    parts="d_q d_w: T R B H L K, d_b: T R B H L",
    plan=plan,
)
