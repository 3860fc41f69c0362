"""Linear attention that writes into slots as two Triton kernels: `decayed_slots` of reference.py.

    y_t = q_t S_t        S_t = S_{t-1} diag(w_t) + k_t s_t^T

Columns of S have nothing to do with one another, so a program walks through time for one head of one row and one tile
of slots, its state [K, tile] in registers. The forward pass writes the state before every chunk of `CHUNK` tokens; the
backward pass goes from the last token to the first, finds a few states at a time again from the one that starts their
chunk, and takes the gradients off them, where G is that of S_t with q_t^T dy_t added:

    dq_t = S_t dy_t        dk_t = G s_t        ds_t = k_t G        dw_t = sum_k G S_{t-1}
    dL/dS_{t-1} = G diag(w_t)

Nothing is divided, so that decays of 0 are as exact as others. Sums over tiles of slots are added outside, so the
result does not depend on the order in which programs run. Tokens behind the end count as q = k = s = 0 and w = 1, which
leave S and G as they are. Inputs may lie in memory as they do where heads are a part of a product: what is next to one
another must be a head's channels alone.
"""

import torch
import triton
from torch import Tensor

from chomsky_ladder.models.operations.in_c import Sizes
from chomsky_ladder.models.operations.in_triton import Plan, Programs
from chomsky_ladder.models.operations.slots.gpu_programs import backward_kernel, forward_kernel

CHUNK = 16  # tokens from one state that is kept to the next
READ = 4  # tokens that are read at a time there
PER_PROGRAM = 1024  # elements of a state, for one warp: sums over keys and over slots then wait for no other
HELD = 2048  # elements of the states that one warp holds going back

DTYPES = (torch.float32, torch.bfloat16)


def triton_slots(
    q_BHLK: Tensor, k_BHLK: Tensor, s_BHLM: Tensor, decay_BHLM: Tensor, state_BHKM: Tensor
) -> tuple[Tensor, Tensor]:
    """Triton version of `decayed_slots`, in fp32; all but the state may be of 16 bits."""
    given = (q_BHLK, k_BHLK, s_BHLM, decay_BHLM)
    assert all(x.dtype in DTYPES for x in given), "the kernel takes fp32 and bf16 alone"
    assert state_BHKM.dtype == torch.float32, "the state is in fp32"
    y_BHLM, last_BHKM = _PROGRAMS(*given, state_BHKM)
    return y_BHLM, last_BHKM


def plan(sizes: Sizes) -> Plan:
    """A tile is all slots of a head where a warp holds them: then no gradient is a sum over tiles."""
    padded = triton.next_power_of_2(sizes["K"])
    tile = max(1, min(PER_PROGRAM // padded, triton.next_power_of_2(sizes["M"])))
    tiles, held = triton.cdiv(sizes["M"], tile), max(1, min(READ, HELD // (padded * tile)))
    chunks = triton.cdiv(sizes["L"], CHUNK) if sizes["KEEP"] else 0
    return Plan(
        sizes["R"] * sizes["B"] * sizes["H"] * tiles,
        warps=1,
        constants={"KEYS": padded, "TILE": tile, "CHUNK": CHUNK, "READ": READ, "HELD": held},
        sizes={"T": tiles, "N": chunks},
    )


_PROGRAMS = Programs(
    "slots",
    (forward_kernel, backward_kernel),
    inputs="q k: B H L K, s decay: B H L M, first: B H K M",
    outputs="y: B H L M, last: B H K M",
    kept="starts: B H N K M",
    parts="d_q d_k: T R B H L K",
    plan=plan,
)
