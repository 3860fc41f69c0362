"""`linked_turn` through our own Triton kernel (models/kernels/triton/linked.py), for memories of up to 64 rows
of 32 numbers.

What it stands in for are some hundred kernels a turn, and as many on the way back.
"""

from torch import Tensor, float32

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.kernel import Kernel, cuda_module, member, register

ROWS, WIDTH = 64, 32  # of which links and memory stay in registers

_MODULE = f"{__package__}.triton.linked"


def triton_linked(asked_BX: Tensor, memory_BWN: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
    """`linked_turn` in fp32 through our own Triton kernel, which stacks."""
    return member(_MODULE, "triton_linked")(asked_BX, memory_BWN, *others)


def takes(memory_BWN: Tensor, ctx: Context) -> bool:
    return memory_BWN.shape[-1] <= ROWS and memory_BWN.shape[-2] <= WIDTH


register(
    Kernel(
        name="triton_linked",
        computes="linked_turn",
        reference="chomsky_ladder.models.scans.linked_memory.linked_turn",
        call=triton_linked,
        serves=("dnc",),
        dtypes=(float32,),
        stacks=True,
        takes=takes,
        missing=cuda_module(_MODULE),
        rank=51,
    )
)
