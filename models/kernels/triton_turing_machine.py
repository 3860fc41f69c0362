"""`turing_machine` through our own Triton kernel (models/kernels/triton/turing_machine.py): all tokens in one launch.

What it stands in for are ten launches a token with a kernel for its turn, and some two hundred without.
"""

from torch import Tensor, float32

from chomsky_ladder.models.kernels.kernel import Kernel, cuda_module, member, register
from chomsky_ladder.models.kernels.triton_turing import takes

_MODULE = f"{__package__}.triton.turing_machine"


def triton_turing_machine(
    gates_BLG: Tensor, weights: tuple[Tensor, Tensor, Tensor, Tensor], state: tuple[Tensor, ...], *, shifts: int
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """`turing_machine` in fp32 through our own Triton kernel, which stacks."""
    return member(_MODULE, "triton_turing_machine")(gates_BLG, weights, state, shifts=shifts)


register(
    Kernel(
        name="triton_turing_machine",
        computes="turing_machine",
        reference="chomsky_ladder.models.scans.turing_memory.turing_machine",
        call=triton_turing_machine,
        serves=("ntm",),
        dtypes=(float32,),
        stacks=True,
        takes=takes,
        missing=cuda_module(_MODULE),
        rank=52,
    )
)
