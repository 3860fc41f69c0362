"""`decayed_slots` (models/scans/slots.py) on a CPU in C: a state's rows are vectors of slots, whose decays are one.

Measured for B = 64, H = 4, L = 40, K = M = 16, forward and backward on one thread: 2.9 ms, where chunks take 24;
K = M = 64 takes 33 for 106.
"""

from torch import Tensor

from chomsky_ladder.models.kernels.kernel import Kernel, register
from chomsky_ladder.models.kernels.native import REAL, missing, untraced
from chomsky_ladder.models.kernels.native_states import OverStates


def native_slots(
    q_BHLK: Tensor, k_BHLK: Tensor, s_BHLM: Tensor, decay_BHLM: Tensor, state_BHKM: Tensor
) -> tuple[Tensor, Tensor]:
    """As `decayed_slots`; it stacks under vmap."""
    given = (x.to(state_BHKM.dtype).transpose(1, 2) for x in (q_BHLK, k_BHLK, s_BHLM, decay_BHLM))
    y_BLHM, last_BHKM = OverStates.apply("slots", *given, state_BHKM)
    return y_BLHM.transpose(1, 2), last_BHKM


register(
    Kernel(
        name="native_slots",
        computes="decayed_slots",
        reference="chomsky_ladder.models.scans.slots.decayed_slots",
        call=native_slots,
        serves=("gated_slot_attention",),
        device="cpu",
        dtypes=tuple(REAL),
        stacks=True,
        takes=untraced,
        missing=missing,
        rank=13,
    )
)
