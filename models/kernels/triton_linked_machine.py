"""`linked_machine` through our own Triton kernel (models/kernels/triton/linked_machine.py): all tokens in one launch.

What it stands in for are ten launches a token with a kernel for its turn, and some four hundred without.
"""

from torch import Tensor, float32

from chomsky_ladder.models.kernels.kernel import Kernel, cuda_module, member, register
from chomsky_ladder.models.kernels.triton_linked import takes

_MODULE = f"{__package__}.triton.linked_machine"


def triton_linked_machine(
    gates_BLG: Tensor, weights: tuple[Tensor, Tensor, Tensor, Tensor], state: tuple[Tensor, ...]
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """`linked_machine` in fp32 through our own Triton kernel, which stacks."""
    return member(_MODULE, "triton_linked_machine")(gates_BLG, weights, state)


register(
    Kernel(
        name="triton_linked_machine",
        computes="linked_machine",
        reference="chomsky_ladder.models.scans.linked_memory.linked_machine",
        call=triton_linked_machine,
        serves=("dnc",),
        dtypes=(float32,),
        stacks=True,
        takes=takes,
        missing=cuda_module(_MODULE),
        rank=53,
    )
)
